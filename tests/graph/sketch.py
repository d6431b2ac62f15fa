"""Draw small ATen graphs by hand, with shapes on the meta device and without running anything."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from autostream.graph import OpGraph
from autostream.graph.capture import capture


def empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


class Sketch:
    """A graph under construction; `call` takes the value its node stands for."""

    def __init__(self) -> None:
        self.graph = fx.Graph()

    def input(self, name: str, value: Any = None) -> fx.Node:
        node = self.graph.placeholder(name)
        node.meta["val"] = empty(4, 8) if value is None else value
        return node

    def call(self, target: Any, *args: Any, value: Any = None, name: str | None = None, **kwargs: Any) -> fx.Node:
        node = self.graph.create_node("call_function", target, args, kwargs, name)
        node.meta["val"] = empty(4, 8) if value is None else value
        return node

    def mark(self, target: Any, *args: Any) -> fx.Node:
        """Add a node that has no value."""
        node = self.graph.call_function(target, args)
        node.meta["val"] = None
        return node

    def element(self, source: fx.Node, index: int) -> fx.Node:
        return self.call(operator.getitem, source, index, value=source.meta["val"][index])

    def module(self, *results: fx.Node) -> fx.GraphModule:
        self.graph.output(results)
        self.graph.lint()
        return fx.GraphModule(torch.nn.Module(), self.graph)

    def capture(self, *results: fx.Node) -> OpGraph:
        return capture(self.module(*results))


def ordered(graph: OpGraph, before: fx.Node, after: fx.Node) -> bool:
    """Tell whether one operator precedes another in every order the DAG allows."""
    import networkx as nx

    return bool(nx.has_path(graph.dag, before.name, after.name))
