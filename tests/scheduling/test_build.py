"""From operator graphs drawn in one line each to problems."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

import networkx as nx
import pytest

from autostream.cost.model import Breakdown, Cost, Machine, Resources, Tier
from autostream.errors import InputError
from autostream.graph.model import Op, OpGraph, Unit, Why
from autostream.options import Options
from autostream.scheduling import HCCL, MAIN, Problem, build_problem
from autostream.scheduling.problem import Mode

_MACHINE = Machine(name="toy", aic=24, aiv=48, sync=4, sync_error=0.5)
_UNITS = {"c": Unit.CUBE, "v": Unit.VECTOR, "x": Unit.MIXED, "m": Unit.COMM, "h": Unit.HOST, "f": Unit.FREE}


def _graph(ops: str, edges: str = "", scopes: Mapping[str, tuple[tuple[str, str], ...]] | None = None) -> OpGraph:
    """The first letter of an operator is its unit; an edge is ``a-b`` (data) or ``a-war-b``."""
    names = ops.split()
    table = {
        name: Op(
            name=name,
            target="toy",
            unit=_UNITS[name[0]],
            position=index,
            inputs=(),
            outputs=(),
            flops=0,
            bytes_read=0,
            bytes_written=0,
            scope=(scopes or {}).get(name, ()),
        )
        for index, name in enumerate(names)
    }
    dag: nx.DiGraph = nx.DiGraph()
    dag.add_nodes_from(names)
    for edge in edges.split():
        before, *why, after = edge.split("-")
        dag.add_edge(before, after, why=frozenset({Why(reason) for reason in why or ["data"]}))
    return OpGraph(dag=dag, ops=table, storages={}, outputs=())


def _cost(duration: int = 10) -> Cost:
    held = Resources(aic=24, aiv=1, hbm=500, comm=0)
    return Cost(duration=duration, breakdown=Breakdown(), resources=held, tier=Tier.ANALYTIC, error=0.1)


def _build(graph: OpGraph, **options: object) -> Problem:
    return build_problem(graph, {op.name: _cost() for op in graph}, _MACHINE, Options.of(options))


def _edges(problem: Problem) -> set[str]:
    return {f"{precedence.before}-{precedence.after}" for precedence in problem.precedences}


def _streams(problem: Problem) -> dict[str, str]:
    return {task.name: task.stream for task in problem.tasks if task.stream is not None}


def _clusters(problem: Problem) -> dict[str, str]:
    return {task.name: task.cluster for task in problem.tasks if task.cluster is not None}


def test_machine_costs_and_streams_are_taken_over() -> None:
    problem = build_problem(_graph("c1 c2", "c1-c2"), {"c1": _cost(7), "c2": _cost(0)}, _MACHINE, Options(side_streams=3))
    assert (problem.aic, problem.aiv, problem.sync) == (24, 48, 4)
    assert problem.streams == problem.open_streams == (MAIN, "autostream_1", "autostream_2", "autostream_3")
    assert problem.tasks[0].modes == (Mode(duration=7, aic=24, aiv=1, hbm=500),)
    assert problem.tasks[1].modes[0].duration == 1  # a task takes some time
    assert _streams(problem) == {}


def test_an_operator_without_a_cost_is_an_error() -> None:
    with pytest.raises(InputError, match="1 operators have no cost, the first is 'c2'"):
        build_problem(_graph("c1 c2"), {"c1": _cost()}, _MACHINE, Options())


def test_views_disappear_and_their_order_stays() -> None:
    problem = _build(_graph("c1 f1 f2 c2 c3", "c1-f1 f1-f2 f2-c2 f1-war-c3"))
    assert [task.name for task in problem.tasks] == ["c1", "c2", "c3"]
    assert _edges(problem) == {"c1-c2", "c1-c3"}


def test_implied_orders_are_left_out_but_values_keep_their_edge() -> None:
    problem = _build(_graph("c1 x2 c3", "c1-x2 x2-c3 c1-war-c3"))
    assert _edges(problem) == {"c1-x2", "x2-c3"}
    assert _clusters(problem) == {}  # the order needs no edge: the values give it
    assert _edges(_build(_graph("c1 x2 c3", "c1-x2 x2-c3 c1-c3"))) == {"c1-x2", "x2-c3", "c1-c3"}


def test_collectives_go_to_hccl_and_host_operators_to_main() -> None:
    problem = _build(_graph("c1 m1 m2 h1", "c1-m1 m1-collective-m2 m2-h1"))
    assert _streams(problem) == {"m1": HCCL, "m2": HCCL, "h1": MAIN}
    assert problem.streams == (MAIN, "autostream_1", "autostream_2", HCCL)
    assert problem.fixed_streams == (HCCL,)
    assert problem.open_streams == (MAIN, "autostream_1", "autostream_2")


def test_what_feeds_a_host_operator_stays_with_it() -> None:
    problem = _build(_graph("c1 c2 h3 v4", "c1-h3 c2-v4"))
    assert _streams(problem) == {"c1": MAIN, "h3": MAIN}
    labelled = _graph("c1 h2", "c1-h2", scopes={"h2": (("_user_stream_label", "mine"),)})
    assert "c1" not in _streams(_build(labelled))


def test_collectives_may_be_let_onto_side_streams() -> None:
    assert _streams(_build(_graph("c1 m1", "c1-m1"), side_collectives=True)) == {}


def test_a_collective_that_computes_as_well_stays_on_the_default_stream() -> None:
    """A product with its all-reduce inside: it has a process group, and waits for its peers like any other."""
    graph = _graph("c1 x2", "c1-x2")
    fused = replace(graph, ops={name: op._replace(group="tp" if name == "x2" else None) for name, op in graph.ops.items()})
    assert _streams(_build(fused)) == {"x2": MAIN}
    assert _streams(_build(fused, side_collectives=True)) == {}


def test_scopes_of_the_user_are_kept() -> None:
    label = (("_user_stream_label", "mine"),)
    taken = (("_user_stream_label", "autostream_1"),)
    limits = (("_op_aicore_num", "8"),)
    graph = _graph("c1 c2 c3 m4 c5 m6", scopes={"c1": label, "c2": limits, "m4": limits, "c5": taken, "m6": label})
    problem = _build(graph, side_collectives=True)
    assert _streams(problem) == {"c1": "mine", "c2": MAIN, "m4": HCCL, "c5": "autostream_1", "m6": "mine"}
    assert problem.streams == (MAIN, "autostream_2", "autostream_3", "mine", HCCL, "autostream_1")


def test_operators_on_one_mutated_storage_share_a_stream() -> None:
    problem = _build(_graph("x1 c2 x3 c4", "x1-raw-c2 c2-war-x3 x3-effect-c4"))
    assert _clusters(problem) == {"x1": "x1", "c2": "x1", "x3": "x1"}
    assert _edges(problem) == {"x1-c2", "c2-x3", "x3-c4"}


def test_a_large_group_on_one_storage_stays_on_main() -> None:
    names = [f"c{n}" for n in range(9)]
    edges = [f"{before}-waw-{after}" for before, after in itertools.pairwise(names)]
    assert _clusters(_build(_graph(" ".join(names[:8]), " ".join(edges[:7])))) == dict.fromkeys(names[:8], "c0")
    problem = _build(_graph(" ".join([*names, "c9"]), " ".join(edges)))
    assert _streams(problem) == dict.fromkeys(names, MAIN)
    assert _clusters(problem) == {}


def test_storage_shared_with_a_fixed_operator_makes_no_cluster() -> None:
    problem = _build(_graph("c1 h1 m1", "c1-war-h1 c1-war-m1"))
    assert _clusters(problem) == {}
    assert _streams(problem) == {"h1": MAIN, "m1": HCCL}
    assert _edges(problem) == {"c1-h1", "c1-m1"}


def test_chains_that_may_fuse_are_not_cut() -> None:
    problem = _build(_graph("c0 v1 f1 v2 v3 c4 v5", "c0-v1 v1-f1 f1-v2 v2-v3 v3-c4 c4-v5"))
    assert _clusters(problem) == {"v1": "v1", "v2": "v1", "v3": "v1"}


def test_chains_end_at_forks_and_joins() -> None:
    assert _clusters(_build(_graph("v1 v2 v3", "v1-v2 v1-v3"))) == {}
    assert _clusters(_build(_graph("v1 c2 v3", "v1-v3 c2-v3"))) == {}
    assert _clusters(_build(_graph("v1 m2 v3", "v1-v3 m2-v3"))) == {"v1": "v1", "v3": "v1"}  # m2 cannot move


def test_a_chain_that_touches_a_fixed_group_is_fixed_as_a_whole() -> None:
    names = [f"v{n}" for n in range(9)]
    edges = [f"{before}-waw-{after}" for before, after in itertools.pairwise(names)]
    problem = _build(_graph(" ".join([*names, "v9"]), " ".join([*edges, "v8-v9"])))
    assert _streams(problem) == dict.fromkeys([*names, "v9"], MAIN)


def test_thousands_of_operators_are_no_trouble() -> None:
    names = [f"{'cvf'[n % 3]}{n}" for n in range(6000)]
    edges = [f"{names[n]}-{names[n + step]}" for n in range(5990) for step in (1, 7)]
    problem = _build(_graph(" ".join(names), " ".join(edges)))
    assert len(problem.tasks) == 4000
    assert len(problem.precedences) < 20_000
