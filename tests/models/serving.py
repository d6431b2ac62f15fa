"""Decode and prefill layers in the operators that serving engines for Ascend emit, any number of them, on the meta device.

Every builder returns (module, inputs). None of them needs a process group: a graph only names its groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from autostream import offline
from autostream.demo.shape import MoeShape
from tests.models.attention import EPSILON, PAGE, PAGES, Mla, MlaSizes, Step, bf16, decode_step
from tests.models.experts import Bf16Moe, QuantisedMoe, RoutedOnly
from tests.models.indexer import SparseMla
from tests.models.layers import Built

Precision = Literal["w8a8", "bf16"]
Attention = Literal["fused", "parts", "sparse"]

#: Attention of LongCat-Flash-Lite (3072 wide, 32 heads); routed experts are 1024 wide, dense layers 6144, 12 experts a token.
LONGCAT = MlaSizes(hidden=3072, heads=32)


def _norm(x: Tensor, gamma: Tensor) -> Tensor:
    normed: Tensor = torch.ops.npu.npu_rms_norm(x, gamma, EPSILON)[0]
    return normed


class _Decoder(nn.Module):
    """Layers one after the other; each maps (residual stream, step) to the residual stream."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, hidden: Tensor, *step: Tensor) -> Tensor:
        cos, sin, slots, pages, lengths = step
        for layer in self.layers:
            hidden = layer(hidden, Step(cos=cos, sin=sin, slots=slots, pages=pages, lengths=lengths))
        return hidden


def _decoder(batch: int, sizes: MlaSizes, layers: int, build: Callable[[], nn.Module]) -> Built:
    return _Decoder([build() for _ in range(layers)]), decode_step(batch, sizes)


def _attention(kind: Attention, batch: int, sizes: MlaSizes) -> Mla:
    offline.activate()
    return SparseMla(batch, sizes) if kind == "sparse" else Mla(batch, sizes, fused=kind == "fused")


class _AttentionLayer(nn.Module):
    """Normalisation, attention, residual."""

    def __init__(self, attention: Mla) -> None:
        super().__init__()
        self.gamma, self.attention = bf16(attention.sizes.hidden), attention

    def forward(self, hidden: Tensor, step: Step) -> Tensor:
        return hidden + self.attention(_norm(hidden, self.gamma), step)


class _MoeLayer(nn.Module):
    def __init__(self, attention: Mla, moe: nn.Module) -> None:
        super().__init__()
        self.attention, self.moe = _AttentionLayer(attention), moe

    def forward(self, hidden: Tensor, step: Step) -> Tensor:
        return self.moe(self.attention(hidden, step))


def attention_layers(kind: Attention, batch: int = 64, layers: int = 1) -> Built:
    """Return latent-attention layers of DeepSeek-V3 (``"sparse"``: V3.2) without their feed-forward half."""
    sizes = MlaSizes()
    return _decoder(batch, sizes, layers, lambda: _AttentionLayer(_attention(kind, batch, sizes)))


def moe_layers(precision: Precision = "w8a8", batch: int = 64, layers: int = 1, *, cards: int = 16) -> Built:
    """Return the feed-forward half of DeepSeek-V3's layers: a shared expert beside routed ones; one card means no exchange."""
    offline.activate()
    shape = MoeShape(batch=batch, ep_world_size=cards)
    kind = QuantisedMoe if precision == "w8a8" else Bf16Moe
    return nn.Sequential(*(kind(shape) for _ in range(layers))), decode_step(batch, MlaSizes())[:1]


def decode_layers(
    batch: int = 64, layers: int = 1, *, attention: Attention = "parts", precision: Precision = "w8a8", cards: int = 16
) -> Built:
    """Return whole decode layers of DeepSeek-V3: latent attention, then the mixture of experts."""
    sizes, shape = MlaSizes(), MoeShape(batch=batch, ep_world_size=cards)
    kind = QuantisedMoe if precision == "w8a8" else Bf16Moe
    return _decoder(batch, sizes, layers, lambda: _MoeLayer(_attention(attention, batch, sizes), kind(shape)))


class _Dense(nn.Module):
    """Gated feed-forward layer with its normalisation; the residual is added by the caller."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gamma, self.gate_up, self.down = bf16(hidden), bf16(hidden, 2 * inner), bf16(inner, hidden)

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.mm(torch.ops.npu.npu_swiglu(torch.mm(_norm(hidden, self.gamma), self.gate_up)), self.down)


class _ShortcutLayer(nn.Module):
    """LongCat's layer: the mixture of experts starts after the first attention and joins after the second dense layer."""

    def __init__(self, batch: int, sizes: MlaSizes, cards: int) -> None:
        super().__init__()
        shape = MoeShape(
            batch=batch,
            hidden=sizes.hidden,
            intermediate=1024,
            shared_intermediate=1,
            local_experts=256 // cards,
            ep_world_size=cards,
            top_k=12,
        )
        self.attention = nn.ModuleList(_AttentionLayer(_attention("fused", batch, sizes)) for _ in range(2))
        self.dense = nn.ModuleList(_Dense(sizes.hidden, 6144) for _ in range(2))
        self.gamma, self.moe = bf16(sizes.hidden), RoutedOnly(shape)

    def forward(self, hidden: Tensor, step: Step) -> Tensor:
        hidden = self.attention[0](hidden, step)
        shortcut = self.moe(_norm(hidden, self.gamma))
        hidden = hidden + self.dense[0](hidden)
        hidden = self.attention[1](hidden, step)
        return hidden + self.dense[1](hidden) + shortcut


