"""From solved regions to a plan of the whole: one after the other, and what was set aside where it delays least."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from autostream.scheduling.lists.greedy import DEEP, list_schedule
from autostream.scheduling.lists.serial import fastest
from autostream.scheduling.machine.division import Division
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.paths import topological
from autostream.scheduling.machine.replay import Plan, replay
from autostream.scheduling.regions.alone import Solution


def assembled(instance: Instance, division: Division, solutions: Sequence[Solution]) -> list[Plan]:
    """The solutions one after the other, with what was set aside placed in several ways; the best plan first.

    The second one, if there are several, is that in which the solutions are as they were, but for what has to wait.
    """
    decided: dict[int, tuple[int, int]] = {}
    order: list[int] = []
    for segment, solution in zip(division.segments, solutions, strict=True):
        plan = solution.plan
        for number in plan.order():
            task = segment.tasks[number]
            if task not in decided:
                decided[task] = plan.stream[number], plan.mode[number]
                order.append(task)
    if not division.aside:
        return [_replayed(instance, decided, order)]
    homes = {instance.unit[task]: stream for task, (stream, _) in decided.items()}
    bound = [task for task in division.aside if instance.unit[task] in homes]
    decided |= {task: (homes[instance.unit[task]], fastest(instance, task)) for task in bound}
    free = [task for task in division.aside if task not in decided]
    default = {task: (instance.allowed[instance.unit[task]][0], fastest(instance, task)) for task in free}
    spare = _on_one_stream(instance, free, decided)
    # Which is best is not known beforehand; in deep programs, where each costs time, the first ones were on all that were tried.
    ways = [(spare, 0), ({}, 0), (default, 0), ({}, instance.sync)]
    orders = list(dict.fromkeys(map(tuple, _orders(instance, order))))
    attempts = itertools.product(orders, ways) if len(instance) <= DEEP else itertools.product(orders[:1], ways[:2])
    plans = [list_schedule(instance, issue, price=price, given=decided | there) for issue, (there, price) in attempts]
    plans.sort(key=lambda candidate: candidate.rank)
    solved = _replayed(instance, decided | spare, orders[0])
    return [solved, *plans] if solved.rank < plans[0].rank else [plans[0], solved, *plans[1:]]


def _replayed(instance: Instance, decided: Mapping[int, tuple[int, int]], order: Sequence[int]) -> Plan:
    streams, modes = zip(*(decided[task] for task in range(len(instance))), strict=True) if decided else ((), ())
    return replay(instance, streams, order, modes)


def _on_one_stream(
    instance: Instance, aside: Sequence[int], decided: Mapping[int, tuple[int, int]]
) -> dict[int, tuple[int, int]]:
    """What was set aside on the side stream that the rest leaves idle most, where it may be."""
    busy = dict.fromkeys(instance.open[1:] or instance.open, 0)
    for task, (stream, mode) in decided.items():
        if stream in busy:
            busy[stream] += instance.work[task][mode][0]
    idle = min(busy, key=lambda stream: busy[stream], default=0)
    allowed = [instance.allowed[instance.unit[task]] for task in aside]
    return {
        task: (idle if idle in streams else streams[0], fastest(instance, task))
        for task, streams in zip(aside, allowed, strict=True)
    }


def _orders(instance: Instance, core: list[int]) -> Iterator[list[int]]:
    """Ways to fit what was set aside into the order of the core: late, soon, or only dead ends late.

    The first is nearly always the best one.
    """
    place = {task: number for number, task in enumerate(core)}
    soon, late = [-1.0] * len(instance), [float(len(core))] * len(instance)
    for task in reversed(range(len(instance))):
        if task in place:
            soon[task] = late[task] = place[task]
        else:
            late[task] = min((late[after] - 0.5 for after in instance.after[task]), default=float(len(core)))
    ends = [late[task] if late[task] == len(core) else soon[task] for task in range(len(instance))]
    for key in (late, soon, ends):
        yield topological(instance.before, instance.after, key)
