"""Schedules with no more waits between streams than somebody allows."""

from __future__ import annotations

import time

from autostream.scheduling.machine.division import Division, divide
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan, replay
from autostream.scheduling.problem import Problem, Schedule
from autostream.scheduling.regions.describe import described
from autostream.scheduling.tolerance import tolerated
from autostream.scheduling.waits.frontier import Frontier, frontier
from autostream.scheduling.waits.portions import shared_out

#: What one unit of the budget buys, in tasks that are run, for plans of a whole that is made of portions.
_WHOLE_TASKS = 100_000
#: Share of the budget that is left for the whole where portions have been searched, in hundredths.
_REST = 50


class Capped:
    """Shortens what waits there are: from the answer of another strategy to the shortest schedule with few enough."""

    def __init__(self, schedule: Schedule, budget: float) -> None:
        """Begin at `schedule`, an answer to the problem without a limit; `budget` is about seconds."""
        self._schedule = schedule
        self._budget = budget

    def solve(self, problem: Problem) -> Schedule:
        """Return the shortest schedule found with at most `problem.max_waits` crossings; the schedule itself without a limit.

        Its lower bound is that of schedules with so few. Where the tasks that are fixed to streams need more by themselves, it is
        a schedule with the fewest crossings known.
        """
        if problem.max_waits is None:
            return self._schedule
        began = time.perf_counter()
        instance = Instance.of(problem)
        division = divide(instance)
        found = searched_frontier(instance, division, plan_of(instance, self._schedule), self._budget)
        plan = (found.within(problem.max_waits) or found.points()[0]).renamed(instance)
        given = self._schedule
        bound = max(given.lower_bound, found.proven.get(problem.max_waits, 0))
        divided = len(given.regions) == len(division.regions) + bool(division.aside)
        lower = [region.lower_bound for region in given.regions[: len(division.regions)]]
        return plan.schedule(
            instance,
            strategy=given.strategy,
            bound=bound,
            bound_by="search" if bound > given.lower_bound else given.bound_by,
            regions=described(instance, division, plan, lower, bound) if divided else (),
            seconds=given.seconds + time.perf_counter() - began,
        )


def searched_frontier(instance: Instance, division: Division, plan: Plan, budget: float) -> Frontier:
    """Return how short plans are with how few crossings, from one of them; the same for every limit on crossings."""
    if len(division.regions) < 2:
        return frontier(instance, (plan,), budget)
    shares = shared_out(instance, division, plan, budget, round(budget * _WHOLE_TASKS))
    # Deep programs are made of small segments, whose plans are often proved: then no search of the whole finds more.
    lower = min(shares.proven.values(), default=0)
    closed = all(one.makespan <= tolerated(shares.proven.get(one.crossings, lower)) for one in shares.plans)
    found = frontier(instance, (plan, *shares.plans), 0.0 if closed else budget * _REST / 100)
    for most, proven in shares.proven.items():
        found.proven[most] = max(proven, found.proven.get(most, proven))
    return found


def plan_of(instance: Instance, schedule: Schedule) -> Plan:
    """Return a schedule in numbers."""
    position = {name: number for number, name in enumerate(instance.names)}
    stream, mode = [0] * len(instance), [0] * len(instance)
    for placement in schedule.placements:
        task = position[placement.task]
        stream[task], mode[task] = instance.streams.index(placement.stream), placement.mode
    return replay(instance, stream, [position[placement.task] for placement in schedule.placements], mode)


def crossings(problem: Problem, schedule: Schedule) -> int:
    """Return how many precedences have their tasks on different streams."""
    stream = {placement.task: placement.stream for placement in schedule.placements}
    return sum(stream[one.before] != stream[one.after] for one in problem.precedences)
