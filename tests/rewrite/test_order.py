from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autostream.errors import RewriteError
from autostream.graph.model import Unit, Why
from autostream.rewrite.order import emission_order
from autostream.scheduling.problem import MAIN, Placement, Schedule
from tests.rewrite.graphs import op_graph


def _schedule(placements: list[tuple[str, str, int]]) -> Schedule:
    rows = tuple(Placement(task=t, stream=s, mode=0, start=at, end=at + 1) for t, s, at in placements)
    return Schedule(placements=rows, strategy="test", status="feasible", makespan=0, lower_bound=0)


def test_streams_are_written_in_long_runs() -> None:
    graph = op_graph(dict.fromkeys(["a0", "b0", "a1", "b1", "join"], Unit.CUBE), data=[("a1", "join"), ("b1", "join")])
    schedule = _schedule([("a0", MAIN, 0), ("b0", "s", 0), ("a1", MAIN, 1), ("b1", "s", 1), ("join", MAIN, 2)])
    assert emission_order(graph, schedule) == ("a0", "a1", "b0", "b1", "join")


def test_the_stream_that_starts_first_is_written_first() -> None:
    """Of two streams that are ready at the same time the first one in the graph is served first."""
    graph = op_graph(dict.fromkeys(["a", "b", "c"], Unit.VECTOR), data=[("a", "c"), ("b", "c")])
    schedule = _schedule([("b", "s", 0), ("a", MAIN, 1), ("c", MAIN, 2)])
    assert emission_order(graph, schedule) == ("b", "a", "c")


def test_a_stream_that_waits_gives_way_and_is_taken_up_again() -> None:
    graph = op_graph(dict.fromkeys(["x", "y", "z"], Unit.CUBE), data=[("x", "y"), ("y", "z")])
    schedule = _schedule([("x", MAIN, 0), ("y", "s", 1), ("z", MAIN, 2)])
    assert emission_order(graph, schedule) == ("x", "y", "z")


def test_orders_through_views_hold() -> None:
    graph = op_graph(
        {"x": Unit.CUBE, "v": Unit.FREE, "y": Unit.CUBE, "w": Unit.CUBE},
        data=[("x", "v"), ("v", "y")],
        orders=[("y", "w", Why.WAR)],
    )
    schedule = _schedule([("x", "s", 0), ("y", MAIN, 1), ("w", "s", 2)])
    assert emission_order(graph, schedule) == ("x", "y", "w")


@given(st.data())
def test_any_schedule_is_written_in_topological_order_with_each_stream_in_its_own(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    names = [f"n{i:02d}" for i in range(count)]
    units = {n: data.draw(st.sampled_from([Unit.CUBE, Unit.FREE])) for n in names}
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    edges = data.draw(st.lists(st.sampled_from(pairs), max_size=20, unique=True)) if pairs else []
    graph = op_graph(units, edges)
    tasks = [n for n in names if units[n] is Unit.CUBE]
    schedule = _schedule([(n, data.draw(st.sampled_from([MAIN, "s", "t"])), i) for i, n in enumerate(tasks)])
    order = emission_order(graph, schedule)
    assert sorted(order) == sorted(tasks)
    position = {name: i for i, name in enumerate(order)}
    for lane in schedule.streams().values():
        assert [position[p.task] for p in lane] == sorted(position[p.task] for p in lane)
    for before, after in edges:
        if before in position and after in position:
            assert position[before] < position[after]


def test_a_super_kernel_scope_is_not_split() -> None:
    graph = op_graph(dict.fromkeys(["k0", "other", "k1", "k2"], Unit.CUBE), data=[("k0", "k1"), ("k1", "k2")])
    inside = {name: graph.ops[name]._replace(scope=(("_super_kernel_scope", "kernel"),)) for name in ("k0", "k1", "k2")}
    graph = replace(graph, ops={**graph.ops, **inside})
    schedule = _schedule([("k0", MAIN, 0), ("other", MAIN, 1), ("k1", MAIN, 2), ("k2", MAIN, 3)])
    assert emission_order(graph, schedule) == ("k0", "k1", "k2", "other")


def test_a_schedule_that_contradicts_the_graph_is_an_error() -> None:
    graph = op_graph(dict.fromkeys(["x", "y"], Unit.CUBE), data=[("x", "y")])
    with pytest.raises(RewriteError, match="'y' would wait"):
        emission_order(graph, _schedule([("y", MAIN, 0), ("x", MAIN, 1)]))
