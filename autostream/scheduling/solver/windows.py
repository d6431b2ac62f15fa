"""Large-neighbourhood search: CP-SAT rearranges one window of a schedule after another, everything else keeping its place.

What starts before the window stays; what starts after it moves forward as one block, and the solver makes that as far as it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ortools.sat.python import cp_model

from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan, followers, replay, wished, with_times
from autostream.scheduling.machine.times import Times
from autostream.scheduling.solver.colouring import coloured
from autostream.scheduling.solver.project import Link, Project
from autostream.scheduling.solver.timing import SOLVED, solver

#: Tasks in a window: as many as the solver closes in a moment.
_WINDOWS = (24, 40)
#: Deterministic time for one window, and for the colouring after it.
_ONE = 0.02
_COLOUR = 0.01
#: How far the block behind a window may move, as a share of the makespan, in hundredths.
_MOST = 10


def improve_in_windows(instance: Instance, plan: Plan, lower: int, budget: float, most: int) -> Plan:
    """Return a plan at least as good (by `Plan.rank`) within a deterministic `budget`; windows hold at most `most` tasks."""
    project = Project.of(instance)
    left = budget
    times = wished(instance, plan.stream, plan.order(), plan.mode)
    best = current = plan
    for first, size in sweeps(len(instance), most):
        if left <= 0 or times.makespan <= lower:
            break
        timed = with_times(current, times)
        free = timed.order()[first : first + size]
        found, spent = solve_window(project, times, followers(timed), free, lower)
        left -= spent
        if found.makespan < times.makespan:
            timed = with_times(current, found)
            units = {instance.unit[task] for task in free}
            movable = {unit for unit in units if set(instance.members[unit]) <= set(free)}
            same = replay(instance, current.stream, timed.order(), timed.mode)
            recoloured = coloured(instance, same, timed, _COLOUR, movable)
            current = min(same, recoloured, key=lambda one: one.rank)
            times = wished(instance, current.stream, timed.order(), current.mode)
            best = min(best, current, key=lambda one: one.rank)
            left -= _COLOUR
    return best


def sweeps(count: int, most: int) -> list[tuple[int, int]]:
    """The windows in turn, as (first place in order of start, tasks): half of each overlaps the next; then larger ones."""
    windows: list[tuple[int, int]] = []
    for size in (min(size, most) for size in _WINDOWS * 2):
        step = max(size // 2, 1)
        windows += [(first, size) for first in range(0, max(count - step, 1), step)]
    return windows


def solve_window(
    project: Project, times: Times, follower: Mapping[int, int], free: Sequence[int], lower: int
) -> tuple[Times, float]:
    """Rearrange the `free` tasks, which start one after another in `times`.

    Returns:
        The times, the same ones if the solver cannot improve them, and the deterministic time spent.
    """
    window = _Window(project, times, follower, free, lower)
    if window.most <= 0:
        return times, 0.0
    engine = solver(_ONE)
    status = engine.solve(window.model)
    spent = engine.response_proto.deterministic_time
    if status not in SOLVED or engine.value(window.moved) == 0:
        return times, spent
    return window.times(engine), spent


class _Window:
    """The model of one window. Each method states one kind of constraint."""

    def __init__(self, project: Project, times: Times, follower: Mapping[int, int], free: Sequence[int], lower: int) -> None:
        self.project, self.times_before, self.follower = project, times, follower
        self.free = {task: number for number, task in enumerate(free)}
        #: The window: free tasks run within it.
        self.begin, self.last = min(times.start[task] for task in free), max(times.end[task] for task in free)
        tasks = range(len(project))
        place = max((times.start[task], task) for task in free)
        self.behind = {task for task in tasks if task not in self.free and (times.start[task], task) > place}
        self.most = min(self._most(), times.makespan - lower, times.makespan * _MOST // 100)
        if self.most <= 0:
            return
        self.model = cp_model.CpModel()
        self.moved = self.model.new_int_var(0, self.most, "moved")
        self.model.add_hint(self.moved, 0)
        self.start: dict[int, cp_model.IntVar] = {}
        self.end: dict[int, cp_model.LinearExprT] = {}
        self.literals: dict[int, list[cp_model.IntVar]] = {}
        self.intervals: list[tuple[cp_model.IntervalVar, tuple[int, ...]]] = []
        for task in free:
            self._task(task)
        self._fixed()
        self._resources()
        self._precedences()
        for end in self.end.values():
            self.model.add(end <= self.last)
            self.model.add(end <= times.makespan - self.moved)
        self.model.maximize(self.moved)

    def times(self, engine: cp_model.CpSolver) -> Times:
        """The times of a solution."""
        moved = engine.value(self.moved)
        mode, start, end = list(self.times_before.mode), list(self.times_before.start), list(self.times_before.end)
        for task in self.behind:
            start[task] -= moved
            end[task] -= moved
        for task in self.free:
            row = self.literals[task]
            mode[task] = [engine.boolean_value(literal) for literal in row].index(True) if row else 0
            start[task] = engine.value(self.start[task])
            end[task] = start[task] + self.project.modes[task][mode[task]].duration
        return Times(mode=tuple(mode), start=tuple(start), end=tuple(end))

    def _most(self) -> int:
        """How far the block behind may move as far as what stays allows."""
        times = self.times_before
        most = times.makespan - max(
            (times.end[task] for task in range(len(self.project)) if task not in self.free and task not in self.behind), default=0
        )
        for link in self.project.links:
            if link.after in self.behind and link.before not in self.behind and link.before not in self.free:
                most = min(most, times.start[link.after] - times.end[link.before] - self._lag(link))
        return most

    def _lag(self, link: Link) -> int:
        """What a precedence costs as things are."""
        return link.lag + (0 if self.follower.get(link.before) == link.after else link.sync)

    def _task(self, task: int) -> None:
        """A free task runs in one of its modes, within the window."""
        times, modes = self.times_before, self.project.modes[task]
        latest = self.last - min(mode.duration for mode in modes)
        start = self.model.new_int_var(self.begin, latest, f"start_{task}")
        self.model.add_hint(start, times.start[task])
        self.start[task] = start
        row = [self.model.new_bool_var(f"mode_{task}_{number}") for number in range(len(modes))] if len(modes) > 1 else []
        self.literals[task] = row
        if not row:
            self.end[task] = start + modes[0].duration
            interval = self.model.new_fixed_size_interval_var(start, modes[0].duration, f"run_{task}")
            self.intervals.append((interval, modes[0].demand))
            return
        self.model.add_exactly_one(row)
        for number, (mode, literal) in enumerate(zip(modes, row, strict=True)):
            self.model.add_hint(literal, number == times.mode[task])
            interval = self.model.new_optional_fixed_size_interval_var(start, mode.duration, literal, f"run_{task}_{number}")
            self.intervals.append((interval, mode.demand))
        self.end[task] = sum([mode.duration * literal for mode, literal in zip(modes, row, strict=True)], start=start)

    def _fixed(self) -> None:
        """What stays, and what moves as a block, holds resources too, as far as it can meet the window."""
        times = self.times_before
        ahead = [task for task in range(len(self.project)) if task not in self.free and task not in self.behind]
        last = max([self.last, *(times.end[task] for task in ahead)])
        for task in ahead:
            if times.end[task] > self.begin:
                mode = self.project.modes[task][times.mode[task]]
                interval = self.model.new_fixed_size_interval_var(times.start[task], mode.duration, f"ahead_{task}")
                self.intervals.append((interval, mode.demand))
        for task in sorted(self.behind):
            if times.start[task] - self.most < last:
                mode = self.project.modes[task][times.mode[task]]
                interval = self.model.new_fixed_size_interval_var(
                    -self.moved + times.start[task], mode.duration, f"behind_{task}"
                )
                self.intervals.append((interval, mode.demand))

    def _resources(self) -> None:
        """Every resource suffices at every instant."""
        for kind, capacity in enumerate(self.project.capacity):
            held = [(interval, demand[kind]) for interval, demand in self.intervals if demand[kind]]
            if sum(demand for _, demand in held) > capacity:
                if 2 * min(demand for _, demand in held) > capacity:
                    self.model.add_no_overlap([interval for interval, _ in held])
                else:
                    self.model.add_cumulative([one for one, _ in held], [demand for _, demand in held], capacity)

    def _precedences(self) -> None:
        """Free tasks wait for each other as in `Timing`; against the rest, what continues what stays as it is."""
        continued: dict[int, list[cp_model.IntVar]] = {}
        continues: dict[int, list[cp_model.IntVar]] = {}
        for link in self.project.links:
            before, after = link.before, link.after
            if before in self.free and after in self.free:
                self.model.add(self.start[after] >= self.end[before] + link.lag)
                if not link.sync:
                    continue
                literal = self.model.new_bool_var(f"continue_{before}_{after}")
                self.model.add(self.start[after] >= self.end[before] + link.sync).only_enforce_if(~literal)
                self.model.add_hint(literal, self.follower.get(before) == after)
                continued.setdefault(before, []).append(literal)
                continues.setdefault(after, []).append(literal)
            elif after in self.free:
                self.model.add(self.start[after] >= self.times_before.end[before] + self._lag(link))
            elif before in self.free:
                self.model.add(self.times_before.start[after] - self.moved >= self.end[before] + self._lag(link))
        for row in (*continued.values(), *continues.values()):
            self.model.add_at_most_one(row)
