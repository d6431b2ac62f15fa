"""One instance, solved as well as its size allows: greedy, iterated list scheduling, then CP-SAT.

The streams are alike, so the solver does not choose among them: it sees one cumulative resource of as many units as there are
streams, and *continuations*. A task may continue one of its predecessors, on whatever stream that one ran, without a sync; each
task continues at most one and is continued by at most one. Streams are found afterwards by colouring the intervals, and the
exact times by replaying the order. The best of that and what was there before is the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from autostream.scheduling.bounds import bound
from autostream.scheduling.colouring import coloured
from autostream.scheduling.greedy import greedy
from autostream.scheduling.improve import improve
from autostream.scheduling.instance import Instance
from autostream.scheduling.project import Project
from autostream.scheduling.replay import Plan, followers, with_times
from autostream.scheduling.search import search
from autostream.scheduling.sgs import Times
from autostream.scheduling.tidy import tidied
from autostream.scheduling.timing import refine
from autostream.scheduling.windows import improve_in_windows

#: What one unit of the budget buys, so that it comes to about a second on one core: tasks placed by the search before the
#: solver, and deterministic time of each worker for the timing and for the colouring (CP-SAT's own clock runs several times
#: slower than a real one on scheduling models).
_PLACED_TASKS = 40_000
_TIMING = 0.2
_COLOURING = 0.02
_TIDYING = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The best plan found and a proven lower bound, ns."""

    plan: Plan
    proven: int

    @property
    def optimal(self) -> bool:
        """True if no plan is shorter."""
        return self.plan.makespan <= self.proven


def solve(instance: Instance, budget: float, max_tasks: int) -> Solution:
    """Solve within a deterministic `budget` (about seconds); above `max_tasks` the solver sees windows of the plan only."""
    lower, plan = bound(instance), greedy(instance)
    proven = lower
    if plan.makespan > lower:
        plan = improve(instance, search(instance, plan, lower, round(budget * _PLACED_TASKS)))
    if len(instance) > max_tasks:
        if plan.makespan > lower:
            plan = improve_in_windows(instance, plan, lower, budget * _TIMING, max_tasks)
        return Solution(plan=plan, proven=proven)
    if plan.makespan > lower:
        plan, proven = _refined(instance, plan, lower, budget)
    if plan.crossings:
        plan = coloured(instance, plan, plan, budget * _COLOURING)
        plan = tidied(instance, plan, budget * _TIDYING)
    return Solution(plan=plan, proven=proven)


def _refined(instance: Instance, plan: Plan, lower: int, budget: float) -> tuple[Plan, int]:
    """The better of `plan` and what the solver makes of it, and the best lower bound known."""
    hint = Times(mode=plan.mode, start=plan.start, end=plan.end)
    found = refine(Project.of(instance), hint, followers(plan), lower, budget * _TIMING)
    if found.times.makespan == plan.makespan:
        return plan, found.bound
    return coloured(instance, plan, with_times(plan, found.times), budget * _COLOURING), found.bound
