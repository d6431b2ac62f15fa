"""K8, K9: no gain, wrong phase, wrong backend: then nothing happens, and the report says why."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from autostream import StreamPass, offline
from autostream.demo import moe_decode_layer
from autostream.graph import to_aten
from tests import models
from tests.faults.scenarios import bf16, fp32, int8, planned, scenario, streams_of

pytestmark = pytest.mark.usefixtures("npu_host")

npu = torch.ops.npu


def test_a15_a_moe_layer_without_a_second_branch_is_left_alone() -> None:
    """vllm-ascend #8635: the flag made a model without shared experts silently slower."""

    def chain(x: Tensor, gamma: Tensor, up: Tensor, up_scale: Tensor, down: Tensor, down_scale: Tensor) -> Tensor:
        quantised, scale = npu.npu_dynamic_quant(npu.npu_rms_norm(x, gamma)[0])
        hidden = npu.npu_swiglu(npu.npu_quant_matmul(quantised, up, up_scale, pertoken_scale=scale, output_dtype=torch.bfloat16))
        again, scale = npu.npu_dynamic_quant(hidden)
        result: Tensor = npu.npu_quant_matmul(again, down, down_scale, pertoken_scale=scale, output_dtype=torch.bfloat16)
        return result

    inputs = (bf16(64, 7168), bf16(7168), int8(7168, 4096), bf16(4096), int8(2048, 7168), bf16(7168))
    module = scenario(chain, *inputs)
    before = str(module.graph)
    outcome = planned(module)
    assert outcome.verdict.code == "nothing-to-overlap"
    assert "waits for the one before it" in outcome.verdict.reason
    StreamPass(chip="910B2")(module)
    assert str(module.graph) == before


def test_a64_two_cube_kernels_beside_each_other_are_not_credited_and_cube_beside_vector_is() -> None:
    """Ascend's own rules: Cube + Cube fight for cores; Cube + Vector overlap if that beats the event."""

    def twice(x: Tensor, scale: Tensor, a: Tensor, b: Tensor, sa: Tensor, sb: Tensor) -> tuple[Tensor, Tensor]:
        first = npu.npu_quant_matmul(x, a, sa, pertoken_scale=scale, output_dtype=torch.bfloat16)
        return first, npu.npu_quant_matmul(x, b, sb, pertoken_scale=scale, output_dtype=torch.bfloat16)

    weights = (int8(7168, 4096), int8(7168, 4096), bf16(4096), bf16(4096))
    outcome = planned(scenario(twice, int8(64, 7168), fp32(64), *weights))
    assert outcome.verdict.code == "nothing-to-overlap" and "same cores" in outcome.verdict.reason

    def mixed(x: Tensor, scale: Tensor, a: Tensor, sa: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        product = npu.npu_quant_matmul(x, a, sa, pertoken_scale=scale, output_dtype=torch.bfloat16)
        return product, *npu.npu_dynamic_quant(y)

    outcome = planned(scenario(mixed, int8(64, 7168), fp32(64), int8(7168, 4096), bf16(4096), bf16(512, 7168)))
    assert outcome.verdict.accepted
    assert streams_of(outcome)["npu_quant_matmul"] != streams_of(outcome)["npu_dynamic_quant"]


def test_g17_the_decision_follows_the_batch_and_an_unchosen_graph_costs_nothing() -> None:
    """vLLM #30085 and others: what pays at one batch size does not at another."""
    outcomes = {}
    for batch in (1, 64):
        module, inputs = moe_decode_layer(npu=True, batch=batch, expert_parallel=False)
        outcomes[batch] = planned(to_aten(module, inputs).graph_module, min_gain=0.09)
    assert (outcomes[1].verdict.code, outcomes[1].graph_module) == ("no-gain", None)
    assert outcomes[64].verdict.accepted and outcomes[64].graph_module is not None


def test_a26_another_backend_never_sees_scope_nodes() -> None:
    """vllm-ascend #1322: multi-stream code ran where graph mode was off."""
    graph = to_aten(*models.mixture(8)).graph_module.graph
    before = str(graph)
    StreamPass(chip="910B2")(graph)
    assert str(graph) == before


def test_a28_a_padded_batch_and_its_mask_change_nothing_for_the_schedule() -> None:
    """vllm-ascend #2681: a mask is an ordinary input of both branches."""

    def masked(x: Tensor, mask: Tensor, w: Tensor, v: Tensor) -> Tensor:
        return torch.mm(torch.where(mask, x, 0.0), w) + torch.sigmoid(torch.where(mask, v, 0.0))

    module = scenario(masked, bf16(64, 7168), ((64, 1), torch.bool), bf16(7168, 7168), bf16(64, 7168))
    outcome = planned(module, min_gain=0.0)
    emitted = outcome.graph_module
    assert emitted is not None
    readers = [n for n in emitted.graph.nodes if any(s.name == "mask_1" for s in n.all_input_nodes)]
    assert len(readers) == 2 and all("where" in str(node.target) for node in readers)
    offline.convert(emitted)
