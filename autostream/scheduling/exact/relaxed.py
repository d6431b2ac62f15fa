"""A machine that is kinder than the real one, solved by CP-SAT: what no run beats, and the order of tasks that it would like.

What runs at the same time slows each other down. Let a clock go as fast as the fastest of what runs proceeds, but no slower than
these tasks can make it go among themselves, whatever else runs beside them: by this clock every task takes at least its time
alone, and a sync at least its own divided by the largest stretch of these tasks. So every run, timed by this clock, is a schedule
of tasks of fixed durations that waits for its predecessors, for syncs and for cores. While n of the tasks run on cores, a tick
takes at least (1 - a) + n x a, where `a` is the least that one more of them slows down the rest. So a run takes at least

    (1 - a) x (what the clock shows at its end) + a x (work of the tasks on cores).

Two tasks that slow each other down more than that (by the memory they share) cost more for as long as they overlap. With two
kinds of cores and nothing else this is exact but for times when nothing runs.

Left out is that cores go to who was ready first, and which orders the streams allow at all; so the bound holds whatever runs
beside these tasks. It is found where the best-first search needs tens of thousands of moments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

from autostream.scheduling.bounds.prices import SETS, at_once
from autostream.scheduling.machine.granting import PS
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan, followers, wished, with_times
from autostream.scheduling.machine.resources import NumberedMode
from autostream.scheduling.machine.times import Times
from autostream.scheduling.solver.project import Project
from autostream.scheduling.solver.timing import SOLVED, Timing, solver

#: The whole, where shares are thousandths.
_WHOLE = 1000
#: Memory bandwidth, which tasks share and which excludes none.
_HBM = 2
#: Most pairs of tasks whose overlap is charged by itself: those that can cost most.
_PAIRS = 60


class Way(NamedTuple):
    """A way to reason. Some instances are closed at once by one of them and by no other."""

    #: Make the solver reason more at each step.
    strong: bool
    #: Charge the overlaps that cost more than others. Without them less is proven, and sooner.
    pairs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxed:
    """What the solver makes of the kinder machine."""

    #: When the tasks run by its clock: at least as good as the plan it began at.
    times: Times
    #: What no run beats, ps, whatever runs beside it.
    least: int

    @property
    def makespan(self) -> int:
        """What no plan beats, ns, as the times of plans are rounded."""
        return (self.least + PS // 2) // PS

    @property
    def order(self) -> list[int]:
        """The tasks by start; a topological order."""
        return sorted(range(len(self.times.start)), key=lambda task: (self.times.start[task], self.times.end[task], task))


class Relaxation:
    """The kinder machine for one instance whose tasks have one mode each."""

    def __init__(self, instance: Instance, sets: Sequence[tuple[int, ...]]) -> None:
        claims = [row[0] for row in instance.claims]
        on_cores = [claim.kernel or claim.collective for claim in claims]
        rows = [
            (row, sum(on_cores[task] for task in row), min(instance.rules.stretches([claims[task] for task in row])))
            for row in sets
        ]
        shares = [(stretch - _WHOLE) // (number - 1) for _, number, stretch in rows if number > 1]
        #: What each further task on cores slows the rest down by, thousandths.
        self._share = min([_WHOLE, *shares]) if shares else 0
        self._work = sum(instance.shortest(task) for task, inside in enumerate(on_cores) if inside)
        self._pairs = self._dear(instance, rows)
        self._instance = _at_its_clock(instance, max([_WHOLE, *(stretch for _, _, stretch in rows)]))
        self._project = Project.of(self._instance)
        #: What to try, the most promising first.
        self.ways = [Way(strong, pairs) for pairs in ((False, True) if self._pairs else (False,)) for strong in (True, False)]

    @classmethod
    def of(cls, instance: Instance, most: int = SETS) -> Relaxation | None:
        """The machine for an instance, None where more than `most` sets of tasks may run at once or a task has several modes."""
        sets = at_once(instance, most) if len(instance) else None
        return None if sets is None else cls(instance, sets)

    def solved(self, plan: Plan, budget: float, way: Way) -> Relaxed:
        """What the solver finds within a deterministic `budget` (CP-SAT's own unit), beginning at a plan of the instance."""
        hint = wished(self._instance, plan.stream, plan.order(), plan.mode)
        timing = Timing(self._project, hint, followers(with_times(plan, hint)), 0)
        self._weigh(timing, self._pairs if way.pairs else {})
        engine = solver(budget)
        engine.parameters.linearization_level = 0
        engine.parameters.use_strong_propagation_in_disjunctive = way.strong
        if engine.solve(timing.model) not in SOLVED:
            return Relaxed(times=hint, least=0)
        # The model ends no later than the hint; what ends later by the clock takes at least as much.
        least = min(round(engine.best_objective_bound), (_WHOLE - self._share) * hint.makespan)
        return Relaxed(times=timing.times(engine), least=least + self._share * self._work)

    def _dear(self, instance: Instance, rows: Sequence[tuple[tuple[int, ...], int, int]]) -> dict[tuple[int, int], int]:
        """The pairs of tasks whose overlap costs more than their number says, and how much more, thousandths.

        What a set of tasks costs beyond its number is divided among its pairs, so that it is never charged more than it costs.
        """
        found: dict[tuple[int, int], int] = {}
        for row, number, stretch in rows:
            left = stretch - (_WHOLE - self._share + self._share * number)
            for one, other in combinations(sorted(row), 2):
                found[one, other] = min(found.get((one, other), left), left // math.comb(len(row), 2))
        cost = {pair: more * min(map(instance.shortest, pair)) for pair, more in found.items() if more > 0}
        return {pair: found[pair] for pair in sorted(cost, key=lambda pair: (-cost[pair], pair))[:_PAIRS]}

    def _weigh(self, timing: Timing, pairs: dict[tuple[int, int], int]) -> None:
        """Minimise the time that a run takes by the rule above, less what the work alone is charged; ps."""
        overlaps = [more * timing.overlap(one, other) for (one, other), more in pairs.items()]
        timing.model.minimize(sum(overlaps, start=(_WHOLE - self._share) * timing.makespan))


def _at_its_clock(instance: Instance, stretch: int) -> Instance:
    """The instance as the clock sees it: syncs by the largest stretch, memory that excludes nothing.

    A sync is no longer than any task either: a task that follows another on its stream, with one in between, waits for that one
    instead, and the solver charges a sync. What takes no time holds nothing.
    """
    least = min(instance.shortest(task) for task in range(len(instance)))
    nothing = (0,) * len(instance.capacity)
    wanted = sum(row[0].demand[_HBM] for row in instance.modes)
    capacity = tuple(max(wanted, limit) if kind == _HBM else limit for kind, limit in enumerate(instance.capacity))
    return replace(
        instance,
        sync=min(instance.sync * _WHOLE // stretch, least),
        modes=tuple((row[0] if row[0].duration else NumberedMode(0, nothing),) for row in instance.modes),
        capacity=capacity,
    )
