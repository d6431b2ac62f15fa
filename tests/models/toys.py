"""Graphs with nothing to gain, and graphs with a trap."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.export import Dim

from tests.models.values import frozen, values


class _Toy(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.add(torch.mm(x, y), y)


def toy3x3() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """Return a 3x3 matmul and an add: far too small to split."""
    return _Toy(), (values(3, 3, seed=1), values(3, 3, seed=2))


class _Chain(nn.Module):
    def __init__(self, depth: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ParameterList(frozen(width, width, seed=i) for i in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.mm(x, layer)
        return x


def chain(depth: int = 6, tokens: int = 32, width: int = 128) -> tuple[nn.Module, tuple[Tensor]]:
    """Return `depth` matmuls one after the other on (tokens, width): no two of them can overlap."""
    return _Chain(depth, width), (values(tokens, width, seed=depth),)


class _TinyVector(nn.Module):
    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: Tensor) -> Tensor:
        left = right = x
        for _ in range(self.steps):
            left = torch.tanh(left + x)
            right = torch.sigmoid(right * x)
        return left - right


def tiny_vector(steps: int = 12, size: int = 64) -> tuple[nn.Module, tuple[Tensor]]:
    """Return two independent branches of 2 x `steps` elementwise operators each, on `size` values."""
    return _TinyVector(steps), (values(size),)


class _Dynamic(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.left = frozen(width, width, seed=1)
        self.right = frozen(width, width, seed=2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.mm(x, self.left)) + torch.sigmoid(torch.mm(x, self.right))


def dynamic(tokens: int = 8, width: int = 64) -> tuple[nn.Module, tuple[Tensor], tuple[dict[int, Dim]]]:
    """Return two branches on (batch, width), the inputs, and `dynamic_shapes` for torch.export: the batch may be 2 to 4096."""
    return _Dynamic(width), (values(tokens, width),), ({0: Dim("batch", min=2, max=4096)},)


class _KvCache(nn.Module):
    key_cache: Tensor
    value_cache: Tensor

    def __init__(self, slots: int, width: int, npu: bool) -> None:
        super().__init__()
        self.npu = npu
        self.register_buffer("key_cache", values(slots, width, seed=1))
        self.register_buffer("value_cache", values(slots, width, seed=2))
        self.project = frozen(width, width, seed=3)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, slot: Tensor) -> tuple[Tensor, Tensor]:
        before = torch.mm(query, self.key_cache.t())
        self._write_keys(torch.mm(key, self.project), slot)
        self.value_cache.narrow(0, 0, value.shape[0]).copy_(value)
        weights = torch.softmax(torch.mm(query, self.key_cache.t()), dim=-1)
        return before.sum(dim=-1), torch.mm(weights, self.value_cache)

    def _write_keys(self, keys: Tensor, slot: Tensor) -> None:
        if self.npu:  # works on (batch, heads, slots, width) and takes the first slot of each batch
            torch.ops.npu.scatter_update_(self.key_cache[None, None], slot, keys[None, None], -2)
        else:
            self.key_cache.index_put_((slot,), keys)


def kv_cache(slots: int = 32, width: int = 64, tokens: int = 4, *, npu: bool = False) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return a decode step over a cache: one branch reads the keys before, one after they are written, both caches in place.

    Inputs: query, key, value, each (tokens, width), and the slots to write: (tokens,) int64 for `index_put_`, or with `npu` the
    first one, (1,) int64, for `npu.scatter_update_` (TorchAir converts the latter only). `copy_` into a view writes the values.
    """
    query, key, value = (values(tokens, width, seed=4 + i) for i in range(3))
    slot = torch.tensor([3]) if npu else torch.arange(tokens) * 3
    return _KvCache(slots, width, npu), (query, key, value, slot)
