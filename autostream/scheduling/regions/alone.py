"""One instance, solved as well as its size allows: simple rules, list scheduling, local search, CP-SAT, local search again.

An exact search (`exact.depth_first`) knows the rule by which plans are judged, and where it ends within its effort, no plan is
better. It has a first glance behind the simple rules, a second one soon, and comes again at the end. Between them a machine that
is kinder than the real one (`exact.relaxed`) settles most regions of more than a dozen tasks: its bound is close, and its best
order is made a plan. What is open at the end has a genetic search, and another exact one (`exact.best_first`), which proves
something wherever it stops.

Every plan is judged by running it (`machine.granting`). The solver knows less: durations are those of tasks alone, bandwidth
is a capacity, and cores go to whom it likes, not to who is ready first. So what it finds is a place to search from.

The streams are alike, so the solver does not choose among them: it sees one cumulative resource of as many units as there are
streams, and *continuations*. A task may continue one of its predecessors, on whatever stream that one ran, without a sync; each
task continues at most one and is continued by at most one. Streams are found afterwards by colouring the intervals, and the
exact times by replaying the order.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from autostream.scheduling.baselines.rules import ruled
from autostream.scheduling.bounds.lower import bound, bound_at_rest
from autostream.scheduling.bounds.rest import Rest
from autostream.scheduling.exact.best_first import BestFirst
from autostream.scheduling.exact.depth_first import searched
from autostream.scheduling.exact.relaxed import Relaxation, Relaxed
from autostream.scheduling.lists.greedy import greedy
from autostream.scheduling.lists.search import search
from autostream.scheduling.local.climb import climb, climb_in_windows
from autostream.scheduling.local.kinds import by_kind, evolved
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan, followers, replay, wished, with_times
from autostream.scheduling.solver.colouring import coloured
from autostream.scheduling.solver.project import Project
from autostream.scheduling.solver.timing import refine
from autostream.scheduling.solver.windows import improve_in_windows
from autostream.scheduling.tolerance import tolerated
from autostream.scheduling.waits.fewest import least_crossed

#: What one unit of the budget buys, so that it comes to about a second on one core: tasks placed and tasks run by the searches,
#: moments of an exact search times tasks, and deterministic time of each worker for windows, timing and colouring
#: (CP-SAT's own clock runs several times slower than a real one on scheduling models).
_PLACED_TASKS = 4_000
_RUN_TASKS = 100_000
_MOMENTS, _MOST_MOMENTS = 300_000, 60_000
#: What the first rounds and the first glance take of it.
_EARLY = 0.3
#: Moments of the first glance, before anything that takes longer, and of the second one; regions that take more than that are
#: mostly not settled by ten times as many.
_FIRST_GLANCE, _GLANCE = 400, 2_000
#: Most tasks of an instance for it, and for the search forward; moments of that for one unit of the budget between two looks
#: at how much is open, times tasks, which count as so many at least, and how often it may go on because that becomes less; most
#: sets of tasks for its bound.
_SEARCHED, _AHEAD = 48, 100
_STAGE, _SMALL, _STAGES, _SETS = 60_000, 32, 8, 25_000
#: Deterministic time of one round with the kinder machine and the least that is worth while; tasks run for each of its plans, and
#: how near a plan must come to be worth that (one part in so many); rounds before any other search and behind those.
_RELAXED, _LEAST = 0.08, 0.02
_ROUND_TASKS, _NEAR, _FIRST, _ROUNDS = 20_000, 50, 2, 2
#: Effort of the genetic search for each task, and tasks that are run behind it.
_EVOLUTION, _EVOLVED_TASKS = 100, 8_000
_WINDOWS = 0.05
_TIMING = 0.2
_COLOURING = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The best plan found and a proven lower bound, ns: no streams and orders of the tasks take less when they run."""

    plan: Plan
    proven: int
    #: A plan that is shorter, on streams that only the instance without pins allows.
    unpinned: Plan | None = None
    #: What no run of these tasks beats, whatever else runs beside them, ps.
    beside: int = 0
    #: The share of the budget that went into it, about.
    spent: float = 1.0

    @property
    def optimal(self) -> bool:
        """True if no plan is shorter."""
        return self.plan.makespan <= self.proven


