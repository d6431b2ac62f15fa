from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autostream.errors import VerificationError
from autostream.program import Edge, EdgeKind, Semantics, StreamProgram, happens_before
from tests.program.programs import program, step


def test_a_stream_runs_in_emission_order_only_if_the_program_says_so() -> None:
    steps = [step("a"), step("b")]
    assert happens_before(program(steps)).before("a", "b")
    assert not happens_before(program(steps)).before("b", "a")
    assert not happens_before(program(steps, in_order=False)).before("a", "b")
    assert happens_before(program(steps, in_order=False), stream_order=True).before("a", "b")


def test_ge_orders_data_and_control_across_streams() -> None:
    steps = [step("a"), step("b", "s"), step("c"), step("d", "t")]
    order = happens_before(program(steps, data=["a>b"], control=["b>d"]))
    assert order.before("a", "b")
    assert order.before("a", "d")
    assert not order.ordered("b", "c")
    assert not order.ordered("c", "d")


def test_data_passes_through_steps_without_a_stream_but_control_does_not() -> None:
    steps = [step("a"), step("view", None), step("view2", None), step("b", "s"), step("const", None), step("c", "t")]
    order = happens_before(program(steps, data=["a>view", "view>view2", "view2>b"], control=["b>const"]))
    assert order.before("a", "b")
    with_const = happens_before(program(steps, data=["a>view", "view>view2", "view2>b", "const>c"], control=["b>const"]))
    assert not with_const.ordered("b", "c")
    assert not with_const.ordered("a", "view")


def test_views_listed_after_their_consumers_still_pass_data_on() -> None:
    steps = [step("b", "s"), step("view2", None), step("view", None), step("a")]
    assert happens_before(program(steps, data=["a>view", "view>view2", "view2>b"])).before("a", "b")


def test_capture_modes_order_by_events_alone() -> None:
    steps = [step("a"), step("b", "s"), step("c", "s"), step("d")]
    order = happens_before(program(steps, data=["a>b", "c>d"], event=["b>d"], in_order=False, semantics=Semantics.CAPTURE))
    assert not order.ordered("a", "b")
    assert order.before("b", "c")
    assert order.before("a", "d")
    assert order.before("b", "d")
    assert not order.ordered("c", "d")


def test_an_identity_hands_waits_on_but_its_place_on_a_stream_proves_nothing() -> None:
    steps = [step("x"), step("a", "t"), step("id", kind="Identity"), step("c", "s"), step("y")]
    linked = program(steps, data=["id>c"], control=["a>id"])
    order = happens_before(linked)
    assert order.before("a", "c")
    assert order.before("x", "y")
    assert not order.ordered("x", "c"), "the engine may remove the Identity"
    assert order.before("x", "id") and order.before("id", "y"), "if it is there, it has its place"
    as_task = happens_before(program([*steps[:2], step("id"), *steps[3:]], data=["id>c"], control=["a>id"]))
    assert as_task.before("x", "c")


def test_unknown_steps_are_before_nothing() -> None:
    order = happens_before(program([step("a")]))
    assert not order.before("a", "nobody")
    assert not happens_before(program([])).before("a", "a")


def test_a_cycle_is_named() -> None:
    looped = program([step("a"), step("b", "s"), step("c", "s"), step("d")], control=["c>a", "d>b"])
    with pytest.raises(VerificationError, match="waits for itself: a -> d -> b -> c -> a|d -> b -> c -> a -> d"):
        happens_before(looped)


@st.composite
def _programs(draw: st.DrawFn) -> StreamProgram:
    count = draw(st.integers(1, 14))
    streams = [None, "default", "s1", "s2", "s3"]
    kinds = st.sampled_from(["Add", "Add", "Add", "Identity"])
    steps = [step(f"n{i}", draw(st.sampled_from(streams)), kind=draw(kinds)) for i in range(count)]
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda pair: pair[0] < pair[1])
    edges = draw(st.lists(st.tuples(pairs, st.sampled_from(list(EdgeKind))), max_size=25)) if count > 1 else []
    return StreamProgram(
        semantics=draw(st.sampled_from(list(Semantics))),
        steps=tuple(steps),
        edges=tuple(Edge(before=f"n{a}", after=f"n{b}", kind=kind) for (a, b), kind in edges),
        in_order=draw(st.booleans()),
    )


def _reference(given_program: StreamProgram, *, place_all: bool) -> nx.DiGraph:
    """Every rule written out as edges of a graph; steps without a task get a node for the data that passes through.

    Unless `place_all`, an Identity has no place on its stream in GE mode.
    """
    capture = given_program.semantics is Semantics.CAPTURE
    stream = {s.name: s.stream for s in given_program.steps}
    graph = nx.DiGraph()
    graph.add_nodes_from(stream)
    for edge in given_program.edges:
        both = stream[edge.before] is not None and stream[edge.after] is not None
        counts = edge.kind is EdgeKind.EVENT and both if capture else edge.kind is EdgeKind.DATA or both
        if counts:
            graph.add_edge(edge.before, edge.after)
    if capture or given_program.in_order:
        for lane in given_program.streams().values():
            nx.add_path(graph, [s.name for s in lane if place_all or capture or s.kind != "Identity"])
    return graph


@given(_programs())
def test_clocks_agree_with_reachability(given_program: StreamProgram) -> None:
    order = happens_before(given_program)
    tasks = {s.name: s.kind for s in given_program.steps if s.stream is not None}
    placed, certain = _reference(given_program, place_all=True), _reference(given_program, place_all=False)
    for one, kind in tasks.items():
        reachable = {graph: nx.descendants(graph, one) for graph in (placed, certain)}
        for two, other_kind in tasks.items():
            graph = placed if "Identity" in (kind, other_kind) else certain
            assert order.before(one, two) == (two in reachable[graph]), (one, two)
    assert sorted(order.sequence) == sorted(tasks)
    place = {name: i for i, name in enumerate(order.sequence)}
    assert all(place[a] < place[b] for a in tasks for b in tasks if order.before(a, b))
