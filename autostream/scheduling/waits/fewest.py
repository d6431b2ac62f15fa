"""The plan of one region with the fewest crossings that takes no longer than one that is known."""

from __future__ import annotations

from autostream.scheduling.bounds.crossings import fewest_crossings
from autostream.scheduling.exact.depth_first import searched
from autostream.scheduling.local.climb import uncrossed
from autostream.scheduling.local.improve import improve
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan
from autostream.scheduling.solver.tidy import tidied

#: What one unit of the budget buys: tasks that are run, and deterministic time of each worker.
_RUN_TASKS = 10_000
_TIDYING = 0.02
#: Most tasks for exact searches; moments of theirs, times tasks, for one unit of the budget and at most: at first, and where
#: other searches have been.
_EXACT = 20
_FIRST, _MOST_FIRST = 40_000, 4_000
_LAST, _MOST_LAST = 60_000, 30_000
#: The fewest streams of a plan that overlaps anything.
_PAIR = 2


def least_crossed(instance: Instance, plan: Plan, budget: float, max_tasks: int) -> Plan:
    """Return a plan at least as good (by `Plan.rank`), with fewer crossings if they are found within `budget`.

    An exact search comes first, because in a small region it mostly settles at once that no plan crosses less.
    """
    if not plan.crossings:
        return plan
    plan = improve(instance, plan)
    least = plan.crossings <= fewest_crossings(instance, plan.makespan)
    if not least:
        plan, least = _settled(instance, plan, min(round(budget * _FIRST), _MOST_FIRST))
    if not least:
        plan = uncrossed(instance, plan, round(budget * _RUN_TASKS))
    if len(instance) <= max_tasks and not (least and len(set(plan.stream)) <= _PAIR):
        plan = tidied(instance, plan, budget * _TIDYING)
    return plan if least else _settled(instance, plan, min(round(budget * _LAST), _MOST_LAST))[0]


def _settled(instance: Instance, plan: Plan, effort: int) -> tuple[Plan, bool]:
    """Return what an exact search comes to, with one crossing less after the other, and whether that is proven to be the end."""
    if len(instance) > _EXACT:
        return plan, False
    while plan.crossings:
        found = searched(instance, plan.makespan + 1, effort // len(instance), plan.crossings - 1)
        if found.plan is None:
            return plan, found.proven is not None and found.proven > plan.makespan
        plan = found.plan
    return plan, True
