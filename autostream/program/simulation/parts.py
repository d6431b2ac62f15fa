"""A program cut at its quiet points: the steps that every other step comes before or after.

When such a step ends, all that comes before it has ended and nothing behind it has started, so nothing is held. What waits for an
earlier step on another stream was let go when the quiet point started, at the latest, or waits a sync for the quiet point itself.
So the rest runs as it would from the start of a program, only later: the lengths of the parts between quiet points add up to that
of the whole, to the picosecond. Most steps of a deep model are quiet points, and of equal parts that get equal durations only one
is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from autostream.cost.model import Resources
from autostream.program.order import linear_extension
from autostream.program.simulation.running import PS, WHOLE, Slowdowns, Tasks, run


@dataclass(frozen=True, slots=True)
class _Part:
    """Steps up to a quiet point, in emission order."""

    steps: tuple[int, ...]
    #: The same steps as a program of their own, behind the quiet point before them if there is one; equal parts share it.
    tasks: Tasks
    number: int


class Parts:
    """The parts of a program, to be measured many times."""

    def __init__(self, tasks: Tasks, sequence: Sequence[int], before: Sequence[Sequence[int]]) -> None:
        """Cut a program; see `cut`."""
        #: Quiet points right behind another one: they run alone. How many of them wait for another stream.
        self._alone: list[int] = []
        self._crossings = 0
        self._parts: list[_Part] = []
        known: dict[object, tuple[int, Tasks]] = {}
        for lead, steps in _between_quiet_points(sequence, before):
            if len(steps) == 1:
                self._alone.append(steps[0])
                self._crossings += lead is not None and tasks.lane[lead] != tasks.lane[steps[0]]
            else:
                self._parts.append(_part(tasks, lead, sorted(steps), known))
        self._stretched = [(step, tasks.alone[step]) for step in self._alone if tasks.alone[step] != WHOLE]

    def length(self, durations: Sequence[int], sync: int, slowdowns: Slowdowns | None = None) -> int:
        """Return the time of the whole program, ps.

        Args:
            durations: of every step, ns.
            sync: price of a wait, ns.
            slowdowns: what steps that run at the same time cost each other; None: what the machine says.
        """
        total = (sum([durations[step] for step in self._alone]) + self._crossings * sync) * PS
        for step, stretch in self._stretched:
            total += -(-durations[step] * PS * (stretch - WHOLE) // WHOLE)
        known: dict[tuple[int, ...], int] = {}
        for part in self._parts:
            given = (part.number, *[durations[step] for step in part.steps])
            length = known.get(given)
            if length is None:
                work = [duration * PS for duration in given[1:]]
                if len(work) < len(part.tasks.lane):
                    work.insert(0, 0)
                length = known[given] = max(run(part.tasks, work, sync * PS, slowdowns)[1])
            total += length
        return total


def cut(tasks: Tasks) -> Parts | None:
    """Return the parts of a program, or None if it waits for itself and has no end."""
    before = [list(waits) for waits in tasks.waits]
    for lane in tasks.lanes:
        for step, following in pairwise(lane):
            before[following].append(step)
    sequence = linear_extension(before)
    return Parts(tasks, sequence, before) if len(sequence) == len(before) else None


def _between_quiet_points(sequence: Sequence[int], before: Sequence[Sequence[int]]) -> Iterator[tuple[int | None, Sequence[int]]]:
    """Yield the steps behind each quiet point up to the next one, with the point they are behind (None: the start).

    A step of the sequence comes after everything earlier if each earlier step is followed directly by one that is not later than
    it, and before everything later if each later step follows directly on one that is not earlier.
    """
    count = len(sequence)
    place = [0] * count
    for position, step in enumerate(sequence):
        place[step] = position
    first_after, last_before = [count] * count, [-1] * count
    for position, step in enumerate(sequence):
        for source in before[step]:
            first_after[place[source]] = min(first_after[place[source]], position)
            last_before[position] = max(last_before[position], place[source])
    #: The earliest step that any step later than a position follows on directly.
    earliest = [count] * count
    for position in range(count - 1, 0, -1):
        earliest[position - 1] = min(earliest[position], last_before[position])
    lead, start, latest = None, 0, 0
    for position, step in enumerate(sequence):
        if latest <= position <= earliest[position]:
            yield lead, sequence[start : position + 1]
            lead, start = step, position + 1
        latest = max(latest, first_after[position])
    if start < count:
        yield lead, sequence[start:]


def _part(tasks: Tasks, lead: int | None, steps: Sequence[int], known: dict[object, tuple[int, Tasks]]) -> _Part:
    """Return a part. The quiet point it is behind is in it as a step without work: what waits for it pays the sync."""
    members = steps if lead is None else [lead, *steps]
    number = {step: position for position, step in enumerate(members)}
    lanes = {lane: rank for rank, lane in enumerate(sorted({tasks.lane[step] for step in members}))}
    lane = tuple(lanes[tasks.lane[step]] for step in members)
    waits = [tuple(sorted(number[before] for before in tasks.waits[step] if before in number)) for step in members]
    held = [tasks.held[step] for step in members]
    if lead is not None:
        waits[0], held[0] = (), Resources()
    shape = (lead is None, lane, tuple(waits), tuple(held))
    if shape not in known:
        known[shape] = len(known), Tasks(lane, waits, held, tasks.machine)
    number_of_kind, own = known[shape]
    return _Part(steps=tuple(steps), tasks=own, number=number_of_kind)
