"""K4: kernels that hold cores while they wait for their peers. Sets of any size are tested in tests/program/checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
import torch
from torch import Tensor, fx

from autostream.cost.model import FREE, Cost
from autostream.errors import VerificationError
from autostream.graph.capture import capture
from autostream.program import Edge, EdgeKind, Severity, StreamProgram, happens_before, verify
from autostream.program.kinds import is_collective
from autostream.program.order import order_of
from tests.faults.scenarios import (
    Input,
    bf16,
    gang,
    int8,
    passed,
    planned,
    priced,
    program_of,
    scenario,
    streams_of,
)
from tests.program.gangs import A3, torchair_conflicts

pytestmark = pytest.mark.usefixtures("npu_host")

npu = torch.ops.npu
c10d = torch.ops._c10d_functional

Collective = Callable[[Tensor, str], Tensor]


def _gather(x: Tensor, group: str) -> Tensor:
    return c10d.wait_tensor(c10d.all_gather_into_tensor(x, 8, group))


def _reduce(x: Tensor, group: str) -> Tensor:
    return c10d.wait_tensor(c10d.all_reduce(x, "sum", group))


def _scatter(x: Tensor, group: str) -> Tensor:
    return c10d.wait_tensor(c10d.reduce_scatter_tensor(x, "sum", 8, group))


def _exchange(x: Tensor, group: str) -> Tensor:
    return c10d.wait_tensor(c10d.all_to_all_single(x, [8] * 8, [8] * 8, group))


def _dispatch(x: Tensor, group: str) -> Tensor:
    chosen = torch.zeros(x.shape[0], 8, dtype=torch.int32)
    result: Tensor = npu.npu_moe_distribute_dispatch_v2(x, chosen, group, 16, 0, 256)[0]
    return result


_PAIRS: dict[str, tuple[Collective, str, Collective, str]] = {
    "a01": (_dispatch, "ep", _reduce, "tp"),
    "a04": (_gather, "tp", _dispatch, "ep"),
    "a07": (_gather, "dsa_cp", _exchange, "ep"),
    "a54": (_scatter, "dp", _dispatch, "ep"),
    "a64a": (_reduce, "tp", _gather, "dp"),
    "g36": (_reduce, "tp", _reduce, "tp"),
}


def _beside(one: Collective, first: str, two: Collective, second: str) -> fx.GraphModule:
    """Two collectives that no value links, each with its own branch of Cube and Vector work."""

    def layer(x: Tensor, y: Tensor, w: Tensor, v: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        a = torch.sigmoid(one(torch.mul(x, x), first))
        b = torch.relu(two(y, second))
        return a, b, torch.mm(w, v), torch.tanh(torch.sigmoid(z))

    return scenario(layer, bf16(64, 1024), bf16(64, 1024), bf16(64, 512), bf16(512, 512), bf16(64, 512))


def _gangs(cores: int, other: int) -> Mapping[str, Cost]:
    names = ("all_gather_into_tensor", "all_reduce", "reduce_scatter_tensor", "all_to_all_single")
    return {f"_c10d_functional__{name}": gang(cores) for name in names} | {
        "npu__npu_moe_distribute_dispatch_v2": gang(other),
    }


@pytest.mark.parametrize("side_collectives", [False, True])
@pytest.mark.parametrize("pair", _PAIRS)
def test_collectives_never_meet_in_an_emitted_graph(pair: str, side_collectives: bool, tmp_path: Path) -> None:
    """vllm-ascend #12237, #16446, #14296; sglang #434, #31117; the Transformer Boost rules: one after the other, always."""
    module = _beside(*_PAIRS[pair])
    model = priced(**_gangs(32, 24))
    outcome = planned(module, model, side_collectives=side_collectives, same_unit_overlap=True, min_gain=0.0)
    emitted = program_of(outcome)
    order = happens_before(emitted)
    collectives = [op.name for op in capture(module) if op.group is not None]
    assert len(collectives) == 2
    assert order.before(*collectives)
    if not side_collectives:
        assert {streams_of(outcome)[name] for name in collectives} <= {"hccl", "default"}
    assert not [finding for finding in outcome.findings if finding.severity is Severity.ERROR]
    tasks = _tasks_only(emitted)
    assert torchair_conflicts(tasks, _costs(tasks, outcome.costs), tmp_path) == set()


