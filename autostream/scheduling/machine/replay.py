"""From a wish (which stream, in which order) to times: every task as early as the streams, the syncs and the machine allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autostream.errors import InputError
from autostream.scheduling.machine.granting import PS, Run
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.profile import Profile
from autostream.scheduling.machine.times import Times
from autostream.scheduling.problem import Placement, Problem, Region, Schedule
from autostream.scheduling.tolerance import status

#: Most runs until the order of the streams is that of their first tasks; nearly always the first one has it.
_ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A complete answer to an instance, by task number."""

    stream: tuple[int, ...]
    mode: tuple[int, ...]
    start: tuple[int, ...]
    end: tuple[int, ...]
    #: Precedences whose tasks are on different streams.
    crossings: int

    @property
    def makespan(self) -> int:
        """When the last task ends."""
        return max(self.end, default=0)

    @property
    def rank(self) -> tuple[int, int, int]:
        """What makes one plan better than another, smaller first: time, then crossings, then streams."""
        return self.makespan, self.crossings, len(set(self.stream))

    def order(self) -> list[int]:
        """Tasks by start; of equal ones what takes no time first, then by number, which is a topological order."""
        return sorted(range(len(self.start)), key=lambda task: (self.start[task], self.end[task], task))

    def renamed(self, instance: Instance) -> Plan:
        """The same plan with the streams that no task is fixed to named afresh, which changes nothing else.

        The one with the most work is MAIN, unless a task is fixed there; the side streams are numbered by first use.
        """
        fixed = {streams[0] for streams in instance.allowed if len(streams) == 1}
        work: dict[int, int] = {}
        for task in self.order():
            stream = self.stream[task]
            if stream not in fixed:
                work[stream] = work.get(stream, 0) + self.end[task] - self.start[task]
        free = sorted({s for streams in instance.allowed if len(streams) > 1 for s in streams} - fixed)
        used = list(work)
        if 0 in free and used:
            used.sort(key=lambda stream: stream != max(work, key=lambda one: work[one]))
        name = dict(zip(used, free, strict=False))
        return replace(self, stream=tuple(name.get(stream, stream) for stream in self.stream))

    def schedule(
        self,
        instance: Instance,
        *,
        strategy: str,
        bound: int,
        seconds: float,
        bound_by: str = "",
        regions: tuple[Region, ...] = (),
    ) -> Schedule:
        """The plan with its names put back."""
        placements = tuple(
            Placement(
                task=instance.names[task],
                stream=instance.streams[self.stream[task]],
                mode=self.mode[task],
                start=self.start[task],
                end=self.end[task],
            )
            for task in self.order()
        )
        return Schedule(
            placements=placements,
            strategy=strategy,
            status=status(self.makespan, bound),
            makespan=self.makespan,
            lower_bound=bound,
            bound_by=bound_by,
            regions=regions,
            seconds=seconds,
        )


def replay(instance: Instance, stream: Sequence[int], order: Sequence[int], mode: Sequence[int]) -> Plan:
    """Run the tasks as the machine would: every stream in the given order (a topological one); see `machine.granting`."""
    claims = [row[number] for row, number in zip(instance.claims, mode, strict=True)]
    lanes: dict[int, list[int]] = {}
    for task in order:
        lanes.setdefault(stream[task], []).append(task)
    queues = list(lanes.values())
    for _ in range(_ROUNDS):
        run = Run(instance.rules, claims, instance.before, queues, instance.sync * PS)
        run.to_the_end()
        start = [(time + PS // 2) // PS for time in run.start]
        # Of heads that are ready at once the stream that is used first goes first: that is settled by the outcome itself.
        by_start = sorted(queues, key=lambda queue: (start[queue[0]], queue[0]))
        if by_start == queues:
            break
        queues = by_start
    crossings = sum([stream[before] != stream[after] for after, befores in enumerate(instance.before) for before in befores])
    return Plan(
        stream=tuple(stream),
        mode=tuple(mode),
        start=tuple(start),
        end=tuple([(time + PS // 2) // PS for time in run.end]),
        crossings=crossings,
    )


def wished(instance: Instance, stream: Sequence[int], order: Sequence[int], mode: Sequence[int]) -> Times:
    """Start the tasks in the given order (a topological one), each as early as possible after the one before it on its stream.

    A task may start before one that precedes it in `order` if they are on different streams and the cores suffice. These are the
    times that solvers reason about: cores go by the order and not by who is ready first, bandwidth is a capacity, and nothing
    interferes.
    """
    profile = Profile(instance.packing)
    idle = [0] * len(instance.streams)
    start = [0] * len(instance)
    end = [0] * len(instance)
    for task in order:
        duration, demand = instance.work[task][mode[task]]
        lane = stream[task]
        ready = idle[lane]
        for before in instance.before[task]:
            ready = max(ready, end[before] + (instance.sync if stream[before] != lane else 0))
        start[task] = profile.earliest(ready, duration, demand)
        end[task] = idle[lane] = start[task] + duration
        profile.hold(start[task], end[task], demand)
    return Times(mode=tuple(mode), start=tuple(start), end=tuple(end))


def with_times(plan: Plan, times: Times) -> Plan:
    """The streams of a plan with the times and modes that a solver found for them; what that costs, a replay tells."""
    return replace(plan, mode=times.mode, start=times.start, end=times.end)


def followers(plan: Plan) -> dict[int, int]:
    """The next task on the same stream, for each task that has one."""
    last: dict[int, int] = {}
    follower: dict[int, int] = {}
    for task in plan.order():
        stream = plan.stream[task]
        if stream in last:
            follower[last[stream]] = task
        last[stream] = task
    return follower


def decode(
    problem: Problem, stream_of: Mapping[str, str], order: Sequence[str], mode_of: Mapping[str, int] | None = None
) -> tuple[Placement, ...]:
    """Place every task as early as possible, given its stream and the order of the tasks of each stream.

    `order` names every task once and is a topological order of the precedences. `mode_of` gives the mode of tasks that do not
    run in their first one. Times are ns; the result is ordered by (start, end, program order).

    Raises:
        InputError: if `order` misses, repeats or misorders tasks, or a stream is unknown.
    """
    instance = Instance.of(problem)
    position = {name: number for number, name in enumerate(instance.names)}
    if sorted(order) != sorted(instance.names):
        raise InputError("decode: the order must name every task of the problem exactly once")
    numbers = [position[name] for name in order]
    place = {task: at for at, task in enumerate(numbers)}
    for before, after in instance.edges():
        if place[before] > place[after]:
            raise InputError(f"decode: {instance.names[before]!r} must come before {instance.names[after]!r} in the order")
    streams = []
    for name in instance.names:
        stream = stream_of.get(name, "")
        if stream not in instance.streams:
            raise InputError(f"decode: task {name!r} is on {stream!r}; the streams are {', '.join(instance.streams)}")
        streams.append(instance.streams.index(stream))
    modes = [(mode_of or {}).get(name, 0) for name in instance.names]
    plan = replay(instance, streams, numbers, modes)
    return plan.schedule(instance, strategy="", bound=0, seconds=0.0).placements
