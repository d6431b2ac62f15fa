"""Captured hazards against what PyTorch really does: every byte that two operators share, and one of them writes, is ordered.

The truth does not come from schemas of the graph's operators but from a run: a dispatch mode sees every kernel, also those inside
composite and custom operators, and takes the bytes of its tensors from their addresses.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from autostream.graph import OpGraph
from autostream.graph.capture import capture
from autostream.graph.programs import to_aten
from tests.graph import test_hazards_property as random_graphs
from tests.graph.orders import Builder, aten

_Bytes = set[int]


class _Recorder(TorchDispatchMode):
    """Notes the bytes that kernels read and write. What it saw is kept alive: no address is handed out twice."""

    def __init__(self) -> None:
        super().__init__()
        self.read: _Bytes = set()
        self.written: _Bytes = set()
        self._alive: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._alive += [args, kwargs, result]
        schema = func._schema
        if not schema.is_mutable and _memory(result) & _memory((args, kwargs)):
            return result  # a view touches nothing
        given = dict(zip((item.name for item in schema.arguments), args, strict=False)) | (kwargs or {})
        for item in schema.arguments:
            touched = set().union(*map(_bytes, _tensors(given.get(item.name))))
            self.read |= touched
            if item.alias_info is not None and item.alias_info.is_write:
                self.written |= touched
        return result


def _tensors(value: Any) -> Iterator[Tensor]:
    return (leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, Tensor))


def _memory(value: Any) -> set[int]:
    return {tensor.untyped_storage().data_ptr() for tensor in _tensors(value)}


def _bytes(tensor: Tensor) -> _Bytes:
    at = np.array([tensor.data_ptr()])
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        at = (at[:, None] + np.arange(size) * stride * tensor.itemsize).reshape(-1)
    return {int(start) + byte for start in at for byte in range(tensor.itemsize)}


def _accesses(module: fx.GraphModule, inputs: Sequence[Any]) -> dict[str, tuple[_Bytes, _Bytes]]:
    """Run a graph node by node; return the bytes that every node read and wrote."""
    placeholders = iter(inputs)
    values: dict[fx.Node, Any] = {}
    found: dict[str, tuple[_Bytes, _Bytes]] = {}
    recorders = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(placeholders)
        elif node.op == "get_attr":
            values[node] = getattr(module, str(node.target))
        elif node.op == "call_function":
            args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), values.__getitem__)
            with _Recorder() as recorder:
                values[node] = node.target(*args, **kwargs)
            recorders.append(recorder)
            found[node.name] = (recorder.read, recorder.written)
    return found


def _conflicts(accesses: dict[str, tuple[_Bytes, _Bytes]]) -> Iterator[tuple[str, str]]:
    for (one, (read, written)), (two, (reads, writes)) in itertools.combinations(accesses.items(), 2):
        if written & (reads | writes) or read & writes:
            yield one, two


def _missing(graph: OpGraph, accesses: dict[str, tuple[_Bytes, _Bytes]]) -> list[tuple[str, str]]:
    return [(one, two) for one, two in _conflicts(accesses) if not nx.has_path(graph.dag, one, two)]


def test_random_graphs_order_every_true_conflict() -> None:
    tally: Counter[str] = Counter()

    @settings(max_examples=150)
    @given(steps=random_graphs._steps())
    def holds(steps: list[tuple[str, int, int, int]]) -> None:
        builder = Builder(random_graphs._inputs())
        for step in steps:
            random_graphs._add(builder, *step)
        module = builder.finish()
        graph = capture(module)
        accesses = _accesses(module, [tensor.clone() for tensor in builder.inputs.values()])
        assert _missing(graph, accesses) == []
        tally["conflicts"] += sum(1 for _ in _conflicts(accesses))
        tally["not ordered"] += sum(1 for pair in itertools.combinations(accesses, 2) if not nx.has_path(graph.dag, *pair))

    holds()
    assert tally["conflicts"] > 500 and tally["not ordered"] > 500, tally


def _views(x: Tensor, y: Tensor) -> Tensor:
    parts = x.split(2)
    parts[0].mul_(y[:2])
    flat = x.view(-1)
    left, right = x.chunk(2, dim=1)
    turned = x.t().select(0, 1)
    rows = x.unbind(0)
    strided = torch.as_strided(x, (2, 2), (4, 2), 1)
    before = turned + 1
    strided.add_(1.0)
    rows[2].copy_(y[0])
    left.detach().zero_()
    x.expand(2, 4, 4).sum()
    return flat + right.sum() + before.sum()


def _complex(x: Tensor, y: Tensor) -> Tensor:
    pairs = x.view(4, 2, 2)
    number = torch.view_as_complex(pairs)
    before = number.abs()
    torch.view_as_real(number).add_(y.view(4, 2, 2))
    return before + number.real


def _lists(x: Tensor, y: Tensor) -> Tensor:
    torch._foreach_add_([x[0], y[1]], 1.0)
    torch._foreach_mul_([x[1], x[2]], [y[0], y[1]])
    total = torch.add(x[3], y[3])
    torch.add(x[0], y[0], out=x[1])
    same = x.to(torch.float32)
    same.relu_()
    return total + x.sum()


def _caches(x: Tensor, y: Tensor) -> Tensor:
    keys, values = x[0], x[1]
    slots = torch.tensor([1, 3])
    keys.index_put_((slots,), y[0, :2])
    values.index_copy_(0, slots, y[1, :2])
    seen = x.sum(0)
    x[2].scatter_(0, slots, y[2, :2])
    return seen + x.sum()


def _random(x: Tensor, y: Tensor) -> Tensor:
    noise = torch.rand_like(x)
    x.bernoulli_(0.5)
    dropped = torch.nn.functional.dropout(y, 0.5, training=True)
    return noise + x + dropped


@pytest.mark.parametrize("function", [_views, _complex, _lists, _caches, _random])
def test_traced_programs_order_every_true_conflict(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    given = (torch.arange(16.0).view(4, 4), torch.ones(4, 4))
    with torch.no_grad():
        module = make_fx(function, tracing_mode="fake")(*(tensor.clone() for tensor in given))
    graph = capture(module)
    accesses = _accesses(module, [tensor.clone() for tensor in given])
    assert any(True for _ in _conflicts(accesses)) or function is _random
    assert _missing(graph, accesses) == []


def test_an_exported_program_with_buffers_orders_every_true_conflict() -> None:
    class Cached(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(2, 4, 4))
            self.tied = torch.nn.Parameter(torch.ones(4, 4))
            self.also = self.tied

        def forward(self, x: Tensor) -> Tensor:
            before = self.cache.sum(0)
            self.cache[0].copy_(x @ self.tied)
            self.cache[1].add_(x @ self.also)
            return before + self.cache.sum(0)

    program = to_aten(Cached(), (torch.ones(4, 4),))
    graph = capture(program.graph_module)
    inputs = [torch.ones(value.shape) for value in program.example_inputs]
    accesses = _accesses(program.graph_module, inputs)
    assert any(True for _ in _conflicts(accesses))
    assert _missing(graph, accesses) == []


def test_a_custom_operator_is_seen_through_by_the_truth_and_ordered_by_the_graph() -> None:
    @torch.library.custom_op("ground_truth::bump", mutates_args={"cache"})
    def bump(cache: Tensor, x: Tensor) -> None:
        cache.add_(x)

    def step(x: Tensor, y: Tensor) -> Tensor:
        before = x[0].relu()
        bump(x[0], y[0])
        return before + x[1] + x[0]

    given = (torch.arange(16.0).view(4, 4), torch.ones(4, 4))
    module = make_fx(step, tracing_mode="fake")(*given)
    accesses = _accesses(module, [tensor.clone() for tensor in given])
    graph = capture(module)
    assert {one for one, _ in _conflicts(accesses)} >= {"relu"}
    assert _missing(graph, accesses) == []


def test_a_forgotten_hazard_would_be_noticed() -> None:
    builder = Builder(random_graphs._inputs())
    x, y = builder.tensors()[:2]
    builder.call(aten.relu.default, x)
    builder.call(aten.add_.Tensor, x, y)
    module = builder.finish()
    graph = capture(module)
    accesses = _accesses(module, [tensor.clone() for tensor in builder.inputs.values()])
    assert _missing(graph, accesses) == []
    graph.dag.remove_edges_from(list(graph.dag.edges))
    assert _missing(graph, accesses) == [("relu_default", "add__tensor")]
