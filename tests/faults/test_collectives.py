"""K4, K5: order of collectives. Concurrent gangs of cores are proved in tests/program."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, fx

from autostream.chips import cost_model
from autostream.cost import TableModel
from autostream.graph import Why
from autostream.graph.capture import capture
from autostream.options import Options
from autostream.pipeline import plan
from autostream.program import Edge, EdgeKind, StreamProgram, happens_before, verify_ranks
from autostream.program.kinds import is_collective
from autostream.program.reading.fx import read_fx
from autostream.rewrite.air import Air
from tests.faults.scenarios import PRICES, bf16, int8, planned, priced, program_of, scenario, streams_of

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


# -- ranks ------------------------------------------------------------------------------------------------------------------


def _expert_layer(layers: int) -> fx.GraphModule:
    """Per layer two collectives of two groups that no value links, beside Cube and Vector work."""

    def stack(x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        for _ in range(layers):
            gathered = c10d.wait_tensor(c10d.all_gather_into_tensor(x, 8, "tp"))
            reduced = c10d.wait_tensor(c10d.all_reduce(y, "sum", "ep"))
            x, beside = torch.mm(torch.sigmoid(gathered)[:64], w), torch.mm(x, w)
            y = torch.add(torch.tanh(torch.sigmoid(reduced)), beside)
        return x, y

    return scenario(stack, bf16(64, 512), bf16(64, 512), bf16(512, 512))


_DRIFTS = {"none": 1.0, "slightly": 1.03, "much": 3.0}


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("side_collectives", [False, True])
@pytest.mark.parametrize("drift", _DRIFTS)
def test_a05_a59_a67_ranks_with_other_prices_meet_or_are_told_apart(drift: str, side_collectives: bool, layers: int) -> None:
    """vllm-ascend #11562, vLLM's RFC #50738: one rank measures faster, or plans serially; their collectives meet all the same."""
    module, factor = _expert_layer(layers), _DRIFTS[drift]
    slow = {f"aten__{name}": PRICES[f"aten.{name}"] * factor for name in ("mm", "sigmoid", "tanh")}
    outcomes = [
        # No wait is sure to land in front of a collective whose process group is not there: such a plan is given up.
        planned(module, model, min_gain=0.0, side_collectives=side_collectives, strategy="greedy", strict=not side_collectives)
        for model in (priced(), priced(**slow))
    ]
    programs = {str(rank): outcome.program or read_fx(module) for rank, outcome in enumerate(outcomes)}
    programs["serial"] = read_fx(module)
    assert verify_ranks(programs) == ()
    orders = {
        tuple(step.name for step in program.steps if step.stream and is_collective(step.kind)) for program in programs.values()
    }
    assert len(orders) == 1
    graphs = {str(outcome.graph_module.graph) for outcome in outcomes if outcome.graph_module is not None}
    if drift == "none":
        assert len(graphs) == 1 or side_collectives
    fingerprints = [priced().fingerprint(), priced(**slow).fingerprint()]
    assert (fingerprints[0] == fingerprints[1]) is (factor == 1.0)  # what tells the ranks apart before they start


@pytest.mark.parametrize("layers", [1, 3])
def test_g28_ranks_that_do_not_keep_the_order_are_found(layers: int) -> None:
    """openxla/xla #17749: the union over the ranks must have no cycle."""
    module = _expert_layer(layers)
    outcome = planned(module, priced(), min_gain=0.0, strategy="greedy")
    emitted = program_of(outcome)
    swapped = _swapped_collectives(emitted)
    assert verify_ranks({"0": emitted, "1": emitted}) == ()
    assert {one.kind for one in verify_ranks({"0": emitted, "1": swapped})} == {"rank-order"}
    missing = replace(emitted, steps=tuple(step for step in emitted.steps if "all_reduce" not in step.kind), edges=())
    assert "rank-missing" in {one.kind for one in verify_ranks({"0": emitted, "1": missing})}


def _swapped_collectives(emitted: StreamProgram) -> StreamProgram:
    """The first two collectives in the other order, and without the edge between them."""
    one, two = [step for step in emitted.steps if step.stream and is_collective(step.kind)][:2]
    other = {one.name: two, two.name: one}
    edges = tuple(edge for edge in emitted.edges if (edge.before, edge.after) != (one.name, two.name))
    forced = Edge(before=two.name, after=one.name, kind=EdgeKind.CONTROL)
    return replace(emitted, steps=tuple(other.get(step.name, step) for step in emitted.steps), edges=(*edges, forced))
