"""K4, K5: order of collectives. Concurrent gangs of cores are proved in tests/program."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from autostream.chips import cost_model
from autostream.cost import TableModel
from autostream.graph import Why, capture
from autostream.options import Options
from autostream.pipeline import plan
from autostream.program import happens_before
from autostream.rewrite.air import Air
from tests.faults.scenarios import bf16, int8, planned, scenario, streams_of

pytestmark = pytest.mark.usefixtures("npu_host")

c10d = torch.ops._c10d_functional


def _two_groups(x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    gathered = c10d.wait_tensor(c10d.all_gather_into_tensor(x, 8, "tp"))
    reduced = c10d.wait_tensor(c10d.all_reduce(y, "sum", "ep"))
    return torch.mm(gathered, w), torch.sigmoid(reduced)


def _graph() -> torch.fx.GraphModule:
    return scenario(_two_groups, bf16(64, 7168), bf16(512, 7168), bf16(7168, 4096))


def test_a04_collectives_of_different_groups_form_one_total_order() -> None:
    """vllm-ascend #16446: collectives of different groups on two streams, in another order on each rank."""
    graph = capture(_graph())
    collectives = [op.name for op in graph if op.group is not None]
    assert len(collectives) == 2
    assert Why.COLLECTIVE in graph.why(*collectives)


def test_a05_side_streams_carry_no_collectives_by_default() -> None:
    outcome = planned(_graph(), min_gain=0.0)
    streams = streams_of(outcome)
    assert all(streams[op.name] == "hccl" for op in capture(_graph()) if op.group is not None)


def test_g36_two_collectives_of_one_group_stay_ordered_even_when_allowed_on_side_streams() -> None:
    """sglang #31117: one communicator used from two streams at once dead-locks."""

    def same_group(x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        first = c10d.wait_tensor(c10d.all_reduce(x, "sum", "tp"))
        second = c10d.wait_tensor(c10d.all_reduce(y, "sum", "tp"))
        return torch.mm(first, w), torch.sigmoid(second)

    module = scenario(same_group, bf16(512, 7168), bf16(512, 7168), bf16(7168, 4096))
    outcome = plan(module, model=cost_model("910B2"), options=Options(side_collectives=True, min_gain=0.0), dialect=Air())
    assert outcome.program is not None
    first, second = [op.name for op in capture(module) if op.group is not None]
    assert happens_before(outcome.program).before(first, second)


def test_a59_the_order_of_collectives_depends_on_the_graph_and_not_on_the_prices() -> None:
    """vllm-ascend #11562: ranks with other prices must not order their collectives differently."""
    module = _graph()
    fast, slow = cost_model("910B2"), cost_model("910B4")
    orders = []
    for model in (fast, slow, TableModel(fast.machine, {"all_reduce": 1.0, "all_gather_into_tensor": 900.0}, fast)):
        outcome = plan(module, model=model, options=Options(strict=True, min_gain=0.0), dialect=Air())
        emitted = outcome.graph_module or module
        orders.append([n.name for n in emitted.graph.nodes if "all_" in str(n.target)])
    assert orders[0] == orders[1] == orders[2]


def test_a33_one_quantised_activation_feeds_both_branches_as_it_is() -> None:
    """vllm-ascend #2232: x quantised once, shared by router and shared branch."""
    npu = torch.ops.npu

    def shared(x: Tensor, a: Tensor, sa: Tensor, b: Tensor, sb: Tensor) -> tuple[Tensor, Tensor]:
        quantised, scale = npu.npu_dynamic_quant(x)
        left = npu.npu_quant_matmul(quantised, a, sa, pertoken_scale=scale, output_dtype=torch.bfloat16)
        right = npu.npu_quant_matmul(quantised, b, sb, pertoken_scale=scale, output_dtype=torch.bfloat16)
        return npu.npu_swiglu(left), right

    module = scenario(shared, bf16(512, 7168), int8(7168, 4096), bf16(4096), int8(7168, 4096), bf16(4096))
    outcome = planned(module, min_gain=0.0)
    emitted = outcome.graph_module
    assert emitted is not None
    for node in emitted.graph.nodes:
        if "quant_matmul" in str(node.target):
            assert node.args[0].name == "getitem"
            assert node.kwargs["pertoken_scale"].name == "getitem_1"
