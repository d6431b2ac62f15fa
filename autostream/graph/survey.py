"""Look at every node of a graph once, and tell which calls differ only in the nodes they are given.

A deep model repeats the calls of its layers. What follows from the operator, its arguments and the shapes of the tensors alone
is the same for all calls of one form, and found out once (`per_form`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import fx

from autostream.graph.calls import Facts, bind, look
from autostream.graph.values import layout_of, value_of

#: Arguments of these types are what they equal.
_PLAIN = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format})


def survey(graph: fx.Graph) -> dict[fx.Node, Facts]:
    """Return the facts of every node, in graph order."""
    walk = Survey()
    return {node: walk.look(node) for node in graph.nodes}


class Survey:
    """Nodes of one graph, in its order. Two of them share a form only if they are calls of one operator with equal arguments.

    Equal are nodes at the same places among the inputs (so that what is given twice is given twice in both) whose values have
    the same layout; all else has to be of the same type and value. What cannot be compared equals nothing.
    """

    def __init__(self) -> None:
        self._layouts: dict[Hashable, int] = {}
        self._values: dict[fx.Node, int] = {}
        self._first: dict[Hashable, Facts] = {}

    def look(self, node: fx.Node) -> Facts:
        """Return the facts of a node; those that it depends on have been looked at."""
        layout = layout_of(value_of(node))
        number = self._layouts.setdefault(object() if layout is None else layout, len(self._layouts))
        self._values[node] = number
        if node.op != "call_function":
            return look(node, static=layout is not None)
        inputs = node.all_input_nodes
        given = (*node.args, *node.kwargs.values())
        described = [(type(value), value) if type(value) in _PLAIN else self._described(value, inputs) for value in given]
        # The graph keeps its targets alive, so that each is known by its identity.
        first = self._first.get(key := (id(node.target), number, *described, *node.kwargs))
        if first is None:
            first = self._first[key] = look(node, static=layout is not None)
            return first
        return Facts(
            node=node,
            target=first.target,
            kind=first.kind,
            info=first.info,
            arguments=bind(node, first.kind, first.overload),
            overload=first.overload,
            inputs=tuple(inputs),
            static=first.static,
            form=first.form,
        )

    def _described(self, value: Any, inputs: Sequence[fx.Node]) -> Hashable:
        kind = type(value)
        if kind in _PLAIN:
            return kind, value
        if isinstance(value, fx.Node):
            return fx.Node, inputs.index(value), self._values.get(value, value)
        if isinstance(value, (list, tuple)):
            return kind, *[self._described(item, inputs) for item in value]
        return object()
