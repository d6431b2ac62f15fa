"""A rewritten graph is analysed with the help of what is known of the given one: that must change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import fx

from autostream.graph import OpGraph
from autostream.graph.capture import capture
from autostream.graph.programs import to_aten
from autostream.program.fx import read_fx
from autostream.rewrite.air import Air
from autostream.rewrite.emit import emit
from tests import models
from tests.rewrite.graphs_fx import at_random, traced

pytestmark = pytest.mark.usefixtures("npu_host")


def _rewritten(builder: Callable[[], Any], seed: int) -> tuple[OpGraph, fx.GraphModule]:
    module = to_aten(*builder()).graph_module
    graph = capture(module)
    return graph, emit(module, graph, at_random(graph, seed), Air()).graph_module


@pytest.mark.parametrize("builder", [models.mixture, models.cnn_branches, models.llama_layer])
@pytest.mark.parametrize("seed", range(2))
def test_what_is_taken_over_is_what_would_be_found(builder: Callable[[], Any], seed: int) -> None:
    graph, emitted = _rewritten(builder, seed)
    with_help, alone = capture(emitted, like=graph), capture(emitted)
    assert with_help.ops == alone.ops and list(with_help.ops) == list(alone.ops)
    assert with_help.storages == alone.storages and with_help.outputs == alone.outputs
    assert list(with_help.dag.edges(data="why")) == list(alone.dag.edges(data="why"))
    assert read_fx(emitted, graph=with_help) == read_fx(emitted)


def test_accesses_are_never_taken_over() -> None:
    def given(x: Any, y: Any) -> Any:
        return (x + y).relu_()

    def other(x: Any, y: Any) -> Any:
        return (y + y).relu_()

    graph, module = capture(traced(given, (4, 4), (4, 4))), traced(other, (4, 4), (4, 4))
    names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    captured = capture(module, like=graph)
    assert set(captured.ops) == set(graph.ops)
    assert graph.ops["add"].reads == tuple(names) and captured.ops["add"].reads == (names[1],)
