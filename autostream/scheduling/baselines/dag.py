"""A problem in numbers, as the published rules see it, and how what a rule decides becomes a feasible schedule."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autostream.scheduling.bounds import lower_bound
from autostream.scheduling.problem import MAIN, Problem, Schedule
from autostream.scheduling.replay import decode


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
        position = {task.name: number for number, task in enumerate(problem.tasks)}
        count = range(len(position))
        before: list[set[int]] = [set() for _ in count]
        after: list[set[int]] = [set() for _ in count]
        for edge in problem.precedences:
            before[position[edge.after]].add(position[edge.before])
            after[position[edge.before]].add(position[edge.after])
        mode = tuple(min(range(len(task.modes)), key=lambda m: task.modes[m].duration) for task in problem.tasks)
        chosen = [task.modes[number] for task, number in zip(problem.tasks, mode, strict=True)]
        capacity = problem.aic, problem.aiv, problem.hbm, 1
        aic, aiv, hbm, comm = capacity
        leaders: dict[str, int] = {}
        leader = tuple(leaders.setdefault(t.cluster, n) if t.cluster is not None else n for n, t in enumerate(problem.tasks))
        fixed = {leader[number]: task.stream for number, task in enumerate(problem.tasks) if task.stream is not None}
        return cls(
            names=tuple(position),
            mode=mode,
            duration=tuple(m.duration for m in chosen),
            demand=tuple((min(m.aic, aic), min(m.aiv, aiv), min(m.hbm, hbm), min(m.comm, comm)) for m in chosen),
            capacity=capacity,
            before=tuple(tuple(sorted(row)) for row in before),
            after=tuple(tuple(sorted(row)) for row in after),
            fixed=tuple(fixed.get(first) for first in leader),
            leader=leader,
            streams=problem.open_streams or (MAIN,),
            sync=problem.sync,
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
