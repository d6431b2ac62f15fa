"""The fewest explicit orders that a program needs beside its data edges.

Data edges are synchronised by the engine. What remains are the orders no data path implies: storage hazards, side effects,
the total order of collectives. Each is kept only if neither data nor the orders kept before it imply it already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import networkx as nx

from autostream.graph.model import OpGraph, Unit, Why

_DATA, _FREE = Why.DATA, Unit.FREE


@dataclass(frozen=True, slots=True, kw_only=True)
class ForcedOrder:
    """`before` must have finished when `after` starts, and no data edge says so."""

    before: str
    after: str
    why: frozenset[Why]


def forced_orders(graph: OpGraph) -> tuple[ForcedOrder, ...]:
    """Return the orders that need an explicit edge, transitively reduced, in graph order of `after`, then `before`.

    A data path through operators without a task (views) counts: the engine passes the dependency on.
    """
    index = {op.name: op.position for op in graph}
    # What one task hands on to another needs no proof.
    wanted = sorted(_between_tasks(graph, data=False), key=lambda order: (index[order[1]], -index[order[0]]))
    if not wanted:
        return ()
    ancestors = _Ancestors(graph)
    kept = []
    for before, after, why in wanted:
        if ancestors.precedes(before, after):
            continue
        ancestors.add(before, after)
        kept.append(ForcedOrder(before=before, after=after, why=why))
    return tuple(kept)


def task_orders(graph: OpGraph) -> tuple[tuple[str, str, str], ...]:
    """Return every order between two operators that emit tasks as (before, after, reason), data edges through views included.

    This is what an emitted program is checked against. A copy into a graph input whose value an operator computes is left
    out: the engine lets that operator write the input, and the graph orders the operator as a writer of it.
    """
    orders: dict[tuple[str, str], str] = {}
    absorbed = _absorbed_copies(graph)
    for before, after, why in _between_tasks(graph):
        if before not in absorbed and after not in absorbed:
            orders.setdefault((before, after), "+".join(sorted(why)))
    return tuple((before, after, text) for (before, after), text in sorted(orders.items()))


class _Ancestors:
    """Ancestor sets over data edges and added orders, as bit masks in graph order.

    Orders are added with `after` ascending in graph order, so a mask is final before anything later reads it.
    """

    def __init__(self, graph: OpGraph) -> None:
        self._bit = {name: 1 << position for position, name in enumerate(graph.ops)}
        self._names = list(graph.ops)
        self._parents: dict[str, list[str]] = {name: [] for name in graph.ops}
        for before, edges in graph.dag.adjacency():
            for after, edge in edges.items():
                if _DATA in edge["why"]:
                    self._parents[after].append(before)
        self._masks: dict[str, int] = {}
        self._done = 0
        self._position = {name: position for position, name in enumerate(self._names)}

    def precedes(self, before: str, after: str) -> bool:
        self._settle(self._position[after] + 1)
        return bool(self._masks[after] & self._bit[before])

    def add(self, before: str, after: str) -> None:
        self._settle(self._position[after] + 1)
        self._parents[after].append(before)
        self._masks[after] |= self._masks[before] | self._bit[before]

    def _settle(self, end: int) -> None:
        while self._done < end:
            name = self._names[self._done]
            mask = 0
            for parent in self._parents[name]:
                mask |= self._masks[parent] | self._bit[parent]
            self._masks[name] = mask
            self._done += 1


def _between_tasks(graph: OpGraph, *, data: bool = True) -> Iterator[tuple[str, str, frozenset[Why]]]:
    """Yield every edge onto an operator that emits a task; where it comes from a view, from the operators behind that.

    Without `data`, the data edges from one such operator to another are left out.
    """
    following = dict(graph.dag.adjacency())
    free = {op.name for op in graph if op.unit is _FREE}
    #: The operators with a task behind each view, which is complete when the view is reached.
    behind: dict[str, dict[str, None]] = {name: {} for name in free}
    for before in graph.ops:
        view = before in free
        for after, edge in following[before].items():
            why = edge["why"]
            if after in free:
                behind[after].update(behind[before] if view else {before: None})
            elif view:
                yield from ((producer, after, why) for producer in behind[before])
            elif data or _DATA not in why:
                yield before, after, why


def _absorbed_copies(graph: OpGraph) -> set[str]:
    """Return the copies into graph inputs that emit no task because an operator that computes the value writes the input."""
    copies = [op for op in graph if op.into_input]
    absorbed = set()
    for op in copies:
        values = [before for before in graph.dag.predecessors(op.name) if Why.DATA in graph.why(before, op.name)]
        producers = {producer for value in values for producer in _producers(graph, value)}
        if any(set(op.writes) & set(graph.ops[producer].writes) for producer in producers):
            absorbed.add(op.name)
    return absorbed


def _emits_task(graph: OpGraph, name: str) -> bool:
    return graph.ops[name].unit is not Unit.FREE


def _producers(graph: OpGraph, name: str) -> Iterable[str]:
    """Return the operators with a task that `name` stands for: itself, or those behind a chain of views."""
    if _emits_task(graph, name):
        return (name,)
    found: list[str] = []
    stack, seen = [name], {name}
    dag: nx.DiGraph = graph.dag
    while stack:
        for parent in dag.predecessors(stack.pop()):
            if parent in seen:
                continue
            seen.add(parent)
            if _emits_task(graph, parent):
                found.append(parent)
            else:
                stack.append(parent)
    return found
