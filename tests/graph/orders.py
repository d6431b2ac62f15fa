"""Run an FX graph node by node in any order, under the readings a backend may have of a view or a copy."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import networkx as nx
import torch
from torch import fx

aten = torch.ops.aten

#: Copies that TorchAir may drop.
NO_OPS = {aten.clone.default, aten._to_copy.default}
#: Views that are copying tasks in GE.
COPYING_VIEWS = {
    aten.slice.Tensor,
    aten.select.int,
    aten.expand.default,
    aten.diagonal.default,
    aten.as_strided.default,
    aten.split.Tensor,
    aten.unbind.int,
}


def eager(node: fx.Node, args: Any, kwargs: Any) -> Any:
    """What PyTorch does."""
    return node.target(*args, **kwargs)


def without_no_ops(node: fx.Node, args: Any, kwargs: Any) -> Any:
    """As `eager`, but a copy that changes nothing is its own input."""
    value = node.target(*args, **kwargs)
    return args[0] if node.target in NO_OPS and value.stride() == args[0].stride() else value


def with_copying_views(node: fx.Node, args: Any, kwargs: Any) -> Any:
    """As `eager`, but the views that GE makes tasks of copy."""
    value = node.target(*args, **kwargs)
    if node.target not in COPYING_VIEWS:
        return value
    return [item.clone() for item in value] if isinstance(value, (list, tuple)) else value.clone()


Reading = Callable[[fx.Node, Any, Any], Any]


def run(
    graph: fx.Graph, inputs: Mapping[str, torch.Tensor], order: Sequence[str], reading: Reading = eager
) -> dict[str, torch.Tensor]:
    """Execute the operators in `order` on clones of `inputs`; return every value and the final inputs, as they are at the end."""
    torch.manual_seed(7)
    nodes = {node.name: node for node in graph.nodes}
    values: dict[fx.Node, Any] = {nodes[name]: tensor.clone() for name, tensor in inputs.items()}
    for name in order:
        node = nodes[name]
        args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), values.__getitem__)
        values[node] = reading(node, args, kwargs)
    return {node.name: value for node, value in values.items() if isinstance(value, torch.Tensor)}


def draw_order(dag: nx.DiGraph, seed: int) -> list[str]:
    """Draw a topological order."""
    chooser = random.Random(seed)
    missing = {name: dag.in_degree(name) for name in dag}
    ready = [name for name in dag if not missing[name]]
    order = []
    while ready:
        name = ready.pop(chooser.randrange(len(ready)))
        order.append(name)
        for after in dag.successors(name):
            missing[after] -= 1
            if not missing[after]:
                ready.append(after)
    assert len(order) == len(dag)
    return order


def data_only(dag: nx.DiGraph) -> nx.DiGraph:
    """Return the DAG as it would be if hazards were forgotten."""
    from autostream.graph import Why

    forgetful = nx.DiGraph()
    forgetful.add_nodes_from(dag)
    forgetful.add_edges_from((before, after) for before, after, why in dag.edges(data="why") if Why.DATA in why)
    return forgetful


def differences(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> list[str]:
    """Return the names of the values that are not the same bits."""
    return [name for name in left if not _same_bits(left[name], right[name])]


def _same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and left.numpy().tobytes() == right.numpy().tobytes()


class Builder:
    """Builds an FX graph while running it, so that every node gets the shape it really has."""

    def __init__(self, inputs: Mapping[str, torch.Tensor]) -> None:
        self.graph = fx.Graph()
        self.inputs = dict(inputs)
        self.values: dict[fx.Node, Any] = {}
        for name, tensor in inputs.items():
            node = self.graph.placeholder(name)
            self._keep(node, tensor.clone())

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node | None:
        """Add a call; return None if PyTorch refuses it (overlapping memory, wrong strides)."""
        real_args, real_kwargs = fx.node.map_arg((args, kwargs), self.values.__getitem__)
        try:
            value = self._run(target, real_args, real_kwargs)
        except RuntimeError:
            return None
        node = self.graph.call_function(target, args, kwargs)
        self._keep(node, value)
        if isinstance(value, (list, tuple)):
            for index in range(len(value)):
                self._keep(self.graph.call_function(operator.getitem, (node, index)), value[index])
        return node

    def _run(self, target: Any, args: Any, kwargs: Any) -> Any:
        return target(*args, **kwargs)

    def tensors(self) -> list[fx.Node]:
        """Return the nodes that are one tensor, in order."""
        return [node for node, value in self.values.items() if isinstance(value, torch.Tensor)]

    def finish(self, results: Sequence[fx.Node] = ()) -> fx.GraphModule:
        self.graph.output(tuple(results))
        self.graph.lint()
        return fx.GraphModule(torch.nn.Module(), self.graph)

    def _keep(self, node: fx.Node, value: Any) -> None:
        self.values[node] = value
        # Shapes and strides only: memory must not be what tells aliases.
        node.meta["val"] = torch.utils._pytree.tree_map_only(torch.Tensor, _shape_of, value)


def _shape_of(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
