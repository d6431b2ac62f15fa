"""Of the plans that take about as long as the best one, the one with the fewest crossings, then the fewest streams.

A wait between streams is work for the engine, one of the few events that a driver has, and a tensor that lives longer. A plan
that is shorter by less than anybody could measure is not worth more of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autostream.scheduling.baselines.rules import ruled
from autostream.scheduling.exact.depth_first import searched
from autostream.scheduling.lists.serial import serial
from autostream.scheduling.local.climb import uncrossed
from autostream.scheduling.local.joining import joined
from autostream.scheduling.machine.division import Division, Segment
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.paths import topological
from autostream.scheduling.machine.replay import Plan, replay
from autostream.scheduling.tolerance import tolerated
from autostream.scheduling.waits.frontier import Frontier, climb_down

#: Most tasks for which random searches go on where joining ends, and their shares of the effort, in hundredths: of the one around
#: the plan, and of the one from each number of crossings to the next, and most tasks that this one runs.
_SMALL = 40
_RANDOM, _DOWN = 10, 50
_MOST_DOWN = 100_000
#: The fewest streams of a plan with crossings.
_PAIR = 2
#: Most tasks for an exact search before them, and its moments for one number of crossings, times tasks.
_EXACT = 20
_MOMENT_TASKS = 20_000


def rank(plan: Plan) -> tuple[int, int, int]:
    """What makes one of several plans that are short enough better, smaller first: crossings, then streams, then time."""
    return plan.crossings, len(set(plan.stream)), plan.makespan


def worth(instance: Instance, plan: Plan, fewer: Plan) -> bool:
    """True if what a plan with fewer crossings takes longer is no more than a sync for each: what one costs is hardly known."""
    return fewer.makespan - plan.makespan <= instance.sync * (plan.crossings - fewer.crossings)


def thrifty(
    instance: Instance, division: Division, plan: Plan, rivals: Sequence[Plan], effort: int, proven: Sequence[int] = ()
) -> Plan:
    """Return the best plan by `rank` that the search finds among those that are short enough.

    That is: no longer than `tolerated`, no longer than any rival or published rule, and `worth` it. Where several segments have
    crossings, each is searched alone, and of equal ones with equal plans one: none gets longer than is tolerated of it, what may
    be lost is divided by the crossings, and cuts stay where they are. Then, unless the program repeats itself, what costs
    nothing is tried on the whole.

    Args:
        instance: the whole program.
        division: how it falls apart.
        plan: the shortest plan known.
        rivals: other plans of the whole program.
        effort: tasks that may be run; half as many again in small regions, from one number of crossings to the next, and for the
            last step. Exact searches have an effort of their own.
        proven: by kind of segment, what no plan of it beats, ns. One that is as good as the best stays so.
    """
    if not plan.crossings:
        return plan
    groups = _groups(instance, division, plan, proven)
    if sum(len(group.segments) for group in groups) < 2:
        most = sum(group.most - group.plan.makespan for group in groups)
        return _thrifty(instance, plan, (*rivals, *ruled(instance)), plan.makespan + most, effort)
    slack = _limit(plan, rivals, tolerated(plan.makespan)) - plan.makespan
    total = sum(group.plan.crossings * len(group.segments) for group in groups)
    changes = []
    for group in groups:
        limit = min(group.most, group.plan.makespan + slack * group.plan.crossings // total)
        share = effort * group.plan.crossings * len(group.segments) // total
        found = _thrifty(group.alone, group.plan, ruled(group.alone), limit, share)
        if rank(found)[:2] < rank(group.plan)[:2]:
            changes.append((group, found))
    fewer = _changed(instance, plan, changes, plan.makespan + slack)
    if sum(len(group.segments) for group in groups) < 2 * len(groups):
        fewer = joined(instance, fewer, fewer.makespan, effort // 2)
    others = (one for one in rivals if one.makespan <= plan.makespan + slack and worth(instance, plan, one))
    return min((fewer, *others), key=rank)


def _limit(plan: Plan, rivals: Iterable[Plan], limit: int) -> int:
    return max(plan.makespan, min([limit, *(one.makespan for one in rivals)]))


def _thrifty(instance: Instance, plan: Plan, rivals: Iterable[Plan], limit: int, effort: int) -> Plan:
    """The plan with the fewest crossings that is no longer than `limit` and any rival."""
    others = tuple(rivals)
    limit = _limit(plan, others, limit)
    best = min((one for one in (plan, *others) if one.makespan <= limit and worth(instance, plan, one)), key=rank)
    best = joined(instance, best, limit, effort)
    settled = not best.crossings
    if len(instance) <= _EXACT:
        best, settled = _exactly(instance, best, limit, min(effort, _MOMENT_TASKS))
    if len(instance) > _SMALL or (settled and len(set(best.stream)) <= _PAIR):
        return best
    if limit > best.makespan:
        fewer = uncrossed(instance, best, effort * _RANDOM // 100, limit)
        best = fewer if rank(fewer) < rank(best) and worth(instance, best, fewer) else best
    if settled:
        return best
    met = Frontier()
    met.add([serial(instance), *others, best])
    climb_down(instance, met, min(effort * _DOWN // 100, _MOST_DOWN))
    return min((one for one in (best, *met.plans.values()) if one.makespan <= limit and worth(instance, best, one)), key=rank)


def _exactly(instance: Instance, plan: Plan, limit: int, effort: int) -> tuple[Plan, bool]:
    """The plan with the fewest crossings that is `worth` it and no longer than `limit`, as far as exact searches go.

    And whether they have settled that there is no other.
    """
    best, fewer, ruled_out = plan, plan.crossings - 1, -1
    while fewer >= 0:
        most = min(limit, plan.makespan + instance.sync * (plan.crossings - fewer))
        if most > ruled_out:
            found = searched(instance, most + 1, effort // len(instance), fewer)
            if found.plan is not None:
                best, fewer, ruled_out = found.plan, found.plan.crossings - 1, -1
                continue
            if found.proven is None or found.proven <= most:
                return best, False
            ruled_out = most
        fewer -= 1  # for another crossing less a plan may take another sync
    return best, True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Segments with the same tasks on the same streams in the same order: one of them as an instance of its own, and its plan."""

    alone: Instance
    plan: Plan
    #: The longest time that is tolerated of it, ns.
    most: int
    segments: list[Segment]


