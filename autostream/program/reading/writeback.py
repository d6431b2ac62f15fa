"""Copies into graph inputs: GE lets the operator that computes the value write the input, and drops the copy."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

from torch import fx

from autostream.program.kinds import kinds

_COPY = "aten.copy_.default"
#: Copies that TorchAir drops before it converts where the whole value stays the same, with the position of what they copy.
_DROPPED = {"aten.clone.default": 0, "aten.copy.default": 1, "aten.slice_scatter.default": 1}


def written_back(graph_module: fx.GraphModule) -> dict[str, tuple[str, ...]]:
    """Return the FX values (``"node.position"``) that GE writes straight into graph inputs, with the names of these inputs.

    TorchAir turns a ``copy_`` into a graph input into an output that shares the input's memory: the producer of the value
    writes the input, the copy itself is gone.
    """
    found: dict[str, tuple[str, ...]] = {}
    for node in graph_module.graph.nodes:
        for producer, position in values_written(node) if is_write_back(node) else ():
            if producer.op == "call_function":
                value = f"{producer.name}.{position}"
                found[value] = (*found.get(value, ()), str(node.args[0].target))
    return found


def is_absorbed(node: fx.Node) -> bool:
    """True for a copy into a graph input that becomes part of the operator whose value it copies.

    The value of another input has no such operator: something has to copy it.
    """
    return is_write_back(node) and any(producer.op == "call_function" for producer, _ in values_written(node))


def is_write_back(node: fx.Node) -> bool:
    """True for a copy into a graph input."""
    if len(node.args) < 2:
        return False
    destination, source = node.args[:2]
    into_input = isinstance(destination, fx.Node) and destination.op == "placeholder" and isinstance(source, fx.Node)
    return into_input and str(node.target) == _COPY


def _value(node: fx.Node) -> tuple[fx.Node, int]:
    """Return the node that makes a value, and which of its results it is, looking through tuple access and views."""
    target = str(node.target)
    if node.op != "call_function" or not node.all_input_nodes:
        return node, 0
    if is_getitem(node):
        return node.all_input_nodes[0], int(str(node.args[1]))
    if target in kinds().fx_deferred or target in kinds().fx_no_task or target in kinds().fx_nothing:
        return _value(node.all_input_nodes[0])
    return node, 0


def values_written(copy: fx.Node) -> Iterator[tuple[fx.Node, int]]:
    """Yield the value that a copy into a graph input writes and, where that is a copy that TorchAir may drop, what it copies."""
    source: object = copy.args[1]
    while isinstance(source, fx.Node):
        producer, position = _value(source)
        yield producer, position
        at = _DROPPED.get(str(producer.target))
        source = producer.args[at] if at is not None and at < len(producer.args) else None
        if isinstance(source, fx.Node) and _layout(source) != _layout(producer):
            return


def _layout(node: fx.Node) -> tuple[str, ...]:
    value: Any = node.meta.get("val")
    return (str(value.shape), str(value.dtype), str(value.stride())) if hasattr(value, "stride") else ()


def is_getitem(node: fx.Node) -> bool:
    """True for tuple access."""
    return node.target is operator.getitem
