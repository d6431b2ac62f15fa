"""What no schedule can beat, computed without a solver: CP-SAT's own bound is often half of the trivial one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autostream.scheduling.instance import Instance
from autostream.scheduling.problem import Problem


def lower_bound(problem: Problem) -> int:
    """Return the largest of these, ns: the critical path, the work of each resource, and the work of each (set of) streams.

    Work that must share something cannot begin before the earliest head of its tasks, and the shortest tail is still to come
    when it ends. A sync is charged only where no choice of streams avoids it.
    """
    return bound(Instance.of(problem))


def critical_path(problem: Problem) -> tuple[str, ...]:
    """Return the names of a longest chain of tasks; of equally long chains, the first in program order."""
    instance = Instance.of(problem)
    tail = tails(instance)
    lengths = [instance.shortest(task) + tail[task] for task in range(len(instance))]
    path: list[int] = []
    candidates: Sequence[int] = [task for task in range(len(instance)) if not instance.before[task]]
    while candidates:
        previous = path[-1] if path else None
        path.append(max(candidates, key=lambda task: (_arrival(instance, previous, task) + lengths[task], -task)))
        candidates = instance.after[path[-1]]
    return tuple(instance.names[task] for task in path)


def heads(instance: Instance) -> list[int]:
    """Earliest start of each task when the machine is unlimited."""
    head = [0] * len(instance)
    for after, befores in enumerate(instance.before):
        for before in befores:
            head[after] = max(head[after], head[before] + instance.shortest(before) + instance.sure_lag(before, after))
    return head


def tails(instance: Instance) -> list[int]:
    """Shortest time from the end of each task to the end of the program when the machine is unlimited."""
    tail = [0] * len(instance)
    for before in reversed(range(len(instance))):
        for after in instance.after[before]:
            tail[before] = max(tail[before], instance.sure_lag(before, after) + instance.shortest(after) + tail[after])
    return tail


def bound(instance: Instance) -> int:
    """`lower_bound` of a numbered problem."""
    tasks = range(len(instance))
    head, tail = heads(instance), tails(instance)
    best = max((head[task] + instance.shortest(task) + tail[task] for task in tasks), default=0)
    for work, capacity in _loads(instance):
        busy = [task for task in tasks if work[task]]
        if busy:
            time = -(-sum(work) // capacity)
            best = max(best, min(head[task] for task in busy) + time + min(tail[task] for task in busy))
    return best


def _loads(instance: Instance) -> Iterator[tuple[list[int], int]]:
    """For each thing that is shared: the work each task brings (time x share held), and the capacity."""
    for kind, capacity in enumerate(instance.capacity):
        if capacity:
            held = [[(mode.duration, mode.demand[kind]) for mode in modes] for modes in instance.modes]
            yield [min(duration * demand for duration, demand in modes) for modes in held], capacity
            # Tasks that hold more than half exclude each other whatever they leave over; two exact halves fit.
            yield [min(duration * _halves(demand, capacity) for duration, demand in modes) for modes in held], 2
    for streams in dict.fromkeys(instance.allowed):
        bound_to = [set(instance.allowed[unit]) <= set(streams) for unit in instance.unit]
        yield [instance.shortest(task) if inside else 0 for task, inside in enumerate(bound_to)], len(streams)


def _halves(demand: int, capacity: int) -> int:
    return 2 if 2 * demand > capacity else 1 if 2 * demand == capacity else 0


def _arrival(instance: Instance, previous: int | None, task: int) -> int:
    return 0 if previous is None else instance.sure_lag(previous, task)
