"""Divide and solve: each region alone, equal ones once, then everything in one schedule.

Regions lie between *cuts*, tasks ordered with all others. What was set aside for the division (see
`autostream.scheduling.division`) is placed afterwards where it delays least.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from autostream.errors import InputError
from autostream.scheduling.bounds import bound, whole_bound
from autostream.scheduling.climb import climb_in_windows
from autostream.scheduling.cpsat import Solution, solve
from autostream.scheduling.describe import described
from autostream.scheduling.division import Division, Segment, divide
from autostream.scheduling.greedy import greedy, list_schedule
from autostream.scheduling.instance import Instance
from autostream.scheduling.paths import topological
from autostream.scheduling.problem import Problem, Schedule
from autostream.scheduling.replay import Plan, replay
from autostream.scheduling.rules import ruled
from autostream.scheduling.serial import fastest

#: What one unit of the budget buys for the search that follows when what was set aside has been placed: tasks that are run.
_RUN_TASKS = 40_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Divided:
    """Regions by CP-SAT within a deterministic `budget` (about seconds); those above `max_tasks` in windows."""

    budget: float
    max_tasks: int

    def solve(self, problem: Problem) -> Schedule:
        """Return the best schedule found; never worse than the greedy one and the program as it is."""
        began = time.perf_counter()
        instance = Instance.of(problem)
        division = divide(instance)
        lower = whole_bound(instance, division.segments)
        solutions = _Chain(instance, division.segments, self.budget, self.max_tasks).solutions()
        plan = _assembled(instance, division, solutions)
        if len(solutions) > 1 or division.aside:
            plan = min(plan, greedy(instance), *ruled(instance), key=lambda candidate: candidate.rank)
        if division.aside:
            plan = climb_in_windows(instance, plan, lower.time, round(self.budget * _RUN_TASKS))
        plan = plan.renamed(instance)
        proven = sum(
            solution.proven - segment.overlap(instance) for solution, segment in zip(solutions, division.segments, strict=True)
        )
        return plan.schedule(
            instance,
            strategy="cpsat",
            bound=lower.time,
            bound_by=lower.by,
            optimal=plan.makespan <= max(proven, lower.time),
            regions=described(instance, division, plan, _lower_bounds(instance, division, solutions)),
            seconds=time.perf_counter() - began,
        )


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
        optimal=False,
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


def _lower_bounds(instance: Instance, division: Division, solutions: list[Solution]) -> list[int]:
    """What is proven about each region, without its cuts."""
    return [
        solution.proven - segment.cut_time(instance)
        for segment, solution in zip(division.segments, solutions, strict=True)
        if segment.inner
    ]


class _Chain:
    """Solves the segments one after the other.

    Open streams are alike as long as nothing is fixed to MAIN, so each segment begins on stream 0 and ends where it likes; its
    streams are then exchanged so that it continues the segment before it. Where something is fixed to MAIN the cuts stay there.
    """

    def __init__(self, instance: Instance, segments: Sequence[Segment], budget: float, max_tasks: int) -> None:
        self.instance, self.segments, self.max_tasks = instance, segments, max_tasks
        self.rigid = self._rigid()
        self.forms = [segment.part(instance).form() for segment in segments]
        self.weight: dict[object, int] = {}
        for form, segment in zip(self.forms, segments, strict=True):
            self.weight[form] = self.weight.get(form, 0) + sum(instance.shortest(task) for task in segment.tasks)
        self.budget = budget
        self.known: dict[object, Solution] = {}

    def solutions(self) -> list[Solution]:
        """The solution of each segment, on streams that fit together."""
        here = 0
        found = []
        for number, segment in enumerate(self.segments):
            solution = self._solution(number, here)
            found.append(_exchanged(solution, here))
            if segment.exit is not None:
                stream = found[-1].plan.stream[segment.tasks.index(segment.exit)]
                here = stream if stream in self.instance.open else 0
        return found

    def _rigid(self) -> list[bool]:
        """Where something is fixed to MAIN; two cuts of one cluster bring the next such place forward."""
        unit, rigid = self.instance.unit, [False]
        for segment in reversed(self.segments):
            fixed = any(self.instance.allowed[unit[task]] == (0,) for task in segment.tasks)
            joined = segment.entry is not None and segment.exit is not None and unit[segment.entry] == unit[segment.exit]
            rigid.append(fixed or (joined and rigid[-1]))
        return rigid[:0:-1]

    def _solution(self, number: int, here: int) -> Solution:
        """Equal segments are solved once; each has a share of the budget by the time it stands for."""
        segment = self.segments[number]
        pins = {} if segment.entry is None else {segment.entry: 0}
        if segment.exit is not None and any(self.rigid[number : number + 2]):
            pins[segment.exit] = here  # which becomes MAIN
        part = segment.part(self.instance, pins)
        form = part.form()
        if form not in self.known:
            share = max(self.weight[self.forms[number]] / max(sum(self.weight.values()), 1), 1 / (4 * len(self.weight)))
            solution = solve(part, self.budget * share, self.max_tasks)
            if here and len(pins) > 1:  # a true restriction: what is proven under it is not proven
                solution = replace(solution, proven=bound(segment.part(self.instance)))
            self.known[form] = solution
        return self.known[form]


def _exchanged(solution: Solution, here: int) -> Solution:
    """The solution with stream 0 and the stream `here` exchanged."""
    names = {0: here, here: 0}
    stream = tuple(names.get(one, one) for one in solution.plan.stream)
    return replace(solution, plan=replace(solution.plan, stream=stream))


def _assembled(instance: Instance, division: Division, solutions: list[Solution]) -> Plan:
    """The solutions one after the other, and the best of several ways to place what was set aside."""
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
        streams, modes = zip(*(decided[task] for task in range(len(instance))), strict=True) if decided else ((), ())
        return replay(instance, streams, order, modes)
    default = {task: (instance.allowed[instance.unit[task]][0], fastest(instance, task)) for task in division.aside}
    plans = [
        list_schedule(instance, attempt, price=price, given=decided | there)
        for attempt in _orders(instance, order)
        for there, price in (({}, 0), ({}, instance.sync), (default, 0))
    ]
    return min(plans, key=lambda candidate: candidate.rank)


def _orders(instance: Instance, core: list[int]) -> Iterator[list[int]]:
    """Ways to fit what was set aside into the order of the core: soon, late, or only dead ends late."""
    place = {task: number for number, task in enumerate(core)}
    soon, late = [-1.0] * len(instance), [float(len(core))] * len(instance)
    for task in reversed(range(len(instance))):
        if task in place:
            soon[task] = late[task] = place[task]
        else:
            late[task] = min((late[after] - 0.5 for after in instance.after[task]), default=float(len(core)))
    ends = [late[task] if late[task] == len(core) else soon[task] for task in range(len(instance))]
    for key in (soon, late, ends):
        yield topological(instance.before, instance.after, key)
