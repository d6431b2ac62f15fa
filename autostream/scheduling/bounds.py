"""What no schedule can beat, computed without a solver: CP-SAT's own bound is often half of the trivial one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from autostream.scheduling.division import Segment, divide
from autostream.scheduling.instance import Instance
from autostream.scheduling.paths import heads, tails
from autostream.scheduling.problem import Problem

_KINDS = ("cube cores", "vector cores", "hbm", "comm")
#: The one that tasks share: those that ask for more than there is run slower, they do not exclude each other.
_HBM = 2


class Bound(NamedTuple):
    """A time, ns, and what it rests on.

    That is ``"critical path"``, ``"cube cores"``, ``"vector cores"``, ``"hbm"``, ``"comm"`` or ``"streams"``.
    """

    time: int
    by: str


def lower_bound(problem: Problem) -> int:
    """Return what no schedule of the problem can beat, ns; see `explained_bound`."""
    return explained_bound(problem).time


def explained_bound(problem: Problem) -> Bound:
    """Return the largest of these: the critical path, the work of each resource, and the work of each (set of) streams.

    Work that must share something cannot begin before the earliest head of its tasks, and the shortest tail is still to come
    when it ends. A sync is charged only where no choice of streams avoids it. Tasks that all others wait for, or that wait for
    all others, divide the program; the bounds of the parts add up. What was set aside for the division only adds work.
    """
    instance = Instance.of(problem)
    return whole_bound(instance, divide(instance).segments)


def whole_bound(instance: Instance, segments: tuple[Segment, ...]) -> Bound:
    """The bound of an instance that is divided into the given segments."""
    known: dict[object, Bound] = {}
    shares: dict[str, int] = {}
    for segment in segments:
        part = segment.part(instance)
        key = part.form()
        if key not in known:
            known[key] = best_bound(part)
        found = known[key]
        shares[found.by] = shares.get(found.by, 0) + found.time - segment.overlap(instance)
    undivided = best_bound(instance)
    total = sum(shares.values())
    return Bound(total, max(shares, key=lambda by: shares[by])) if total > undivided.time else undivided


def bound(instance: Instance) -> int:
    """The bound of an undivided instance."""
    return best_bound(instance).time


def best_bound(instance: Instance) -> Bound:
    """The bound of an undivided instance and what it rests on."""
    tasks = range(len(instance))
    head, tail = heads(instance), tails(instance)
    best = Bound(max((head[task] + instance.shortest(task) + tail[task] for task in tasks), default=0), "critical path")
    for by, work, capacity in _loads(instance):
        busy = [task for task in tasks if work[task]]
        if busy:
            time = -(-sum(work) // capacity)
            found = min(head[task] for task in busy) + time + min(tail[task] for task in busy)
            best = max(best, Bound(found, by), key=lambda one: one.time)
    return best


def _loads(instance: Instance) -> Iterator[tuple[str, list[int], int]]:
    """For each thing that is shared: its name, the work each task brings (time x share held), and the capacity."""
    for kind, capacity in enumerate(instance.capacity):
        if capacity:
            held = [[(mode.duration, mode.demand[kind]) for mode in modes] for modes in instance.modes]
            yield _KINDS[kind], [min(duration * demand for duration, demand in modes) for modes in held], capacity
            if kind != _HBM:
                # Tasks that hold more than half exclude each other whatever they leave over; two exact halves fit.
                halves = [min(duration * _halves(demand, capacity) for duration, demand in modes) for modes in held]
                yield _KINDS[kind], halves, 2
    for streams in dict.fromkeys(instance.allowed):
        bound_to = [set(instance.allowed[unit]) <= set(streams) for unit in instance.unit]
        work = [instance.shortest(task) if inside else 0 for task, inside in enumerate(bound_to)]
        yield "streams", work, len(streams)


def _halves(demand: int, capacity: int) -> int:
    return 2 if 2 * demand > capacity else 1 if 2 * demand == capacity else 0
