"""Calls that share a form are treated as one: they must be alike in everything that is asked of them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import fx

from autostream.graph.calls import Facts, look
from autostream.graph.capture import capture
from autostream.graph.programs import to_aten
from autostream.graph.survey import Survey
from autostream.graph.values import layout_of, value_of
from tests import models
from tests.graph.sketch import Sketch, empty

aten = torch.ops.aten


def _each_alone(_survey: Survey, graph: fx.Graph) -> dict[fx.Node, Facts]:
    """Look at every node as if no other were like it."""
    return {node: look(node, static=layout_of(value_of(node)) is not None) for node in graph.nodes}


def _same_form(one: Callable[[Sketch], fx.Node], two: Callable[[Sketch], fx.Node]) -> bool:
    sketch = Sketch()
    first, second = one(sketch), two(sketch)
    facts = Survey().of(sketch.graph)
    return facts[first].form is facts[second].form


def _add(
    left: torch.Tensor, right: torch.Tensor, value: torch.Tensor | None = None, **others: Any
) -> Callable[[Sketch], fx.Node]:
    def write(sketch: Sketch) -> fx.Node:
        return sketch.call(aten.add.Tensor, sketch.input("x", left), sketch.input("y", right), value=value, **others)

    return write


_PLAIN = _add(empty(4, 8), empty(4, 8))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(_add(empty(4, 1), empty(4, 8)), id="shape of an argument"),
        pytest.param(_add(empty(8, 4).t(), empty(4, 8)), id="strides of an argument"),
        pytest.param(_add(empty(5, 8)[1:], empty(4, 8)), id="offset of an argument"),
        pytest.param(_add(empty(4, 8, dtype=torch.float16), empty(4, 8)), id="dtype of an argument"),
        pytest.param(_add(torch.empty(4, 8), empty(4, 8)), id="device of an argument"),
        pytest.param(_add(empty(4, 8), empty(4, 8), empty(8, 4).t()), id="strides of the result"),
        pytest.param(_add(empty(4, 8), empty(4, 8), empty(4, 8, dtype=torch.int32)), id="dtype of the result"),
        pytest.param(_add(empty(4, 8), empty(4, 8), alpha=2), id="a keyword argument"),
        pytest.param(lambda sketch: sketch.call(aten.sub.Tensor, sketch.input("x"), sketch.input("y")), id="operator"),
        pytest.param(lambda sketch: sketch.call(aten.add.Tensor, *[sketch.input("x")] * 2), id="one value given twice"),
        pytest.param(lambda sketch: sketch.call(aten.add.Tensor, sketch.input("x"), other=sketch.input("y")), id="given by name"),
    ],
)
def test_what_differs_in_one_respect_is_another_form(other: Callable[[Sketch], fx.Node]) -> None:
    assert _same_form(_PLAIN, _PLAIN)
    assert not _same_form(_PLAIN, other)


@pytest.mark.parametrize("pair", [(1, 1.0), (1, True), (0.0, False), ([1], (1,)), ([1, 2], [2, 1]), ("1", 1), (None, 0)])
def test_equal_numbers_of_different_types_are_different_arguments(pair: tuple[Any, Any]) -> None:
    one, two = (lambda sketch, value=value: sketch.call(aten.sum.dim_IntList, sketch.input("x"), value) for value in pair)
    assert _same_form(one, one) and not _same_form(one, two)


def test_inputs_are_known_by_their_layout() -> None:
    def given_(value: torch.Tensor) -> Callable[[Sketch], fx.Node]:
        return lambda sketch: sketch.input("x", value)

    assert _same_form(given_(empty(4, 8)), given_(empty(4, 8)))
    for other in (empty(8, 4), empty(8, 4).t(), empty(4, 8, dtype=torch.float16), torch.empty(4, 8)):
        assert not _same_form(given_(empty(4, 8)), given_(other))


def test_what_cannot_be_compared_equals_nothing() -> None:
    def with_slice(sketch: Sketch) -> fx.Node:
        return sketch.call(operator.getitem, sketch.input("x"), slice(0, 2))

    def without_value(sketch: Sketch) -> fx.Node:
        node = sketch.call(aten.relu.default, sketch.input("x"))
        del node.meta["val"]
        return node

    def symbolic(sketch: Sketch) -> fx.Node:
        sparse = torch.empty(4, 4, layout=torch.sparse_coo, device="meta")
        return sketch.call(aten.relu.default, sketch.input("x", sparse))

    for write in (with_slice, without_value, symbolic):
        assert not _same_form(write, write)


@pytest.mark.parametrize("builder", [models.mixture, models.cnn_branches, models.llama_layer])
def test_a_model_is_captured_as_if_no_two_calls_were_alike(builder: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    module = to_aten(*builder()).graph_module
    together = capture(module)
    assert len({id(item.form) for item in Survey().of(module.graph).values()}) < len(module.graph.nodes)
    monkeypatch.setattr(Survey, "of", _each_alone)
    _assert_same(together, capture(module))


def _assert_same(one: Any, two: Any) -> None:
    assert list(one.ops.items()) == list(two.ops.items())
    assert list(one.storages.items()) == list(two.storages.items())
    assert list(one.dag.edges(data="why")) == list(two.dag.edges(data="why"))
    assert (one.outputs, one.refusals, one.notes) == (two.outputs, two.refusals, two.notes)


def _transposed(value: torch.Tensor) -> torch.Tensor:
    return value.t()


#: Operators of one and of two tensors, with what they make of values that are not run.
_CALLS: tuple[tuple[Any, int, Callable[..., torch.Tensor]], ...] = (
    (aten.relu.default, 1, torch.relu),
    (aten.relu_.default, 1, lambda x: x),
    (aten.t.default, 1, _transposed),
    (aten.clone.default, 1, torch.clone),
    (aten.add.Tensor, 2, torch.add),
    (aten.add_.Tensor, 2, lambda x, _y: x),
    (aten.copy_.default, 2, lambda x, _y: x),
    (aten.mm.default, 2, torch.mm),
)


@st.composite
def _graphs(draw: st.DrawFn) -> fx.GraphModule:
    """Draw a graph of few different calls on square tensors, some of them views of others, so that forms repeat."""
    sketch = Sketch()
    dtypes = st.sampled_from((torch.float32, torch.float16))
    values = [sketch.input(f"x{number}", empty(4, 4, dtype=draw(dtypes))) for number in range(3)]
    for _ in range(draw(st.integers(1, 14))):
        target, count, result = draw(st.sampled_from(_CALLS))
        dtype = draw(dtypes)
        fitting = [node for node in values if node.meta["val"].dtype is dtype]
        if fitting:
            given_ = [draw(st.sampled_from(fitting)) for _ in range(count)]
            values.append(sketch.call(target, *given_, value=result(*(node.meta["val"] for node in given_))))
    sketch.graph.output(tuple(values[-2:]))
    return fx.GraphModule(torch.nn.Module(), sketch.graph)


@given(module=_graphs())
def test_forms_change_no_result(module: fx.GraphModule) -> None:
    together = capture(module)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Survey, "of", _each_alone)
        _assert_same(together, capture(module))
