"""How long each buffer of a program holds its memory, and how much memory that takes beside the same steps on one stream.

Memory is handed out in the order in which steps are issued, before they run, from one pool per stream: that of the step that
creates the buffer. A buffer that another stream uses too can go back to its pool in two ways:

- GE: at the first later sync edge from the using stream to the creating one, else never;
- capture modes: as soon as its last use is issued. Nobody checks that this use has run: see `checks.reuse`. Memory
  that the program guards for the other stream (``record_stream``) is not given back before the end of the graph.

Sizes are exact: what an allocator adds by rounding or fragmentation is not in them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from autostream.errors import VerificationError
from autostream.graph.model import OpGraph, Storage, Why, storages_behind
from autostream.program.checks.happens import keeps_stream_order
from autostream.program.model import Semantics, Step, StreamProgram
from autostream.program.order import Order, find_cycle, linear_extension, order_of, predecessors


class Lifetime(NamedTuple):
    """When one buffer holds its memory. Positions count the tasks of the program in the order in which they are issued."""

    storage: str
    nbytes: int
    #: The step that creates it, and the stream of that step: the memory comes from that stream's pool and goes back to it.
    creator: str
    stream: str
    #: (stream, step): the last use on every stream that uses it.
    last_uses: tuple[tuple[str, str], ...]
    #: The first step on `stream` that may get the memory; None if it stays taken to the end or no step is left to get it.
    reusable_from: str | None
    #: Position of the creator, of the last use (of the last task, if the graph returns it), and from which on it is free.
    born: int
    last: int
    freed: int

    @property
    def extended(self) -> bool:
        """True if the streams make it hold its memory longer than its uses would."""
        return self.freed > self.last + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The most bytes that buffers of one stream hold at once, and the first step at which they do."""

    stream: str
    peak: int
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory that the intermediate buffers of a program take, bytes; graph inputs and weights are not in it."""

    #: All pools at their own peaks: what one stream gave back, another does not get.
    peak: int
    #: The same steps in the same order on one stream.
    serial_peak: int
    #: By stream, in the order in which the streams first create a buffer.
    pools: tuple[Pool, ...]
    #: The most bytes held at one time over all pools, and the first step at which they are (empty without any buffer).
    held: int
    at: str
    #: Buffers that the streams make hold their memory longer, largest first.
    extended: tuple[Lifetime, ...]

    @property
    def growth(self) -> float:
        """The peak as a multiple of the serial one (1 if there is none)."""
        return self.peak / self.serial_peak if self.serial_peak else 1.0


def lifetimes(program: StreamProgram, storages: Mapping[str, Storage], *, returned: Collection[str] = ()) -> tuple[Lifetime, ...]:
    """Return the lifetime of every intermediate storage that a task of the program writes, in the order of creation.

    Where the engine may re-sort a stream, the order of emission is taken for the one it chooses.

    Args:
        program: what was read back from a graph.
        storages: by name as in the steps; a view counts as a use of its whole storage. Names that are missing are not counted.
        returned: storages the graph returns: they are never given back. See `returned_storages`.

    Raises:
        VerificationError: the program waits for itself.
    """
    return _lifetimes(program, _issued(program), storages, returned)


def _lifetimes(
    program: StreamProgram, issued: _Issued, storages: Mapping[str, Storage], returned: Collection[str]
) -> tuple[Lifetime, ...]:
    tasks, order = issued.tasks, issued.order
    syncs = _BackSyncs(order) if program.semantics is Semantics.GE else None
    creators, uses = _uses(tasks, storages)
    lanes = _positions(order.streams)
    end, kept, guards = len(tasks), frozenset(returned), frozenset(program.guards)
    found = []
    for name, born in creators.items():
        stream, last_uses = order.streams[born], uses[name]
        last = max(last_uses.values())
        freed = last + 1 if syncs is None else max(syncs.freed(stream, *use) for use in last_uses.items())
        if syncs is None and any((name, where) in guards for where in last_uses if where != stream):
            freed = end  # during a capture, guarded memory is not given back
        if name in kept:
            last, freed = end - 1, end
        lane = lanes[stream]
        receiver = bisect_left(lane, freed)
        found.append(
            Lifetime(
                storage=name,
                nbytes=storages[name].nbytes,
                creator=order.names[born],
                stream=stream,
                last_uses=tuple((where, order.names[position]) for where, position in last_uses.items()),
                reusable_from=order.names[lane[receiver]] if receiver < len(lane) else None,
                born=born,
                last=last,
                freed=freed,
            )
        )
    return tuple(found)


def peak_memory(program: StreamProgram, storages: Mapping[str, Storage], *, returned: Collection[str] = ()) -> Memory:
    """Return the memory the intermediate storages of a program take at their peak, by stream and beside the serial program.

    Arguments and errors are those of `lifetimes`.
    """
    issued = _issued(program)
    lives, names = _lifetimes(program, issued, storages, returned), issued.order.names
    pools = []
    for stream in dict.fromkeys(life.stream for life in lives):
        peak, at = _peak(((life.born, life.freed, life.nbytes) for life in lives if life.stream == stream), len(names))
        pools.append(Pool(stream=stream, peak=peak, at=names[at]))
    held, at = _peak(((life.born, life.freed, life.nbytes) for life in lives), len(names))
    serial_peak, _ = _peak(((life.born, life.last + 1, life.nbytes) for life in lives), len(names))
    return Memory(
        peak=sum(pool.peak for pool in pools),
        serial_peak=serial_peak,
        pools=tuple(pools),
        held=held,
        at=names[at] if lives else "",
        extended=tuple(sorted((life for life in lives if life.extended), key=lambda life: -life.nbytes)),
    )


def returned_storages(graph: OpGraph) -> tuple[str, ...]:
    """Return the storages behind the values that a graph returns, looking through views and tuple access.

    Of an operator with several results all count, even if the graph returns only one of them.
    """

    def sources(name: str) -> Iterator[str]:
        return (before for before in graph.dag.predecessors(name) if Why.DATA in graph.why(before, name))

    return storages_behind(graph.outputs, graph.ops, sources)


def as_issued(program: StreamProgram) -> StreamProgram:
    """Return the program with its tasks in the order in which they are issued, and every stream bound to that order.

    That is the order of emission, moved as little as the waits demand. Steps without a stream come last.

    Raises:
        VerificationError: the program waits for itself.
    """
    tasks = _issued(program).tasks
    idle = (step for step in program.steps if step.stream is None)
    return replace(program, steps=(*tasks, *idle), in_order=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Issued:
    """The tasks of a program in the order in which they are issued, and the waits between them."""

    tasks: tuple[Step, ...]
    order: Order


def _issued(program: StreamProgram) -> _Issued:
    """Return the tasks as `as_issued` orders them, with the same errors."""
    order = order_of(program)
    tasks = tuple(step for step in program.steps if step.stream is not None)
    sequence = linear_extension(predecessors(order, stream_order=True))
    if len(sequence) < len(order.names) and not keeps_stream_order(program):
        sequence = linear_extension(order.waits)  # the engine has to re-sort a stream
    if len(sequence) < len(order.names):
        cycle = find_cycle(predecessors(order, stream_order=keeps_stream_order(program)))
        raise VerificationError(f"the program waits for itself: {' -> '.join(order.names[i] for i in (*cycle, cycle[0]))}")
    place = {position: issued for issued, position in enumerate(sequence)}
    return _Issued(
        tasks=tuple(tasks[position] for position in sequence),
        order=Order(
            names=tuple(order.names[position] for position in sequence),
            streams=tuple(order.streams[position] for position in sequence),
            waits=tuple(tuple(sorted([place[before] for before in order.waits[position]])) for position in sequence),
            may_vanish=tuple(order.may_vanish[position] for position in sequence),
        ),
    )


class _BackSyncs:
    """The sync edges from one stream to another, by where they leave.

    An operator that the engine may remove is no end of one: its waits are taken for those of the operators that wait for it.
    """

    def __init__(self, order: Order) -> None:
        self._end = len(order.names)
        edges: dict[tuple[str, str], list[tuple[int, int]]] = {}
        certain: list[frozenset[int]] = []
        for after, waits in enumerate(order.waits):
            behind = (certain[before] if order.may_vanish[before] else (before,) for before in waits)
            certain.append(frozenset(position for positions in behind for position in positions))
            if not order.may_vanish[after]:
                for before in certain[after]:
                    edges.setdefault((order.streams[before], order.streams[after]), []).append((before, after))
        #: Per pair of streams: where edges leave, ascending, and the first position that an edge from there on reaches.
        self._edges = {pair: _first_reached(sorted(found)) for pair, found in edges.items()}

    def freed(self, stream: str, user: str, last: int) -> int:
        """Return from which position on `stream` is safe from a use at position `last` on the stream `user`."""
        if user == stream:
            return last + 1
        leaves, reached = self._edges.get((user, stream), ((), ()))
        index = bisect_left(leaves, last)
        return reached[index] if index < len(leaves) else self._end


def _first_reached(edges: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    reached, first = [], edges[-1][1]
    for _, after in reversed(edges):
        first = min(first, after)
        reached.append(first)
    return tuple(before for before, _ in edges), tuple(reversed(reached))


def _uses(tasks: Sequence[Step], storages: Mapping[str, Storage]) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    """Return of every intermediate storage the position of its first writer, and of its last use on every stream."""
    creators: dict[str, int] = {}
    uses: dict[str, dict[str, int]] = {}
    counted = {name for name, storage in storages.items() if storage.kind == "intermediate"}
    for position, step in enumerate(tasks):
        for name in (*step.reads, *step.writes):
            if name in counted:
                uses.setdefault(name, {})[str(step.stream)] = position
        for name in step.writes:
            if name in counted:
                creators.setdefault(name, position)
    return creators, uses


def _positions(streams: Sequence[str]) -> dict[str, list[int]]:
    """Return the positions of every stream, ascending."""
    lanes: dict[str, list[int]] = {}
    for position, stream in enumerate(streams):
        lanes.setdefault(stream, []).append(position)
    return lanes


def _peak(held: Iterable[tuple[int, int, int]], count: int) -> tuple[int, int]:
    """Return the most bytes held at once over `count` positions and the first such position; items: (from, until, bytes)."""
    change = [0] * (count + 1)
    for start, end, nbytes in held:
        change[start] += nbytes
        change[end] -= nbytes
    most = at = now = 0
    for position in range(count):
        now += change[position]
        if now > most:
            most, at = now, position
    return most, at
