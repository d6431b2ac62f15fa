"""DeepSeek sparse attention, one decode step: a lightning indexer picks the tokens that attention then reads."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.models.attention import PAGE, PAGES, Mla, MlaSizes, Step, bf16

_HEADS, _WIDTH, _TOP = 64, 128, 2048


class Indexer(nn.Module):
    """Scores every cached token for each new one: (compressed query, normalised hidden) -> indices (B, 1, 2048) int32."""

    cache: Tensor

    def __init__(self, batch: int, sizes: MlaSizes) -> None:
        super().__init__()
        self.rope = sizes.rope
        self.query, self.key = bf16(sizes.query_rank, _HEADS * _WIDTH), bf16(sizes.hidden, _WIDTH)
        self.gamma, self.beta = bf16(_WIDTH), bf16(_WIDTH)
        self.head_weights = bf16(sizes.hidden, _HEADS)
        self.register_buffer("cache", torch.empty(batch * PAGES * PAGE, _WIDTH, dtype=torch.bfloat16, device="meta"))

    def forward(self, compressed: Tensor, normed: Tensor, step: Step) -> Tensor:
        """Return the positions attention is to read."""
        query = self._rotated(torch.mm(compressed, self.query).view(-1, _HEADS, _WIDTH), step)
        key = functional.layer_norm(torch.mm(normed, self.key), (_WIDTH,), self.gamma, self.beta)
        key = self._rotated(key.view(-1, 1, _WIDTH), step)
        torch.ops.npu.npu_scatter_nd_update_(self.cache, step.slots.view(-1, 1), key.squeeze(1))
        weights = torch.mm(normed, self.head_weights)
        positions, _ = torch.ops.npu.npu_lightning_indexer(
            query,
            self.cache.view(-1, PAGE, 1, _WIDTH),
            weights,
            actual_seq_lengths_query=step.lengths,
            actual_seq_lengths_key=step.lengths,
            block_table=step.pages,
            layout_query="TND",
            layout_key="PA_BSND",
            sparse_count=_TOP,
        )
        return positions

    def _rotated(self, x: Tensor, step: Step) -> Tensor:
        """Rotate the first `rope` columns of (B, heads, width)."""
        turn, keep = x.split([self.rope, _WIDTH - self.rope], dim=-1)
        cos, sin = step.cos[:, None, None, :], step.sin[:, None, None, :]
        return torch.cat([torch.ops.npu.npu_interleave_rope(turn.unsqueeze(2), cos, sin).squeeze(2), keep], dim=-1)


class SparseMla(Mla):
    """Latent attention over the tokens that the indexer picks; the prolog is in its parts."""

    def __init__(self, batch: int, sizes: MlaSizes) -> None:
        super().__init__(batch, sizes, fused=False)
        self.indexer = Indexer(batch, sizes)

    def forward(self, normed: Tensor, step: Step) -> Tensor:
        """Return the attention output (B, H)."""
        compressed = self.compressed_query(normed)
        query, query_rope = self.query(compressed, step)
        latent, rope = self.write_cache(normed, step)
        positions = self.indexer(compressed, normed, step)
        mixed, _, _ = torch.ops.npu.npu_sparse_flash_attention(
            query,
            latent,
            latent,
            positions,
            (self.sizes.nope + self.sizes.rope) ** -0.5,
            block_table=step.pages,
            actual_seq_lengths_query=step.lengths,
            actual_seq_lengths_kv=step.lengths,
            query_rope=query_rope,
            key_rope=rope,
            layout_query="TND",
            layout_kv="PA_BSND",
            attention_mode=2,
        )
        return self.project(mixed)
