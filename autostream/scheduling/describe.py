"""What became of each region: for the report, and to know which ones gain least."""

from __future__ import annotations

from collections.abc import Sequence

from autostream.scheduling.bounds import best_bound
from autostream.scheduling.division import Division, Segment, part
from autostream.scheduling.instance import Instance
from autostream.scheduling.problem import HCCL, Region
from autostream.scheduling.replay import Plan, replay
from autostream.scheduling.serial import serial


def described(instance: Instance, division: Division, plan: Plan, lower: Sequence[int]) -> tuple[Region, ...]:
    """Return the regions of a plan in program order, what was set aside last; `lower` is the lower bound of each but that, ns.

    Times are those of the region alone on the streams of the plan, without the cuts around it.
    """
    place = {task: number for number, task in enumerate(plan.order())}
    serials: dict[object, int] = {}
    regions = [
        _region(instance, segment, plan, place, number, bound, serials)
        for number, (segment, bound) in enumerate(zip(division.regions, lower, strict=True))
    ]
    if division.aside:
        core = sorted({task for segment in division.segments for task in segment.tasks})
        beside = _alone(instance, core, plan, place)
        regions.append(_aside(instance, division.aside, plan, beside, len(regions)))
    return tuple(regions)


def _region(
    instance: Instance,
    segment: Segment,
    plan: Plan,
    place: dict[int, int],
    number: int,
    lower: int,
    serials: dict[object, int],
) -> Region:
    alone = segment.part(instance)
    form = alone.form()
    if form not in serials:
        serials[form] = serial(alone).makespan
    cuts = segment.cut_time(instance)
    before, now = serials[form] - cuts, _alone(instance, segment.tasks, plan, place).makespan - cuts
    inner = segment.inner
    side = _side_streams(instance, plan, inner)
    spread = len({plan.stream[task] for task in inner if plan.stream[task] in instance.open}) > 1
    status = "serial" if not spread else "optimal" if now <= lower else "feasible"
    return Region(
        number=number,
        name=f"{instance.names[inner[0]]} to {instance.names[inner[-1]]}",
        tasks=tuple(instance.names[task] for task in inner),
        serial=before,
        makespan=now,
        lower_bound=lower,
        status=status,
        side_streams=side,
        crossings=_crossings(instance, plan, inner),
        reason=_reason(alone, spread=spread, now=now, lower=lower),
    )


def _aside(instance: Instance, tasks: tuple[int, ...], plan: Plan, core: Plan, number: int) -> Region:
    """What was set aside counts as the time it adds to the rest."""
    side = _side_streams(instance, plan, tasks)
    added = max(plan.makespan - core.makespan, 0)
    return Region(
        number=number,
        name="set aside",
        tasks=tuple(instance.names[task] for task in tasks),
        serial=sum(instance.shortest(task) for task in tasks),
        makespan=added,
        lower_bound=0,
        status="serial" if not side else "optimal" if added == 0 else "feasible",
        side_streams=side,
        crossings=_crossings(instance, plan, tasks),
        reason="" if added == 0 else "runs beside everything else and does not hide completely",
    )


def _alone(instance: Instance, tasks: Sequence[int], plan: Plan, place: dict[int, int]) -> Plan:
    """Some tasks on the streams and in the order of a plan, without the others."""
    order = sorted(range(len(tasks)), key=lambda number: place[tasks[number]])
    return replay(part(instance, tasks), [plan.stream[task] for task in tasks], order, [plan.mode[task] for task in tasks])


def _side_streams(instance: Instance, plan: Plan, tasks: Sequence[int]) -> tuple[str, ...]:
    """The streams beside MAIN that were chosen and not given."""
    chosen = {plan.stream[task] for task in tasks if len(instance.allowed[instance.unit[task]]) > 1} - {0}
    return tuple(instance.streams[stream] for stream in sorted(chosen) if instance.streams[stream] != HCCL)


def _crossings(instance: Instance, plan: Plan, tasks: Sequence[int]) -> int:
    """Precedences from or to the tasks that change streams."""
    edges = {(before, task) for task in tasks for before in instance.before[task]}
    edges |= {(task, after) for task in tasks for after in instance.after[task]}
    return sum(plan.stream[before] != plan.stream[after] for before, after in edges)


def _reason(alone: Instance, *, spread: bool, now: int, lower: int) -> str:
    """Why the region is not faster, one sentence."""
    if now > lower and spread:
        return f"{now / max(lower, 1) - 1:.1%} above what no schedule can beat"
    if now <= lower:
        return f"no schedule is faster: bound by {best_bound(alone).by}"
    if not any(len(streams) > 1 for streams in alone.allowed):
        return "all its tasks are bound to their streams"
    return f"what could overlap is worth less than the waits between streams, {alone.sync} ns each"
