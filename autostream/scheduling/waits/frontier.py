"""How short a plan can be with how few crossings: for every number of crossings the shortest plan that was found.

Nothing here depends on how many crossings somebody allows, so that whoever allows more never gets a longer plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from autostream.scheduling.baselines.rules import ruled
from autostream.scheduling.exact.depth_first import searched
from autostream.scheduling.lists.serial import serial
from autostream.scheduling.local.climb import Climb
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan
from autostream.scheduling.waits.descent import descent

#: What one unit of the budget buys, in tasks that are run: the short way down, the long way down, and random search.
_SHORT_WAY_TASKS = 375_000
_LONG_WAY_TASKS = 250_000
_RANDOM_TASKS = 50_000
#: The first price of a crossing on the short way, in syncs.
_DEAR = 32
#: Most tasks for which random and exact search go on.
SMALL = 60
#: Moments of an exact search for one number of crossings, times tasks, that one unit of the budget buys, and the most.
_MOMENTS, _MOST_MOMENTS = 30_000, 60_000
#: Above so many tasks the published rules take too long.
_RULED = 2000


@dataclass(slots=True)
class Frontier:
    """The shortest plan by number of crossings; of equally long ones the one on fewer streams, then the first."""

    plans: dict[int, Plan] = field(default_factory=dict)
    #: What no plan with at most so many crossings beats, ns, as far as it was proved.
    proven: dict[int, int] = field(default_factory=dict)
    #: The same with any number of crossings.
    least: int = 0

    def add(self, plans: Iterable[Plan]) -> None:
        """Keep what is better than what was known."""
        for plan in plans:
            known = self.plans.get(plan.crossings)
            if known is None or plan.rank < known.rank:
                self.plans[plan.crossings] = plan

    def within(self, most: int) -> Plan | None:
        """The shortest plan with no more crossings, of equally long ones the one with the fewest; None if there is none."""
        return min((plan for crossings, plan in self.plans.items() if crossings <= most), key=lambda one: one.rank, default=None)

    def points(self) -> list[Plan]:
        """The plans that are shorter than all with fewer crossings, the fewest crossings first."""
        found: list[Plan] = []
        for crossings in sorted(self.plans):
            if not found or self.plans[crossings].makespan < found[-1].makespan:
                found.append(self.plans[crossings])
        return found


def frontier(instance: Instance, seeds: Iterable[Plan], budget: float) -> Frontier:
    """Return what is found from the serial plan, the published rules and some more plans within a `budget` (about seconds)."""
    found = Frontier()
    found.add([serial(instance), *seeds])
    if len(instance) <= _RULED:
        found.add(ruled(instance))
    best = found.points()[-1]
    if not best.crossings:
        return found
    found.add(descent(instance, best, round(budget * _SHORT_WAY_TASKS), _DEAR * instance.sync))
    found.add(descent(instance, best, round(budget * _LONG_WAY_TASKS), instance.sync))
    if len(instance) <= SMALL:
        climb_down(instance, found, round(budget * _RANDOM_TASKS))
        prove(instance, found, budget)
    return found


class _Within(Climb):
    """A local search in which crossings beyond a number have a price."""

    def __init__(self, instance: Instance, plan: Plan, most: int, price: int) -> None:
        self._most, self._price = most, price
        super().__init__(instance, plan)

    def rank_of(self, plan: Plan) -> tuple[int, int, int]:
        """What the search makes smaller."""
        makespan, crossings, streams = plan.rank
        return makespan + self._price * max(crossings - self._most, 0), crossings, streams


def climb_down(instance: Instance, found: Frontier, effort: int) -> None:
    """Search from the best plan of each number of crossings, the most first; all that is met on the way counts.

    `effort` is in tasks that may be run.
    """
    points = found.points()
    fewest, best = points[0], points[-1]
    limits = range(best.crossings - 1, fewest.crossings - 1, -1)
    if not limits:
        return
    # Twice what one more crossing saves on average.
    price = max(2 * (fewest.makespan - best.makespan) // len(limits), instance.sync)
    for most in limits:
        begin = found.within(most)
        assert begin is not None
        search = _Within(instance, begin, most, price)
        search.best_within(0, effort // len(limits))
        found.add(search.known.values())


def prove(instance: Instance, found: Frontier, budget: float) -> None:
    """Search exactly, the fewest crossings first, until that takes too long; nothing is tried on a large instance."""
    if len(instance) > SMALL:
        return
    points, moments = found.points(), min(round(budget * _MOMENTS), _MOST_MOMENTS) // len(instance)
    for most in (*range(points[0].crossings, points[-1].crossings + 1), None):
        best = points[-1] if most is None else found.within(most)
        assert best is not None
        answer = searched(instance, best.makespan, moments, most)
        if answer.plan is not None:
            found.add([answer.plan])
        if answer.proven is None:
            break
        if most is None:
            found.least = answer.proven
        else:
            found.proven[most] = answer.proven
