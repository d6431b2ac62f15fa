"""Why a simulated run takes as long as it does: the chain of steps that sets its length, and the slack of all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from autostream.cost.model import FREE, Cost, Machine
from autostream.program.model import Slot, StreamProgram, Timeline
from autostream.program.order import Order, order_of

#: Slots are rounded to nanoseconds; two times that differ by no more are the same.
_ROUNDING = 1


class Cause(StrEnum):
    """What a step on the critical path had to wait for."""

    #: Nothing: it starts with the program.
    START = "start"
    #: A value or an order from the same stream, or a wait between streams.
    DEPENDENCY = "dependency"
    #: The step before it on its stream, which it does not depend on.
    STREAM = "stream"
    #: Cores, or the communication engine, that a step on another stream held.
    RESOURCE = "resource"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One step of the critical path. Times in ns."""

    step: str
    cause: Cause
    #: The step it had to wait for; empty at the start.
    after: str
    start: int
    end: int
    #: From the end of `after` to the start: the cost of the wait between streams.
    sync: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Critical:
    """The critical path of a run, first step first, and the slack of every step with a task."""

    path: tuple[Link, ...]
    #: By how many ns a step could end later without making the run longer, all else as it ran.
    slack: Mapping[str, int]


def critical(program: StreamProgram, timeline: Timeline, costs: Mapping[str, Cost], machine: Machine) -> Critical:
    """Explain the length of a simulated run of `program`.

    Args:
        program: what was simulated.
        timeline: the run.
        costs: by step name, else by FX node, as for `simulate`.
        machine: cores and the price of a wait between streams.
    """
    order = order_of(program)
    slots = {slot.step: slot for slot in timeline.slots}
    run = [slots[name] for name in order.names]
    source = {step.name: step.source for step in program.steps}
    held = [(costs.get(name) or costs.get(source[name]) or FREE).resources for name in order.names]
    capacity = (machine.aic, machine.aiv, 1)
    needs = [tuple(map(min, (r.aic, r.aiv, r.comm), capacity)) for r in held]
    reasons = _waits(order, machine.sync)
    for after, holders in _holders(run, needs, capacity).items():
        reasons[after] += [_Reason(before, Cause.RESOURCE, 0) for before in holders]
    return Critical(path=tuple(_path(run, reasons)), slack=_slack(run, reasons, timeline.makespan))


@dataclass(frozen=True, slots=True)
class _Reason:
    """What a step came after: a position, why, and the least time from its end to the step's start."""

    before: int
    cause: Cause
    delay: int


def _waits(order: Order, sync: int) -> list[list[_Reason]]:
    reasons: list[list[_Reason]] = []
    previous: dict[str, int] = {}
    for after, (stream, waits) in enumerate(zip(order.streams, order.waits, strict=True)):
        found = [_Reason(before, Cause.DEPENDENCY, 0 if order.streams[before] == stream else sync) for before in waits]
        if stream in previous:
            found.append(_Reason(previous[stream], Cause.STREAM, 0))
        previous[stream] = after
        reasons.append(found)
    return reasons


def _holders(run: Sequence[Slot], needs: Sequence[tuple[int, ...]], capacity: tuple[int, ...]) -> dict[int, list[int]]:
    """Return, for each step, the last one of each other stream that held what the step could not have beside it.

    What ended just when the step started counts even if the two would fit: a third one may have held the rest, or stood before
    the step in the queue for it.
    """
    finished: dict[str, dict[int, int]] = {}  # by stream: the last step that ended and needs the resource
    by_end = iter(sorted((p for p, slot in enumerate(run) if slot.end > slot.start), key=lambda p: (run[p].end, p)))
    upcoming = next(by_end, None)
    found: dict[int, list[int]] = {}
    for after in sorted(range(len(run)), key=lambda p: (run[p].start, p)):
        while upcoming is not None and run[upcoming].end <= run[after].start:
            finished.setdefault(run[upcoming].stream, {}).update({r: upcoming for r, need in enumerate(needs[upcoming]) if need})
            upcoming = next(by_end, None)
        held = {
            before
            for stream, lane in finished.items()
            if stream != run[after].stream
            for resource, before in lane.items()
            if needs[before][resource] + needs[after][resource] > capacity[resource]
            or (any(needs[after]) and run[before].end >= run[after].start - _ROUNDING)
        }
        found[after] = sorted(held)
    return found


def _path(run: Sequence[Slot], reasons: Sequence[Sequence[_Reason]]) -> list[Link]:
    """Walk back from the step that ends last, over the reason that was met last; a dependency says most, a resource least."""
    path: list[Link] = []
    last = max(range(len(run)), key=lambda p: (run[p].end, run[p].start, -p), default=None)
    while last is not None:
        slot = run[last]
        met = [
            r for r in reasons[last] if run[r.before].end + r.delay >= slot.start - _ROUNDING and run[r.before].end <= slot.start
        ]
        reason = max(met, key=lambda r: (-list(Cause).index(r.cause), run[r.before].end, r.before), default=None)
        path.append(
            Link(
                step=slot.step,
                cause=reason.cause if reason else Cause.START,
                after=run[reason.before].step if reason else "",
                start=slot.start,
                end=slot.end,
                sync=slot.start - run[reason.before].end if reason else 0,
            )
        )
        last = reason.before if reason else None
    path.reverse()
    return path


def _slack(run: Sequence[Slot], reasons: Sequence[Sequence[_Reason]], makespan: int) -> dict[str, int]:
    """Return how much later each step could end, with every start order as it was."""
    latest = [makespan] * len(run)
    for after in sorted(range(len(run)), key=lambda p: (run[p].start, run[p].end, p), reverse=True):
        begin = latest[after] - (run[after].end - run[after].start)
        for reason in reasons[after]:
            latest[reason.before] = min(latest[reason.before], begin - reason.delay)
    return {slot.step: max(0, latest[position] - slot.end) for position, slot in enumerate(run)}
