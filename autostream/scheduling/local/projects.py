"""Solve a project without syncs: genetic search, windows, then the solver on the whole."""

from __future__ import annotations

from dataclasses import dataclass

from autostream.scheduling.local.evolve import evolve, tightened
from autostream.scheduling.machine.times import Times
from autostream.scheduling.solver.project import Project
from autostream.scheduling.solver.timing import refine
from autostream.scheduling.solver.windows import solve_window, sweeps

#: What one unit of the budget buys, so that it comes to about a second: effort of the genetic search, and deterministic time in
#: windows and on the whole.
_EVOLUTION = 400_000
_WINDOWS = 0.05
_WHOLE = 0.05
#: Above so many tasks windows gain more than the solver on the whole, which then has half the time, or none.
_LARGE, _LARGEST = 80, 150


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """The best times found, and a proven lower bound."""

    times: Times
    bound: int


def solve_project(project: Project, budget: float) -> Solved:
    """Solve within a deterministic `budget` (about seconds)."""
    lower = project_bound(project)
    times = evolve(project, lower, round(budget * _EVOLUTION))
    times = _in_windows(project, times, lower, budget * _WINDOWS)
    if times.makespan > lower and len(project) <= _LARGEST:
        found = refine(project, times, {}, lower, budget * (_WHOLE if len(project) > _LARGE else 2 * _WHOLE))
        times, lower = found.times, found.bound
    return Solved(times=times, bound=lower)


def project_bound(project: Project) -> int:
    """The critical path, or the work of a resource, whatever is longer."""
    head, tail = project.heads(), project.tails()
    tasks = range(len(project))
    best = max((head[task] + project.shortest[task] + tail[task] for task in tasks), default=0)
    for kind, capacity in enumerate(project.capacity):
        work = [min(mode.duration * mode.demand[kind] for mode in modes) for modes in project.modes]
        busy = [task for task in tasks if work[task]]
        if busy:
            through = min(head[task] for task in busy) + -(-sum(work) // capacity) + min(tail[task] for task in busy)
            best = max(best, through)
    return best


def _in_windows(project: Project, times: Times, lower: int, budget: float) -> Times:
    """Rearrange one window after another; what that gains lets the rest move up."""
    left = budget
    for first, size in sweeps(len(project), len(project)):
        if left <= 0 or times.makespan <= lower:
            break
        order = sorted(range(len(project)), key=lambda task: (times.start[task], task))
        found, spent = solve_window(project, times, {}, order[first : first + size], lower)
        left -= spent
        if found.makespan < times.makespan:
            times = tightened(project, found)
    return times
