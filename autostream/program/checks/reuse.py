"""Memory that is used again while another stream can still touch it, found with a simulated allocator.

The proof holds for every allocator that hands out memory by the rules of `checks.lifetimes`, whatever fits where:
a fault that only some batch sizes show is found at any size. A simulated first-fit allocator gives the example.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autostream.graph.model import Storage
from autostream.program.checks.happens import HappensBefore, happens_before
from autostream.program.checks.lifetimes import Lifetime, Memory, as_issued, lifetimes, peak_memory
from autostream.program.model import Finding, Semantics, Severity, StreamProgram

if TYPE_CHECKING:
    from autostream.program.checks.verify import Evidence

#: A peak is worth a note if it is more than this multiple of the serial one.
GROWTH = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a buffer lies in the pool of its stream, bytes from the start of the pool."""

    life: Lifetime
    offset: int

    def overlaps(self, other: Placement) -> bool:
        """Return True if both have a byte in common."""
        start = max(self.offset, other.offset)
        end = min(self.offset + self.life.nbytes, other.offset + other.life.nbytes)
        return self.life.stream == other.life.stream and start < end


def place(lives: Iterable[Lifetime]) -> tuple[Placement, ...]:
    """Give every buffer an address in its stream's pool: the lowest that is free when its creator is issued.

    `lives` is in the order of creation, as `lifetimes` returns it.
    """
    pools: dict[str, _Pool] = {}
    return tuple(Placement(life=life, offset=pools.setdefault(life.stream, _Pool()).take(life)) for life in lives)


class _Pool:
    """First fit over the holes of one growing block of memory."""

    def __init__(self) -> None:
        #: (offset, bytes), ascending; no two touch, and none reaches the end of the block.
        self._holes: list[tuple[int, int]] = []
        self._end = 0
        #: (freed from, offset, bytes) of what is taken.
        self._taken: list[tuple[int, int, int]] = []

    def take(self, life: Lifetime) -> int:
        while self._taken and self._taken[0][0] <= life.born:
            _, offset, nbytes = heapq.heappop(self._taken)
            self._give_back(offset, nbytes)
        offset = self._find(life.nbytes)
        heapq.heappush(self._taken, (life.freed, offset, life.nbytes))
        return offset

    def _find(self, nbytes: int) -> int:
        for index, (offset, size) in enumerate(self._holes):
            if size >= nbytes:
                self._holes[index : index + 1] = [(offset + nbytes, size - nbytes)] if size > nbytes else []
                return offset
        self._end += nbytes
        return self._end - nbytes

    def _give_back(self, offset: int, nbytes: int) -> None:
        if not nbytes:
            return
        index = bisect_left(self._holes, (offset, 0))
        first = last = index
        if index and sum(self._holes[index - 1]) == offset:
            first -= 1
            offset, nbytes = self._holes[first][0], nbytes + self._holes[first][1]
        if index < len(self._holes) and self._holes[index][0] == offset + nbytes:
            last += 1
            nbytes += self._holes[index][1]
        if offset + nbytes == self._end:  # the block shrinks, so that what grows next starts in the hole
            self._end = offset
            self._holes[first:last] = []
        else:
            self._holes[first:last] = [(offset, nbytes)]


def reuse_findings(
    program: StreamProgram, storages: Mapping[str, Storage], *, returned: Collection[str] = ()
) -> Iterator[Finding]:
    """Yield an ERROR ``memory-reuse`` for every buffer whose memory may be used again while a stream can still touch it.

    A use that need not come after its buffer's creator is a race, not a reuse, and not reported here. Guards outside the program
    (``record_stream``) are not seen: in capture modes, let the creating stream use the buffer once more after it has waited.

    Arguments and errors are those of `lifetimes`.
    """
    placements = [p for p in place(lifetimes(program, storages, returned=returned)) if p.life.nbytes]
    happens = happens_before(as_issued(program))
    pools: dict[str, list[Placement]] = {}
    for placement in placements:
        pools.setdefault(placement.life.stream, []).append(placement)
    born = {stream: [placement.life.born for placement in pool] for stream, pool in pools.items()}
    for old in placements:
        stream, freed = old.life.stream, old.life.freed
        first = bisect_left(born[stream], freed)
        # Creators on one stream run one after the other: a use that is over at the first of them is over at all.
        if first < len(pools[stream]) and _still_using(old, pools[stream][first], happens):
            yield _reuse(program.semantics, old, pools[stream][first:], happens)


def growth_findings(memory: Memory, factor: float = GROWTH) -> Iterator[Finding]:
    """Yield a NOTE ``memory-growth`` if the peak is more than `factor` times that of the same steps on one stream."""
    if memory.growth <= factor:
        return
    largest = ", ".join(f"{life.storage!r} ({life.nbytes} bytes)" for life in memory.extended[:3])
    why = f"; kept longer for another stream, the largest first: {largest}" if largest else ""
    beside = f"{memory.growth:.2f} times the {memory.serial_peak} bytes of one stream"
    yield Finding(
        kind="memory-growth",
        severity=Severity.NOTE,
        steps=(memory.at,),
        streams=tuple(pool.stream for pool in memory.pools),
        explanation=f"buffers take {memory.peak} bytes, {beside}{why}",
        remedy="let the stream that creates a buffer wait for the streams that use it soon after their last use",
    )


def memory_check(
    storages: Mapping[str, Storage], *, returned: Collection[str] = (), factor: float = GROWTH
) -> Callable[[Evidence], Iterator[Finding]]:
    """Return a check as `checks.verify` has them, for programs whose storages are known."""

    def check(evidence: Evidence) -> Iterator[Finding]:
        yield from reuse_findings(evidence.program, storages, returned=returned)
        yield from growth_findings(peak_memory(evidence.program, storages, returned=returned), factor)

    return check


def _still_using(old: Placement, new: Placement, happens: HappensBefore) -> tuple[tuple[str, str], ...]:
    """Return the (stream, step) uses of the old buffer that need not be over when the new one is created."""
    return tuple(use for use in old.life.last_uses if not happens.before(use[1], new.life.creator))


def _reuse(semantics: Semantics, old: Placement, later: Sequence[Placement], happens: HappensBefore) -> Finding:
    """Describe one reuse by the buffer that is created next: an edge to its creator mends those of all later ones too."""
    new = later[0]
    uses = _still_using(old, new, happens)
    users = " and ".join(f"{step!r} on stream {stream!r}" for stream, step in uses)
    storage, pool, receiver = old.life.storage, old.life.stream, new.life.creator
    edge = "a control edge" if semantics is Semantics.GE else "an event"
    waits = " and ".join(f"from {step!r}" for _, step in uses)
    return Finding(
        kind="memory-reuse",
        severity=Severity.ERROR,
        steps=(*(step for _, step in uses), receiver),
        streams=tuple(dict.fromkeys((*(stream for stream, _ in uses), pool))),
        explanation=f"storage {storage!r} ({old.life.nbytes} bytes) goes back to the pool of stream {pool!r}, which may give "
        f"its memory to {new.life.storage!r} at {receiver!r} while {users} can still touch it{_example(old, later, happens)}",
        remedy=f"add {edge} {waits} to {receiver!r}, or use {storage!r} once more on stream {pool!r} after such a wait",
    )


def _example(old: Placement, later: Sequence[Placement], happens: HappensBefore) -> str:
    """Say which buffer the simulated allocator puts there while the old one may be in use, if it does."""
    hit = next((new for new in later if new.overlaps(old)), None)
    if hit is None or not _still_using(old, hit, happens):
        return ""
    return f"; first fit gives it to {hit.life.storage!r} at {hit.life.creator!r}"
