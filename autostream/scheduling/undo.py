"""Take regions of a schedule back: their tasks go to their default streams, in program order."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from autostream.errors import InputError
from autostream.scheduling.describe import described
from autostream.scheduling.division import Division, divide
from autostream.scheduling.instance import Instance
from autostream.scheduling.paths import topological
from autostream.scheduling.problem import Problem, Schedule
from autostream.scheduling.replay import replay
from autostream.scheduling.serial import fastest


def without(schedule: Schedule, problem: Problem, numbers: Collection[int]) -> Schedule:
    """Return the schedule with some of its regions back on their default streams, in program order.

    Raises:
        InputError: the schedule has no region of that number.
    """
    known = {region.number: region for region in schedule.regions}
    unknown = sorted(set(numbers) - set(known))
    if unknown:
        raise InputError(f"without: no region {unknown[0]}; the schedule has {len(known)}, numbered from 0")
    instance = Instance.of(problem)
    position = {name: number for number, name in enumerate(instance.names)}
    stream, mode, key = [0] * len(instance), [0] * len(instance), [0.0] * len(instance)
    for placement in schedule.placements:
        task = position[placement.task]
        stream[task], mode[task] = instance.streams.index(placement.stream), placement.mode
        key[task] = placement.start
    division = divide(instance)
    for number in numbers:
        tasks = [position[name] for name in known[number].tasks]
        first = min(key[task] for task in tasks)
        for task in tasks:
            mode[task], key[task] = fastest(instance, task), first
    stream = _put_back(instance, division, stream, set(numbers))
    plan = replay(instance, stream, topological(instance.before, instance.after, key), mode).renamed(instance)
    lower = [schedule.regions[number].lower_bound for number in range(len(division.regions))]
    return plan.schedule(
        instance,
        strategy=schedule.strategy,
        bound=schedule.lower_bound,
        bound_by=schedule.bound_by,
        regions=described(instance, division, plan, lower),
        seconds=schedule.seconds,
    )


def _put_back(instance: Instance, division: Division, stream: Sequence[int], numbers: Collection[int]) -> list[int]:
    """The streams when some regions stay on the stream on which they begin, which what follows then goes on from.

    Where something is fixed to MAIN, streams have no other name: those regions go to MAIN, and what follows stays.
    """
    fixed = (0,) in instance.allowed
    free = [len(instance.allowed[unit]) > 1 for unit in instance.unit]
    new, names = list(stream), list(range(len(instance.streams)))
    number = -1
    for segment in division.segments:
        number += 1 if segment.inner else 0
        back = bool(segment.inner) and number in numbers
        here = 0 if fixed or segment.entry is None or not free[segment.entry] else new[segment.entry]
        for task in segment.inner:
            new[task] = here if back and free[task] else names[stream[task]]
        if segment.exit is not None:
            if back and not fixed and free[segment.exit]:
                old = stream[segment.exit]
                names[names.index(here)], names[old] = names[old], here
            new[segment.exit] = names[stream[segment.exit]]
    if len(division.regions) in numbers:
        for task in division.aside:
            new[task] = instance.allowed[instance.unit[task]][0]
    return new
