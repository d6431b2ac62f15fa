"""Any order the DAG allows gives the same bits as the graph's own order: the proof that the hazards are complete."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from torch import fx

from autostream.graph.capture import capture
from tests.graph.orders import (
    Builder,
    aten,
    data_only,
    differences,
    draw_order,
    eager,
    run,
    with_copying_views,
    without_no_ops,
)

UNARY = [aten.relu.default, aten.neg.default, aten.tanh.default, aten.abs.default]
BINARY = [aten.add.Tensor, aten.mul.Tensor, aten.maximum.default]
IN_PLACE = [aten.relu_.default, aten.neg_.default, aten.zero_.default, aten.tanh_.default]
COPIES = [aten.clone.default, aten._to_copy.default]
FREE_VIEWS = [aten.t.default, aten.detach.default, aten.alias.default]


def _inputs() -> dict[str, torch.Tensor]:
    values = ((torch.arange(48) * 37 % 19 - 9) / 4).reshape(3, 4, 4)
    return {"x": values[0].clone(), "y": values[1].clone(), "z": values[2].clone(), "rows": torch.tensor([2, 0])}


def _steps() -> st.SearchStrategy[list[tuple[str, int, int, int]]]:
    kinds = st.sampled_from(
        [
            "unary",
            "binary",
            "in_place",
            "write",
            "copy_",
            "out",
            "copy",
            "view",
            "free",
            "flat",
            "rows",
            "split",
            "random",
            "norm",
            "foreach",
        ]
    )
    return st.lists(st.tuples(kinds, *[st.integers(0, 63)] * 3), min_size=4, max_size=14)


def _add(builder: Builder, kind: str, a: int, b: int, c: int) -> None:
    """Add one drawn step; steps that PyTorch refuses are left out."""
    tensors = [node for node in builder.tensors() if builder.values[node].dtype is torch.float32]
    left = tensors[a % len(tensors)]
    shape = builder.values[left].shape
    alike = [node for node in tensors if builder.values[node].shape == shape]
    right = alike[b % len(alike)]
    call = builder.call
    if kind == "unary":
        call(UNARY[c % len(UNARY)], left)
    elif kind == "binary":
        call(BINARY[c % len(BINARY)], left, right)
    elif kind == "in_place":
        call(IN_PLACE[c % len(IN_PLACE)], left)
    elif kind == "write":
        call(aten.add_.Tensor, left, right)
    elif kind == "copy_":
        call(aten.copy_.default, left, right)
    elif kind == "out":
        call(aten.add.out, left, right, out=alike[c % len(alike)])
    elif kind == "copy":
        call(COPIES[c % len(COPIES)], left)
    elif kind == "free":
        call(FREE_VIEWS[c % len(FREE_VIEWS)], left)
    elif kind == "flat":
        call([aten.reshape.default, aten.view.default, aten._unsafe_view.default][c % 3], left, [-1])
    elif kind == "view" and len(shape) == 2:
        _view(builder, left, b, c)
    elif kind == "split" and len(shape) == 2 and shape[0] > 1:
        call(*[(aten.split.Tensor, left, 2), (aten.unbind.int, left)][c % 2])
    elif kind == "rows" and shape == (4, 4):
        source = call(aten.slice.Tensor, right, 0, 1, 3)
        assert source is not None
        rows = next(node for node in builder.values if node.name == "rows")
        call([aten.index_put_.default, aten.index_put.default][c % 2], left, [rows], source)
    elif kind == "random":
        call([aten.rand_like.default, aten.bernoulli.p][c % 2], *[(left,), (left, 0.5)][c % 2])
    elif kind == "norm":
        call(aten.native_layer_norm.default, left, [shape[-1]], None, None, 1e-5)
    elif kind == "foreach":
        call(aten._foreach_add_.Scalar, [left, right], 1.5)


def _view(builder: Builder, left: fx.Node, b: int, c: int) -> None:
    calls: list[tuple[Any, ...]] = [
        (aten.slice.Tensor, left, b % 2, 1, 3),
        (aten.select.int, left, b % 2, 0),
        (aten.unsqueeze.default, left, b % 3),
        (aten.transpose.int, left, 0, 1),
        (aten.permute.default, left, [1, 0]),
        (aten.diagonal.default, left),
        (aten.as_strided.default, left, [2, 2], [1, 2]),
        (aten.expand.default, left, [2, -1, -1]),
    ]
    builder.call(*calls[c % len(calls)])


@pytest.mark.parametrize("reading", [eager, without_no_ops, with_copying_views])
@settings(max_examples=150)
@given(steps=_steps(), seeds=st.lists(st.integers(0, 2**32), min_size=3, max_size=3))
def test_every_order_of_the_dag_gives_the_same_bits(
    reading: Any, steps: list[tuple[str, int, int, int]], seeds: list[int]
) -> None:
    builder = Builder(_inputs())
    for step in steps:
        _add(builder, *step)
    graph_module = builder.finish()
    graph = capture(graph_module)
    assert not graph.refusals
    try:
        expected = run(graph_module.graph, builder.inputs, list(graph.ops), reading)
    except RuntimeError:
        reject()  # under this reading, PyTorch refuses to write into overlapping memory
    for seed in seeds:
        order = draw_order(graph.dag, seed)
        assert differences(expected, run(graph_module.graph, builder.inputs, order, reading)) == []


def _cache_step() -> tuple[Builder, fx.GraphModule]:
    """A cache is read through a view, then written in place, then read again through the old view."""
    builder = Builder(_inputs())
    x, y = builder.tensors()[:2]
    view = builder.call(aten.t.default, x)
    before = builder.call(aten.relu.default, view)
    builder.call(aten.add_.Tensor, x, y)
    after = builder.call(aten.neg.default, view)
    assert before is not None and after is not None
    return builder, builder.finish([before, after])


def test_without_hazards_the_bits_change() -> None:
    builder, graph_module = _cache_step()
    graph = capture(graph_module)
    expected = run(graph_module.graph, builder.inputs, list(graph.ops))
    forgetful = data_only(graph.dag)
    changed = [differences(expected, run(graph_module.graph, builder.inputs, draw_order(forgetful, seed))) for seed in range(30)]
    assert any("relu_default" in names for names in changed), "a reader overtaken by the writer was not noticed"
    assert any("neg_default" in names for names in changed), "a reader that overtakes the writer was not noticed"
    kept = [differences(expected, run(graph_module.graph, builder.inputs, draw_order(graph.dag, seed))) for seed in range(30)]
    assert kept == [[]] * 30
