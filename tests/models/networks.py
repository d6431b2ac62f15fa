"""Slices of whole networks: a convolutional block, a decoder layer, and stacks for tests of scale."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from autostream.demo import moe_decode_layer
from tests.models.values import frozen, values


class _Inception(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        half, quarter = channels // 2, channels // 4
        self.one = frozen(quarter, channels, 1, 1, seed=1)
        self.three_reduce = frozen(quarter, channels, 1, 1, seed=2)
        self.three = frozen(half, quarter, 3, 3, seed=3)
        self.five_reduce = frozen(quarter, channels, 1, 1, seed=4)
        self.five = frozen(quarter, quarter, 5, 5, seed=5)
        self.pool = frozen(quarter, channels, 1, 1, seed=6)

    def forward(self, x: Tensor) -> Tensor:
        one = _conv(x, self.one)
        three = _conv(_conv(x, self.three_reduce), self.three, padding=1)
        five = _conv(_conv(x, self.five_reduce), self.five, padding=2)
        pool = _conv(functional.max_pool2d(x, 3, stride=1, padding=1), self.pool)
        return torch.cat([one, three, five, pool], dim=1)


def _conv(x: Tensor, kernel: Tensor, padding: int = 0) -> Tensor:
    return functional.relu(functional.conv2d(x, kernel, padding=padding))


def cnn_branches(channels: int = 32, size: int = 14) -> tuple[nn.Module, tuple[Tensor]]:
    """Return an Inception-style block of four branches (1x1; 1x1, 3x3; 1x1, 5x5; pool, 1x1) on (1, channels, size, size)."""
    return _Inception(channels), (values(1, channels, size, size),)


class _LlamaLayer(nn.Module):
    def __init__(self, hidden: int, heads: int, inner: int, context: int) -> None:
        super().__init__()
        self.heads, self.width = heads, hidden // heads
        self.norm1, self.norm2 = frozen(hidden, seed=1), frozen(hidden, seed=2)
        self.query, self.key, self.value, self.out = (frozen(hidden, hidden, seed=3 + i) for i in range(4))
        self.gate, self.up, self.down = (
            frozen(hidden, inner, seed=7),
            frozen(hidden, inner, seed=8),
            frozen(inner, hidden, seed=9),
        )
        self.past_keys, self.past_values = (frozen(1, heads, context, self.width, seed=10 + i) for i in range(2))

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        hidden = hidden + self._attention(self._norm(hidden, self.norm1), cos, sin)
        normed = self._norm(hidden, self.norm2)
        return hidden + torch.mm(functional.silu(torch.mm(normed, self.gate)) * torch.mm(normed, self.up), self.down)

    def _norm(self, x: Tensor, gamma: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6) * gamma

    def _attention(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        query = self._rotate(self._split(torch.mm(x, self.query)), cos, sin)
        keys = torch.cat([self.past_keys, self._rotate(self._split(torch.mm(x, self.key)), cos, sin)], dim=2)
        cached = torch.cat([self.past_values, self._split(torch.mm(x, self.value))], dim=2)
        weights = torch.softmax(torch.matmul(query, keys.transpose(2, 3)) * self.width**-0.5, dim=-1)
        merged = torch.matmul(weights, cached).transpose(1, 2).reshape(x.shape)
        return torch.mm(merged, self.out)

    def _split(self, x: Tensor) -> Tensor:
        return x.view(1, -1, self.heads, self.width).transpose(1, 2)

    def _rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-second, first], dim=-1) * sin


def llama_layer(
    hidden: int = 256, heads: int = 4, inner: int = 512, tokens: int = 8, context: int = 16
) -> tuple[nn.Module, tuple[Tensor, Tensor, Tensor]]:
    """Return a small Llama decoder layer in ATen operators: attention over `context` cached tokens, then a gated MLP.

    Inputs: the residual stream (tokens, hidden), and the rotary cosines and sines (tokens, hidden / heads).
    """
    angles = torch.outer(torch.arange(tokens).float(), torch.logspace(0, -4, hidden // heads))
    return _LlamaLayer(hidden, heads, inner, context), (values(tokens, hidden), angles.cos(), angles.sin())


def many_layers(n: int, *, npu: bool = False, **sizes: Any) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return n demo layers one after the other, each with its own weights; `sizes` go to `moe_decode_layer`."""
    layers: list[nn.Module] = []
    inputs: tuple[Tensor, ...] = ()
    for _ in range(n):
        layer, inputs = moe_decode_layer(npu=npu, **sizes)
        layers.append(layer)
    return nn.Sequential(*layers), inputs
