"""A graph module whose code is made on demand behaves like any other once somebody looks."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import fx

from autostream.rewrite.deferred import DeferredModule
from tests.rewrite.graphs_fx import traced


def _plain() -> fx.GraphModule:
    return traced(lambda x, y: (x + y).relu() @ x, (4, 4), (4, 4))


def _deferred() -> DeferredModule:
    plain = _plain()
    return DeferredModule(plain, copy.deepcopy(plain.graph), "Written")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[fx.Graph]:
    """The graphs that code was made of."""
    graphs: list[fx.Graph] = []
    original = fx.Graph.python_code

    def counted(graph: fx.Graph, *args: Any, **kwargs: Any) -> Any:
        graphs.append(graph)
        return original(graph, *args, **kwargs)

    monkeypatch.setattr(fx.Graph, "python_code", counted)
    return graphs


def _given() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(16.0).reshape(4, 4), torch.full((4, 4), -3.0)


def test_the_code_is_made_once_when_it_is_run(made: list[fx.Graph]) -> None:
    plain, module = _plain(), _deferred()
    made.clear()
    assert type(module).__name__ == "Written" and module.graph.owning_module is module
    assert not made
    assert torch.equal(module(*_given()), plain(*_given()))
    assert torch.equal(module(*_given()), plain(*_given()))
    assert made == [module.graph]


def test_the_code_is_made_when_it_is_read() -> None:
    plain = _plain()
    assert _deferred().code == plain.code
    assert plain.code in str(_deferred())
    with pytest.raises(AttributeError, match="_in_spec"):
        _ = _deferred()._in_spec


def test_a_change_of_the_graph_is_compiled_at_once(made: list[fx.Graph]) -> None:
    module = _deferred()
    made.clear()
    relu = next(node for node in module.graph.nodes if node.name == "relu")
    relu.target = torch.ops.aten.neg.default
    module.recompile()
    assert made == [module.graph] and "neg" in module.code
    module.graph = _plain().graph
    assert "neg" not in module.code


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies_run(copied: Any) -> None:
    assert torch.equal(copied(_deferred())(*_given()), _plain()(*_given()))


def test_a_graph_that_goes_to_another_module_is_compiled_there_alone(made: list[fx.Graph]) -> None:
    module, other = _deferred(), _plain()
    made.clear()
    other.graph = module.graph
    assert made == [other.graph]
    assert torch.equal(other(*_given()), _plain()(*_given()))


def test_it_can_be_traced_again_once_it_is_compiled() -> None:
    module = _deferred()
    module.recompile()
    again = fx.symbolic_trace(module)
    assert torch.equal(again(*_given()), _plain()(*_given()))