def shortcut_layers(batch: int = 8, layers: int = 1, *, cards: int = 8) -> Built:
    """Return layers of LongCat-Flash-Lite: a whole mixture of experts beside dense, attention, dense."""
    return _decoder(batch, LONGCAT, layers, lambda: _ShortcutLayer(batch, LONGCAT, cards))


def _all_reduce(x: Tensor, group: str) -> Tensor:
    reduced: Tensor = torch.ops._c10d_functional.wait_tensor(torch.ops._c10d_functional.all_reduce(x, "sum", group))
    return reduced


class _TensorParallelLayer(nn.Module):
    """A Qwen3-32B layer cut over `cards`: grouped-query attention and a dense feed-forward, an all-reduce behind each.

    A decode step reads a paged cache of 4,096 tokens for each of the `batch` rows; a prefill, whose rows are one sequence,
    attends among the rows themselves.
    """

    keys: Tensor
    values: Tensor

    def __init__(self, batch: int, cards: int, *, prefill: bool) -> None:
        super().__init__()
        self.hidden, self.width, self.prefill = 5120, 128, prefill
        self.heads, self.kv_heads = 64 // cards, 8 // cards
        inner = 25600 // cards
        self.qkv = bf16(self.hidden, (self.heads + 2 * self.kv_heads) * self.width)
        self.out = bf16(self.heads * self.width, self.hidden)
        self.query_gamma, self.key_gamma, self.gamma1, self.gamma2 = (bf16(n) for n in (128, 128, self.hidden, self.hidden))
        self.gate_up, self.down = bf16(self.hidden, 2 * inner), bf16(inner, self.hidden)
        sequences = 1 if prefill else batch
        shape = (sequences * PAGES * PAGE, self.kv_heads * self.width)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.empty(shape, dtype=torch.bfloat16, device="meta"))

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor, slots: Tensor, pages: Tensor) -> Tensor:
        sizes = [self.heads * self.width, self.kv_heads * self.width, self.kv_heads * self.width]
        query, key, value = torch.mm(_norm(hidden, self.gamma1), self.qkv).split(sizes, dim=-1)
        query = self._rotated(query, self.heads, self.query_gamma, cos, sin)
        key = self._rotated(key, self.kv_heads, self.key_gamma, cos, sin)
        torch.ops.npu.npu_scatter_nd_update_(self.keys, slots.view(-1, 1), key)
        torch.ops.npu.npu_scatter_nd_update_(self.values, slots.view(-1, 1), value)
        mixed = self._attend(query, key, value, pages)
        hidden = hidden + _all_reduce(torch.mm(mixed, self.out), "tp")
        inner = torch.ops.npu.npu_swiglu(torch.mm(_norm(hidden, self.gamma2), self.gate_up))
        return hidden + _all_reduce(torch.mm(inner, self.down), "tp")

    def _rotated(self, x: Tensor, heads: int, gamma: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        split = _norm(x.reshape(-1, heads, self.width), gamma).unsqueeze(0)
        turned = torch.ops.npu.npu_rotary_mul(split, cos[None, :, None, :], sin[None, :, None, :])
        return turned.reshape(x.shape)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, pages: Tensor) -> Tensor:
        common = {
            "num_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "input_layout": "BSH",
            "scale": self.width**-0.5,
        }
        if self.prefill:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
            return torch.ops.npu.npu_fused_infer_attention_score(query, key, value, **common)[0].squeeze(0)
        paged = [cache.view(-1, PAGE, self.kv_heads * self.width) for cache in (self.keys, self.values)]
        lengths = [PAGE * PAGES] * query.shape[0]
        mixed, _ = torch.ops.npu.npu_fused_infer_attention_score(
            query.unsqueeze(1), *paged, block_table=pages, block_size=PAGE, actual_seq_lengths_kv=lengths, **common
        )
        return mixed.squeeze(1)


class _MicroBatches(nn.Module):
    """Tensor-parallel layers on `parts` micro-batches that know nothing of each other, layer by layer in turn."""

    def __init__(self, batch: int, layers: int, cards: int, parts: int, *, prefill: bool) -> None:
        super().__init__()
        one = batch // parts
        # Each micro-batch has pages of its own; the weights of a layer are one module's, whatever the micro-batch.
        self.layers = nn.ModuleList(_TensorParallelLayer(one, cards, prefill=prefill) for _ in range(layers))
        self.parts = parts
        for part in range(1, parts):
            for number, layer in enumerate(self.layers):
                for name in ("keys", "values"):
                    self.register_buffer(f"{name}_{part}_{number}", torch.empty_like(getattr(layer, name)))

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor, slots: Tensor, pages: Tensor) -> Tensor:
        halves = [list(row) for row in zip(*(x.chunk(self.parts) for x in (hidden, cos, sin, slots, pages)), strict=True)]
        for number, layer in enumerate(self.layers):
            for part, row in enumerate(halves):
                caches = {name: getattr(self, f"{name}_{part}_{number}") for name in ("keys", "values")} if part else {}
                row[0] = torch.func.functional_call(layer, caches, tuple(row))
        return torch.cat([row[0] for row in halves])


def tensor_parallel(batch: int = 64, layers: int = 1, *, cards: int = 4, micro_batches: int = 1, prefill: bool = False) -> Built:
    """Return tensor-parallel layers of Qwen3-32B; with two micro-batches one can compute while the other communicates.

    `batch` is the number of sequences of a decode step, or of tokens of a prefill.
    """
    offline.activate()
    sizes = MlaSizes(hidden=5120, rope=128)
    hidden, cos, sin, slots, pages, _ = decode_step(batch, sizes)
    return _MicroBatches(batch, layers, cards, micro_batches, prefill=prefill), (hidden, cos, sin, slots, pages)
