"""Sizes of the demo layer, checked once, and the weights made from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from autostream.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeShape:
    """Sizes of one mixture-of-experts decode layer on one card.

    Raises:
        InputError: a size is not a positive integer, or `top_k` exceeds the number of routed experts.
    """

    #: Tokens this card decodes in one step (B).
    batch: int = 64
    #: Width of the residual stream (H).
    hidden: int = 7168
    #: Inner width of one routed expert (I).
    intermediate: int = 2048
    #: Inner width of the shared expert (S).
    shared_intermediate: int = 2048
    #: Routed experts whose weights this card holds (L).
    local_experts: int = 16
    #: Cards of the expert-parallel group; 1 = all experts are local.
    ep_world_size: int = 16
    #: Routed experts per token (K).
    top_k: int = 8

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{item.name} must be a positive integer, not {value!r}")
        if self.top_k > self.experts:
            raise InputError(f"top_k = {self.top_k} exceeds the {self.experts} routed experts (local_experts x ep_world_size)")

    @property
    def experts(self) -> int:
        """Routed experts of the whole layer, over all cards (E = L x cards)."""
        return self.local_experts * self.ep_world_size


def weight(*shape: int, dtype: torch.dtype, device: torch.device) -> nn.Parameter:
    """Return a frozen parameter: without storage on the meta device, else reproducible values of unit output variance."""
    if device.type == "meta":
        return nn.Parameter(torch.empty(shape, dtype=dtype, device=device), requires_grad=False)
    # The seed depends on the shape alone, so a layer has the same weights in every process.
    generator = torch.Generator().manual_seed(math.prod(shape))
    if dtype.is_floating_point:
        fan_in = shape[-2] if len(shape) > 1 else 1
        values = torch.randn(shape, generator=generator) * fan_in**-0.5
    else:
        values = torch.randint(-127, 128, shape, generator=generator)
    return nn.Parameter(values.to(device=device, dtype=dtype), requires_grad=False)


def tokens(shape: MoeShape, device: torch.device) -> Tensor:
    """Return the layer's input: the residual stream after attention, (B, H) bfloat16."""
    if device.type == "meta":
        return torch.empty(shape.batch, shape.hidden, dtype=torch.bfloat16, device=device)
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape.batch, shape.hidden, generator=generator).to(device=device, dtype=torch.bfloat16)
