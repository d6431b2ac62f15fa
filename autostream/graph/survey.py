"""Look at every node of a graph once, and tell which calls differ only in the nodes they are given.

A deep model repeats the calls of its layers. What follows from the operator, its arguments and the shapes of the tensors alone
is the same for all calls of one form, and found out once (`per_form`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from autostream.graph.calls import Facts, look
from autostream.graph.values import layout_of, value_of

#: Arguments of these types are what they equal.
_PLAIN = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format})
_SHARED = frozenset({"call_function", "placeholder", "get_attr"})


class Survey:
    """What is known of the nodes of one graph, and of others that were made from it.

    Two nodes share a form only if they are inputs, or calls of one operator with equal arguments, and their values have the same
    layout. Equal are nodes at the same places among the inputs (so that what is given twice is given twice in both) whose values
    have the same layout; all else has to be of the same type and value. What cannot be compared equals nothing.
    """

    def __init__(self) -> None:
        self._layouts: dict[Hashable, int] = {}
        #: By identity: a value, which stays alive for that, and the number of its layout.
        self._numbers: dict[int, tuple[Any, int]] = {}
        self._first: dict[Hashable, Facts] = {}
        #: The number of the last value that nothing equals.
        self._strange = 0

    def of(self, graph: fx.Graph) -> dict[fx.Node, Facts]:
        """Return the facts of every node of a graph, in its order."""
        numbers: dict[fx.Node, int] = {}
        return {node: self._look(node, numbers) for node in graph.nodes}

    def _look(self, node: fx.Node, numbers: dict[fx.Node, int]) -> Facts:
        """Return the facts of a node; `numbers` are those of the values before it."""
        number = numbers[node] = self._number(value_of(node))
        if node.op not in _SHARED:
            return look(node, static=number >= 0)
        inputs = tuple(node.all_input_nodes)
        given = (*node.args, *node.kwargs.values())
        described = [(type(value), value) if type(value) in _PLAIN else _described(value, inputs, numbers) for value in given]
        # The graph keeps its targets alive, so that each is known by its identity.
        called = id(node.target) if node.op == "call_function" else node.op
        first = self._first.get(key := (called, number, *described, *node.kwargs))
        if first is None:
            first = self._first[key] = look(node, static=number >= 0)
            return first
        return Facts(
            node=node,
            target=first.target,
            kind=first.kind,
            info=first.info,
            overload=first.overload,
            inputs=inputs,
            static=first.static,
            form=first.form,
        )

    def _number(self, value: Any) -> int:
        """Return a number that two values share only if their layouts are equal; it is negative if nothing equals the value."""
        known = self._numbers.get(id(value))
        if known is not None:
            return known[1]
        layout = layout_of(value)
        if layout is None:
            self._strange -= 1
            return self._strange
        number = self._layouts.setdefault(layout, len(self._layouts))
        self._numbers[id(value)] = value, number
        return number


def _described(value: Any, inputs: Sequence[fx.Node], numbers: Mapping[fx.Node, int]) -> Hashable:
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if isinstance(value, fx.Node):
        return fx.Node, inputs.index(value), numbers.get(value, value)
    if isinstance(value, (list, tuple)):
        return kind, *[_described(item, inputs, numbers) for item in value]
    return object()
