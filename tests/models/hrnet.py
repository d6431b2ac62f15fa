"""HRNet-W18: up to four branches of different resolution side by side, which exchange their results again and again."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from tests.models.layers import Built, Conv, Head, on_meta
from tests.models.residual import Residual, bottleneck


def _basic(width: int) -> Residual:
    return Residual(nn.Sequential(Conv(width, width, 3), Conv(width, width, 3, relu=False)))


def _exchange(source: int, target: int, widths: Sequence[int]) -> nn.Module:
    """Bring branch `source` to the resolution and width of branch `target`."""
    if source == target:
        return nn.Identity()
    if source > target:
        factor = 2 ** (source - target)
        return nn.Sequential(Conv(widths[source], widths[target], relu=False), nn.Upsample(scale_factor=factor, mode="nearest"))
    steps = [Conv(widths[source], widths[source], 3, 2) for _ in range(target - source - 1)]
    return nn.Sequential(*steps, Conv(widths[source], widths[target], 3, 2, relu=False))


class _Module(nn.Module):
    """Four blocks in each branch, then every branch gets the sum of all of them."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        count = range(len(widths))
        self.branches = nn.ModuleList(nn.Sequential(*(_basic(width) for _ in range(4))) for width in widths)
        self.fuse = nn.ModuleList(nn.ModuleList(_exchange(source, target, widths) for source in count) for target in count)

    def forward(self, xs: list[Tensor]) -> list[Tensor]:
        xs = [branch(x) for branch, x in zip(self.branches, xs, strict=True)]
        fused = []
        for row in self.fuse:
            parts = [bring(x) for bring, x in zip(row, xs, strict=True)]
            total = parts[0]
            for part in parts[1:]:
                total = total + part
            fused.append(functional.relu(total))
        return fused


class _HrNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        widths = [width << number for number in range(4)]
        self.stem = nn.Sequential(Conv(3, 64, 3, 2), Conv(64, 64, 3, 2), bottleneck(64, 64))
        self.stem.extend(bottleneck(256, 64) for _ in range(3))
        self.first = nn.ModuleList([Conv(256, widths[0], 3), Conv(256, widths[1], 3, 2)])
        self.stages = nn.ModuleList(
            nn.ModuleList(_Module(widths[:branches]) for _ in range(repeats)) for branches, repeats in ((2, 1), (3, 4), (4, 3))
        )
        self.added = nn.ModuleList(Conv(widths[branch - 1], widths[branch], 3, 2) for branch in (2, 3))
        self.widen = nn.ModuleList(bottleneck(wide, 32 << number) for number, wide in enumerate(widths))
        self.down = nn.ModuleList(
            nn.Sequential(nn.Conv2d(128 << n, 256 << n, 3, 2, 1), nn.BatchNorm2d(256 << n), nn.ReLU()) for n in range(3)
        )
        self.head = nn.Sequential(nn.Conv2d(1024, 2048, 1), nn.BatchNorm2d(2048), nn.ReLU(), Head(2048))

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        xs = [bring(x) for bring in self.first]
        for number, stage in enumerate(self.stages):
            if number:
                xs = [*xs, self.added[number - 1](xs[-1])]
            for module in stage:
                xs = module(xs)
        wide = [block(x) for block, x in zip(self.widen, xs, strict=True)]
        total: Tensor = wide[0]
        for down, part in zip(self.down, wide[1:], strict=True):
            total = part + down(total)
        return self.head(total)


def hrnet_w18(batch: int = 1) -> Built:
    """Return HRNet-W18 for classification (Wang et al., 2019; 21,299,004 parameters) on 224 x 224 images."""
    return on_meta(lambda: _HrNet(18), 224, batch)
