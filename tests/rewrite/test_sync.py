from __future__ import annotations

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from autostream.graph.model import OpGraph, Unit, Why
from autostream.rewrite.sync import forced_orders, task_orders
from tests.rewrite.graphs import op_graph


def test_data_edges_force_nothing() -> None:
    graph = op_graph({"a": Unit.CUBE, "b": Unit.VECTOR}, data=[("a", "b")])
    assert forced_orders(graph) == ()


def test_a_hazard_without_a_data_path_is_forced() -> None:
    graph = op_graph({"read": Unit.CUBE, "write": Unit.VECTOR}, orders=[("read", "write", Why.WAR)])
    assert [(o.before, o.after, o.why) for o in forced_orders(graph)] == [("read", "write", frozenset({Why.WAR}))]


def test_a_hazard_along_a_data_path_is_not_forced() -> None:
    graph = op_graph(
        {"read": Unit.CUBE, "view": Unit.FREE, "write": Unit.VECTOR},
        data=[("read", "view"), ("view", "write")],
        orders=[("read", "write", Why.WAR)],
    )
    assert forced_orders(graph) == ()


def test_a_chain_of_collectives_is_forced_once_per_link() -> None:
    names = ["c0", "c1", "c2"]
    graph = op_graph(
        dict.fromkeys(names, Unit.COMM),
        orders=[("c0", "c1", Why.COLLECTIVE), ("c1", "c2", Why.COLLECTIVE), ("c0", "c2", Why.WAW)],
    )
    assert [(o.before, o.after) for o in forced_orders(graph)] == [("c0", "c1"), ("c1", "c2")]


def test_task_orders_see_through_views() -> None:
    graph = op_graph({"mm": Unit.CUBE, "view": Unit.FREE, "relu": Unit.VECTOR}, data=[("mm", "view"), ("view", "relu")])
    assert task_orders(graph) == (("mm", "relu", "data"),)


def test_an_order_that_only_a_view_stands_for_is_forced_on_what_is_behind_it() -> None:
    graph = op_graph(
        {"mm": Unit.CUBE, "view": Unit.FREE, "barrier": Unit.MIXED},
        data=[("mm", "view")],
        orders=[("view", "barrier", Why.EFFECT)],
    )
    assert [(o.before, o.after) for o in forced_orders(graph)] == [("mm", "barrier")]


@st.composite
def graphs(draw: st.DrawFn) -> OpGraph:
    count = draw(st.integers(2, 14))
    names = [f"n{i:02d}" for i in range(count)]
    units = {name: draw(st.sampled_from([Unit.CUBE, Unit.VECTOR, Unit.FREE])) for name in names}
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    data = draw(st.lists(st.sampled_from(pairs), max_size=2 * count, unique=True))
    tasks = [(a, b) for a, b in pairs if units[a] is not Unit.FREE and units[b] is not Unit.FREE]
    orders = draw(st.lists(st.sampled_from(tasks), max_size=count, unique=True)) if tasks else []
    return op_graph(units, data, [(a, b, Why.WAR) for a, b in orders])


@given(graphs())
def test_data_and_forced_orders_imply_every_order_and_none_is_redundant(graph: OpGraph) -> None:
    forced = forced_orders(graph)
    enforced = nx.DiGraph()
    enforced.add_nodes_from(graph.ops)
    enforced.add_edges_from((b, a) for b, a, why in graph.dag.edges(data="why") if Why.DATA in why)
    bare = enforced.copy()
    enforced.add_edges_from((o.before, o.after) for o in forced)
    for before, after, _ in graph.orders():
        assert nx.has_path(enforced, before, after)
    for order in forced:
        without = bare.copy()
        without.add_edges_from((o.before, o.after) for o in forced if o != order)
        assert not nx.has_path(without, order.before, order.after)
