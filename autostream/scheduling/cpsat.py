"""One instance, solved as well as its size allows: simple rules, list scheduling, local search, CP-SAT, local search again.

Every plan is judged by running it (`scheduling.granting`). The solver knows less: durations are those of tasks alone, bandwidth
is a capacity, and cores go to whom it likes, not to who is ready first. So what it finds is a place to search from.

The streams are alike, so the solver does not choose among them: it sees one cumulative resource of as many units as there are
streams, and *continuations*. A task may continue one of its predecessors, on whatever stream that one ran, without a sync; each
task continues at most one and is continued by at most one. Streams are found afterwards by colouring the intervals, and the
exact times by replaying the order.
"""

from __future__ import annotations

from dataclasses import dataclass

from autostream.scheduling.bounds import bound, bound_at_rest
from autostream.scheduling.climb import climb, climb_in_windows, uncrossed
from autostream.scheduling.colouring import coloured
from autostream.scheduling.greedy import greedy
from autostream.scheduling.improve import improve
from autostream.scheduling.instance import Instance
from autostream.scheduling.project import Project
from autostream.scheduling.replay import Plan, followers, wished, with_times
from autostream.scheduling.rules import ruled
from autostream.scheduling.search import search
from autostream.scheduling.tidy import tidied
from autostream.scheduling.timing import refine
from autostream.scheduling.windows import improve_in_windows

#: What one unit of the budget buys, so that it comes to about a second on one core: tasks placed and tasks run by the searches,
#: and deterministic time of each worker for windows, timing, colouring and tidying (CP-SAT's own clock runs several times slower
#: than a real one on scheduling models).
_PLACED_TASKS = 4_000
_RUN_TASKS = 100_000
_UNCROSSING = 10_000
_WINDOWS = 0.05
_TIMING = 0.2
_COLOURING = 0.02
_TIDYING = 0.02


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
    lower = proven = bound(instance)
    plan = greedy(instance)
    if plan.makespan > lower:
        plan = min(plan, *ruled(instance), key=lambda candidate: candidate.rank)
        plan = search(instance, plan, lower, round(budget * _PLACED_TASKS))
        plan = _climbed(instance, plan, lower, round(budget * _RUN_TASKS), max_tasks)
    if plan.makespan > lower:
        if len(instance) > max_tasks:
            found = improve_in_windows(instance, plan, bound_at_rest(instance), budget * _WINDOWS, max_tasks)
        else:
            found, proven = _refined(instance, plan, lower, budget)
        if found is not plan:
            found = _climbed(instance, found, lower, round(budget * _RUN_TASKS), max_tasks)
            plan = min(plan, found, key=lambda candidate: candidate.rank)
    if plan.crossings:
        plan = uncrossed(instance, improve(instance, plan), round(budget * _UNCROSSING))
        if len(instance) <= max_tasks:
            plan = tidied(instance, plan, budget * _TIDYING)
    return Solution(plan=plan, proven=proven)


def _climbed(instance: Instance, plan: Plan, lower: int, effort: int, max_tasks: int) -> Plan:
    if len(instance) <= max_tasks:
        return climb(instance, plan, lower, effort)
    return climb_in_windows(instance, climb(instance, plan, lower, effort // 4), lower, effort)


def _refined(instance: Instance, plan: Plan, lower: int, budget: float) -> tuple[Plan, int]:
    """What the solver makes of `plan`, which may be worse when it runs, or `plan` itself; and the best lower bound known."""
    rest = bound_at_rest(instance)
    hint = wished(instance, plan.stream, plan.order(), plan.mode)
    wish = with_times(plan, hint)
    found = refine(Project.of(instance), hint, followers(wish), rest, budget * _TIMING)
    proven = max(lower, found.bound) if _excludes_by_cores_alone(instance) else lower
    if found.times.makespan == hint.makespan:
        return plan, proven
    return coloured(instance, plan, with_times(plan, found.times), budget * _COLOURING), proven


def _excludes_by_cores_alone(instance: Instance) -> bool:
    """True if no tasks ask for more bandwidth than there is, which the solver does not allow and the machine does."""
    shares = sorted(max(mode.demand[2] for mode in modes) for modes in instance.modes)
    return sum(shares[-len(instance.streams) :]) <= instance.capacity[2]
