"""Prices of work that bound every schedule: a linear program over what may run at the same time.

Give the work of every task a price, such that whatever may run at once earns at most one per unit of time, slowed down as it then
is. No schedule takes less time than all its work is worth. The best prices are the dual of the program that shares out time among
the sets of tasks that may run at once. They see the precedences, the cores and the interference together, where other bounds see
one of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from ortools.linear_solver import pywraplp

from autostream.scheduling.machine.bitsets import bits, members
from autostream.scheduling.machine.division import reach
from autostream.scheduling.machine.instance import Instance

#: The price of one unit of time for each unit of work.
ONE = 1_000_000_000
#: Most tasks of an instance, and sets of them, that are worth a program that is solved again and again.
_TASKS, SETS = 256, 2_000


class Prices:
    """The program of one instance. What it answers is checked in integers, whatever the solver rounds."""

    def __init__(self, instance: Instance, sets: Sequence[tuple[int, ...]]) -> None:
        claims = [row[0] for row in instance.claims]
        self._sets = [(row, instance.rules.stretches([claims[task] for task in row])) for row in sets]
        self._solver = pywraplp.Solver.CreateSolver("GLOP")
        self._price = [self._solver.NumVar(0.0, self._solver.infinity(), "") for _ in claims]
        for row, stretches in self._sets:
            limit = self._solver.Constraint(-self._solver.infinity(), 1.0)
            for task, stretch in zip(row, stretches, strict=True):
                limit.SetCoefficient(self._price[task], 1000 / stretch)
        self._solver.Objective().SetMaximization()

    @property
    def sets(self) -> int:
        """How many sets of tasks may run at once."""
        return len(self._sets)

    @classmethod
    def of(cls, instance: Instance, most: int = SETS) -> Prices | None:
        """The program of an instance, None where there are more than `most` sets of tasks or a task has several modes."""
        sets = at_once(instance, most)
        return None if sets is None else cls(instance, sets)

    def best(self, work: Sequence[int]) -> tuple[int, ...]:
        """The prices, in units of ONE, that make so much work of each task worth most; too little if the solver fails."""
        objective, unit = self._solver.Objective(), max(*work, 1)
        for variable, amount in zip(self._price, work, strict=True):
            objective.SetCoefficient(variable, amount / unit)
        if self._solver.Solve() != pywraplp.Solver.OPTIMAL:
            return (0,) * len(self._price)
        # Rounded, not cut off: the last bits of the solver's answer differ between machines.
        prices = [max(round(variable.solution_value() * ONE), 0) for variable in self._price]
        most = max((_earned(prices, row, stretches) for row, stretches in self._sets), default=0)
        return tuple(price * ONE // most for price in prices) if most > ONE else tuple(prices)


def at_once(instance: Instance, most: int) -> list[tuple[int, ...]] | None:
    """Every set of tasks that may run at once, None where there are more than `most` or a task has several modes."""
    if len(instance) > _TASKS or any(len(row) > 1 for row in instance.modes):
        return None
    found = list(itertools.islice(_at_once(instance), most + 1))
    return found if len(found) <= most else None


def _earned(prices: Sequence[int], row: Sequence[int], stretches: Sequence[int]) -> int:
    """What a set of tasks earns per unit of time, rounded up."""
    return sum([-(-prices[task] * 1000 // stretch) for task, stretch in zip(row, stretches, strict=True)])


def _at_once(instance: Instance) -> Iterator[tuple[int, ...]]:
    """Every set of tasks that may run at once: no precedence, no cluster or only stream in common, and the machine suffices."""
    count, claims, packing = len(instance), [row[0] for row in instance.claims], instance.rules.packing
    after, before = reach(instance.after, reversed(range(count))), reach(instance.before, range(count))
    streams = [instance.allowed[unit] for unit in instance.unit]
    most = len({stream for row in instance.allowed for stream in row})
    #: By the only stream that tasks may run on.
    alone: dict[int, int] = {}
    for task, row in enumerate(streams):
        if len(row) == 1:
            alone[row[0]] = alone.get(row[0], 0) | 1 << task
    beside = []
    for task in range(count):
        never = after[task] | before[task] | bits(instance.members[instance.unit[task]])
        never |= alone[streams[task][0]] if len(streams[task]) == 1 else 0
        beside.append(((1 << count) - (2 << task)) & ~never)

    def grown(row: tuple[int, ...], free: int, others: int) -> Iterator[tuple[int, ...]]:
        for task in members(others):
            left = free - claims[task].demand
            if claims[task].work and left & packing.guards == packing.guards:
                yield (*row, task)
                if len(row) + 1 < most:
                    yield from grown((*row, task), left, others & beside[task])

    yield from grown((), packing.free, (1 << count) - 1)
