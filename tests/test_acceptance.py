from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autostream.acceptance import Gain, gain, memory_refusal, refusal
from autostream.cost.model import Breakdown, Cost, Machine, Resources, Tier
from autostream.graph.model import TensorSpec, Unit
from autostream.program.model import Edge, EdgeKind, Semantics, Step, StreamProgram
from tests.rewrite.graphs import op_graph

MACHINE = Machine(name="test", aic=24, aiv=48, sync=100, sync_error=1.0)


def _cost(duration: int, error: float, *, aic: int = 0, aiv: int = 0, comm: int = 0, spread: float = 0.0) -> Cost:
    held, parts = Resources(aic=aic, aiv=aiv, comm=comm), Breakdown(launch=duration)
    return Cost(duration=duration, breakdown=parts, resources=held, tier=Tier.ANALYTIC, error=error, spread=spread)


def _program(streams: dict[str, str], edges: list[tuple[str, str]]) -> StreamProgram:
    return StreamProgram(
        semantics=Semantics.GE,
        steps=tuple(Step(name=name, kind=name, stream=stream, source=name) for name, stream in streams.items()),
        edges=tuple(Edge(before=b, after=a, kind=EdgeKind.DATA) for b, a in edges),
        in_order=True,
    )


def _two_branches(cube: Cost, vector: Cost, machine: Machine = MACHINE) -> Gain:
    graph = op_graph({"mm": Unit.CUBE, "norm": Unit.VECTOR, "join": Unit.CUBE}, [("mm", "join"), ("norm", "join")])
    edges = [("mm", "join"), ("norm", "join")]
    before = _program(dict.fromkeys(["mm", "norm", "join"], "default"), edges)
    after = _program({"mm": "default", "norm": "side", "join": "default"}, edges)
    return gain(before, after, graph, {"mm": cube, "norm": vector, "join": _cost(0, 0.0)}, machine)


def test_the_gain_is_what_overlaps_less_the_sync() -> None:
    found = _two_branches(_cost(1000, 0.0, aic=24), _cost(600, 0.0, aiv=48))
    assert (found.serial, found.scheduled) == (1600, 1000)
    assert found.nominal == pytest.approx(0.375)


def test_the_worst_corner_takes_the_shorter_branch_short_and_the_sync_dear() -> None:
    found = _two_branches(_cost(1000, 0.2, aic=24), _cost(600, 0.5, aiv=48))
    assert found.low == pytest.approx(1 - 1000 / 1400)
    assert found.low < found.nominal < found.high


def test_the_worst_corner_has_the_interference_dear_and_the_best_one_has_none() -> None:
    machine = replace(MACHINE, sync=0, cube_vector_slowdown=1100, interference_error=0.5)
    found = _two_branches(_cost(1000, 0.0, aic=24), _cost(1000, 0.0, aiv=48), machine)
    assert (found.serial, found.scheduled) == (2000, 1100)
    assert (found.low, found.high) == (pytest.approx(1 - 1650 / 2000), pytest.approx(0.5))
    assert found.low <= found.p10 < found.p50 < found.p90 <= found.high
    known = _two_branches(_cost(1000, 0.0, aic=24), _cost(1000, 0.0, aiv=48), replace(machine, interference_error=0.0))
    assert known.low == known.p10 == known.nominal == found.nominal


def _judged(scheduled: int, *, low: float, p10: float = 0.01) -> Gain:
    return Gain(serial=1000, scheduled=scheduled, low=low, high=0.1, p10=p10, p50=0.02, p90=0.03)


def test_a_gain_below_the_minimum_or_within_the_error_is_refused() -> None:
    few = "the simulated gain of 0.5 % is below min_gain (1.0 %)"
    assert refusal(_judged(995, low=0.001), 0.01) == ("no-gain", few)
    code, text = refusal(_judged(950, low=-0.02), 0.01) or ("", "")
    assert code == "within-error" and "worst corner -2.0 %" in text
    code, text = refusal(_judged(950, low=0.01, p10=-0.003), 0.01) or ("", "")
    assert code == "within-error" and "p10 -0.3 %" in text
    assert refusal(_judged(950, low=0.01), 0.01) is None


def test_a_branch_that_only_pays_within_the_error_is_refused() -> None:
    # 120 ns beside 10,000 ns: 100 ns of sync leave 20 ns to gain, and a sync may cost twice that.
    found = _two_branches(_cost(10_000, 0.1, aic=24), _cost(120, 0.6, aiv=48))
    assert refusal(found, 0.0) is None  # the branch is hidden whatever it costs
    late = _program({"mm": "default", "norm": "side", "join": "side"}, [("mm", "join"), ("norm", "join")])
    graph = op_graph({"mm": Unit.CUBE, "norm": Unit.VECTOR, "join": Unit.CUBE}, [("mm", "join"), ("norm", "join")])
    before = _program(dict.fromkeys(["mm", "norm", "join"], "default"), [("mm", "join"), ("norm", "join")])
    costs = {"mm": _cost(10_000, 0.1, aic=24), "norm": _cost(120, 0.6, aiv=48), "join": _cost(0, 0.0)}
    assert (refusal(gain(before, late, graph, costs, MACHINE), 0.0) or ("",))[0] == "within-error"


