"""The mixture-of-experts decode layer in torch_npu's fused operators: W8A8 experts, one card or expert parallel."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from autostream.demo.shape import MoeShape, weight

_EPSILON = 1e-6
#: Codes of torch_npu's ``output_dtype`` arguments (they are torch's own ScalarType numbers).
_INT32, _BFLOAT16 = 3, 15
#: DeepSeek-V3 gating: sigmoid scores, experts in 8 groups scored by their best two, 4 groups kept.
_GROUPS, _KEPT_GROUPS, _SCALING = 8, 4, 2.5


class NpuMoeLayer(nn.Module):
    """RMSNorm, then a shared expert beside the routed experts, then their sum with the residual.

    ``forward(hidden)`` takes and returns the residual stream, (B, H) bfloat16. The routed experts run W8A8 (int8 weights with a
    scale per channel, int8 activations with a scale per token), and so does the shared expert.

    With ``ep_world_size`` > 1 tokens travel by `npu_moe_distribute_dispatch_v2` / `npu_moe_distribute_combine_v2` in the process
    group named `group`; the grouped matmuls then see B x cards x min(L, K) rows, the most this card can receive, of which about
    B x K are filled. With 1, `npu_moe_init_routing_v2` / `npu_moe_finalize_routing` do the same on the card, with B x K rows.
    """

    def __init__(self, shape: MoeShape, device: torch.device, group: str) -> None:
        super().__init__()
        hidden, inner, shared, local = shape.hidden, shape.intermediate, shape.shared_intermediate, shape.local_experts
        int8, bf16, fp32 = torch.int8, torch.bfloat16, torch.float32
        self.shape = shape
        self.group = group
        self.gamma = weight(hidden, dtype=bf16, device=device)
        self.gate = weight(hidden, shape.experts, dtype=fp32, device=device)
        self.gate_bias = weight(shape.experts, dtype=fp32, device=device)
        self.gate_up = weight(local, hidden, 2 * inner, dtype=int8, device=device)
        self.gate_up_scale = weight(local, 2 * inner, dtype=fp32, device=device)
        self.down = weight(local, inner, hidden, dtype=int8, device=device)
        self.down_scale = weight(local, hidden, dtype=bf16, device=device)
        self.shared_gate_up = weight(hidden, 2 * shared, dtype=int8, device=device)
        self.shared_gate_up_scale = weight(2 * shared, dtype=bf16, device=device)
        self.shared_down = weight(shared, hidden, dtype=int8, device=device)
        self.shared_down_scale = weight(hidden, dtype=bf16, device=device)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the residual stream after the layer, (B, H)."""
        normed = torch.ops.npu.npu_rms_norm(hidden, self.gamma, _EPSILON)[0]
        weights, chosen = self._gating(normed)
        routed = self._across_cards if self.shape.ep_world_size > 1 else self._on_card
        return hidden + (routed(normed, weights, chosen) + self.shared_expert(normed))

    def _gating(self, normed: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights (float32) and ids (int32) of the chosen experts, each (B, K)."""
        experts, top_k = self.shape.experts, self.shape.top_k
        # The operator wants groups of more than two experts and enough experts in the kept groups.
        grouped = experts % _GROUPS == 0 and experts > 2 * _GROUPS and top_k <= experts // _GROUPS * _KEPT_GROUPS
        weights, chosen, _ = torch.ops.npu.npu_moe_gating_top_k(
            torch.mm(normed.float(), self.gate),
            top_k,
            bias=self.gate_bias,
            k_group=_KEPT_GROUPS if grouped else 1,
            group_count=_GROUPS if grouped else 1,
            group_select_mode=1 if grouped else 0,
            norm_type=1,
            routed_scaling_factor=_SCALING,
        )
        return weights, chosen

    def _across_cards(self, normed: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """Send every token to the cards of its experts, quantised on the way, and bring the weighted sum back: (B, H)."""
        where = {
            "group_ep": self.group,
            "ep_world_size": self.shape.ep_world_size,
            "ep_rank_id": 0,
            "moe_expert_num": self.shape.experts,
            # The shared expert is computed on every card, beside this exchange.
            "shared_expert_num": 0,
        }
        rows, scales, assist, counts, received, tp_received, _ = torch.ops.npu.npu_moe_distribute_dispatch_v2(
            normed, chosen, quant_mode=2, **where
        )
        results = self._experts(rows, scales, counts)
        combined: Tensor = torch.ops.npu.npu_moe_distribute_combine_v2(
            results, chosen, assist, received, weights, tp_send_counts=tp_received, **where
        )
        return combined

    def _on_card(self, normed: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """Sort the tokens by expert, quantised on the way, and add the weighted results up per token: (B, H)."""
        experts, top_k = self.shape.experts, self.shape.top_k
        rows, row_index, counts, scales = torch.ops.npu.npu_moe_init_routing_v2(
            normed,
            chosen,
            active_num=self.shape.batch * top_k,
            expert_num=experts,
            expert_tokens_num_type=1,
            expert_tokens_num_flag=True,
            active_expert_range=[0, experts],
            quant_mode=1,
        )
        results = self._experts(rows, scales, counts)
        combined: Tensor = torch.ops.npu.npu_moe_finalize_routing(
            results, None, None, None, weights.to(results.dtype), row_index, None, drop_pad_mode=2
        )
        return combined

    def _experts(self, rows: Tensor, scales: Tensor, counts: Tensor) -> Tensor:
        """Run the local experts on rows (R, H) int8 grouped by expert, `counts` (L,) rows each: (R, H) bfloat16."""
        grouping = {"group_list": counts, "group_list_type": 1, "group_type": 0, "split_item": 3}
        gate_up = torch.ops.npu.npu_grouped_matmul([rows], [self.gate_up], output_dtype=_INT32, **grouping)[0]
        inner, inner_scales = torch.ops.npu.npu_dequant_swiglu_quant(
            gate_up,
            weight_scale=self.gate_up_scale,
            activation_scale=scales,
            group_index=counts,
            activate_left=True,
            quant_mode=1,
        )
        results: Tensor = torch.ops.npu.npu_grouped_matmul(
            [inner],
            [self.down],
            scale=[self.down_scale],
            per_token_scale=[inner_scales],
            output_dtype=_BFLOAT16,
            **grouping,
        )[0]
        return results

    def shared_expert(self, normed: Tensor) -> Tensor:
        """Return what the shared expert makes of every token, (B, H)."""
        gate_up = self._quantised_matmul(normed, self.shared_gate_up, self.shared_gate_up_scale)
        return self._quantised_matmul(torch.ops.npu.npu_swiglu(gate_up), self.shared_down, self.shared_down_scale)

    def _quantised_matmul(self, x: Tensor, matrix: Tensor, scale: Tensor) -> Tensor:
        """Quantise x per token and multiply it by an int8 matrix (K, N): (B, N) bfloat16."""
        quantised, token_scale = torch.ops.npu.npu_dynamic_quant(x)
        product: Tensor = torch.ops.npu.npu_quant_matmul(
            quantised, matrix, scale, pertoken_scale=token_scale, output_dtype=_BFLOAT16
        )
        return product
