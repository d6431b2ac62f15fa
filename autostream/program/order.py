"""Which steps a program makes wait for which, as the backend's semantics has it: the ground that proofs and simulation share."""

from __future__ import annotations

import heapq
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autostream.program.kinds import may_vanish
from autostream.program.model import Edge, EdgeKind, Semantics, StreamProgram

_DATA = EdgeKind.DATA


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Steps with a task, by position in emission order, and the waits between them.

    `waits[i]` holds the positions that step `i` waits for by an edge, ascending. The order of a stream is not in it.
    """

    names: tuple[str, ...]
    streams: tuple[str, ...]
    waits: tuple[tuple[int, ...], ...]
    #: True for what the engine may remove: its waits pass on to its consumers, its place on the stream proves nothing.
    may_vanish: tuple[bool, ...]


#: What was found out about programs that are still there, by their identity: every proof and simulation asks for it.
_known: dict[int, tuple[weakref.ref[StreamProgram], Order]] = {}


def order_of(program: StreamProgram) -> Order:
    """Return the waits of a program.

    GE: data edges count, also through steps without a task; control edges only between two tasks. Capture modes: only events.
    """
    key = id(program)
    known = _known.get(key)
    if known is not None and known[0]() is program:
        return known[1]
    order = _order_of(program)
    _known[key] = (weakref.ref(program, lambda _: _known.pop(key, None)), order)
    return order


def _order_of(program: StreamProgram) -> Order:
    tasks = [step for step in program.steps if step.stream is not None]
    position = {step.name: index for index, step in enumerate(tasks)}
    waits: list[set[int]] = [set() for _ in tasks]
    data: dict[str, list[str]] = {}
    for edge in program.edges:
        if edge.kind is _DATA:
            data.setdefault(edge.after, []).append(edge.before)
        elif edge.before in position and edge.after in position and _counts(program.semantics, edge.kind):
            waits[position[edge.after]].add(position[edge.before])
    if program.semantics is Semantics.GE:
        producers = _Producers(data, position)
        for step in program.steps:  # those without a task too: they are asked for behind them
            found = producers.of(step.name)
            if step.stream is not None:
                waits[position[step.name]] |= found
    return Order(
        names=tuple(step.name for step in tasks),
        streams=tuple(str(step.stream) for step in tasks),
        waits=tuple(tuple(sorted(positions)) for positions in waits),
        may_vanish=tuple(program.semantics is Semantics.GE and may_vanish(step.kind) for step in tasks),
    )


def cross_edges(program: StreamProgram) -> tuple[Edge, ...]:
    """Return the waits between tasks on two different streams, by the task that waits; views on the way are looked through."""
    order = order_of(program)
    explicit = {(edge.before, edge.after): edge.kind for edge in program.edges if edge.kind is not _DATA}
    return tuple(
        Edge(
            before=order.names[before],
            after=order.names[after],
            kind=explicit.get((order.names[before], order.names[after]), EdgeKind.DATA),
        )
        for after, waits in enumerate(order.waits)
        for before in waits
        if order.streams[before] != order.streams[after]
    )


def _counts(semantics: Semantics, kind: EdgeKind) -> bool:
    return semantics is Semantics.GE or kind is EdgeKind.EVENT


class _Producers:
    """The tasks whose data a step gets, looking through steps without a task."""

    def __init__(self, data: dict[str, list[str]], position: dict[str, int]) -> None:
        self._data = data
        self._position = position
        self._behind: dict[str, frozenset[int]] = {}

    def of(self, name: str) -> frozenset[int]:
        known = self._behind.get(name)
        if known is None:
            known = self._right_behind(name)
            known = self._behind[name] = self._far_behind(name) if known is None else known
        return known

    def _right_behind(self, name: str) -> frozenset[int] | None:
        """Return what is behind a step if that is known of all that it reads: mostly so, as programs list producers first."""
        found: set[int] = set()
        for producer in self._data.get(name, ()):
            at = self._position.get(producer)
            if at is not None:
                found.add(at)
            elif producer in self._data:
                known = self._behind.get(producer)
                if known is None:
                    return None
                found |= known
        return frozenset(found)

    def _far_behind(self, name: str) -> frozenset[int]:
        stack, seen = [name], {name}
        while stack:  # settle the steps without a task behind `name`, producers first
            current = stack[-1]
            sources = self._data.get(current, ())
            unsettled = next((p for p in sources if p not in self._position and p not in self._behind and p not in seen), None)
            if unsettled is not None and current not in self._behind:
                stack.append(unsettled)
                seen.add(unsettled)
                continue
            stack.pop()
            found: set[int] = set()
            for producer in sources:
                at = self._position.get(producer)
                found |= self._behind.get(producer, frozenset()) if at is None else {at}
            self._behind[current] = frozenset(found)
        return self._behind[name]


def predecessors(order: Order, *, stream_order: bool, vanishing: bool = True) -> tuple[tuple[int, ...], ...]:
    """Return what each step comes after: its waits and, if `stream_order`, the step before it on its stream.

    With `vanishing` false, steps that may vanish have no place on their stream.
    """
    if not stream_order:
        return order.waits
    last: dict[str, int] = {}
    before = []
    for position, (stream, waits) in enumerate(zip(order.streams, order.waits, strict=True)):
        if order.may_vanish[position] and not vanishing:
            before.append(waits)
            continue
        previous = last.get(stream)
        before.append(waits if previous is None or previous in waits else (*waits, previous))
        last[stream] = position
    return tuple(before)


def linear_extension(before: Sequence[Sequence[int]]) -> list[int]:
    """Return the positions in a topological order, the lowest first; positions on or behind a cycle are left out."""
    if all(source < position for position, sources in enumerate(before) for source in sources):
        return list(range(len(before)))
    after: list[list[int]] = [[] for _ in before]
    missing = [len(sources) for sources in before]
    for position, sources in enumerate(before):
        for source in sources:
            after[source].append(position)
    ready = [position for position, count in enumerate(missing) if count == 0]
    done: list[int] = []
    while ready:
        position = heapq.heappop(ready)
        done.append(position)
        for successor in after[position]:
            missing[successor] -= 1
            if missing[successor] == 0:
                heapq.heappush(ready, successor)
    return done


def find_cycle(before: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the positions of one cycle, each before the next and the last before the first; empty if there is none."""
    blocked = set(range(len(before))) - set(linear_extension(before))
    if not blocked:
        return ()
    path: dict[int, None] = {}
    position = min(blocked)
    while position not in path:  # every blocked step waits for a blocked one, so walking back must meet itself
        path[position] = None
        position = min(_blocked(before[position], blocked))
    walked = list(path)
    return tuple(reversed(walked[walked.index(position) :]))


def _blocked(positions: Sequence[int], blocked: set[int]) -> Iterator[int]:
    return (position for position in positions if position in blocked)
