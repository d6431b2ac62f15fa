from __future__ import annotations

import pytest

from autostream.acceptance import Gain, gain, refusal
from autostream.cost.model import Breakdown, Cost, Machine, Resources, Tier
from autostream.graph.model import Unit
from autostream.program.model import Edge, EdgeKind, Semantics, Step, StreamProgram
from tests.rewrite.graphs import op_graph

MACHINE = Machine(name="test", aic=24, aiv=48, sync=100, sync_error=1.0)


def _cost(duration: int, error: float, *, aic: int = 0, aiv: int = 0) -> Cost:
    held = Resources(aic=aic, aiv=aiv)
    return Cost(duration=duration, breakdown=Breakdown(launch=duration), resources=held, tier=Tier.ANALYTIC, error=error)


def _program(streams: dict[str, str], edges: list[tuple[str, str]]) -> StreamProgram:
    return StreamProgram(
        semantics=Semantics.GE,
        steps=tuple(Step(name=name, kind=name, stream=stream, source=name) for name, stream in streams.items()),
        edges=tuple(Edge(before=b, after=a, kind=EdgeKind.DATA) for b, a in edges),
        in_order=True,
    )


def _two_branches(cube: Cost, vector: Cost) -> Gain:
    graph = op_graph({"mm": Unit.CUBE, "norm": Unit.VECTOR, "join": Unit.CUBE}, [("mm", "join"), ("norm", "join")])
    edges = [("mm", "join"), ("norm", "join")]
    before = _program(dict.fromkeys(["mm", "norm", "join"], "default"), edges)
    after = _program({"mm": "default", "norm": "side", "join": "default"}, edges)
    return gain(before, after, graph, {"mm": cube, "norm": vector, "join": _cost(0, 0.0)}, MACHINE)


def test_the_gain_is_what_overlaps_less_the_sync() -> None:
    found = _two_branches(_cost(1000, 0.0, aic=24), _cost(600, 0.0, aiv=48))
    assert (found.serial, found.scheduled) == (1600, 1000)
    assert found.nominal == pytest.approx(0.375)


def test_the_worst_corner_takes_the_shorter_branch_short_and_the_sync_dear() -> None:
    found = _two_branches(_cost(1000, 0.2, aic=24), _cost(600, 0.5, aiv=48))
    assert found.low == pytest.approx(1 - 1000 / 1300)
    assert found.low < found.nominal < found.high


def test_a_gain_below_the_minimum_or_within_the_error_is_refused() -> None:
    assert refusal(Gain(serial=1000, scheduled=995, low=0.001, high=0.01), 0.01) == (
        "no-gain",
        "the simulated gain of 0.5% is below min_gain (1.0%)",
    )
    code, text = refusal(Gain(serial=1000, scheduled=950, low=-0.02, high=0.1), 0.01) or ("", "")
    assert code == "within-error" and "-2.0%" in text
    assert refusal(Gain(serial=1000, scheduled=950, low=0.01, high=0.1), 0.01) is None


def test_a_branch_that_only_pays_within_the_error_is_refused() -> None:
    # 120 ns beside 10,000 ns: 100 ns of sync leave 20 ns to gain, and a sync may cost twice that.
    found = _two_branches(_cost(10_000, 0.1, aic=24), _cost(120, 0.6, aiv=48))
    assert refusal(found, 0.0) is None  # the branch is hidden whatever it costs
    late = _program({"mm": "default", "norm": "side", "join": "side"}, [("mm", "join"), ("norm", "join")])
    graph = op_graph({"mm": Unit.CUBE, "norm": Unit.VECTOR, "join": Unit.CUBE}, [("mm", "join"), ("norm", "join")])
    before = _program(dict.fromkeys(["mm", "norm", "join"], "default"), [("mm", "join"), ("norm", "join")])
    costs = {"mm": _cost(10_000, 0.1, aic=24), "norm": _cost(120, 0.6, aiv=48), "join": _cost(0, 0.0)}
    assert (refusal(gain(before, late, graph, costs, MACHINE), 0.0) or ("",))[0] == "within-error"
