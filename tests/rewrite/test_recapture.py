"""A rewritten graph is analysed with the help of what is known of the given one: that must change nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

from autostream.graph import Op, Operators, OpGraph
from autostream.graph.capture import Captured, capture
from autostream.graph.programs import to_aten
from autostream.program import returned_storages
from autostream.program.reading.fx import read_fx
from autostream.rewrite.air import Air
from autostream.rewrite.emit import emit
from tests import models
from tests.rewrite.graphs_fx import at_random, traced

pytestmark = pytest.mark.usefixtures("npu_host")


def _assert_same(with_help: Operators, alone: OpGraph) -> None:
    """What an operator moves, and its position, may be those in the given graph."""

    def compared(op: Op) -> Op:
        return op._replace(position=0, bytes_read=0, bytes_written=0)

    assert [compared(op) for op in with_help.ops.values()] == [compared(op) for op in alone]
    assert list(with_help.storages.items()) == list(alone.storages.items())
    assert set(with_help.returned) == set(returned_storages(alone))


@pytest.mark.parametrize("builder", [models.mixture, models.cnn_branches, models.llama_layer])
@pytest.mark.parametrize("seed", range(2))
def test_what_is_taken_over_is_what_would_be_found(builder: Callable[[], Any], seed: int) -> None:
    module = to_aten(*builder()).graph_module
    captured = Captured(module)
    emitted = emit(module, captured.graph, at_random(captured.graph, seed), Air()).graph_module
    with_help = captured.rewritten(emitted)
    _assert_same(with_help, capture(emitted))
    assert read_fx(emitted, graph=with_help) == read_fx(emitted)
    assert any(op is captured.graph.ops.get(name) for name, op in with_help.ops.items())


def test_accesses_are_never_taken_over() -> None:
    def given(x: Any, y: Any) -> Any:
        return (x + y).relu_()

    def other(x: Any, y: Any) -> Any:
        return (y + y).relu_()

    captured, module = Captured(traced(given, (4, 4), (4, 4))), traced(other, (4, 4), (4, 4))
    names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    found = captured.rewritten(module)
    assert set(found.ops) == set(captured.graph.ops)
    assert captured.graph.ops["add"].reads == tuple(names) and found.ops["add"].reads == (names[1],)


def _exchanged(module: fx.GraphModule, at: int) -> fx.GraphModule | None:
    """Return a graph whose operator at a position gets another value of the same shape first; None if there is none before it."""
    changed = copy.deepcopy(module)
    nodes = list(changed.graph.nodes)
    node = nodes[at]
    if node.op != "call_function" or not node.all_input_nodes:
        return None
    old = node.all_input_nodes[0]
    for new in reversed(nodes[:at]):
        one, two = old.meta.get("val"), new.meta.get("val")
        fits = (
            isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor) and (one.shape, one.dtype) == (two.shape, two.dtype)
        )
        if fits and new is not old:
            node.replace_input_with(old, new)
            return changed
    return None


@pytest.mark.parametrize("builder", [models.llama_layer, models.cnn_branches, models.kv_cache])
def test_whatever_a_rewriter_changes_is_seen(builder: Callable[[], Any]) -> None:
    """Every operator in turn reads another value, under the names, shapes and values of the given graph."""
    module = to_aten(*builder()).graph_module
    captured = Captured(module)
    changed = [found for at in range(len(module.graph.nodes)) if (found := _exchanged(module, at)) is not None]
    assert len(changed) > 3
    for graph_module in changed:
        _assert_same(captured.rewritten(graph_module), capture(graph_module))
