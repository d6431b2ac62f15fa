"""Operators of one kind side by side: which limits are offered, how they are written, read back, proved and judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor, fx

from autostream import offline
from autostream.core_split import split_cores
from autostream.cost import Cost, Machine, RooflineModel, TableModel, load_chip
from autostream.cost.model import Breakdown, Resources, Tier
from autostream.errors import RewriteError, VerificationError
from autostream.graph.capture import capture
from autostream.graph.model import OpGraph, Unit
from autostream.graph.programs import to_aten
from autostream.options import Options
from autostream.outcome import Outcome
from autostream.pipeline import plan
from autostream.pricing import price, price_limited
from autostream.program import read_ascend_ir
from autostream.program.reading.fx import read_fx
from autostream.proof import limits_written, prove_ascend_ir
from autostream.rewrite.air import Air
from autostream.rewrite.emit import emit
from autostream.scheduling import Problem, Schedule, build_problem
from autostream.scheduling.lists.greedy import Greedy
from tests.models import serving, toys
from tests.rewrite.graphs import op_graph
from tests.rewrite.graphs_fx import on_streams, traced

MACHINE = Machine(name="toy", aic=24, aiv=48, sync=100, sync_error=0.0)
A3 = load_chip("910_9391")


class _Elastic(TableModel):
    """Cube operators take 10 us on all cores and 14 us on up to two thirds; vector operators take a limit as advice."""

    def limited(self, op: object, *, aic: int, aiv: int) -> Cost:
        whole = self.estimate(op)  # type: ignore[arg-type]
        if not whole.resources.aic or aic >= self.machine.aic:
            return whole
        return replace(whole, duration=whole.duration * 14 // 10, resources=Resources(aic=aic))


def _cost(**held: int) -> Cost:
    return Cost(duration=10_000, breakdown=Breakdown(), resources=Resources(**held), tier=Tier.ANALYTIC, error=0.0)


def _model() -> _Elastic:
    return _Elastic(MACHINE, {f"test.{name}": _cost(aic=24) for name in ("a", "b", "c")} | {"test.v": _cost(aiv=48)})


def _problem(graph: OpGraph, model: _Elastic) -> Problem:
    costs = {op.name: price(op, model, Options()) for op in graph}
    return build_problem(graph, costs, MACHINE, Options())


def _shorter(schedule: Schedule, limits: Mapping[str, tuple[int, int]], limited: Mapping[str, Cost]) -> tuple[bool, float]:
    return True, -schedule.makespan


def _split(graph: OpGraph, judge: object = _shorter) -> dict[str, tuple[int, int]] | None:
    model = _model()
    problem = _problem(graph, model)
    plain = Greedy().solve(problem)
    modes = {"a": 1, "b": 3}  # two thirds beside one third: list scheduling alone takes the fastest mode for what comes first
    found = split_cores(problem, plain, graph.ops, model=model, solver=_Chosen(modes), judge=judge)  # type: ignore[arg-type]
    return None if found is None else dict(found.limits)


class _Chosen:
    """Puts each named task into a mode and on a stream of its own."""

    def __init__(self, modes: Mapping[str, int]) -> None:
        self._modes = modes

    def solve(self, problem: Problem) -> Schedule:
        free = {task.name: len(task.modes) > 1 for task in problem.tasks}
        tasks = tuple(
            replace(task, modes=(task.modes[self._modes[task.name]],)) if free[task.name] else task for task in problem.tasks
        )
        found = Greedy().solve(replace(problem, tasks=tasks))
        rows = tuple(replace(p, mode=self._modes[p.task] if free[p.task] else 0) for p in found.placements)
        return replace(found, placements=rows)


def test_two_branches_of_one_kind_share_the_chip() -> None:
    assert _split(op_graph({"a": Unit.CUBE, "b": Unit.CUBE})) == {"a": (16, 32), "b": (8, 16)}


def test_no_limit_where_nothing_of_the_kind_can_run_beside_it() -> None:
    chain = op_graph({"a": Unit.CUBE, "b": Unit.CUBE}, [("a", "b")])
    other_kind = op_graph({"a": Unit.CUBE, "v": Unit.VECTOR})
    assert _split(chain) is None
    assert _split(other_kind) is None


def test_operators_in_a_scope_of_the_user_keep_it() -> None:
    graph = op_graph({"a": Unit.CUBE, "b": Unit.CUBE})
    graph.ops["b"] = graph.ops["b"]._replace(scope=(("_op_aicore_num", "4"), ("_op_vectorcore_num", "8")))  # type: ignore[index]
    assert _split(graph) is None
    relied_on, ignored = (price(graph.ops["b"], _model(), Options(core_limits=limits)) for limits in (True, False))
    assert (relied_on.duration, relied_on.resources.aic) == (14_000, 4)
    assert (ignored.duration, ignored.resources.aic) == (10_000, 24)


def test_a_plan_with_limits_must_be_judged_better_and_must_be_possible() -> None:
    def worse(schedule: Schedule, limits: Mapping[str, tuple[int, int]], limited: Mapping[str, Cost]) -> tuple[bool, float]:
        return not limits, 0.0

    def impossible(schedule: Schedule, limits: Mapping[str, tuple[int, int]], limited: Mapping[str, Cost]) -> tuple[bool, float]:
        raise RewriteError("no")

    graph = op_graph({"a": Unit.CUBE, "b": Unit.CUBE})
    assert _split(graph, worse) is None
    assert _split(graph, impossible) is None


def test_a_model_that_knows_no_limits_offers_none() -> None:
    graph = op_graph({"a": Unit.CUBE, "b": Unit.CUBE})
    model = TableModel(MACHINE, {"test.a": _cost(aic=24), "test.b": _cost(aic=24)})
    problem = build_problem(graph, {op.name: model.estimate(op) for op in graph}, MACHINE, Options())
    plain = Greedy().solve(problem)
    assert split_cores(problem, plain, graph.ops, model=model, solver=Greedy(), judge=_shorter) is None


def test_advice_is_no_limit_and_a_limited_operator_holds_all_it_may_use() -> None:
    graph = op_graph({"a": Unit.CUBE, "v": Unit.VECTOR})
    assert price_limited(graph.ops["v"], _model(), 8, 16) is None
    assert price_limited(graph.ops["a"], _model(), 24, 48) is None
    limited = price_limited(graph.ops["a"], _model(), 8, 16)
    assert limited is not None and limited.resources == Resources(aic=8)


# ---- written, read back, proved ----


def _branches(x: Tensor, y: Tensor) -> Tensor:
    return torch.mm(x, x) + torch.mm(y, y).neg()


def _emitted(limits: Mapping[str, tuple[int, int]]) -> tuple[fx.GraphModule, OpGraph]:
    module = traced(_branches, (8, 8), (8, 8))
    graph = capture(module)
    return emit(module, graph, on_streams(graph, {"mm_1": "side", "neg": "side"}), Air(), limits).graph_module, graph


LIMITS = {"mm": (16, 32), "mm_1": (8, 16)}


@pytest.mark.usefixtures("npu_host")
def test_limits_are_written_as_flat_scopes_with_the_label_first() -> None:
    graph_module, _ = _emitted(LIMITS)
    depth = 0
    opened = []
    for node in graph_module.graph.nodes:
        if node.target is torch.ops.air.scope_enter.default:
            depth += 1
            opened.append(list(node.args[0]))
        depth -= node.target is torch.ops.air.scope_exit.default
        assert depth in (0, 1)
    cores = ["_op_aicore_num", "_op_vectorcore_num"]
    stream = ["_user_stream_label", "_user_stream_priority", "_enable_inner_parallel"]
    assert sorted(opened) == sorted([cores, [*stream, *cores], stream])


@pytest.mark.usefixtures("npu_host")
def test_limits_are_read_back_from_the_graph_and_from_the_ascend_ir() -> None:
    graph_module, graph = _emitted(LIMITS)
    program = read_fx(graph_module)
    assert {step.name: step.cores for step in program.steps if step.cores} == LIMITS
    limits_written(program, LIMITS)
    converted, _ = prove_ascend_ir(graph_module, graph, offline.convert)
    assert converted is not None
    ir = read_ascend_ir(converted.serialized)
    assert {(step.kind, step.stream, step.cores) for step in ir.steps if step.cores} == {
        ("MatMul", "default", (16, 32)),
        ("MatMul", "side", (8, 16)),
    }
    assert {step.cores for step in read_ascend_ir(converted.text).steps} == {None, (16, 32), (8, 16)}


@pytest.mark.usefixtures("npu_host")
def test_a_limit_that_is_lost_on_the_way_is_an_error() -> None:
    with_limits, graph = _emitted(LIMITS)
    without, _ = _emitted({"mm": (16, 32)})
    with pytest.raises(VerificationError, match=r"'mm_1' was to run on \(8, 16\)"):
        limits_written(read_fx(without), LIMITS)
    with pytest.raises(VerificationError, match=r"lost the core limit \(8, 16\) of 'mm_1'"):
        prove_ascend_ir(without, graph, offline.convert, emitted=read_fx(with_limits))


# ---- on models ----


class _Calm(RooflineModel):
    """Kernels that run at once do not slow each other down, but for the memory they share."""

    @property
    def machine(self) -> Machine:
        return replace(super().machine, hbm_contention=1000, cube_vector_slowdown=1000, compute_comm_slowdown=1000)


def _plan(module: torch.nn.Module, inputs: tuple[Tensor, ...], model: RooflineModel, *, core_limits: bool) -> Outcome:
    options = Options(strict=True, side_streams=1, core_limits=core_limits)
    graph_module = to_aten(module, inputs).graph_module
    return plan(graph_module, model=model, options=options, dialect=Air(), convert=offline.convert)


@pytest.mark.usefixtures("npu_host")
def test_projections_of_one_kind_run_at_once_and_the_gain_holds_in_nine_of_ten_draws() -> None:
    model = RooflineModel(A3)
    plain, split = (_plan(*toys.kv_cache(npu=True), model, core_limits=limits) for limits in (False, True))
    assert split.verdict.accepted and split.ascend_ir is not None and split.program is not None and plain.program is not None
    assert split.verdict.gain_p10 > plain.verdict.gain_p10
    assert split.verdict.lower_bound_ns <= split.verdict.scheduled_ns < plain.verdict.scheduled_ns
    assert any(step.cores for step in split.program.steps)
    assert not any(step.cores for step in plain.program.steps)


@pytest.mark.slow
@pytest.mark.usefixtures("npu_host")
def test_a_whole_mixture_of_experts_shares_the_chip_where_kernels_do_not_slow_each_other_down() -> None:
    module, inputs = serving.shortcut_layers(1)
    plain, split = (_plan(module, inputs, _Calm(A3), core_limits=limits) for limits in (False, True))
    assert split.verdict.accepted and split.program is not None
    assert split.verdict.gain > plain.verdict.gain
    assert split.verdict.gain_p10 > plain.verdict.gain_p10
    # As published: two thirds of the chip for attention and dense layers, one third for the experts.
    experts = [step for step in split.program.steps if step.kind == "npu.npu_grouped_matmul.default"]
    attention = [step for step in split.program.steps if step.kind == "npu.npu_fused_infer_attention_score.default"]
    assert {step.cores for step in experts} == {(8, 16)}
    assert (16, 32) in {step.cores for step in attention}
