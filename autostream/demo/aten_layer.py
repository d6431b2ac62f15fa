"""The mixture-of-experts decode layer in plain ATen operators: bfloat16, one card, static shapes, no token dropped."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from autostream.demo.shape import MoeShape, weight

_EPSILON = 1e-6


def _swiglu(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate) * up


class AtenMoeLayer(nn.Module):
    """RMSNorm, then a shared expert beside E routed experts, then their sum with the residual.

    ``forward(hidden)`` takes and returns the residual stream, (B, H) bfloat16. Every expert has B slots, which is the most
    tokens it can be given, so that shapes are static and the result is exact.
    """

    expert_ids: Tensor
    token_ids: Tensor

    def __init__(self, shape: MoeShape, device: torch.device) -> None:
        super().__init__()
        hidden, inner, shared, experts = shape.hidden, shape.intermediate, shape.shared_intermediate, shape.local_experts
        bf16 = torch.bfloat16
        self.shape = shape
        self.gamma = weight(hidden, dtype=bf16, device=device)
        self.gate = weight(hidden, experts, dtype=torch.float32, device=device)
        self.gate_up = weight(experts, hidden, 2 * inner, dtype=bf16, device=device)
        self.down = weight(experts, inner, hidden, dtype=bf16, device=device)
        # Stored (out, in) as nn.Linear does: the exported graph holds a transposed view in front of each matmul.
        self.shared_gate_up = weight(2 * shared, hidden, dtype=bf16, device=device)
        self.shared_down = weight(hidden, shared, dtype=bf16, device=device)
        self.register_buffer("expert_ids", torch.arange(experts, device=device))
        self.register_buffer("token_ids", torch.arange(shape.batch, dtype=torch.int32, device=device))

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the residual stream after the layer, (B, H)."""
        normed = self._rms_norm(hidden)
        return hidden + (self._routed(normed) + self.shared_expert(normed))

    def _rms_norm(self, hidden: Tensor) -> Tensor:
        wide = hidden.float()
        scale = torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + _EPSILON)
        return (wide * scale).to(hidden.dtype) * self.gamma

    def shared_expert(self, normed: Tensor) -> Tensor:
        """Return what the shared expert makes of every token, (B, H)."""
        return functional.linear(_swiglu(functional.linear(normed, self.shared_gate_up)), self.shared_down)

    def _routed(self, normed: Tensor) -> Tensor:
        batch, hidden = normed.shape
        experts, top_k = self.shape.local_experts, self.shape.top_k
        weights, chosen = self._gating(normed)
        source, row = self._dispatch_plan(chosen)

        grouped = normed.index_select(0, source.reshape(-1)).view(experts, batch, hidden)
        results = torch.bmm(_swiglu(torch.bmm(grouped, self.gate_up)), self.down)

        picked = results.view(experts * batch, hidden).index_select(0, row.reshape(-1)).view(batch, top_k, hidden)
        return (picked * weights.unsqueeze(-1)).sum(dim=1)

    def _gating(self, normed: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights and ids of the chosen experts, each (B, K)."""
        scores = torch.softmax(torch.mm(normed.float(), self.gate), dim=-1)
        weights, chosen = torch.topk(scores, self.shape.top_k, dim=-1)
        return (weights / weights.sum(dim=-1, keepdim=True)).to(normed.dtype), chosen

    def _dispatch_plan(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Return the token in every expert's slot (E, B), and the row of the experts' output that holds each choice (B, K)."""
        batch = chosen.shape[0]
        member = (self.expert_ids.view(-1, 1, 1) == chosen).any(dim=-1).int()
        # Distinct keys put the members first, in token order; the slots after them hold tokens whose results nobody reads.
        source = torch.sort(member * batch - self.token_ids, dim=1, descending=True).indices
        slot = torch.cumsum(member, dim=1) - 1
        return source, chosen * batch + slot.t().gather(1, chosen)
