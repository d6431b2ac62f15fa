"""A resource-constrained project: tasks with modes, precedences with lags, renewable resources.

It is what remains of a problem once streams are counted instead of named: K streams are a resource of capacity K, of which a
task holds one. Solvers work on this form, so they solve any such project, with any number of resources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.resources import Demand, NumberedMode, Packing


class Link(NamedTuple):
    """A precedence. `lag` always counts; `sync` counts as well unless the second task *continues* the first.

    A task continues at most one predecessor, on whatever stream that one ran, and is continued by at most one successor.
    """

    before: int
    after: int
    lag: int = 0
    sync: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """Tasks by number, in a topological order. Built by `project` and `Project.of`."""

    modes: tuple[tuple[NumberedMode, ...], ...]
    links: tuple[Link, ...]
    capacity: Demand
    #: The links to the predecessors and to the successors of each task.
    before: tuple[tuple[Link, ...], ...]
    after: tuple[tuple[Link, ...], ...]
    #: The modes as (duration, packed demand), and how demands are packed.
    work: tuple[tuple[tuple[int, int], ...], ...]
    packing: Packing
    #: Duration of the fastest mode of each task.
    shortest: tuple[int, ...]

    @classmethod
    def of(cls, instance: Instance) -> Project:
        """The project of an instance: the machine, its streams by number, and one task at a time within a cluster."""
        lanes, sizes = _lanes(instance)
        modes = [
            [NumberedMode(mode.duration, (*mode.demand, *(int(task in lane) for lane in lanes))) for mode in row]
            for task, row in enumerate(instance.modes)
        ]
        links = [
            Link(
                before,
                after,
                instance.sure_lag(before, after),
                instance.sync if instance.may_cross(before, after) else 0,
            )
            for before, after in instance.edges()
        ]
        return project(modes, links, (*instance.capacity, *sizes))

    def __len__(self) -> int:
        return len(self.modes)

    def heads(self) -> list[int]:
        """Earliest start of each task when every resource is unlimited."""
        head = [0] * len(self)
        for task, links in enumerate(self.before):
            for link in links:
                head[task] = max(head[task], head[link.before] + self.shortest[link.before] + link.lag)
        return head

    def tails(self) -> list[int]:
        """Shortest time from the end of each task to the end of the project when every resource is unlimited."""
        tail = [0] * len(self)
        for task in reversed(range(len(self))):
            for link in self.after[task]:
                tail[task] = max(tail[task], link.lag + self.shortest[link.after] + tail[link.after])
        return tail


def project(modes: Sequence[Sequence[NumberedMode]], links: Sequence[Link], capacity: Demand) -> Project:
    """A project from its tasks, its precedences (each from a smaller to a larger number) and its resources."""
    before: list[list[Link]] = [[] for _ in modes]
    after: list[list[Link]] = [[] for _ in modes]
    for link in links:
        before[link.after].append(link)
        after[link.before].append(link)
    packing = Packing(capacity)
    return Project(
        modes=tuple(map(tuple, modes)),
        links=tuple(links),
        capacity=capacity,
        before=tuple(map(tuple, before)),
        after=tuple(map(tuple, after)),
        work=tuple(tuple((mode.duration, packing.pack(mode.demand)) for mode in row) for row in modes),
        packing=packing,
        shortest=tuple(min(mode.duration for mode in row) for row in modes),
    )


def _lanes(instance: Instance) -> tuple[list[frozenset[int]], list[int]]:
    """The tasks that share each set of streams and each cluster, and how many of them run at a time."""
    lanes: dict[frozenset[int], int] = {}
    for streams in dict.fromkeys(instance.allowed):
        inside = (task for task, unit in enumerate(instance.unit) if set(instance.allowed[unit]) <= set(streams))
        lanes[frozenset(inside)] = len(streams)
    for unit, members in enumerate(instance.members):
        if len(members) > 1 and len(instance.allowed[unit]) > 1:
            lanes[frozenset(members)] = 1
    return list(lanes), list(lanes.values())
