"""Divide and solve: each region alone, equal ones once, then everything in one schedule.

Regions lie between *cuts*, tasks ordered with all others. What was set aside for the division (see
`machine.division`) is placed afterwards where it delays least.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autostream.scheduling.baselines.rules import ruled
from autostream.scheduling.bounds.lower import bound
from autostream.scheduling.lists.greedy import DEEP, greedy
from autostream.scheduling.lists.serial import serial
from autostream.scheduling.local.climb import climb_in_windows
from autostream.scheduling.machine.division import Division, Segment, divide, divide_around, idle
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan
from autostream.scheduling.problem import Problem, Schedule
from autostream.scheduling.regions.alone import Solution, solve
from autostream.scheduling.regions.assembly import assembled
from autostream.scheduling.regions.describe import described
from autostream.scheduling.regions.placing import placed
from autostream.scheduling.regions.proofs import Proven, proven, proven_whole
from autostream.scheduling.regions.repeats import climb_repeats
from autostream.scheduling.tolerance import tolerated
from autostream.scheduling.waits.thrift import thrifty

#: What one unit of the budget buys for the search that follows when what was set aside has been placed: tasks that are run.
_RUN_TASKS = 40_000
#: How many times as many the placing itself may run, which begins at several plans.
_PLACING = 4
#: What one unit of the budget buys for the search for fewer crossings.
_THRIFT_TASKS = 100_000
#: A segment that is two cuts at most needs no budget.
_PAIR = 2
#: Least share of the budget for a segment with an opening: there is one, and it is large.
_OPENING = 0.15
#: How many times its own share a segment may have of what others left.
_LENT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Divided:
    """Regions by CP-SAT within a deterministic `budget` (about seconds); those above `max_tasks` in windows."""

    budget: float
    max_tasks: int

    def solve(self, problem: Problem) -> Schedule:
        """Return the best schedule found; never longer than the program as it is, or than the greedy one.

        Where a deep program is `tolerated` already, the greedy one is not made: it could be shorter by hardly more than that.
        """
        began = time.perf_counter()
        instance = Instance.of(problem)
        division = divide(instance)
        solutions = _Chain(instance, division, self.budget, self.max_tasks).solutions()
        kinds = proven(division, solutions)
        lower = proven_whole(instance, division, kinds)
        alone = len(solutions) == 1 and idle(instance, division.aside)
        plans = assembled(instance, division, solutions)
        near = len(instance) > DEEP and plans[0].makespan <= tolerated(lower.time)
        rivals = [serial(instance)] if near else list(_whole(instance, alone=alone))
        plan = _fitted(instance, division, plans, rivals, lower.time, self.budget)
        effort, alone_proven = round(self.budget * _THRIFT_TASKS), [kind.alone for kind in kinds]
        plan = thrifty(instance, division, plan, rivals, effort, alone_proven).renamed(instance)
        return plan.schedule(
            instance,
            strategy="cpsat",
            bound=lower.time,
            bound_by=lower.by,
            regions=described(instance, division, plan, _lower_bounds(instance, division, kinds), lower.time),
            seconds=time.perf_counter() - began,
        )


def _whole(instance: Instance, *, alone: bool) -> Iterator[Plan]:
    """What list scheduling and the rules make of the whole, which knows of no cuts.

    With these beside it a schedule is never worse than that of `Greedy`. One region had the rules to itself; and so had the many
    equal regions that a deep program is.
    """
    yield greedy(instance)
    if not alone and len(instance) <= DEEP:
        yield from ruled(instance)


def _fitted(
    instance: Instance, division: Division, plans: Sequence[Plan], rivals: Sequence[Plan], lower: int, budget: float
) -> Plan:
    """The best of some plans, of which the best is the first, and rivals; and where something aside needs room, a better one."""
    plan = min((plans[0], *rivals), key=lambda candidate: candidate.rank)
    if idle(instance, division.aside):
        return plan
    effort = round(budget * _RUN_TASKS)
    if len(instance) <= DEEP:
        plan = placed(instance, division, (plan, *plans), lower, _PLACING * effort)
        return climb_in_windows(instance, plan, lower, effort)
    plan = placed(instance, division, (plan,), lower, effort // 2)
    cuts = [segment.entry for segment in division.segments if segment.entry is not None]
    return climb_repeats(instance, plan, cuts, effort // 2)  # equal windows are searched once: half buys more


def _lower_bounds(instance: Instance, division: Division, kinds: Sequence[Proven]) -> list[int]:
    """What is proven about each region, without its cuts."""
    return [
        kinds[kind].alone - segment.cut_time(instance)
        for segment, kind in zip(division.segments, division.kinds, strict=True)
        if segment.inner
    ]


class _Chain:
    """Solves the segments one after the other.

    Open streams are alike as long as nothing is fixed to MAIN, so each segment begins on stream 0 and ends where it likes; its
    streams are then renamed so that it continues the segment before it. Where something is fixed to MAIN the cuts stay there, but
    for the first one, which may be elsewhere.
    """

    def __init__(self, instance: Instance, division: Division, budget: float, max_tasks: int) -> None:
        self.instance, self.opening, self.max_tasks = instance, set(division.opening), max_tasks
        self.segments, self.kinds, self.parts = division.segments, division.kinds, division.parts
        self.rigid = self._rigid()
        #: Time of all segments of each kind.
        self.weight = [0] * len(self.parts)
        work = [sum(part.shortest(task) for task in range(len(part))) for part in self.parts]
        for kind in self.kinds:
            self.weight[kind] += work[kind]
        #: The budget, what is left of it, and the time of what it has still to go into.
        self.budget = self.left = budget
        self.ahead = sum(weight for weight, part in zip(self.weight, self.parts, strict=True) if len(part) > _PAIR)
        #: Solutions by kind, whether there is an entry, and the stream the exit is pinned to; and by form with and without pins.
        self.chosen: dict[tuple[int, bool, int | None], Solution] = {}
        self.known: dict[object, Solution] = {}

    def solutions(self) -> list[Solution]:
        """The solution of each segment, on streams that fit together."""
        here = 0
        found = []
        used: dict[int, None] = {}
        for number, segment in enumerate(self.segments):
            gate = self._gate(number + 1)
            solution = self._solution(number, here, gate)
            found.append(self._continued(number, solution, here, gate, tuple(used)))
            used |= dict.fromkeys(_by_first_use(found[-1].plan))
            if segment.exit is not None:
                stream = found[-1].plan.stream[segment.tasks.index(segment.exit)]
                here = stream if stream in self.instance.open else 0
        return found

    def _gate(self, number: int) -> int | None:
        """The stream that a segment must begin on, None if it may begin anywhere."""
        if not any(self.rigid[number : number + 1]):
            return None
        entry = self.segments[number].entry
        if entry is None or number == 0 or self.rigid[number - 1]:
            return 0
        plan = self._solution(number, 0, self._gate(number + 1)).plan
        return plan.stream[self.segments[number].tasks.index(entry)]

    def _continued(self, number: int, solution: Solution, here: int, gate: int | None, used: Sequence[int]) -> Solution:
        """The solution with its first stream named `here` and its last one `gate`, and those used first in front of others."""
        names = {0: 0, here: here} if self.rigid[number] else {0: here}
        if gate is not None and not self.rigid[number]:
            names[_last_stream(here, gate)] = gate
        open_streams = self.instance.open
        others = [one for one in _by_first_use(solution.plan) if one in open_streams and one not in names]
        free = [one for one in dict.fromkeys((*used, *open_streams)) if one in open_streams and one not in names.values()]
        names |= dict(zip(others, free, strict=False))
        stream = tuple(names.get(one, one) for one in solution.plan.stream)
        return replace(solution, plan=replace(solution.plan, stream=stream))

    def _rigid(self) -> list[bool]:
        """Where something is fixed to MAIN; two cuts of one cluster bring the next such place forward."""
        unit, rigid = self.instance.unit, [False]
        for segment in reversed(self.segments):
            fixed = any(self.instance.allowed[unit[task]] == (0,) for task in segment.tasks)
            joined = segment.entry is not None and segment.exit is not None and unit[segment.entry] == unit[segment.exit]
            rigid.append(fixed or (joined and rigid[-1]))
        return rigid[:0:-1]

    def _solution(self, number: int, here: int, gate: int | None) -> Solution:
        """Equal segments are solved once; each has a share of the budget, or of what is left of it, by the time it stands for.

        Streams that are alike may be named later: a segment begins on stream 0, and ends there if that is both `here` and `gate`.
        The first of those where they are not alike may begin where it is fastest.
        """
        segment, kind = self.segments[number], self.kinds[number]
        pinned = None
        if segment.exit is not None and gate is not None:
            pinned = gate if self.rigid[number] else _last_stream(here, gate)
        key = kind, segment.entry is None, pinned
        if key not in self.chosen:
            self.chosen[key] = self._solved(segment, kind, pinned)
        solution = self.chosen[key]
        if solution.unpinned is None or not self.rigid[number] or (number and self.rigid[number - 1]):
            return solution
        if pinned is not None and solution.unpinned.stream[-1] != pinned:
            return solution
        return replace(solution, plan=solution.unpinned)

    def _solved(self, segment: Segment, kind: int, pinned: int | None) -> Solution:
        """The solution of a segment that begins on stream 0 and ends on `pinned`, or anywhere."""
        pins = {} if segment.entry is None else {segment.entry: 0}
        if segment.exit is not None and pinned is not None:
            pins[segment.exit] = pinned
        part = segment.part(self.instance, pins)
        form = part.form(), kind
        if form not in self.known:
            weight = self.weight[kind] if len(part) > _PAIR else 0
            budget = self.budget * max(self.weight[kind] / max(sum(self.weight), 1), 1 / (4 * len(self.weight)))
            if len(part) <= self.max_tasks:  # what others leave is of most use where the solver sees the whole
                budget = max(budget, min(self.left * weight / max(self.ahead, weight, 1), _LENT * budget))
            # Where the cuts are bound to go is a restriction: what is proven is proven without it.
            self.known[form] = self._opened(segment, part, self.parts[kind], budget)
            self.left = max(self.left - budget * self.known[form].spent, 0.0)
            self.ahead -= weight
        return self.known[form]

    def _opened(self, segment: Segment, part: Instance, free: Instance, budget: float) -> Solution:
        """The solution of a segment; of that with the opening also one that does without it first, and fits it in."""
        if self.opening.isdisjoint(segment.tasks):
            return solve(part, budget, self.max_tasks, free)
        budget = max(budget, self.budget * _OPENING)
        within = divide_around(part, [number for number, task in enumerate(segment.tasks) if task in self.opening])
        plans = assembled(part, within, _Chain(part, within, budget, self.max_tasks).solutions())
        lower = bound(free)
        plan = _fitted(part, within, plans, (), lower, budget)
        if plan.makespan <= lower:
            return Solution(plan=plan, proven=lower)
        solution = solve(part, budget, self.max_tasks, free)
        return replace(solution, plan=min(solution.plan, plan, key=lambda one: one.rank))


def _last_stream(here: int, gate: int) -> int:
    """The stream that a segment ends on which is to lead from `here` to `gate`, when it begins on stream 0."""
    return 0 if here == gate else here or gate


def _by_first_use(plan: Plan) -> list[int]:
    """The streams of a plan, the one that is used first in front: it goes first where several are ready at the same time."""
    return list(dict.fromkeys(plan.stream[task] for task in plan.order()))
