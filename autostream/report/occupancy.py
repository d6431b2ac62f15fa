"""What a timeline does with the chip over time: cores held, memory bandwidth wanted, computing beside communicating."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autostream.cost.model import Resources
from autostream.graph.model import Unit
from autostream.profiles.intervals import Interval, union, without
from autostream.program.kinds import DEFAULT, HCCL

if TYPE_CHECKING:
    from autostream.report.schema import Document, OpRow  # which shows itself by way of this module


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One operator in one of the two timelines of a document."""

    row: OpRow
    stream: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """A quantity over time: pairs of a time (ns) and the value from then on, of `capacity` in all."""

    name: str
    capacity: int
    points: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A timeline in the words of Ascend's profiler; the first two may overlap, the last two may not."""

    computing: tuple[Interval, ...]
    communication: tuple[Interval, ...]
    not_overlapped: tuple[Interval, ...]
    free: tuple[Interval, ...]


def given(document: Document) -> tuple[Run, ...]:
    """Return the operators of the graph as it was given, by start."""
    return _by_start((row, row.before_stream, row.before_start_ns, row.before_end_ns) for row in document.ops)


def shown(document: Document) -> tuple[Run, ...]:
    """Return the operators of the plan, by start; those of the graph as it was given where no plan was made."""
    return _by_start((row, row.stream, row.start_ns, row.end_ns) for row in document.ops)


def _by_start(rows: Iterable[tuple[OpRow, str | None, int | None, int | None]]) -> tuple[Run, ...]:
    runs = [
        Run(row=row, stream=stream, start=start, end=end)
        for row, stream, start, end in rows
        if stream is not None and start is not None and end is not None
    ]
    return tuple(sorted(runs, key=lambda run: (run.start, run.end)))


def lanes(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the streams in the order that charts show: the default one, side streams by first use, the communication stream."""
    order = {DEFAULT: 0, HCCL: 2}
    return tuple(sorted(dict.fromkeys(run.stream for run in runs), key=lambda stream: order.get(stream, 1)))


def counters(runs: Sequence[Run], *, aic: int, aiv: int) -> tuple[Counter, ...]:
    """Return the cube cores, vector cores, share of the HBM bandwidth (thousandths) and the engine held over time.

    Bandwidth is what the running operators want; above its capacity they are stretched.
    """
    quantities: tuple[tuple[str, int, Callable[[Resources], int]], ...] = (
        ("AIC", aic, lambda held: held.aic),
        ("AIV", aiv, lambda held: held.aiv),
        ("HBM", 1000, lambda held: held.hbm),
        ("Communication", 1, lambda held: held.comm),
    )
    return tuple(
        Counter(name=name, capacity=capacity, points=_levels([(run.start, run.end, need(run.row.resources)) for run in runs]))
        for name, capacity, need in quantities
    )


def _levels(uses: Iterable[tuple[int, int, int]]) -> tuple[tuple[int, int], ...]:
    changes: dict[int, int] = {}
    for start, end, need in uses:
        if need:
            changes[start] = changes.get(start, 0) + need
            changes[end] = changes.get(end, 0) - need
    times = sorted(time for time, change in changes.items() if change)
    values = itertools.accumulate(changes[time] for time in times)
    return tuple(zip(times, values, strict=True))


def split(runs: Sequence[Run]) -> Split:
    """Return when the chip computes, communicates, does only the latter, and does nothing."""
    busy = [run for run in runs if run.end > run.start]
    computing = union((run.start, run.end) for run in busy if run.row.unit is not Unit.COMM)
    communication = union((run.start, run.end) for run in busy if run.row.unit is Unit.COMM)
    everything = union([*computing, *communication])
    whole = [(0, everything[-1][1])] if everything else []
    return Split(
        computing=tuple(computing),
        communication=tuple(communication),
        not_overlapped=tuple(without(communication, computing)),
        free=tuple(without(whole, everything)),
    )
