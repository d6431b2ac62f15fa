"""Which kernels of a profile belong to which operators of a graph."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import pytest

from autostream.cost.measured.matching import match
from autostream.cost.measured.signature import family, kernel_op, signature
from autostream.graph.model import Op, OpGraph, Unit
from autostream.profiles import Core, Kernel
from tests.cost.build import collective, make, mm, spec, vector
from tests.cost.kernels import add, kernel, matmul, profile, tensor


def graph(*ops: Op) -> OpGraph:
    named = {f"{op.name}_{place}": op._replace(name=f"{op.name}_{place}", position=place) for place, op in enumerate(ops)}
    dag = nx.DiGraph()
    dag.add_nodes_from(named)
    return OpGraph(dag=dag, ops=named, storages={}, outputs=())


def addition(*shape: int) -> Op:
    return make("aten.add.Tensor", Unit.VECTOR, (spec(*shape), spec(*shape)), (spec(*shape),))


def by_op(graph: OpGraph, *kernels: Kernel) -> dict[str, tuple[list[int], str]]:
    found = match(graph, profile(*kernels))
    return {one.op: ([each.start for each in one.kernels], one.by) for one in found.matches}


def test_a_product_is_known_whichever_way_its_weight_is_stored() -> None:
    plain = kernel("MatMulV2", (tensor(8, 64), tensor(64, 32)), (tensor(8, 32),), 1, core=Core.AI_CORE)
    # 64 x 32 in blocks of 16 x 16: (columns / 16, rows / 16, 16, 16).
    blocked = kernel(
        "MatMulV2", (tensor(8, 64), tensor(2, 4, 16, 16, layout="FRACTAL_NZ")), (tensor(8, 32),), 1, core=Core.AI_CORE
    )
    renamed = replace(plain, type="MatMulV2_NDNZ_ND_229955")
    for one in (plain, blocked, renamed, matmul(8, 32, 64, 1)):
        op = kernel_op(one)
        assert op is not None
        assert signature(op) == signature(mm(8, 32, 64)), one
    assert signature(mm(8, 32, 64)) != signature(mm(8, 32, 64, dtype="float16"))
    assert signature(mm(8, 32, 64)) != signature(mm(32, 8, 64))


def test_a_linear_layer_with_bias_is_a_product() -> None:
    bias = make("aten.addmm.default", Unit.CUBE, (spec(32), spec(8, 64), spec(64, 32)), (spec(8, 32),))
    assert signature(bias) == signature(mm(8, 32, 64))
    assert family("aten.linear.default") == family("aten.mm.default") == "aten.mm"


def test_sides_of_one_and_scalars_do_not_count() -> None:
    seen = kernel("Muls", (tensor(1, 64, 32), tensor(dtype="float32")), (tensor(1, 64, 32),), 1)
    op = kernel_op(seen)
    assert op is not None
    assert signature(op) == signature(vector("aten.mul.Scalar", 64, 32))
    assert signature(op) != signature(vector("aten.mul.Scalar", 32, 64))


def test_layers_are_told_apart_by_order() -> None:
    layers = graph(mm(8, 32, 64), addition(8, 32), mm(8, 32, 64))
    assert by_op(layers, matmul(8, 32, 64, 5, start=10), add(8, 32, 2, start=20), matmul(8, 32, 64, 6, start=30)) == {
        "op_0": ([10], "order"),
        "op_1": ([20], "signature"),
        "op_2": ([30], "order"),
    }


def test_steps_and_repeats_go_to_their_layer() -> None:
    layers = graph(mm(8, 32, 64), mm(8, 32, 64))
    kernels = [matmul(8, 32, 64, 5, start=start, step=step) for start, step in ((1, 1), (2, 1), (3, 2), (4, 2), (5, 2), (6, 2))]
    assert by_op(layers, *kernels) == {"op_0": ([1, 3, 5], "order"), "op_1": ([2, 4, 6], "order")}


def test_a_name_goes_before_order() -> None:
    layers = graph(mm(8, 32, 64), mm(8, 32, 64), mm(8, 32, 64))
    kernels = [matmul(8, 32, 64, 5, start=start, name=name) for start, name in ((1, "graph/op_2"), (2, "MatMulV3"), (3, "op_20"))]
    assert by_op(layers, *kernels) == {"op_0": ([2], "order"), "op_1": ([3], "order"), "op_2": ([1], "name")}


def test_why_the_rest_was_not_matched() -> None:
    layers = graph(
        mm(8, 32, 64),
        mm(8, 32, 128),
        addition(8, 32),
        addition(8, 32),
        vector("aten.exp.default", 4, 4),
        vector("mine.own.default", 4, 4),
        collective("_c10d_functional.all_reduce.default", (spec(8),), (spec(8),)),
        make("aten.view.default", Unit.FREE, (spec(8),), (spec(8),)),
    )
    hcom = kernel("hcom_allReduce_", (), (), 9, core=Core.COMMUNICATION, start=1)
    strange = kernel("MyOwnKernel", (tensor(3),), (tensor(3),), 2, start=2)
    level0 = kernel("Exp", (), (), 2, start=3)
    kernels = [matmul(8, 32, 64, 5, start=4), matmul(9, 32, 64, 5, start=5), add(8, 32, 2, start=6), hcom, strange, level0]
    sub = kernel("Sub", (tensor(4), tensor(4)), (tensor(4),), 1, start=7)
    found = match(layers, profile(*kernels, sub))
    assert [one.op for one in found.matches] == ["op_0", "op_2"]
    assert found.unmatched_ops == {
        "op_1": "its kernel type ran, but with other shapes or data types",
        "op_3": "only 1 kernels of its shapes ran, fewer than there are operators of them",
        "op_4": "none of its kernels ran (exp, exp2, expm1)",
        "op_5": "no kernel type is known for mine.own.default",
        "op_6": "a collective: a profile gives it no shapes to be known by",
    }
    assert found.unmatched_kernels == {
        "Exp": (1, "its shapes are not those of its type, or the profile has none (level0)"),
        "MatMulV3": (1, "no operator of the graph has its shapes and data types"),
        "MyOwnKernel": (1, "the type is not in the table of kernels"),
        "Sub": (1, "no operator of the graph launches it"),
        "hcom_allReduce_": (1, "a collective: its row has no shapes"),
    }


@pytest.mark.parametrize(("ops", "ran"), [(1, 1), (1, 5), (2, 3), (3, 2), (3, 9), (0, 2), (2, 0)])
def test_every_kernel_is_matched_or_told(ops: int, ran: int) -> None:
    found = match(graph(*[mm(8, 32, 64)] * ops), profile(*[matmul(8, 32, 64, 5, start=start) for start in range(ran)]))
    assert sum(len(one.kernels) for one in found.matches) + sum(count for count, _ in found.unmatched_kernels.values()) == ran
    assert len(found.matches) + len(found.unmatched_ops) == ops
    assert len({len(one.kernels) for one in found.matches}) <= 1
