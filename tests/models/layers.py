"""What the image classifiers of the zoo share: convolution with its normalisation, and how a model is put on the meta device."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

#: Half precision is what an NPU runs image models in.
DTYPE = torch.float16

Built = tuple[nn.Module, tuple[Tensor, ...]]


class Conv(nn.Sequential):
    """Convolution without bias, batch normalisation, and a ReLU unless told otherwise; `kernel` may be (height, width).

    `padding` defaults to what keeps the size at stride 1.
    """

    def __init__(
        self,
        inner: int,
        outer: int,
        kernel: int | tuple[int, int] = 1,
        stride: int = 1,
        *,
        padding: int | None = None,
        relu: bool = True,
    ) -> None:
        height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        pads = (height // 2, width // 2) if padding is None else (padding, padding)
        layers: list[nn.Module] = [nn.Conv2d(inner, outer, (height, width), stride, pads, bias=False), nn.BatchNorm2d(outer)]
        super().__init__(*layers, *([nn.ReLU()] if relu else []))


class Head(nn.Sequential):
    """Mean over the image, then the 1,000 classes of ImageNet."""

    def __init__(self, channels: int) -> None:
        super().__init__(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


class Branches(nn.Module):
    """The same input through every branch, the results side by side."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def on_meta(build: Callable[[], nn.Module], size: int, batch: int) -> Built:
    """Return the model in half precision for inference, without storage, and one batch of square images."""
    with torch.device("meta"):
        model = build().eval().to(DTYPE)
        return model, (torch.empty(batch, 3, size, size, dtype=DTYPE),)
