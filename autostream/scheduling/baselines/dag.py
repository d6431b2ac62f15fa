"""A problem in numbers, as the published rules see it, and how what a rule decides becomes a feasible schedule."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autostream.scheduling.bounds.lower import lower_bound
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import decode
from autostream.scheduling.problem import MAIN, Problem, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Dag:
    """Tasks by position in program order (a topological order); each in its fastest mode."""

    names: tuple[str, ...]
    mode: tuple[int, ...]
    #: ns.
    duration: tuple[int, ...]
    #: What each task holds while it runs, and what there is: (aic, aiv, hbm, comm), demands clipped to the capacity.
    demand: tuple[tuple[int, int, int, int], ...]
    capacity: tuple[int, int, int, int]
    before: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]
    #: The stream of each task that is fixed to one, by itself or by its cluster, else None.
    fixed: tuple[str | None, ...]
    #: The task of its cluster that comes first, itself for a task on its own: the whole cluster goes where that one goes.
    leader: tuple[int, ...]
    #: The streams a task that is not fixed may run on, MAIN first, and what a wait between two streams costs, ns.
    streams: tuple[str, ...]
    sync: int

    @classmethod
    def of(cls, problem: Problem) -> Dag:
        """Number a problem."""
        return cls.numbered(Instance.of(problem))

    @classmethod
    def numbered(cls, instance: Instance) -> Dag:
        """The same from an instance."""
        count = range(len(instance))
        mode = tuple(min(range(len(row)), key=lambda number: row[number].duration) for row in instance.modes)
        chosen = [row[number] for row, number in zip(instance.modes, mode, strict=True)]
        aic, aiv, hbm, comm = instance.capacity
        fixed = (instance.allowed[unit] for unit in instance.unit)
        return cls(
            names=instance.names,
            mode=mode,
            duration=tuple(one.duration for one in chosen),
            demand=tuple((one.demand[0], one.demand[1], one.demand[2], one.demand[3]) for one in chosen),
            capacity=(aic, aiv, hbm, comm),
            before=instance.before,
            after=instance.after,
            fixed=tuple(instance.streams[row[0]] if len(row) == 1 else None for row in fixed),
            leader=tuple(instance.members[instance.unit[task]][0] for task in count),
            streams=tuple(instance.streams[stream] for stream in instance.open) or (MAIN,),
            sync=instance.sync,
        )

    def __len__(self) -> int:
        return len(self.names)

    def tails(self, duration: Sequence[int] | None = None, lag: int = 0) -> list[int]:
        """Longest way from the start of each task to the end, by `duration` (default: its own), `lag` added on every edge."""
        length = duration if duration is not None else self.duration
        tail = [0] * len(self)
        for task in reversed(range(len(self))):
            tail[task] = length[task] + max((lag + tail[later] for later in self.after[task]), default=0)
        return tail


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a rule decides: for each task the number of its stream among `Dag.streams`, and the order of issue (topological).

    Numbers beyond the streams there are wrap around. Fixed tasks stay where they are, clusters follow their first task.
    """

    stream: Sequence[int]
    order: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A published rule as a strategy: it chooses streams and order, the times follow by replaying."""

    name: str
    rule: Callable[[Dag], Assignment]

    def solve(self, problem: Problem) -> Schedule:
        """Return the schedule that the rule leads to, every task as early as streams, syncs and cores allow."""
        began = time.perf_counter()
        dag = Dag.of(problem)
        chosen = self.rule(dag)
        order = [dag.names[task] for task in chosen.order]
        placements = decode(problem, _streams(dag, chosen), order, dict(zip(dag.names, dag.mode, strict=True)))
        makespan, bound = max((p.end for p in placements), default=0), lower_bound(problem)
        return Schedule(
            placements=placements,
            strategy=self.name,
            status="optimal" if makespan == bound else "feasible",
            makespan=makespan,
            lower_bound=bound,
            seconds=time.perf_counter() - began,
        )


def _streams(dag: Dag, chosen: Assignment) -> Mapping[str, str]:
    streams = {}
    for task, name in enumerate(dag.names):
        number = chosen.stream[dag.leader[task]] % len(dag.streams)
        streams[name] = dag.fixed[task] or dag.streams[number]
    return streams
