"""Mixtures of experts beside the one of the demo: in bfloat16 without quantisation, and routed experts alone."""

from __future__ import annotations

import torch
from torch import Tensor

from autostream.demo.npu_layer import NpuMoeLayer
from autostream.demo.shape import MoeShape
from tests.models.attention import bf16

_META = torch.device("meta")


class QuantisedMoe(NpuMoeLayer):
    """The layer of the demo (W8A8) on the meta device: residual stream (B, H) -> residual stream."""

    def __init__(self, shape: MoeShape, group: str = "ep") -> None:
        super().__init__(shape, _META, group)


class RoutedOnly(QuantisedMoe):
    """Its routed experts alone: normalised tokens (B, H) -> weighted results (B, H)."""

    def forward(self, normed: Tensor) -> Tensor:
        weights, chosen = self._gating(normed)
        routed = self._across_cards if self.shape.ep_world_size > 1 else self._on_card
        return routed(normed, weights, chosen)


class Bf16Moe(NpuMoeLayer):
    """The same layer without quantisation: tokens travel and are multiplied in bfloat16."""

    def __init__(self, shape: MoeShape, group: str = "ep") -> None:
        super().__init__(shape, _META, group)
        local, hidden, inner, shared = shape.local_experts, shape.hidden, shape.intermediate, shape.shared_intermediate
        self.gate_up, self.down = bf16(local, hidden, 2 * inner), bf16(local, inner, hidden)
        self.shared_gate_up, self.shared_down = bf16(hidden, 2 * shared), bf16(shared, hidden)

    def _across_cards(self, normed: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        where = {
            "group_ep": self.group,
            "ep_world_size": self.shape.ep_world_size,
            "ep_rank_id": 0,
            "moe_expert_num": self.shape.experts,
            "shared_expert_num": 0,
        }
        dispatch = torch.ops.npu.npu_moe_distribute_dispatch_v2(normed, chosen, quant_mode=0, **where)
        rows, _, assist, counts, received, tp_received, _ = dispatch
        combined: Tensor = torch.ops.npu.npu_moe_distribute_combine_v2(
            self._bf16_experts(rows, counts), chosen, assist, received, weights, tp_send_counts=tp_received, **where
        )
        return combined

    def _on_card(self, normed: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        experts, top_k = self.shape.experts, self.shape.top_k
        rows, row_index, counts, _ = torch.ops.npu.npu_moe_init_routing_v2(
            normed,
            chosen,
            active_num=self.shape.batch * top_k,
            expert_num=experts,
            expert_tokens_num_type=1,
            expert_tokens_num_flag=True,
            active_expert_range=[0, experts],
            quant_mode=-1,
        )
        combined: Tensor = torch.ops.npu.npu_moe_finalize_routing(
            self._bf16_experts(rows, counts), None, None, None, weights.to(rows.dtype), row_index, None, drop_pad_mode=2
        )
        return combined

    def _bf16_experts(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Run the local experts on rows (R, H) grouped by expert."""
        grouping = {"group_list": counts, "group_list_type": 1, "group_type": 0, "split_item": 3}
        inner = torch.ops.npu.npu_grouped_matmul([rows], [self.gate_up], **grouping)[0]
        results: Tensor = torch.ops.npu.npu_grouped_matmul([torch.ops.npu.npu_swiglu(inner)], [self.down], **grouping)[0]
        return results

    def shared_expert(self, normed: Tensor) -> Tensor:
        return torch.mm(torch.ops.npu.npu_swiglu(torch.mm(normed, self.shared_gate_up)), self.shared_down)
