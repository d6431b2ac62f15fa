"""Reproducible weights and inputs."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def values(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu", seed: int = 0) -> Tensor:
    """Return normal values scaled by the square root of the next-to-last size; on the meta device, a tensor without storage."""
    if device == "meta":
        return torch.empty(shape, dtype=dtype, device=device)
    generator = torch.Generator().manual_seed(seed)
    fan_in = shape[-2] if len(shape) > 1 else 1
    return (torch.randn(shape, generator=generator) / math.sqrt(fan_in)).to(dtype)


def frozen(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu", seed: int = 0) -> nn.Parameter:
    """Return such values as a parameter that needs no gradient."""
    return nn.Parameter(values(*shape, dtype=dtype, device=device, seed=seed), requires_grad=False)
