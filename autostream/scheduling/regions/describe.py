"""What became of each region: for the report, and to know which ones gain least."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from autostream.errors import percentage
from autostream.scheduling.bounds.lower import best_bound
from autostream.scheduling.lists.serial import serial
from autostream.scheduling.machine.division import Division, Segment, part
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan, replay
from autostream.scheduling.problem import HCCL, Region
from autostream.scheduling.tolerance import TOLERANCE, status, tolerated

#: The name of the region that is what was set aside.
ASIDE = "set aside"


def described(instance: Instance, division: Division, plan: Plan, lower: Sequence[int], whole: int = 0) -> tuple[Region, ...]:
    """Return the regions of a plan in program order, what was set aside last.

    Times are those of the region alone on the streams of the plan, without the cuts around it.

    Args:
        instance: what is planned.
        division: how it falls apart.
        plan: what became of it.
        lower: what no schedule of each region can beat, ns; not of what was set aside.
        whole: what no schedule of the whole can beat, ns.
    """
    place = [0] * len(instance)
    for number, task in enumerate(plan.order()):
        place[task] = number
    kinds = [kind for segment, kind in zip(division.segments, division.kinds, strict=True) if segment.inner]
    known = _Known(division.parts, plan, place)
    regions = [
        _region(instance, segment, kind, plan, known, number, bound)
        for number, (segment, kind, bound) in enumerate(zip(division.regions, kinds, lower, strict=True))
    ]
    if division.aside:
        core = sorted({task for segment in division.segments for task in segment.tasks})
        alone = _ran(part(instance, core), core, plan, place)
        regions.append(_aside(instance, division.aside, plan, alone.makespan, whole, len(regions)))
    return tuple(regions)


class _Known:
    """What is the same for segments of one kind."""

    def __init__(self, parts: Sequence[Instance], plan: Plan, place: Sequence[int]) -> None:
        self.parts, self.plan, self.place = parts, plan, place
        self.serial = functools.cache(lambda kind: serial(parts[kind]).makespan)
        self.bound = functools.cache(lambda kind: best_bound(parts[kind]))
        self._makespans: dict[object, int] = {}

    def makespan(self, kind: int, tasks: Sequence[int]) -> int:
        """Time of a segment on the streams and in the order of the plan, ns: run once where these are equal too.

        That its residual connections count as ones from the entry delays nothing, see `Segment.part`.
        """
        order = tuple(sorted(range(len(tasks)), key=lambda number: self.place[tasks[number]]))
        stream, mode = tuple(self.plan.stream[task] for task in tasks), tuple(self.plan.mode[task] for task in tasks)
        key = kind, stream, mode, order
        if key not in self._makespans:
            self._makespans[key] = replay(self.parts[kind], stream, order, mode).makespan
        return self._makespans[key]


def _region(instance: Instance, segment: Segment, kind: int, plan: Plan, known: _Known, number: int, lower: int) -> Region:
    cuts = segment.cut_time(instance)
    before, now = known.serial(kind) - cuts, known.makespan(kind, segment.tasks) - cuts
    inner = segment.inner
    side = _side_streams(instance, plan, inner)
    spread = len({plan.stream[task] for task in inner if plan.stream[task] in instance.open}) > 1
    return Region(
        number=number,
        name=f"{instance.names[inner[0]]} to {instance.names[inner[-1]]}",
        tasks=tuple(instance.names[task] for task in inner),
        serial=before,
        makespan=now,
        lower_bound=lower,
        status=status(now, lower) if spread else "serial",
        side_streams=side,
        crossings=_crossings(instance, plan, inner),
        reason=_reason(known, kind, cuts, spread=spread, now=now, lower=lower),
    )


def _aside(instance: Instance, tasks: tuple[int, ...], plan: Plan, core: int, whole: int, number: int) -> Region:
    """What was set aside counts as the time it adds to the rest, which takes `core` on the streams of the plan, ns."""
    side = _side_streams(instance, plan, tasks)
    added = max(plan.makespan - core, 0)
    lower = min(max(whole - core, 0), added)
    return Region(
        number=number,
        name=ASIDE,
        tasks=tuple(instance.names[task] for task in tasks),
        serial=sum(instance.shortest(task) for task in tasks),
        makespan=added,
        lower_bound=lower,
        status=status(added, lower) if side else "serial",
        side_streams=side,
        crossings=_crossings(instance, plan, tasks),
        reason="" if added <= lower else "runs beside everything else and does not hide completely",
    )


def _ran(alone: Instance, tasks: Sequence[int], plan: Plan, place: Sequence[int]) -> Plan:
    """Some tasks on the streams and in the order of a plan, without the others."""
    order = sorted(range(len(tasks)), key=lambda number: place[tasks[number]])
    return replay(alone, [plan.stream[task] for task in tasks], order, [plan.mode[task] for task in tasks])


def _side_streams(instance: Instance, plan: Plan, tasks: Sequence[int]) -> tuple[str, ...]:
    """The streams beside MAIN that were chosen and not given."""
    chosen = {plan.stream[task] for task in tasks if len(instance.allowed[instance.unit[task]]) > 1} - {0}
    return tuple(instance.streams[stream] for stream in sorted(chosen) if instance.streams[stream] != HCCL)


def _crossings(instance: Instance, plan: Plan, tasks: Sequence[int]) -> int:
    """Precedences from or to the tasks that change streams."""
    edges = {(before, task) for task in tasks for before in instance.before[task]}
    edges |= {(task, after) for task in tasks for after in instance.after[task]}
    return sum(plan.stream[before] != plan.stream[after] for before, after in edges)


def _reason(known: _Known, kind: int, cuts: int, *, spread: bool, now: int, lower: int) -> str:
    """Why the region is not faster, one sentence; `cuts` is the time of those around it, ns."""
    alone = known.parts[kind]
    if lower < now <= tolerated(lower) and spread:
        return f"within {percentage(TOLERANCE / 1000)} of what no schedule can beat"
    if now > lower and spread:
        return f"{percentage(now / max(lower, 1) - 1)} above what no schedule can beat"
    if now <= lower:
        found = known.bound(kind)
        return f"no schedule is faster: {f'bound by {found.by}' if found.time - cuts >= lower else 'all others were ruled out'}"
    if not any(len(streams) > 1 for streams in alone.allowed):
        return "all its tasks are bound to their streams"
    return f"no plan was found in which what overlaps is worth the waits between streams, {alone.sync} ns each"
