from __future__ import annotations

import networkx as nx

from autostream.graph.model import Op, OpGraph, Unit
from autostream.scheduling.problem import HCCL, MAIN, Mode, Problem, Task
from autostream.scheduling.reasons import placed


def op(name: str, unit: Unit = Unit.VECTOR, label: str = "") -> Op:
    scope = (("_user_stream_label", label),) if label else ()
    return Op(
        name=name, target="aten.mul.Tensor", unit=unit, position=0, inputs=(), outputs=(), flops=0, bytes_read=0, bytes_written=0,
        scope=scope,
    )  # fmt: skip


def task(name: str, **fields: str) -> Task:
    return Task(name=name, modes=(Mode(duration=1),), **fields)


def test_only_what_is_bound_has_a_reason() -> None:
    ops = (op("own", label="mine"), op("gather", Unit.COMM), op("read", Unit.HOST), op("free"), op("one"), op("two"), op("kept"))
    dag = nx.DiGraph()
    dag.add_nodes_from(item.name for item in ops)
    graph = OpGraph(dag=dag, ops={item.name: item for item in ops}, storages={}, outputs=(), notes=())
    problem = Problem(
        tasks=(
            task("own", stream="mine"), task("gather", stream=HCCL), task("read", stream=MAIN), task("free"),
            task("one", cluster="one"), task("two", cluster="one"), task("kept", stream=MAIN),
        ),
        precedences=(), streams=(MAIN, "side", "mine"), aic=1, aiv=1, sync=0, fixed_streams=("mine",),
    )  # fmt: skip
    told = placed(graph, problem)
    assert sorted(told) == ["gather", "kept", "one", "own", "read", "two"]
    assert told["own"] == "the label is your own"
    assert told["gather"].startswith("collectives stay")
    assert told["read"].startswith("what runs on the host")
    assert told["one"] == told["two"] and told["one"].startswith("moves together with 1 other:")
    assert told["kept"].startswith("it feeds an operator of the host, or shares written storage")