@pytest.mark.parametrize("pair", ["a01", "a04", "a54"])
@pytest.mark.parametrize(
    ("cores", "other", "fits"), [(32, 24, False), (24, 24, True), (32, 16, True), (16, 48, False), (48, 1, False)]
)
def test_a03_without_their_order_we_and_torchair_reject_the_same_ones(
    pair: str, cores: int, other: int, fits: bool, tmp_path: Path
) -> None:
    """The emitted program with its second collective on a stream of its own and no edge between the two."""
    module = _beside(*_PAIRS[pair])
    outcome = planned(module, priced(**_gangs(cores, other)), same_unit_overlap=True, min_gain=0.0, strategy="greedy")
    torn = _torn_apart(_tasks_only(program_of(outcome)), *[op.name for op in capture(module) if op.group is not None])
    costs = _costs(torn, outcome.costs)
    gangs = [one for one in verify(torn, costs=costs, machine=A3) if one.kind == "gang-deadlock"]
    assert bool(gangs) is not fits
    assert all(one.severity is Severity.ERROR and f"sum {cores + other} > 48" in one.explanation for one in gangs)
    assert bool(torchair_conflicts(torn, costs, tmp_path)) is bool(gangs)


def _tasks_only(emitted: StreamProgram) -> StreamProgram:
    """The tasks of a program and what each waits for, views looked through: what an engine's trace shows."""
    order = order_of(emitted)
    by_name = {step.name: step for step in emitted.steps}
    edges = tuple(
        Edge(before=order.names[before], after=order.names[after], kind=EdgeKind.CONTROL)
        for after, waits in enumerate(order.waits)
        for before in waits
    )
    return StreamProgram(
        semantics=emitted.semantics, steps=tuple(by_name[name] for name in order.names), edges=edges, in_order=True
    )


def _torn_apart(emitted: StreamProgram, one: str, two: str) -> StreamProgram:
    steps = tuple(step._replace(stream="torn") if step.name == two else step for step in emitted.steps)
    return replace(emitted, steps=steps, edges=tuple(edge for edge in emitted.edges if (edge.before, edge.after) != (one, two)))


def _costs(emitted: StreamProgram, costs: Mapping[str, Cost]) -> dict[str, Cost]:
    """What the steps that communicate hold; the others give back their cores and are no gangs, for us and for TorchAir."""
    return {step.name: costs[step.source] if is_collective(step.kind) else FREE for step in emitted.steps}


@pytest.mark.parametrize("collective", [_gather, _reduce, _scatter])
@pytest.mark.parametrize(("cores", "allowed"), [(8, False), (15, False), (16, True), (48, True)])
def test_a51_a_collective_on_vector_cores_gets_sixteen_or_the_plan_is_refused(
    collective: Collective, cores: int, allowed: bool
) -> None:
    """vllm-ascend #4894: with fewer than 16 vector cores the library throws."""
    module = _beside(collective, "tp", collective, "tp")
    model, options = priced(**_gangs(cores, cores)), {"same_unit_overlap": True, "min_gain": 0.0}
    if allowed:
        assert planned(module, model, **options).verdict.accepted
        return
    with pytest.raises(VerificationError, match=f"on {cores} vector cores.*fewer than 16"):
        planned(module, model, **options)
    before = str(module.graph)
    emitted, report = passed(module, cost_model=model, options=options)
    assert str(emitted.graph) == before and report.verdict.code == "unverified"


# -- compute ----------------------------------------------------------------------------------------------------------------


def _mm(x: Tensor, w: Tensor) -> Tensor:
    return torch.mm(x, w)


def _bmm(x: Tensor, w: Tensor) -> Tensor:
    return torch.bmm(x.unsqueeze(0), w.unsqueeze(0))


def _softmax(x: Tensor, _w: Tensor) -> Tensor:
    return torch.softmax(torch.tanh(x), dim=-1)


