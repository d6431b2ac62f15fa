"""NASNet-A (6 @ 4032): cells found by search, each reading the two cells before it. The hardest of the zoo to schedule."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.models.layers import Built, Head, on_meta


class _Separable(nn.Sequential):
    """ReLU, depthwise and pointwise convolution, normalisation; all of it twice, the stride in the first half."""

    def __init__(self, inner: int, outer: int, kernel: int, stride: int = 1, *, middle: int | None = None) -> None:
        middle = middle or inner
        super().__init__(
            nn.ReLU(),
            nn.Conv2d(inner, inner, kernel, stride, kernel // 2, groups=inner, bias=False),
            nn.Conv2d(inner, middle, 1, bias=False),
            nn.BatchNorm2d(middle),
            nn.ReLU(),
            nn.Conv2d(middle, middle, kernel, 1, kernel // 2, groups=middle, bias=False),
            nn.Conv2d(middle, outer, 1, bias=False),
            nn.BatchNorm2d(outer),
        )


def _squeeze(inner: int, outer: int) -> nn.Module:
    return nn.Sequential(nn.ReLU(), nn.Conv2d(inner, outer, 1, bias=False), nn.BatchNorm2d(outer))


class _Halve(nn.Module):
    """Halve the image by two paths, one shifted by a pixel, so that no column is lost."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.even = nn.Conv2d(inner, outer, 1, bias=False)
        self.odd = nn.Conv2d(inner, outer, 1, bias=False)
        self.norm = nn.BatchNorm2d(2 * outer)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(x)
        shifted = functional.pad(x, (-1, 1, -1, 1))
        halves = [conv(functional.avg_pool2d(part, 1, 2)) for conv, part in ((self.even, x), (self.odd, shifted))]
        return self.norm(torch.cat(halves, dim=1))


def _mean(x: Tensor, stride: int = 1) -> Tensor:
    return functional.avg_pool2d(x, 3, stride, 1, count_include_pad=False)


def _largest(x: Tensor) -> Tensor:
    return functional.max_pool2d(x, 3, 2, 1)


class _Normal(nn.Module):
    """A normal cell; `left` brings the output of the cell before the previous one to this cell's size."""

    def __init__(self, left: nn.Module, inner: int, width: int) -> None:
        super().__init__()
        self.left, self.right = left, _squeeze(inner, width)
        self.five = nn.ModuleList(_Separable(width, width, 5) for _ in range(2))
        self.three = nn.ModuleList(_Separable(width, width, 3) for _ in range(3))

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        left, right = self.left(before), self.right(x)
        parts = [
            left,
            self.five[0](right) + self.three[0](left),
            self.five[1](left) + self.three[1](left),
            _mean(right) + left,
            _mean(left) + _mean(left),
            self.three[2](right) + right,
        ]
        return torch.cat(parts, dim=1)


class _Reduce(nn.Module):
    """A cell that halves the image. `stem` is the number of channels of a `before` that is not squeezed first."""

    def __init__(self, left: nn.Module, right: nn.Module, width: int, *, stem: int | None = None) -> None:
        super().__init__()
        self.left, self.right = left, right
        inner, middle = stem or width, width
        self.five_right = _Separable(width, width, 5, 2)
        self.seven = nn.ModuleList(_Separable(inner, width, 7, 2, middle=middle) for _ in range(2))
        self.five = _Separable(inner, width, 5, 2, middle=middle)
        self.three = _Separable(width, width, 3)

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        left, right = self.left(before), self.right(x)
        first = self.five_right(right) + self.seven[0](left)
        second = _largest(right) + self.seven[1](left)
        third = _mean(right, 2) + self.five(left)
        return torch.cat([second, third, _mean(first) + second, self.three(first) + _largest(right)], dim=1)


class _NasNet(nn.Module):
    """Three groups of six normal cells, a reduction cell between them; `unit` is the width of the first group."""

    def __init__(self, unit: int = 168, stem: int = 96, repeats: int = 6) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(3, stem, 3, 2, bias=False), nn.BatchNorm2d(stem))
        quarter, half = unit // 4, unit // 2
        self.stem0 = _Reduce(nn.Identity(), _squeeze(stem, quarter), quarter, stem=stem)
        self.stem1 = _Reduce(_Halve(stem, quarter), _squeeze(unit, half), half)
        cells: list[nn.Module] = []
        before, inner = unit, 2 * unit
        for group in range(3):
            width = unit << group
            for number in range(repeats):
                left = _Halve(before, width // 2) if number == 0 else _squeeze(before, width)
                cells.append(_Normal(left, inner, width))
                before, inner = inner, 6 * width
            if group < 2:
                cells.append(_Reduce(_squeeze(before, 2 * width), _squeeze(inner, 2 * width), 2 * width))
                before, inner = inner, 8 * width
        self.cells = nn.ModuleList(cells)
        self.head = nn.Sequential(nn.ReLU(), Head(inner))

    def forward(self, image: Tensor) -> Tensor:
        conv = self.conv(image)
        before = self.stem0(conv, conv)
        x = self.stem1(before, conv)
        for cell in self.cells:
            x, before = cell(x, before), x
        return self.head(x)


def nasnet_large(batch: int = 1) -> Built:
    """Return NASNet-A large (Zoph et al., 2017; 88,753,150 parameters) on 331 x 331 images."""
    return on_meta(_NasNet, 331, batch)
