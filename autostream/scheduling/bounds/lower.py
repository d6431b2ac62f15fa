"""What no schedule can beat, computed without a solver: CP-SAT's own bound is often half of the trivial one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from autostream.scheduling.bounds.rest import Rest
from autostream.scheduling.machine.division import Division, divide
from autostream.scheduling.machine.granting import PS
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.paths import heads, longest_path, tails
from autostream.scheduling.problem import Problem

_KINDS = ("cube cores", "vector cores", "hbm", "comm")
#: The one that tasks share: those that ask for more than there is run slower, they do not exclude each other.
_HBM = 2


class Bound(NamedTuple):
    """A time, ns, and what it rests on.

    That is ``"critical path"``, ``"cube cores"``, ``"vector cores"``, ``"hbm"``, ``"comm"`` or ``"streams"``; where several of
    them and interference come together, ``"everything together"``; and ``"search"`` where better plans were ruled out.
    """

    time: int
    by: str


def lower_bound(problem: Problem) -> int:
    """Return what no schedule of the problem can beat, ns; see `explained_bound`."""
    return explained_bound(problem).time


def explained_bound(problem: Problem) -> Bound:
    """Return the largest of these: the critical path, the work of each resource, and the work of each (set of) streams.

    For a small program all of them are weighed together as well (see `bounds.prices`).
    Work that must share something cannot begin before the earliest head of its tasks, and the shortest tail is still to come
    when it ends. A sync is charged only where no choice of streams avoids it. What has to run beside a row of kernels slows it
    down. Tasks that all others wait for, or that wait for all others, divide the program; the bounds of the parts add up. What
    was set aside for the division slows down what it runs beside.
    """
    instance = Instance.of(problem)
    return whole_bound(instance, divide(instance))


def whole_bound(instance: Instance, division: Division, kinds: Sequence[Bound] | None = None) -> Bound:
    """The bound of an instance divided like this; `kinds` are bounds of each kind of segment, whatever runs beside it."""
    bounds = [best_bound(part) for part in division.parts] if kinds is None else kinds
    shares: dict[str, int] = {}
    for segment, kind in zip(division.segments, division.kinds, strict=True):
        found = bounds[kind]
        shares[found.by] = shares.get(found.by, 0) + found.time - segment.overlap(instance)
    undivided = best_bound(instance)
    total = sum(shares.values()) + _Lift(instance).aside(division.aside)
    return Bound(total, max(shares, key=lambda by: shares[by])) if total > undivided.time else undivided


def bound(instance: Instance, rest: Rest | None = None) -> int:
    """The bound of an undivided instance, as the times of plans rounded, so that it does not add up; `rest` is its own."""
    rest = rest or Rest.of(instance)
    return max(best_bound(instance, weighed=False).time, rest.makespan() if rest else 0)


def bound_at_rest(instance: Instance) -> int:
    """The same bound where nothing interferes, which is what solvers assume."""
    return best_bound(instance, interference=False).time


def best_bound(instance: Instance, *, interference: bool = True, weighed: bool = True) -> Bound:
    """The bound of an undivided instance and what it rests on.

    Without `interference`, kernels do not slow each other down; only if `weighed` are path, cores and interference weighed
    together, where that is affordable.
    """
    tasks = range(len(instance))
    head, tail = heads(instance), tails(instance)
    path = longest_path(instance)
    length = max(map(sum, zip(head, instance.durations, tail, strict=True)), default=0)
    lift = _Lift(instance) if interference else None
    best = Bound(length + (lift.beside(path, length) if lift else 0), "critical path")
    for by, work, capacity in _loads(instance):
        busy = [task for task in tasks if work[task]]
        if busy:
            outside = min(head[task] for task in busy) + min(tail[task] for task in busy)
            # Exclusive resources are held for whole nanoseconds; what shares the memory may end within one, which is rounded.
            time = (sum(work) // capacity if by == _KINDS[_HBM] else -(-sum(work) // capacity)) + outside
            if lift and by in _KINDS[:_HBM]:
                alone = [task for task in busy if lift.excludes(task, _KINDS.index(by))]
                time = max(time, lift.time(alone) + outside + lift.beside(alone, lift.time(alone) + outside))
            best = max(best, Bound(time, by), key=lambda one: one.time)
    rest = Rest.of(instance) if interference and weighed else None
    together = 0 if rest is None else rest.whole() // PS
    return Bound(together, "everything together") if together > best.time else best


class _Lift:
    """What interference adds to a bound on kernels that run one after another.

    With at most k kernels at once, each at 1/s of its pace, R ns of other kernels run beside the row for s x R / (k - 1), or take
    more time of their own: the row loses (s - 1) x R / (k - 1), or as much as if others ran beside all of it. Where the row
    pauses the others may use all k.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._kernel = [all(claim.kernel for claim in row) for row in instance.claims]
        self._all = sum(duration for duration, kernel in zip(instance.durations, self._kernel, strict=True) if kernel)
        self._slower = instance.rules.cube_vector_slowdown - 1000
        self._beside = self._most_at_once() - 1

    def _most_at_once(self) -> int:
        """Kernels on cube cores, and those on vector cores alone, that fit beside each other; no more than there are streams."""
        aic, aiv = self._instance.capacity[:2]
        modes = [mode for row in self._instance.modes for mode in row]
        cubes = [mode.demand[0] for mode in modes if mode.demand[0]]
        vectors = [mode.demand[1] for mode in modes if mode.demand[1] and not mode.demand[0]]
        most = (aic // min(cubes) if cubes else 0) + (aiv // min(vectors) if vectors else 0)
        return min(most, len({stream for streams in self._instance.allowed for stream in streams}))

    def excludes(self, task: int, kind: int) -> bool:
        """True if a task holds more than half of a resource in every mode."""
        return all(2 * mode.demand[kind] > self._instance.capacity[kind] for mode in self._instance.modes[task])

    def time(self, row: Sequence[int]) -> int:
        """Time of some tasks one after another, ns."""
        return sum(map(self._instance.durations.__getitem__, row))

    def beside(self, row: Sequence[int], time: int) -> int:
        """What other kernels add to a row of tasks, one at a time, that takes `time` with its pauses, ns."""
        own = self.time([task for task in row if self._kernel[task]])
        most = self._beside + 1
        # Where waiting longer would take more from the others than it costs, nothing is claimed.
        if self._beside < 1 or self._slower <= 0 or self._slower * most > 1000 * self._beside:
            return 0
        others = max(self._all - own - most * (time - own), 0)
        return self._slower * min(others // self._beside, own) // 1000

    def aside(self, tasks: Sequence[int]) -> int:
        """What some tasks add to a bound on the others that holds with any delays and without syncs, ns.

        Take the tasks out of a run. Where nothing ran beside them, their time is saved; where one kernel did, it runs at its own
        pace now, and what is saved is (s - 1) of what was done of them. That holds for all their work but what may run, two at
        once, beside something that is no kernel, and keeps its pace.
        """
        instance, inside = self._instance, set(tasks)
        if not tasks or self._beside > 1 or not 0 < 2 * self._slower <= 1000:
            return 0
        if any(instance.sure_lag(*edge) for edge in instance.edges()):
            return 0
        keeping = [row for task, row in enumerate(instance.modes) if task not in inside and not self._kernel[task]]
        if any(mode.duration and mode.demand[_HBM] for row in keeping for mode in row):
            return 0
        kept = sum(-(-max(mode.duration for mode in row) * instance.rules.compute_comm_slowdown // 1000) for row in keeping)
        work = self.time([task for task in tasks if self._kernel[task]])
        return self._slower * max(work - 2 * kept, 0) // 1000


def _loads(instance: Instance) -> Iterator[tuple[str, list[int], int]]:
    """For each thing that is shared: its name, the work each task brings (time x share held), and the capacity."""
    rows = [[(mode.duration, mode.demand) for mode in row] for row in instance.modes]
    for kind, capacity in enumerate(instance.capacity):
        if capacity:
            yield _KINDS[kind], [min([duration * demand[kind] for duration, demand in row]) for row in rows], capacity
            if kind != _HBM:
                # Tasks that hold more than half exclude each other whatever they leave over; two exact halves fit.
                halves = [min([duration * _halves(demand[kind], capacity) for duration, demand in row]) for row in rows]
                yield _KINDS[kind], halves, 2
    for streams in dict.fromkeys(instance.allowed):
        inside = [set(row) <= set(streams) for row in instance.allowed]
        work = [time if inside[unit] else 0 for time, unit in zip(instance.durations, instance.unit, strict=True)]
        yield "streams", work, len(streams)


def _halves(demand: int, capacity: int) -> int:
    return 2 if 2 * demand > capacity else 1 if 2 * demand == capacity else 0