def solve(instance: Instance, budget: float, max_tasks: int, free: Instance | None = None) -> Solution:
    """Solve within a deterministic `budget` (about seconds); above `max_tasks` the solver sees windows of the plan only.

    `free` is the instance without pins, where some tasks may run on more streams: what is proven holds for it.
    """
    free = free or instance
    rest = Rest.of(free, _SETS)
    lower = proven = bound(free, rest)
    plan = glanced = greedy(instance)
    relaxation = Relaxation.of(free, _SETS) if plan.makespan > lower and len(instance) <= max_tasks else None
    known = Solution(plan=plan, proven=proven, spent=0.0)
    if plan.makespan > lower:
        plan = min(plan, *ruled(instance), key=lambda candidate: candidate.rank)
        known = replace(known, plan=plan)
        most = _moments(instance, budget)
        known = _searched(instance, free, known, min(_FIRST_GLANCE, most))
        if relaxation is not None and not known.optimal:
            known = _relaxed(instance, relaxation, known, budget, _FIRST)
        if not known.optimal and most > _FIRST_GLANCE:
            known = _searched(instance, free, known, min(_GLANCE, most))
        if known.optimal:
            return _cleared(instance, free, replace(known, spent=_EARLY), budget, max_tasks)
        known = replace(known, spent=1.0)
        glanced = known.plan
        plan = search(instance, plan, known.proven, round(budget * _PLACED_TASKS))
        plan = _climbed(instance, plan, known.proven, round(budget * _RUN_TASKS), max_tasks)
    known = replace(known, plan=min(plan, glanced, key=lambda candidate: candidate.rank))
    if not known.optimal:
        known = _improved(instance, free, relaxation, known, plan, budget, max_tasks)
    known = replace(known, plan=least_crossed(instance, known.plan, budget, max_tasks))
    if known.optimal:
        return known
    last = _searched(instance, free, known, _moments(instance, budget))
    if last.plan.makespan > tolerated(last.proven):
        last = _looked_ahead(instance, free, rest, last, budget)
    if last.plan is known.plan and last.unpinned is None:
        return last
    return _cleared(instance, free, last, budget, max_tasks)


def _improved(
    instance: Instance,
    free: Instance,
    relaxation: Relaxation | None,
    known: Solution,
    climbed: Plan,
    budget: float,
    max_tasks: int,
) -> Solution:
    """What the solver makes of a solution, and of what the searches found: as a whole where it is small, else in windows."""
    if relaxation is not None:
        return _relaxed(instance, relaxation, known, budget, _ROUNDS)
    lower, proven = bound(free), known.proven
    if len(instance) > max_tasks:
        found = improve_in_windows(instance, climbed, bound_at_rest(instance), budget * _WINDOWS, max_tasks)
    else:
        found, refined = _refined(instance, climbed, lower, budget)
        proven = max(proven, refined) if _as_free(instance, free) else proven
    if found is not climbed:
        found = _climbed(instance, found, lower, round(budget * _RUN_TASKS), max_tasks)
    return replace(known, plan=min(known.plan, found, key=lambda candidate: candidate.rank), proven=proven)


def _relaxed(instance: Instance, relaxation: Relaxation, known: Solution, budget: float, rounds: int) -> Solution:
    """What the kinder machine makes of a solution: a better bound, and a plan in the order that it would like.

    Each round begins at the best plan so far. What is closed at once by one way of reasoning may be out of reach for another one,
    so they take turns; where nothing has changed since its last turn, it is left out.
    """
    tried: set[object] = set()
    for way in itertools.islice(itertools.cycle(relaxation.ways), rounds):
        if known.plan.makespan <= tolerated(known.proven):
            break
        if (way, known.plan) in tried:
            continue
        tried.add((way, known.plan))
        found = relaxation.solved(known.plan, max(budget * _RELAXED, _LEAST), way)
        known = replace(known, proven=max(known.proven, found.makespan), beside=max(known.beside, found.least))
        plan = _realised(instance, known, found, budget)
        known = replace(known, plan=min(known.plan, plan, key=lambda candidate: candidate.rank))
    return known


