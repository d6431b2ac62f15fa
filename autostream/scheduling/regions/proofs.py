"""What is proven about the segments of a division, alone and with whatever else runs beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from autostream.scheduling.bounds.lower import Bound, best_bound, whole_bound
from autostream.scheduling.bounds.orders import ordered_bound
from autostream.scheduling.machine.division import Division
from autostream.scheduling.machine.granting import PS
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.regions.alone import Solution

#: Sets of orders that are looked at for one kind of segment, and times its tasks; nearly all that are settled at all take fewer.
_NODES, _NODE_TASKS = 64, 5_200


class Proven(NamedTuple):
    """What no run of a segment beats."""

    #: By itself, ns, rounded like the times of plans.
    alone: int
    #: Whatever runs beside it.
    anyway: Bound


def proven(division: Division, solutions: Sequence[Solution]) -> tuple[Proven, ...]:
    """Return what is proven about each kind of segment, given the solution of each segment.

    An exact search of a segment says nothing of runs in which what was set aside holds cores for a while, see
    `bounds.orders`; so where there is such, and where the search was cut short, the orders are searched.
    """
    found = []
    for kind, alone in enumerate(division.parts):
        those = [solution for solution, other in zip(solutions, division.kinds, strict=True) if other == kind]
        least = max(solution.proven for solution in those)
        best = min(plan.makespan for solution in those for plan in (solution.plan, solution.unpinned) if plan)
        beside = max(solution.beside for solution in those) // PS
        anyway = max(best_bound(alone), Bound(beside, "search"), key=lambda one: one.time)
        if least < best or (division.aside and anyway.time < best):
            ordered = ordered_bound(alone, best * PS - PS // 2, min(_NODES, _NODE_TASKS // len(alone)))
            least = max(least, (ordered + PS // 2) // PS)
            anyway = max(anyway, Bound(ordered // PS, "search"), key=lambda one: one.time)
        found.append(Proven(least, anyway))
    return tuple(found)


def proven_whole(instance: Instance, division: Division, kinds: Sequence[Proven]) -> Bound:
    """Return what no schedule of the whole program beats."""
    lower = whole_bound(instance, division, [kind.anyway for kind in kinds])
    if division.aside:
        return lower
    # Each region is proven to the nanosecond, rounded: half of one may be missing.
    alone = -(len(division.regions) // 2) + sum(
        kinds[kind].alone - segment.overlap(instance) for segment, kind in zip(division.segments, division.kinds, strict=True)
    )
    return Bound(alone, "search") if alone > lower.time else lower
