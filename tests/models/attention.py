"""Multi-head latent attention of DeepSeek-V3 in torch_npu's operators, one decode step: the prolog fused, or in its parts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from autostream.demo.shape import weight

EPSILON = 1e-6
#: Cached tokens of a page, and pages of a sequence (4,096 tokens of context).
PAGE, PAGES = 128, 32
_META = torch.device("meta")


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaSizes:
    """Sizes of the attention of DeepSeek-V3; `heads` is what one card holds."""

    hidden: int = 7168
    heads: int = 128
    query_rank: int = 1536
    cache_rank: int = 512
    rope: int = 64
    nope: int = 128
    value: int = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a decode step hands to every layer beside the residual stream."""

    cos: Tensor
    sin: Tensor
    slots: Tensor
    pages: Tensor
    lengths: Tensor


def decode_step(batch: int, sizes: MlaSizes) -> tuple[Tensor, ...]:
    """Return the inputs of one decode step on the meta device: hidden (B, H), then the fields of `Step`.

    The rotary tables are (B, rope), the slots (B,) int64, the page table (B, pages) and the lengths (B,) int32.
    """

    def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=_META)

    table = empty(batch, PAGES, dtype=torch.int32)
    rope = empty(batch, sizes.rope), empty(batch, sizes.rope)
    return empty(batch, sizes.hidden), *rope, empty(batch, dtype=torch.int64), table, empty(batch, dtype=torch.int32)


def bf16(*shape: int) -> nn.Parameter:
    """Return a bfloat16 weight on the meta device."""
    return weight(*shape, dtype=torch.bfloat16, device=_META)


class Mla(nn.Module):
    """hidden (B, H) normalised -> attention output (B, H), in bfloat16; the latent cache is written in place.

    With `fused` the prolog is one operator (`npu_mla_prolog_v3`), else its parts: the query path beside the cache path.
    """

    latent_cache: Tensor
    rope_cache: Tensor

    def __init__(self, batch: int, sizes: MlaSizes, *, fused: bool) -> None:
        super().__init__()
        self.sizes, self.fused = sizes, fused
        s = sizes
        self.query_down, self.query_up = bf16(s.hidden, s.query_rank), bf16(s.query_rank, s.heads * (s.nope + s.rope))
        self.query_gamma, self.cache_gamma = bf16(s.query_rank), bf16(s.cache_rank)
        self.absorb_key, self.absorb_value = bf16(s.heads, s.nope, s.cache_rank), bf16(s.heads, s.cache_rank, s.value)
        self.cache_down = bf16(s.hidden, s.cache_rank + s.rope)
        self.out = bf16(s.heads * s.value, s.hidden)
        shape = batch * PAGES, PAGE, 1
        self.register_buffer("latent_cache", torch.empty(*shape, s.cache_rank, dtype=torch.bfloat16, device=_META))
        self.register_buffer("rope_cache", torch.empty(*shape, s.rope, dtype=torch.bfloat16, device=_META))

    def forward(self, normed: Tensor, step: Step) -> Tensor:
        """Return the attention output (B, H)."""
        query, query_rope, latent, rope = self.prolog(normed, step)
        return self.project(self.attend(query, query_rope, latent, rope, step))

    def prolog(self, normed: Tensor, step: Step) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the query (B, heads, cache_rank), its rotary part (B, heads, rope) and the two caches, written."""
        if self.fused:
            return self._fused_prolog(normed, step)
        return *self.query(self.compressed_query(normed), step), *self.write_cache(normed, step)

    def compressed_query(self, normed: Tensor) -> Tensor:
        """Return the normalised low-rank query (B, query_rank)."""
        compressed: Tensor = torch.ops.npu.npu_rms_norm(torch.mm(normed, self.query_down), self.query_gamma, EPSILON)[0]
        return compressed

    def query(self, compressed: Tensor, step: Step) -> tuple[Tensor, Tensor]:
        """Return the query with the key projection absorbed, and its rotary part."""
        s = self.sizes
        both = torch.mm(compressed, self.query_up).view(-1, s.heads, s.nope + s.rope)
        nope, rope = both.split([s.nope, s.rope], dim=-1)
        absorbed = torch.ops.npu.npu_transpose_batchmatmul(nope, self.absorb_key, perm_x1=(1, 0, 2), perm_y=(1, 0, 2))
        rotated = torch.ops.npu.npu_interleave_rope(rope.unsqueeze(2), _table(step.cos), _table(step.sin))
        return absorbed, rotated.squeeze(2)

    def write_cache(self, normed: Tensor, step: Step) -> tuple[Tensor, Tensor]:
        """Write the latent and the rotary key of the new tokens; return both caches."""
        s = self.sizes
        latent = torch.mm(normed, self.cache_down).view(-1, 1, 1, s.cache_rank + s.rope)
        rope, cache, _, _ = torch.ops.npu.npu_kv_rmsnorm_rope_cache(
            latent,
            self.cache_gamma,
            _table(step.cos),
            _table(step.sin),
            step.slots,
            self.rope_cache,
            self.latent_cache,
            epsilon=EPSILON,
            cache_mode="PA",
        )
        return cache, rope

    def _fused_prolog(self, normed: Tensor, step: Step) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        query, rope, _, _, _ = torch.ops.npu.npu_mla_prolog_v3(
            normed,
            self.query_down,
            self.query_up,
            self.absorb_key,
            self.cache_down,
            self.query_gamma,
            self.cache_gamma,
            step.sin,
            step.cos,
            self.latent_cache,
            self.rope_cache,
            cache_index=step.slots,
            rmsnorm_epsilon_cq=EPSILON,
            rmsnorm_epsilon_ckv=EPSILON,
            cache_mode="PA_BSND",
        )
        return query, rope, self.latent_cache, self.rope_cache

    def attend(self, query: Tensor, query_rope: Tensor, latent: Tensor, rope: Tensor, step: Step) -> Tensor:
        """Return the mixture of cached latents, (B, heads, cache_rank)."""
        mixed, _ = torch.ops.npu.npu_fused_infer_attention_score(
            query.unsqueeze(2),
            _pages(latent),
            _pages(latent),
            query_rope=query_rope.unsqueeze(2),
            key_rope=_pages(rope),
            block_table=step.pages,
            num_heads=self.sizes.heads,
            num_key_value_heads=1,
            input_layout="BNSD",
            scale=(self.sizes.nope + self.sizes.rope) ** -0.5,
            block_size=PAGE,
            actual_seq_lengths_kv=[PAGE * PAGES] * query.shape[0],
        )
        return mixed.squeeze(2)

    def project(self, mixed: Tensor) -> Tensor:
        """Return the output of the attention: the value projection, then the output projection, (B, H)."""
        value = torch.ops.npu.npu_transpose_batchmatmul(mixed, self.absorb_value, perm_x1=(1, 0, 2), perm_y=(1, 0, 2))
        return torch.mm(value.reshape(-1, self.sizes.heads * self.sizes.value), self.out)


def _table(angles: Tensor) -> Tensor:
    """A rotary table as the operators want it, (B, 1, 1, rope)."""
    return angles[:, None, None, :]


def _pages(cache: Tensor) -> Tensor:
    """A paged cache (pages, 128, 1, D) as attention reads it: (pages, 1, 128, D)."""
    return cache.view(-1, 1, PAGE, cache.shape[-1])