def _realised(instance: Instance, known: Solution, found: Relaxed, budget: float) -> Plan:
    """A plan for what the kinder machine would like: the best one that a local search finds from two that come near.

    Where each kind of kernels is on a stream of its own, they keep their order, but for the price of many syncs. Streams that
    suit the times save these, but what is ready first goes first there.
    """
    effort = round(budget * _ROUND_TASKS)
    plan = climb(instance, replay(instance, by_kind(instance), found.order, known.plan.mode), known.proven, effort)
    if plan.makespan <= known.proven:
        return plan
    other = coloured(instance, known.plan, with_times(known.plan, found.times), budget * _COLOURING)
    if other.makespan * _NEAR < min(plan.makespan, known.plan.makespan) * (_NEAR + 1):
        other = climb(instance, other, known.proven, effort)
    return min(plan, other, key=lambda candidate: candidate.rank)


def _moments(instance: Instance, budget: float) -> int:
    """How many moments of an exact search a budget buys."""
    return min(round(budget * _MOMENTS), _MOST_MOMENTS) // max(len(instance), 1)


def _searched(instance: Instance, free: Instance, known: Solution, moments: int) -> Solution:
    """What an exact search makes of a solution: a better plan or a better bound, if it finds one."""
    plan, unpinned = known.plan, None
    if len(free) > _SEARCHED:
        return known
    found = searched(free, plan.makespan, moments)
    if found.plan is not None:
        better = _where_allowed(instance, free, found.plan)
        if better is None:
            unpinned = found.plan
            better = searched(instance, plan.makespan, moments).plan
        plan = better or plan
    return replace(known, plan=plan, proven=max(known.proven, found.proven or 0), unpinned=unpinned)


def _looked_ahead(instance: Instance, free: Instance, rest: Rest | None, known: Solution, budget: float) -> Solution:
    """What a genetic search and one forward make of a solution: a better plan or a better bound, if they find one."""
    if any(len(row) > 1 for row in instance.modes):
        return known
    other = climb(instance, evolved(instance, _EVOLUTION * len(instance)), known.proven, _EVOLVED_TASKS)
    plan, unpinned = min(known.plan, other, key=lambda candidate: candidate.rank), known.unpinned
    if rest is None or len(free) > _AHEAD:
        return replace(known, plan=plan)
    goal, stage = (
        plan.makespan - (tolerated(plan.makespan) - plan.makespan) // 2,
        round(budget * _STAGE) // max(len(free), _SMALL),
    )
    search = BestFirst(free, rest)
    found = search.found(goal, stage)
    for _ in range(_STAGES):
        left = search.open
        found = search.found(goal, stage)
        if search.open >= left:
            break
    if found.plan is not None:
        better = _where_allowed(instance, free, found.plan)
        plan = better or plan
        if better is None and (unpinned is None or found.plan.rank < unpinned.rank):
            unpinned = found.plan
    return replace(known, plan=plan, proven=max(known.proven, found.proven or 0), unpinned=unpinned)


def _cleared(instance: Instance, free: Instance, solution: Solution, budget: float, max_tasks: int) -> Solution:
    """The solution with fewer crossings in its plans, if that is found."""
    plan = least_crossed(instance, solution.plan, budget, max_tasks)
    unpinned = solution.unpinned and least_crossed(free, solution.unpinned, budget, max_tasks)
    return replace(solution, plan=plan, unpinned=unpinned)


def _as_free(instance: Instance, free: Instance) -> bool:
    """True if an instance has the same makespans as `free`: one unit at most is bound, to one of several streams alike."""
    bound_units = [unit for unit, row in enumerate(free.allowed) if row != instance.allowed[unit]]
    streams = {stream for unit in bound_units for stream in free.allowed[unit]}
    return len(bound_units) <= 1 and all(streams.issubset(row) or streams.isdisjoint(row) for row in free.allowed)


def _where_allowed(instance: Instance, free: Instance, plan: Plan) -> Plan | None:
    """A plan for `free` with its streams renamed such that it is one for `instance`, None if that cannot be."""
    stream = list(plan.stream)
    for unit, members in enumerate(instance.members):
        here, allowed = stream[members[0]], instance.allowed[unit]
        if here not in allowed:
            alike = all((here in row) == (allowed[0] in row) for row in free.allowed)
            names = {here: allowed[0], allowed[0]: here} if alike else {}
            stream = [names.get(one, one) for one in stream]
    if all(stream[task] in instance.allowed[unit] for task, unit in enumerate(instance.unit)):
        return replace(plan, stream=tuple(stream))
    return None


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
