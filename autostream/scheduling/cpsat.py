"""CP-SAT on top of greedy and iterated list scheduling, for problems small enough. The only module that imports ortools.

The streams are alike, so the solver does not choose among them: it sees one cumulative resource of as many units as there are
streams, and *continuations*. A task may continue one of its predecessors, on whatever stream that one ran, without a sync; each
task continues at most one and is continued by at most one. Streams are found afterwards by colouring the intervals, and the
exact times by replaying the order. The best of that and what was there before is the answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from ortools.sat.python import cp_model

from autostream.scheduling.bounds import bound, heads, tails
from autostream.scheduling.greedy import greedy
from autostream.scheduling.improve import improve
from autostream.scheduling.instance import Instance
from autostream.scheduling.problem import Problem, Schedule
from autostream.scheduling.replay import Plan, replay
from autostream.scheduling.search import search

#: What one unit of the budget buys, so that it comes to about a second on one core: tasks placed by the search before the
#: solver, and deterministic time of each worker for the timing and for the colouring (CP-SAT's own clock runs several times
#: slower than a real one on scheduling models).
_PLACED_TASKS = 40_000
_TIMING = 0.08
_COLOURING = 0.02
#: Interleaved in a fixed pattern: the answer does not depend on the number of cores or on their speed.
_WORKERS = 2
_SEED = 0
_SOLVED = (cp_model.OPTIMAL, cp_model.FEASIBLE)
#: Subsolvers whose linear programs take up to 60 times the deterministic time they report.
_IGNORED = ("max_lp", "reduced_costs", "pseudo_costs")


@dataclass(frozen=True, slots=True, kw_only=True)
class CpSat:
    """Constraint programming within a deterministic `budget` (about seconds); above `max_tasks` the greedy schedule stays."""

    budget: float
    max_tasks: int

    def solve(self, problem: Problem) -> Schedule:
        """Return the best schedule found; `strategy` is ``"greedy"`` if the problem is too large for the solver."""
        began = time.perf_counter()
        instance = Instance.of(problem)
        lower, plan = bound(instance), greedy(instance)
        small = len(instance) <= self.max_tasks
        proven = lower
        if small and plan.makespan > lower:
            plan = improve(instance, search(instance, plan, lower, round(self.budget * _PLACED_TASKS)))
        if small and plan.makespan > lower:
            plan, proven = _refine(instance, plan, lower, self.budget)
        if small and plan.crossings:
            plan = _coloured(instance, plan, plan, self.budget)
        seconds = time.perf_counter() - began
        optimal = plan.makespan <= proven
        return plan.renamed(instance).schedule(
            instance, strategy="cpsat" if small else "greedy", bound=lower, optimal=optimal, seconds=seconds
        )


def _refine(instance: Instance, plan: Plan, lower: int, budget: float) -> tuple[Plan, int]:
    """The better of `plan` and what the solver makes of it, and the best lower bound known."""
    timing = _Timing(instance, plan, lower)
    solver = _solver(budget * _TIMING)
    if solver.solve(timing.model) not in _SOLVED:
        return plan, lower
    proven = round(solver.best_objective_bound) if timing.relaxed else lower
    if solver.objective_value == plan.makespan:
        return plan, proven
    mode = timing.chosen(solver)
    start = tuple(solver.value(variable) for variable in timing.start)
    end = tuple(begin + instance.modes[task][mode[task]].duration for task, begin in enumerate(start))
    timed = Plan(stream=plan.stream, mode=tuple(mode), start=start, end=end, crossings=plan.crossings)
    return _coloured(instance, plan, timed, budget), proven


def _coloured(instance: Instance, plan: Plan, timed: Plan, budget: float) -> Plan:
    """The better of `plan` and what the times of `timed` give on the streams that suit them best."""
    colouring = _Colouring(instance, timed)
    solver = _solver(budget * _COLOURING)
    if solver.solve(colouring.model) not in _SOLVED:
        return plan
    found = replay(instance, colouring.streams(solver), timed.order(), timed.mode)
    return min(plan, improve(instance, found), key=lambda candidate: candidate.rank)


def _solver(budget: float) -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    solver.parameters.max_deterministic_time = budget
    solver.parameters.random_seed = _SEED
    solver.parameters.num_workers = _WORKERS
    solver.parameters.interleave_search = True
    solver.parameters.ignore_subsolvers.extend(_IGNORED)
    return solver


class _Timing:
    """When each task runs, all open streams being alike. Each method states one kind of constraint."""

    def __init__(self, instance: Instance, hint: Plan, lower: int) -> None:
        self.instance = instance
        self.hint = hint
        self.model = cp_model.CpModel()
        tasks = range(len(instance))
        head, tail = heads(instance), tails(instance)
        latest = [hint.makespan - tail[task] - instance.shortest(task) for task in tasks]
        self.start = [self.model.new_int_var(head[task], latest[task], f"start_{task}") for task in tasks]
        for task in tasks:
            self.model.add_hint(self.start[task], hint.start[task])
        #: One literal and one interval per mode, and the end as an expression.
        self.literals: list[list[cp_model.IntVar]] = []
        self.intervals: list[list[cp_model.IntervalVar]] = []
        self.end: list[cp_model.LinearExprT] = []
        self._modes()
        self._streams()
        self._machine()
        self._cliques()
        self._precedences()
        self._objective(lower)

    @property
    def relaxed(self) -> bool:
        """True if every schedule fits the model, so that its optimum bounds them all.

        That is so when no task is shorter than a sync: what runs on a stream between a task and a later successor that does
        not continue it then takes at least the sync that the model charges. A task without duration holds nothing, but the
        solver does not let it run in the middle of one that excludes it.
        """
        least = max(self.instance.sync, 1)
        return all(self.instance.shortest(task) >= least for task in range(len(self.instance)))

    def chosen(self, solver: cp_model.CpSolver) -> list[int]:
        """The mode of each task in a solution."""
        return [[solver.boolean_value(literal) for literal in row].index(True) for row in self.literals]

    def _modes(self) -> None:
        """Each task runs in exactly one of its modes."""
        for task, modes in enumerate(self.instance.modes):
            start = self.start[task]
            row = [self.model.new_bool_var(f"mode_{task}_{number}") for number in range(len(modes))]
            self.model.add_exactly_one(row)
            for number, literal in enumerate(row):
                self.model.add_hint(literal, number == self.hint.mode[task])
            self.literals.append(row)
            self.intervals.append(
                [
                    self.model.new_optional_fixed_size_interval_var(start, mode.duration, literal, f"run_{task}_{number}")
                    for number, (mode, literal) in enumerate(zip(modes, row, strict=True))
                ]
            )
            self.end.append(start + sum(mode.duration * literal for mode, literal in zip(modes, row, strict=True)))

    def _streams(self) -> None:
        """As many tasks at a time as there are open streams; one at a time on a fixed stream and within a unit."""
        choices = dict.fromkeys(self.instance.allowed)
        for streams in choices:
            inside = [task for task, unit in enumerate(self.instance.unit) if set(self.instance.allowed[unit]) <= set(streams)]
            intervals = [interval for task in inside for interval in self.intervals[task]]
            if len(streams) == 1:
                self.model.add_no_overlap(intervals)
            else:
                self.model.add_cumulative(intervals, [1] * len(intervals), len(streams))
        for unit, members in enumerate(self.instance.members):
            if len(members) > 1 and len(self.instance.allowed[unit]) > 1:
                self.model.add_no_overlap([interval for task in members for interval in self.intervals[task]])

    def _machine(self) -> None:
        """Cores, bandwidth and communication suffice at every instant."""
        for kind, capacity in enumerate(self.instance.capacity):
            held = [
                (interval, mode.demand[kind])
                for intervals, modes in zip(self.intervals, self.instance.modes, strict=True)
                for interval, mode in zip(intervals, modes, strict=True)
                if mode.demand[kind]
            ]
            if held:
                self.model.add_cumulative([interval for interval, _ in held], [demand for _, demand in held], capacity)

    def _cliques(self) -> None:
        """Tasks of which no two fit beside each other run one after another: implied, but it lets the solver reason on order."""
        for clique in _exclusive(self.instance):
            self.model.add_no_overlap([interval for task in clique for interval in self.intervals[task]])

    def _precedences(self) -> None:
        """A task waits for its predecessors, and for a sync after each one that it does not continue."""
        follower = _followers(self.hint)
        continued: dict[int, list[cp_model.IntVar]] = {}
        continues: dict[int, list[cp_model.IntVar]] = {}
        for before, after in self.instance.edges():
            self.model.add(self.start[after] >= self.end[before] + self.instance.sure_lag(before, after))
            if not self.instance.may_cross(before, after):
                continue
            literal = self.model.new_bool_var(f"continue_{before}_{after}")
            self.model.add(self.start[after] >= self.end[before] + self.instance.sync).only_enforce_if(~literal)
            self.model.add_hint(literal, follower.get(before) == after)
            continued.setdefault(before, []).append(literal)
            continues.setdefault(after, []).append(literal)
        for row in (*continued.values(), *continues.values()):
            self.model.add_at_most_one(row)

    def _objective(self, lower: int) -> None:
        """The last task ends as early as possible."""
        makespan = self.model.new_int_var(lower, self.hint.makespan, "makespan")
        for task, afters in enumerate(self.instance.after):
            if not afters:
                self.model.add(makespan >= self.end[task])
        self.model.add_hint(makespan, self.hint.makespan)
        self.model.minimize(makespan)


def _exclusive(instance: Instance) -> list[list[int]]:
    """Cliques that cover every pair of tasks that do not fit beside each other in any of their modes."""
    tasks = range(len(instance))
    least = [tuple(map(min, zip(*(mode.demand for mode in instance.modes[task]), strict=True))) for task in tasks]

    def clash(first: int, second: int) -> bool:
        held = zip(least[first], least[second], instance.capacity, strict=True)
        return any(one + other > capacity for one, other, capacity in held)

    rivals = [{other for other in tasks if other != task and clash(task, other)} for task in tasks]
    covered: set[tuple[int, int]] = set()
    cliques: list[list[int]] = []
    for first in tasks:
        for second in sorted(rivals[first]):
            if second > first and (first, second) not in covered:
                clique, common = [first, second], rivals[first] & rivals[second]
                while common:
                    clique.append(min(common))
                    common &= rivals[clique[-1]]
                clique.sort()
                covered.update(combinations(clique, 2))
                cliques.append(clique)
    return cliques


def _followers(plan: Plan) -> dict[int, int]:
    """The next task on the same stream."""
    last: dict[int, int] = {}
    follower: dict[int, int] = {}
    for task in plan.order():
        stream = plan.stream[task]
        if stream in last:
            follower[last[stream]] = task
        last[stream] = task
    return follower


class _Colouring:
    """Streams for tasks whose times are given: least delay (overlaps, late syncs), then fewest crossings, then fewest streams."""

    def __init__(self, instance: Instance, timed: Plan) -> None:
        self.instance = instance
        self.timed = timed
        self.model = cp_model.CpModel()
        #: By unit: the literal of each stream it may be on.
        self.on = [
            {stream: self.model.new_bool_var(f"on_{unit}_{stream}") for stream in allowed}
            for unit, allowed in enumerate(instance.allowed)
        ]
        #: What a crossing weighs against the streams in use, and a ns of delay against all crossings.
        self.crossing = len(instance.streams) + 1
        self.delay = self.crossing * (len(instance.edges()) + 1)
        self._units()
        self.model.minimize(sum([*self._streams_used(), *self._crossings(), *self._clashes()]))

    def streams(self, solver: cp_model.CpSolver) -> list[int]:
        """The stream of each task in a solution."""
        chosen = [next(stream for stream, literal in row.items() if solver.boolean_value(literal)) for row in self.on]
        return [chosen[unit] for unit in self.instance.unit]

    def _units(self) -> None:
        """Each unit is on one stream."""
        for unit, row in enumerate(self.on):
            self.model.add_exactly_one(row.values())
            for stream, literal in row.items():
                self.model.add_hint(literal, stream == self.timed.stream[self.instance.members[unit][0]])

    def _streams_used(self) -> Iterator[cp_model.LinearExprT]:
        for number in range(len(self.instance.streams)):
            used = self.model.new_bool_var(f"used_{number}")
            for row in self.on:
                if number in row:
                    self.model.add_implication(row[number], used)
            yield used

    def _crossings(self) -> Iterator[cp_model.LinearExprT]:
        for before, after in self.instance.edges():
            if self.instance.may_cross(before, after):
                first, second = self.on[self.instance.unit[before]], self.on[self.instance.unit[after]]
                crosses = self.model.new_bool_var(f"cross_{before}_{after}")
                for stream, literal in first.items():
                    self.model.add_bool_or(~literal, crosses, *([second[stream]] if stream in second else []))
                late = max(self.timed.end[before] + self.instance.sync - self.timed.start[after], 0)
                yield (self.crossing + self.delay * late) * crosses

    def _clashes(self) -> Iterator[cp_model.LinearExprT]:
        for one, other in _overlaps(self.timed):
            if self.instance.may_cross(one, other):
                first, second = self.on[self.instance.unit[one]], self.on[self.instance.unit[other]]
                clash = self.model.new_bool_var(f"clash_{one}_{other}")
                for stream in [stream for stream in first if stream in second]:
                    self.model.add_bool_or(~first[stream], ~second[stream], clash)
                length = min(self.timed.end[one], self.timed.end[other]) - max(self.timed.start[one], self.timed.start[other])
                yield self.delay * length * clash


def _overlaps(timed: Plan) -> list[tuple[int, int]]:
    """Pairs of tasks that run at the same time."""
    pairs: list[tuple[int, int]] = []
    running: list[int] = []
    for task in timed.order():
        running = [other for other in running if timed.end[other] > timed.start[task]]
        pairs += [(other, task) for other in running]
        running.append(task)
    return pairs