def _groups(instance: Instance, division: Division, plan: Plan, proven: Sequence[int]) -> list[_Group]:
    """The segments that have crossings, with their cuts kept where they are."""
    place = {task: number for number, task in enumerate(plan.order())}
    groups: dict[object, _Group] = {}
    for segment, kind in zip(division.segments, division.kinds, strict=True):
        stream = tuple(plan.stream[task] for task in segment.tasks)
        if len(set(stream)) < 2:
            continue
        order = tuple(sorted(range(len(stream)), key=lambda number: place[segment.tasks[number]]))
        mode = tuple(plan.mode[task] for task in segment.tasks)
        key = kind, stream, order, mode
        if key not in groups:
            cuts = {cut: plan.stream[cut] for cut in (segment.entry, segment.exit) if cut is not None}
            alone = segment.part(instance, cuts)
            now = replay(alone, stream, order, mode)
            most = tolerated(now.makespan)
            if proven:
                cut = segment.cut_time(instance)
                near = cut + tolerated(proven[kind] - cut)
                most = min(most, near) if now.makespan <= near else most
            groups[key] = _Group(alone=alone, plan=now, most=most, segments=[])
        groups[key].segments.append(segment)
    return [group for group in groups.values() if group.plan.crossings]


def _changed(instance: Instance, plan: Plan, changes: Sequence[tuple[_Group, Plan]], limit: int) -> Plan:
    """The plan with all changes; if that is too long (segments do not add up beside what was set aside), with some of them."""
    together = _with(instance, plan, changes) if changes else plan
    if together.makespan <= limit and rank(together) <= rank(plan):
        return together
    for change in changes:
        found = _with(instance, plan, [change])
        if found.makespan <= limit and rank(found) < rank(plan):
            plan = found
    return plan


def _with(instance: Instance, plan: Plan, changes: Sequence[tuple[_Group, Plan]]) -> Plan:
    """The plan with the tasks of some segments on other streams, and rearranged among themselves."""
    stream, mode, key = list(plan.stream), list(plan.mode), [0] * len(instance)
    for number, task in enumerate(plan.order()):
        key[task] = number
    for group, found in changes:
        order = found.order()
        for segment in group.segments:
            places = sorted(key[task] for task in segment.tasks)
            for place, number in zip(places, order, strict=True):
                task = segment.tasks[number]
                mode[task], key[task] = found.mode[number], place
                for member in instance.members[instance.unit[task]]:
                    stream[member] = found.stream[number]
    return replay(instance, stream, topological(instance.before, instance.after, key), mode)
