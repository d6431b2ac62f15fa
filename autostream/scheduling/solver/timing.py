"""When each task of a project runs, as a CP-SAT model. The streams are alike, so they are counted and not chosen among."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from ortools.sat.python import cp_model

from autostream.scheduling.machine.times import Times
from autostream.scheduling.solver.project import Project

#: From this deterministic budget on, several searches are interleaved in a fixed pattern; less is spent on one of them, because
#: each round of the others takes at least so much, and up to 40 times as long as it reports.
_INTERLEAVED = 1.0
_WORKERS = 2
_SEED = 0
SOLVED = (cp_model.OPTIMAL, cp_model.FEASIBLE)
#: Subsolvers whose linear programs take up to 60 times the deterministic time they report.
_IGNORED = ("max_lp", "reduced_costs", "pseudo_costs")


def solver(budget: float) -> cp_model.CpSolver:
    """A solver that gives the same answer everywhere within a deterministic budget (CP-SAT's own unit)."""
    solver = cp_model.CpSolver()
    solver.parameters.max_deterministic_time = budget
    solver.parameters.random_seed = _SEED
    solver.parameters.num_workers = _WORKERS if budget >= _INTERLEAVED else 1
    solver.parameters.interleave_search = budget >= _INTERLEAVED
    solver.parameters.ignore_subsolvers.extend(_IGNORED)
    return solver


@dataclass(frozen=True, slots=True, kw_only=True)
class Refined:
    """What the solver makes of a hint: times at least as good, and the best lower bound it knows."""

    times: Times
    bound: int


def refine(project: Project, hint: Times, follower: dict[int, int], lower: int, budget: float) -> Refined:
    """Return the better of `hint` and what the solver finds within `budget`; `follower` gives the task that continues each."""
    timing = Timing(project, hint, follower, lower)
    engine = solver(budget)
    if engine.solve(timing.model) not in SOLVED:
        return Refined(times=hint, bound=lower)
    found = hint if engine.objective_value >= hint.makespan else timing.times(engine)
    return Refined(times=found, bound=max(lower, round(engine.best_objective_bound)) if timing.relaxed else lower)


class Timing:
    """The model. Each method states one kind of constraint."""

    def __init__(self, project: Project, hint: Times, follower: dict[int, int], lower: int) -> None:
        self.project = project
        self.hint = hint
        self.follower = follower
        self.model = cp_model.CpModel()
        tasks = range(len(project))
        head, tail = project.heads(), project.tails()
        latest = [hint.makespan - tail[task] - project.shortest[task] for task in tasks]
        self.start = [self.model.new_int_var(head[task], latest[task], f"start_{task}") for task in tasks]
        for task in tasks:
            self.model.add_hint(self.start[task], hint.start[task])
        #: One interval per mode; the literals of the tasks with a choice; the end as an expression.
        self.literals: list[list[cp_model.IntVar]] = []
        self.intervals: list[list[cp_model.IntervalVar]] = []
        self.end: list[cp_model.LinearExprT] = []
        self._modes()
        self._resources()
        self._cliques()
        self._precedences()
        self._objective(lower)

    @property
    def relaxed(self) -> bool:
        """True if every schedule fits the model, so that its optimum bounds them all.

        That is so when no task is shorter than a sync: what runs on a stream between a task and a later successor that does
        not continue it then takes at least the sync that the model charges. A task without duration delays nothing, but the
        solver does not let it run in the middle of one that excludes it.
        """
        least = max((link.sync for link in self.project.links), default=0)
        return all(
            mode.duration >= least and (mode.duration > 0 or not any(mode.demand))
            for modes in self.project.modes
            for mode in modes
        )

    def times(self, engine: cp_model.CpSolver) -> Times:
        """The times of a solution."""
        mode = [[engine.boolean_value(literal) for literal in row].index(True) if row else 0 for row in self.literals]
        start = [engine.value(variable) for variable in self.start]
        end = [begin + modes[number].duration for begin, modes, number in zip(start, self.project.modes, mode, strict=True)]
        return Times(mode=tuple(mode), start=tuple(start), end=tuple(end))

    def overlap(self, one: int, other: int) -> cp_model.IntVar:
        """A new variable that is at least how long two tasks run at the same time, neither of which has a choice of modes."""
        first, second = self.project.shortest[one], self.project.shortest[other]
        most, apart = min(first, second), self.start[other] - self.start[one]
        hinted = self.hint.start[other] - self.hint.start[one]
        time = self.model.new_int_var(0, most, f"overlap_{one}_{other}")
        # The overlap is the least of these lengths, or nothing: it is enough to hold any one of them.
        lengths = [first - apart, second + apart, most]
        hints = [first - hinted, second + hinted, most]
        literals = [self.model.new_bool_var(f"overlap_{one}_{other}_{number}") for number in range(len(lengths))]
        self.model.add_bool_or(literals)
        for number, (length, literal) in enumerate(zip(lengths, literals, strict=True)):
            self.model.add(time >= length).only_enforce_if(literal)
            self.model.add_hint(literal, number == hints.index(min(hints)))
        self.model.add_hint(time, max(min(hints), 0))
        return time

    def _modes(self) -> None:
        """Each task runs in exactly one of its modes."""
        for task, modes in enumerate(self.project.modes):
            start = self.start[task]
            if len(modes) == 1:
                self.literals.append([])
                self.intervals.append([self.model.new_fixed_size_interval_var(start, modes[0].duration, f"run_{task}")])
                self.end.append(start + modes[0].duration)
                continue
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

    def _resources(self) -> None:
        """Every resource suffices at every instant."""
        for kind, capacity in enumerate(self.project.capacity):
            held = [
                (interval, mode.demand[kind])
                for intervals, modes in zip(self.intervals, self.project.modes, strict=True)
                for interval, mode in zip(intervals, modes, strict=True)
                if mode.demand[kind]
            ]
            if sum(demand for _, demand in held) <= capacity:
                continue
            if 2 * min(demand for _, demand in held) > capacity:
                self.model.add_no_overlap([interval for interval, _ in held])
            else:
                self.model.add_cumulative([interval for interval, _ in held], [demand for _, demand in held], capacity)

    def _cliques(self) -> None:
        """Tasks of which no two fit beside each other run one after another: implied, but it lets the solver reason on order."""
        for clique in exclusive(self.project):
            self.model.add_no_overlap([interval for task in clique for interval in self.intervals[task]])

    def _precedences(self) -> None:
        """A task waits for its predecessors, and for a sync after each one that it does not continue."""
        continued: dict[int, list[cp_model.IntVar]] = {}
        continues: dict[int, list[cp_model.IntVar]] = {}
        for before, after, lag, sync in self.project.links:
            self.model.add(self.start[after] >= self.end[before] + lag)
            if not sync:
                continue
            literal = self.model.new_bool_var(f"continue_{before}_{after}")
            self.model.add(self.start[after] >= self.end[before] + sync).only_enforce_if(~literal)
            self.model.add_hint(literal, self.follower.get(before) == after)
            continued.setdefault(before, []).append(literal)
            continues.setdefault(after, []).append(literal)
        for row in (*continued.values(), *continues.values()):
            self.model.add_at_most_one(row)

    def _objective(self, lower: int) -> None:
        """The last task ends as early as possible."""
        self.makespan = self.model.new_int_var(lower, self.hint.makespan, "makespan")
        for task, links in enumerate(self.project.after):
            if not links:
                self.model.add(self.makespan >= self.end[task])
        self.model.add_hint(self.makespan, self.hint.makespan)
        self.model.minimize(self.makespan)


def exclusive(project: Project) -> list[list[int]]:
    """Cliques that cover every pair of tasks that do not fit beside each other in any of their modes."""
    tasks = range(len(project))
    least = [tuple(map(min, zip(*(mode.demand for mode in project.modes[task]), strict=True))) for task in tasks]

    def clash(first: int, second: int) -> bool:
        return any(one + two > limit for one, two, limit in zip(least[first], least[second], project.capacity, strict=True))

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
