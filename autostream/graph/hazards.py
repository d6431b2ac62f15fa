"""The edges of the dependency DAG: data, storage hazards, side effects, collectives, barriers and the user's own blocks.

Every edge goes forward in graph order, so the graph's own order is always a topological order. Only edges between consecutive
conflicting accesses are made (last writer -> readers -> next writer), which keeps their number linear.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from autostream.graph.aliases import Access
from autostream.graph.model import Why


class Edges:
    """Edges between operators by their position; `names` is the graph order."""

    def __init__(self, names: Sequence[str]) -> None:
        """Start without edges between the operators `names`, in graph order."""
        self.names = tuple(names)
        self.position = {name: position for position, name in enumerate(names)}
        self._reasons: dict[tuple[int, int], set[Why]] = {}

    def add(self, before: int, after: int, why: Why) -> None:
        """Add one reason for the operator at `before` to precede the one at `after`."""
        assert before <= after, f"an edge from {self.names[before]} back to {self.names[after]}"
        if before != after:
            self._reasons.setdefault((before, after), set()).add(why)

    def has(self, before: int, after: int) -> bool:
        """Tell whether there is an edge already."""
        return (before, after) in self._reasons

    def pairs(self) -> list[tuple[int, int]]:
        """Return the edges in graph order."""
        return sorted(self._reasons)

    def named(self) -> list[tuple[str, str, frozenset[Why]]]:
        """Return the edges with names and reasons, in graph order."""
        return [(self.names[a], self.names[b], frozenset(self._reasons[a, b])) for a, b in self.pairs()]


def add_storage_hazards(edges: Edges, accesses: Mapping[str, Access], producers: Sequence[set[int]]) -> None:
    """Order every two accesses to one storage of which at least one changes it in place.

    The operator that creates a storage needs no edge: whoever accesses the storage got it from there, along data edges. Nor does
    an operator that gets a value, maybe through views, from the writer itself: `producers` are those, by operator.
    """
    writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    for position, name in enumerate(edges.names):
        access = accesses[name]
        for storage in access.reads:
            if storage in writer and not _through_views(edges, writer[storage], position, producers):
                edges.add(writer[storage], position, Why.RAW)
            if storage not in access.mutates:
                readers.setdefault(storage, []).append(position)
        for storage in access.mutates:
            since = readers.pop(storage, [])
            for reader in since:
                if not _through_views(edges, reader, position, producers):
                    edges.add(reader, position, Why.WAR)
            if storage in writer and not since and not _through_views(edges, writer[storage], position, producers):
                edges.add(writer[storage], position, Why.WAW)
            writer[storage] = position


def _through_views(edges: Edges, before: int, after: int, producers: Sequence[set[int]]) -> bool:
    """Tell whether a path of data edges over views already orders two operators (a direct data edge takes the reason instead)."""
    return before in producers[after] and not edges.has(before, after)


def add_chain(edges: Edges, members: Sequence[int], why: Why) -> None:
    """Keep the members (ascending positions) in graph order."""
    for before, after in itertools.pairwise(members):
        edges.add(before, after, why)


def add_block(edges: Edges, first: int, last: int) -> None:
    """Keep the run of operators `first` .. `last` together: chained, entered at its first and left at its last."""
    inside = range(first, last + 1)
    for before, after in edges.pairs():
        if before not in inside and after in inside:
            edges.add(before, first, Why.USER)
        elif before in inside and after not in inside:
            edges.add(last, after, Why.USER)
    add_chain(edges, inside, Why.USER)


def add_barriers(edges: Edges, barriers: Iterable[int]) -> None:
    """Let nothing move across a barrier. Call it last: edges are added only where no path exists yet."""
    stops = sorted(barriers)
    if not stops:
        return
    count = len(edges.names)
    predecessors: list[list[int]] = [[] for _ in range(count)]
    for before, after in edges.pairs():
        predecessors[after].append(before)
    previous = -1
    for stop in [*stops, count]:
        segment = range(previous + 1, stop)
        followed = {before for after in segment for before in predecessors[after]}
        for position in segment:
            if previous >= 0 and all(before < previous for before in predecessors[position]):
                edges.add(previous, position, Why.EFFECT)
            if stop < count and position not in followed:
                edges.add(position, stop, Why.EFFECT)
        if previous >= 0 and stop < count:
            edges.add(previous, stop, Why.EFFECT)
        previous = stop