def test_memory_beyond_the_cap_is_refused_and_memory_given_back_never() -> None:
    code, text = memory_refusal(1025, 1024) or ("", "")
    assert code == "over-memory-cap" and "1025 bytes" in text and "1024" in text
    assert memory_refusal(1024, 1024) is memory_refusal(-5, 0) is None


def test_without_error_every_draw_is_the_nominal_gain() -> None:
    found = _two_branches(_cost(1000, 0.0, aic=24), _cost(600, 0.0, aiv=48), replace(MACHINE, sync_error=0.0))
    assert found.low == found.high == found.p10 == found.p50 == found.p90 == found.nominal == pytest.approx(0.375)


_errors = st.integers(0, 80).map(lambda percent: percent / 100)


@given(st.integers(1, 10_000), st.integers(1, 10_000), _errors, _errors, st.integers(0, 500))
def test_quantiles_are_ordered_and_the_same_in_every_run(cube: int, vector: int, error: float, more: float, sync: int) -> None:
    machine = replace(MACHINE, sync=sync)
    costs = _cost(cube, error, aic=24, spread=error + more), _cost(vector, more, aiv=48, spread=more)
    found = _two_branches(*costs, machine)
    assert found.p10 <= found.p50 <= found.p90 <= 0.5
    assert found == _two_branches(*costs, machine)


@given(st.integers(100_000, 1_000_000), st.integers(100_000, 1_000_000), _errors, _errors, st.integers(0, 50_000))
def test_wider_bands_never_raise_p10_of_two_branches(cube: int, vector: int, error: float, more: float, sync: int) -> None:
    """The durations of a draw move on a line as its bands widen, and each value of the gain is reached by a convex set of them:
    what has fallen below a value under the nominal one stays there. Times are large so that rounding does not count."""
    machine = replace(MACHINE, sync=sync, sync_error=0.0)

    def p10(width: float) -> float:
        return _two_branches(_cost(cube, width, aic=24), _cost(vector, width / 2, aiv=48), machine).p10

    narrow, wide = p10(error / 2), p10(min(0.9, error / 2 + more))
    nominal = _two_branches(_cost(cube, 0.0, aic=24), _cost(vector, 0.0, aiv=48), machine).nominal
    assert narrow <= nominal + 1e-4
    assert wide <= narrow + 1e-4


def test_operators_that_are_alike_scatter_together() -> None:
    """The branch saves time only while it is shorter than the other one; if both are the same operator, it always is."""

    def low(shape: tuple[int, ...]) -> Gain:
        graph = op_graph({"mm": Unit.CUBE, "norm": Unit.VECTOR})
        graph.ops["norm"] = graph.ops["norm"]._replace(target="test.mm", outputs=(_spec(*shape),))
        graph.ops["mm"] = graph.ops["mm"]._replace(outputs=(_spec(4, 4),))
        costs = {"mm": _cost(1000, 0.0, aic=24, spread=0.8), "norm": _cost(1000, 0.0, aiv=48, spread=0.8)}
        before, after = _program(dict.fromkeys(costs, "default"), []), _program({"mm": "default", "norm": "side"}, [])
        return gain(before, after, graph, costs, MACHINE)

    assert low((4, 4)).p10 == pytest.approx(0.5, abs=1e-3)
    assert low((4, 8)).p10 < 0.4


def test_a_collective_waits_for_the_slowest_rank_in_both_programs() -> None:
    graph = op_graph({"mm": Unit.CUBE, "reduce": Unit.COMM, "norm": Unit.VECTOR}, [("mm", "reduce")])
    costs = {"mm": _cost(100_000, 0.05, aic=24), "reduce": _cost(10_000, 0.0, comm=1), "norm": _cost(12_000, 0.0, aiv=48)}
    edges = [("mm", "reduce")]
    before = _program(dict.fromkeys(costs, "default"), edges)
    after = _program({"mm": "default", "reduce": "hccl", "norm": "default"}, edges)
    found = gain(before, after, graph, costs, replace(MACHINE, sync=0))
    # Without skew 10 us are hidden behind the 12 us of norm; up to 5 us more can be, of which 2 us fit.
    assert found.nominal == pytest.approx(10 / 122)
    assert found.p90 > found.nominal
    alone = gain(before, after, graph, costs | {"mm": _cost(100_000, 0.0, aic=24)}, replace(MACHINE, sync=0))
    assert alone.p10 == alone.p90 == alone.nominal


@pytest.mark.parametrize(("branch", "rest", "expected"), [(6_000, 700_000, "no-gain"), (60_000, 900_000, None)])
def test_decisions_follow_the_batch(branch: int, rest: int, expected: str | None) -> None:
    """A shared expert beside a layer bound by weights: at batch 1 a branch of 6 us, at batch 64 one worth moving."""
    found = _two_branches(_cost(rest, 0.18, aic=24, spread=0.34), _cost(branch, 0.5, aiv=48, spread=0.75))
    code = (refusal(found, 0.01) or (None,))[0]
    assert code == expected


def _spec(*shape: int) -> TensorSpec:
    return TensorSpec(shape=shape, dtype="bfloat16", itemsize=2)
