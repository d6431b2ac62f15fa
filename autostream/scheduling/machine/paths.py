"""The longest ways through an instance when the machine is unlimited."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.problem import Problem


def critical_path(problem: Problem) -> tuple[str, ...]:
    """Return the names of a longest chain of tasks; of equally long chains, the first in program order."""
    instance = Instance.of(problem)
    return tuple(instance.names[task] for task in longest_path(instance))


def longest_path(instance: Instance) -> list[int]:
    """The tasks of a longest chain; of equally long chains, the first in program order."""
    lengths = [duration + tail for duration, tail in zip(instance.durations, tails(instance), strict=True)]
    path: list[int] = []
    candidates: Sequence[int] = [task for task in range(len(instance)) if not instance.before[task]]
    while candidates:
        previous = path[-1] if path else None
        path.append(max(candidates, key=lambda task: (_arrival(instance, previous, task) + lengths[task], -task)))
        candidates = instance.after[path[-1]]
    return path


def heads(instance: Instance) -> tuple[int, ...]:
    """Earliest start of each task when the machine is unlimited."""
    return instance.fact("heads", _heads)


def tails(instance: Instance) -> tuple[int, ...]:
    """Shortest time from the end of each task to the end of the program when the machine is unlimited."""
    return instance.fact("tails", _tails)


def _heads(instance: Instance) -> list[int]:
    head, duration = [0] * len(instance), instance.durations
    for after, befores in enumerate(instance.before):
        for before in befores:
            ready = head[before] + duration[before] + instance.sure_lag(before, after)
            if ready > head[after]:
                head[after] = ready
    return head


def _tails(instance: Instance) -> list[int]:
    tail, duration = [0] * len(instance), instance.durations
    for before in reversed(range(len(instance))):
        for after in instance.after[before]:
            left = instance.sure_lag(before, after) + duration[after] + tail[after]
            if left > tail[before]:
                tail[before] = left
    return tail


def _arrival(instance: Instance, previous: int | None, task: int) -> int:
    return 0 if previous is None else instance.sure_lag(previous, task)


def topological(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]], key: Sequence[float]) -> list[int]:
    """Return the tasks by key as far as the precedences allow; of equal keys the smaller number comes first."""
    missing = [len(row) for row in before]
    ready = [(key[task], task) for task, count in enumerate(missing) if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, task = heapq.heappop(ready)
        order.append(task)
        for successor in after[task]:
            missing[successor] -= 1
            if missing[successor] == 0:
                heapq.heappush(ready, (key[successor], successor))
    return order
