"""Small operator graphs without torch, for tests of the parts of the rewriter that need none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import networkx as nx

from autostream.graph.model import Op, OpGraph, Unit, Why


def op_graph(
    ops: Mapping[str, Unit], data: Iterable[tuple[str, str]] = (), orders: Iterable[tuple[str, str, Why]] = ()
) -> OpGraph:
    """Build a graph from names with units (in program order), data edges and other orders."""
    dag = nx.DiGraph()
    table = {}
    for index, (name, unit) in enumerate(ops.items()):
        dag.add_node(name)
        table[name] = Op(
            name=name,
            target=f"test.{name}",
            unit=unit,
            position=index,
            inputs=(),
            outputs=(),
            flops=0,
            bytes_read=0,
            bytes_written=0,
        )
    for before, after in data:
        dag.add_edge(before, after, why=frozenset({Why.DATA}))
    for before, after, why in orders:
        known = dag.edges[before, after]["why"] if dag.has_edge(before, after) else frozenset()
        dag.add_edge(before, after, why=known | {why})
    return OpGraph(dag=dag, ops=table, storages={}, outputs=())
