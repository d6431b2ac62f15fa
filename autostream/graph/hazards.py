"""The edges of the dependency DAG: data, storage hazards, side effects, collectives, barriers and the user's own blocks.

Every edge goes forward in graph order, so the graph's own order is always a topological order. Only edges between consecutive
conflicting accesses are made (last writer -> readers -> next writer), which keeps their number linear.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

from autostream.graph.aliases import Access
from autostream.graph.model import Why
from autostream.graph.regions import Part, Region, neighbours, parts_of

#: One reason alone: most edges have no other.
_ONLY = {why: frozenset({why}) for why in Why}


class Edges:
    """Edges between operators by their position; `names` is the graph order."""

    def __init__(self, names: Sequence[str]) -> None:
        """Start without edges between the operators `names`, in graph order."""
        self.names = tuple(names)
        self.position = {name: position for position, name in enumerate(names)}
        self._reasons: dict[tuple[int, int], frozenset[Why]] = {}

    def add(self, before: int, after: int, why: Why) -> None:
        """Add one reason for the operator at `before` to precede the one at `after`."""
        assert before <= after, f"an edge from {self.names[before]} back to {self.names[after]}"
        if before != after:
            known = self._reasons.get((before, after))
            self._reasons[before, after] = _ONLY[why] if known is None else known | _ONLY[why]

    def has(self, before: int, after: int) -> bool:
        """Tell whether there is an edge already."""
        return (before, after) in self._reasons

    def pairs(self) -> list[tuple[int, int]]:
        """Return the edges in graph order."""
        return sorted(self._reasons)

    def named(self) -> list[tuple[str, str, frozenset[Why]]]:
        """Return the edges with names and reasons, in graph order."""
        names = self.names
        return [(names[before], names[after], self._reasons[before, after]) for before, after in self.pairs()]


def add_storage_hazards(edges: Edges, accesses: Mapping[str, Access], producers: Sequence[set[int]]) -> None:
    """Order every two accesses to one storage that may have a byte in common and of which at least one changes it in place.

    The operator that creates a storage needs no edge: whoever accesses the storage got it from there, along data edges. Nor does
    an operator that gets a value, maybe through views, from the writer itself: `producers` are those, by operator.
    """

    def add(before: int, after: int, why: Why) -> None:
        if not _through_views(edges, before, after, producers):
            edges.add(before, after, why)

    changed = {storage for name in edges.names for storage in accesses[name].mutates}
    # Most storages are written once, by what creates them: none of the accesses to these matters.
    parts = {
        position: (_parts(access.reads, access.read_regions, changed), _parts(access.mutates, access.mutated_regions, changed))
        for position, access in enumerate(map(accesses.__getitem__, edges.names))
        if access.mutates or not changed.isdisjoint(access.reads)
    }
    histories = {storage: _History(found) for storage, found in _parts_by_storage(parts.values()).items()}
    for position, (read, mutated) in parts.items():
        for storage in read:
            for before in histories[storage].writers_before(read[storage]):
                add(before, position, Why.RAW)
        for storage in mutated:
            readers, writers = histories[storage].accesses_before(mutated[storage])
            for before in readers:
                add(before, position, Why.WAR)
            for before in writers:
                add(before, position, Why.WAW)
            histories[storage].write(position, mutated[storage])
        for storage in read:
            histories[storage].read(position, set(read[storage]) - set(mutated.get(storage, ())))


_Parts = Mapping[str, tuple[Part, ...]]


def _parts(storages: Iterable[str], regions: Iterable[tuple[str, Region]], changed: Collection[str]) -> _Parts:
    """Return the parts that an operator accesses of the storages that any operator changes."""
    return parts_of([storage for storage in storages if storage in changed], regions)


def _parts_by_storage(accesses: Iterable[tuple[_Parts, _Parts]]) -> dict[str, tuple[Part, ...]]:
    """Return the different parts of every storage."""
    found: dict[str, dict[Part, None]] = {}
    for both in accesses:
        for parts in both:
            for storage in parts:
                found.setdefault(storage, {}).update(dict.fromkeys(parts[storage]))
    return {storage: tuple(parts) for storage, parts in found.items()}


class _History:
    """The accesses to one storage that a later one has to come after, kept for each part of it: those that may overlap the part.

    An access that a later, overlapping write has to come after anyway is forgotten.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._near = neighbours(parts)
        self._writers: dict[Part, list[tuple[int, Part]]] = {part: [] for part in self._near}
        self._readers: dict[Part, list[tuple[int, Part]]] = {part: [] for part in self._near}

    def writers_before(self, parts: Iterable[Part]) -> list[int]:
        return sorted({position for part in parts for position, _ in self._writers[self._known(part)]})

    def accesses_before(self, parts: Iterable[Part]) -> tuple[list[int], list[int]]:
        """Return the readers, and the writers that do not come before one of these readers anyway."""
        readers = {item for part in parts for item in self._readers[self._known(part)]}
        writers = {item for part in parts for item in self._writers[self._known(part)]}
        first = {at for at, part in writers if not any(at < after and other in self._near[part] for after, other in readers)}
        return sorted({position for position, _ in readers}), sorted(first)

    def write(self, position: int, parts: Iterable[Part]) -> None:
        for part in map(self._known, parts):
            for other in self._near[part]:
                for seen in (self._writers, self._readers):
                    seen[other] = [item for item in seen[other] if item[1] not in self._near[part] or item[0] == position]
                self._writers[other].append((position, part))

    def read(self, position: int, parts: Iterable[Part]) -> None:
        for part in map(self._known, parts):
            for other in self._near[part]:
                self._readers[other].append((position, part))

    def _known(self, part: Part) -> Part:
        return part if part in self._near else None


def _through_views(edges: Edges, before: int, after: int, producers: Sequence[set[int]]) -> bool:
    """Tell whether a path of data edges over views already orders two operators (a direct data edge takes the reason instead)."""
    return before in producers[after] and not edges.has(before, after)


def add_chain(edges: Edges, members: Sequence[int], why: Why) -> None:
    """Keep the members (ascending positions) in graph order."""
    for before, after in itertools.pairwise(members):
        edges.add(before, after, why)


def add_prefetches(edges: Edges, accesses: Mapping[str, Access], prefetches: Sequence[int], tasks: Sequence[int]) -> None:
    """Keep each prefetch in front of the next task that reads what it brings: behind that it would be of no use.

    Positions ascend. What a prefetch brings is the first storage it reads.
    """
    if not prefetches:
        return
    readers: dict[str, list[int]] = {}
    for task in set(tasks).difference(prefetches):
        for storage in accesses[edges.names[task]].reads:
            readers.setdefault(storage, []).append(task)
    for prefetch in prefetches:
        brought = accesses[edges.names[prefetch]].reads[:1]
        later = [task for storage in brought for task in readers.get(storage, ()) if task > prefetch]
        if later:
            edges.add(prefetch, min(later), Why.USER)


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
