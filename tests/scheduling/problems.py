"""Small scheduling problems for the tests, their optimum by enumeration, and random ones for hypothesis."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from hypothesis import strategies as st

from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import replay
from autostream.scheduling.problem import HCCL, MAIN, Mode, Precedence, Problem, Schedule, Task

AIC, AIV, SYNC = 24, 48, 4


def cube(name: str, duration: int, *, aic: int = AIC, stream: str | None = None, cluster: str | None = None) -> Task:
    return Task(name=name, modes=(Mode(duration=duration, aic=aic),), stream=stream, cluster=cluster)


def vector(name: str, duration: int, *, aiv: int = AIV, stream: str | None = None, cluster: str | None = None) -> Task:
    return Task(name=name, modes=(Mode(duration=duration, aiv=aiv),), stream=stream, cluster=cluster)


def comm(name: str, duration: int, *, stream: str | None = HCCL) -> Task:
    return Task(name=name, modes=(Mode(duration=duration, comm=1),), stream=stream)


def problem(
    tasks: Sequence[Task], edges: Iterable[str] = (), *, sync: int = SYNC, side: int = 2, fixed: Sequence[str] = (HCCL,)
) -> Problem:
    """A problem from edges such as ``"a>b>c"``."""
    pairs = dict.fromkeys(pair for chain in edges for pair in itertools.pairwise(chain.split(">")))
    return Problem(
        tasks=tuple(tasks),
        precedences=tuple(Precedence(before=before, after=after) for before, after in pairs),
        streams=(MAIN, *(f"s{number}" for number in range(1, side + 1)), *fixed),
        fixed_streams=tuple(fixed),
        aic=AIC,
        aiv=AIV,
        sync=sync,
    )


def tangle() -> Problem:
    """24 tasks whose optimum (153) is well above what the simple bounds can prove (131)."""
    tasks = [
        cube(f"t{n}", 5 + n * 13 % 17, aic=(24, 10, 14)[n % 3])
        if n * 7 % 5 < 3
        else vector(f"t{n}", 5 + n * 13 % 17, aiv=(20, 30, 48)[n % 3])
        for n in range(24)
    ]
    edges = [f"t{n}>t{n + 1 + n * 3 % 4}" for n in range(20)] + [f"t{n}>t{n + 3}" for n in range(0, 20, 3)]
    return problem(tasks, edges, sync=3)


def stream_of(schedule: Schedule) -> dict[str, str]:
    return {placement.task: placement.stream for placement in schedule.placements}


def optimum(given: Problem, most: int = 1_000) -> int:
    """The least makespan with at most so many crossings, by trying every stream, mode and order: for a few tasks only.

    It is without end if there is no such plan.
    """
    instance = Instance.of(given)
    orders = [
        order
        for order in itertools.permutations(range(len(instance)))
        if all(order.index(before) < order.index(after) for before, after in instance.edges())
    ]
    modes = list(itertools.product(*(range(len(row)) for row in instance.modes)))
    choices = itertools.product(*instance.allowed)
    streams = [[choice[unit] for unit in instance.unit] for choice in choices]
    plans = (replay(instance, stream, order, mode) for stream in streams for order in orders for mode in modes)
    return min((plan.makespan for plan in plans if plan.crossings <= most), default=sys.maxsize)


@st.composite
def problems(draw: st.DrawFn, *, most: int = 14, side: int = 2, most_modes: int = 1, shortest: int = 1) -> Problem:
    """Random problems with fixed tasks, clusters, shared cores, bandwidth and communication."""
    count = draw(st.integers(1, most))
    mode = st.builds(
        Mode,
        duration=st.integers(shortest, 30),
        aic=st.sampled_from([0, 8, 24, 40]),
        aiv=st.sampled_from([0, 0, 16, 48]),
        hbm=st.sampled_from([0, 300, 700]),
        comm=st.just(0),
    )
    tasks = []
    for number in range(count):
        name = f"t{number}"
        kind = draw(st.sampled_from(["free"] * 6 + ["main", "user", "comm", "cluster"]))
        if kind == "comm":
            tasks.append(comm(name, draw(st.integers(shortest, 30))))
            continue
        modes = tuple(draw(st.lists(mode, min_size=1, max_size=most_modes)))
        fixed = {"main": MAIN, "user": "u"}.get(kind)
        tasks.append(Task(name=name, modes=modes, stream=fixed, cluster="c" if kind == "cluster" else None))
    edges = [
        f"t{before}>t{after}"
        for after in range(1, count)
        for before in draw(st.lists(st.integers(max(0, after - 5), after - 1), max_size=2, unique=True))
    ]
    return problem(tasks, edges, sync=draw(st.sampled_from([0, 1, 5])), side=side, fixed=(HCCL, "u"))


def longer(given: Problem, times: int) -> Problem:
    """The same problem with all durations, and the sync, that many times as long."""
    tasks = tuple(
        replace(task, modes=tuple(mode._replace(duration=mode.duration * times) for mode in task.modes)) for task in given.tasks
    )
    return replace(given, tasks=tasks, sync=given.sync * times)


def printed(program: str) -> set[str]:
    """Return what a Python program prints, in processes that hash strings differently: one text if that makes no difference."""
    return {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parents[2],
            env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in ("0", "1")
    }
