"""ResNet-50 and DenseNet-121: image classifiers whose operators wait for each other, the negative controls of the zoo."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.models.layers import Built, Conv, Head, on_meta


class Residual(nn.Module):
    """relu(body(x) + skip(x))."""

    def __init__(self, body: nn.Module, skip: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.skip = body, skip or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.skip(x))


def bottleneck(inner: int, width: int, stride: int = 1) -> Residual:
    """The block of ResNet-50: 1 x 1, 3 x 3, 1 x 1 to four times the width."""
    outer = 4 * width
    body = nn.Sequential(Conv(inner, width), Conv(width, width, 3, stride), Conv(width, outer, relu=False))
    return Residual(body, Conv(inner, outer, 1, stride, relu=False) if inner != outer or stride > 1 else None)


def resnet50(batch: int = 1) -> Built:
    """Return ResNet-50 (He et al., 2015; 25,557,032 parameters) on 224 x 224 images: nothing to overlap but four shortcuts."""

    def build() -> nn.Module:
        blocks: list[nn.Module] = []
        inner = 64
        for number, repeats in enumerate((3, 4, 6, 3)):
            for block in range(repeats):
                blocks.append(bottleneck(inner, 64 << number, 2 if number and not block else 1))
                inner = 256 << number
        return nn.Sequential(Conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1), *blocks, Head(2048))

    return on_meta(build, 224, batch)


class _Dense(nn.Module):
    def __init__(self, inner: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Conv2d(inner, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.body(x)], dim=1)


def densenet121(batch: int = 1) -> Built:
    """Return DenseNet-121 (Huang et al., 2016; 7,978,856 parameters) on 224 x 224 images: one long chain."""

    def build() -> nn.Module:
        stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        blocks: list[nn.Module] = []
        width = 64
        for number, repeats in enumerate((6, 12, 24, 16)):
            if number:
                narrow = nn.Conv2d(width, width // 2, 1, bias=False)
                blocks += [nn.BatchNorm2d(width), nn.ReLU(), narrow, nn.AvgPool2d(2, 2)]
                width //= 2
            blocks += [_Dense(width + 32 * layer, 32) for layer in range(repeats)]
            width += 32 * repeats
        return nn.Sequential(*stem, *blocks, nn.BatchNorm2d(width), nn.ReLU(), Head(width))

    return on_meta(build, 224, batch)
