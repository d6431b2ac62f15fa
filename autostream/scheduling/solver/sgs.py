"""Schedule generation for a project: each task in turn as early as its predecessors and the resources allow."""

from __future__ import annotations

from collections.abc import Sequence

from autostream.scheduling.machine.profile import Profile
from autostream.scheduling.machine.times import Times
from autostream.scheduling.solver.project import Project


def early(project: Project, order: Sequence[int], links: Sequence[Sequence[tuple[int, int]]]) -> Times:
    """Place the tasks in the given order, each where it ends first; `links` gives (predecessor, lag) of each task."""
    profile = Profile(project.packing)
    earliest, hold = profile.earliest, profile.hold
    work = project.work
    count = len(work)
    mode, start, end = [0] * count, [0] * count, [0] * count
    for task in order:
        ready = 0
        for before, lag in links[task]:
            ready = max(ready, end[before] + lag)
        options = work[task]
        if len(options) == 1:
            duration, demand = options[0]
            begin = earliest(ready, duration, demand)
        else:
            found = [(earliest(ready, duration, demand) + duration, number) for number, (duration, demand) in enumerate(options)]
            finish, mode[task] = min(found)
            duration, demand = options[mode[task]]
            begin = finish - duration
        start[task], end[task] = begin, begin + duration
        hold(begin, begin + duration, demand)
    return Times(mode=tuple(mode), start=tuple(start), end=tuple(end))