@pytest.mark.parametrize(("one", "two"), [*combinations([_mm, _bmm, _softmax], 2), (_mm, _mm), (_softmax, _softmax)])
def test_a64_kernels_of_one_kind_take_turns_and_of_two_kinds_run_together(
    one: Callable[[Tensor, Tensor], Tensor], two: Callable[[Tensor, Tensor], Tensor]
) -> None:
    """Ascend's own rules: Cube beside Cube, and Vector beside Vector, fight for cores; Cube beside Vector pays."""

    def layer(x: Tensor, w: Tensor, y: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return one(x, w), two(y, v)

    module = scenario(layer, bf16(512, 4096), bf16(4096, 4096), bf16(512, 4096), bf16(4096, 4096))
    outcome = planned(module, min_gain=0.0)
    both = (one is _softmax) != (two is _softmax)
    assert outcome.verdict.accepted is both, outcome.verdict.reason
    if not both:
        assert outcome.verdict.code == "nothing-to-overlap" and outcome.graph_module is None
        assert "same cores" in outcome.verdict.reason


@pytest.mark.parametrize("limited", [("4", "8"), ("24", "48"), ("1", "1")])
@pytest.mark.parametrize("kernel", [_mm, _softmax])
def test_a52_a_core_limit_of_the_user_is_not_relied_on(
    limited: tuple[str, str], kernel: Callable[[Tensor, Tensor], Tensor]
) -> None:
    """Limits bind Ascend C kernels only: a plan must be right if a kernel takes every core all the same."""
    keys = ["_op_aicore_num", "_op_vectorcore_num"]

    def layer(x: Tensor, w: Tensor, y: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        torch.ops.air.scope_enter(keys, list(limited))
        first = kernel(x, w)
        torch.ops.air.scope_exit()
        return first, kernel(y, v)

    module = scenario(layer, bf16(512, 4096), bf16(4096, 4096), bf16(512, 4096), bf16(4096, 4096))
    outcome = planned(module, min_gain=0.0)
    assert outcome.verdict.code == "nothing-to-overlap", outcome.verdict.reason
    assert "same cores" in outcome.verdict.reason


def test_a09_collectives_that_the_pass_does_not_touch_are_not_called_safe() -> None:
    """vllm-ascend #14928: it hung without any second stream; nothing is added, and nothing claimed."""

    def chain(x: Tensor) -> Tensor:
        return _reduce(_gather(x, "tp"), "ep")

    module = scenario(chain, bf16(64, 1024))
    before = str(module.graph)
    emitted, report = passed(module)
    assert str(emitted.graph) == before and not report.verdict.accepted
    (note,) = [note for note in report.notes if "collectives" in note]
    assert "2 collectives (groups 'tp', 'ep')" in note and "nothing is proved" in note
    _, alone = passed(scenario(lambda x: _reduce(x, "tp"), bf16(64, 1024)))
    assert not [note for note in alone.notes if "collectives" in note]


def test_a01_the_whole_shape_shared_expert_with_its_reduction_beside_a_dispatch(tmp_path: Path) -> None:
    """vllm-ascend #12237: quantised products and an all-reduce on the one branch, a dispatch on all cores on the other."""

    def layer(x: Tensor, chosen: Tensor, w: Tensor, s: Tensor, v: Tensor, t: Tensor) -> Tensor:
        dispatched = npu.npu_moe_distribute_dispatch_v2(x, chosen, "ep", 16, 0, 256)[0]
        values, scale = npu.npu_dynamic_quant(x)
        hidden = npu.npu_swiglu(npu.npu_quant_matmul(values, w, s, pertoken_scale=scale, output_dtype=torch.bfloat16))
        again, rescale = npu.npu_dynamic_quant(hidden)
        shared = npu.npu_quant_matmul(again, v, t, pertoken_scale=rescale, output_dtype=torch.bfloat16)
        return c10d.wait_tensor(c10d.all_reduce(shared, "sum", "tp")) + dispatched[:64].to(torch.bfloat16)

    inputs: list[Input] = [bf16(64, 7168), ((64, 8), torch.int32), int8(7168, 4096), bf16(4096), int8(2048, 7168), bf16(7168)]
    model, module = priced(**_gangs(16, 48)), scenario(layer, *inputs)
    outcome = planned(module, model, min_gain=0.0)
    emitted = program_of(outcome)
    reduce = next(step.name for step in emitted.steps if "all_reduce" in step.kind)
    dispatch = next(step.name for step in emitted.steps if "dispatch" in step.kind)
    assert happens_before(emitted).before(dispatch, reduce)
    assert not [one for one in verify(emitted, costs=outcome.costs, machine=A3) if one.kind == "gang-deadlock"]
    tasks = _tasks_only(emitted)
    assert torchair_conflicts(tasks, _costs(tasks, outcome.costs), tmp_path) == set()
    # Where the two may not be kept apart by a wait that is sure to land, the graph stays as it was.
    before = str(module.graph)
    left, report = passed(module, cost_model=model, options={"min_gain": 0.0, "side_collectives": True})
    assert report.verdict.accepted or str(left.graph) == before


def test_nothing_here_is_concurrent_by_accident() -> None:
    """The near miss: what is not a collective does run beside one."""
    module = _beside(*_PAIRS["a04"])
    # A product longer than what may run before and after the two.
    outcome = planned(module, priced(aten__mm=400.0, **_gangs(16, 16)), min_gain=0.0)
    assert outcome.after is not None
    busy = [slot for slot in outcome.after.slots if slot.step.startswith(("mm", "tanh"))]
    talks = [slot for slot in outcome.after.slots if "all_gather" in slot.step or "dispatch" in slot.step]
    assert any(one.start < two.end and two.start < one.end for one in busy for two in talks)
