"""Does a schedule meet its problem? Written from the definition of the problem, sharing nothing with the algorithms."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

from autostream.scheduling.problem import Mode, Placement, Problem, Schedule


def check(problem: Problem, schedule: Schedule) -> tuple[str, ...]:
    """Return every violation in words; an empty tuple means that the schedule is feasible.

    Covers: each task placed once, in a mode and on a stream it may have; clusters; the most waits; precedences with their sync;
    one task at a time on a stream; cores and communication; that each task runs as long as its mode, the bandwidth it shares
    and what runs beside it make it take; the order of the placements; the makespan.
    """
    names = [task.name for task in problem.tasks]
    count = Counter(placement.task for placement in schedule.placements)
    wrong = [f"task {name!r} is placed {count[name]} times" for name in names if count[name] != 1]
    wrong += [f"unknown task {name!r} is placed" for name in count if name not in set(names)]
    if wrong:
        return tuple(wrong)
    at = {placement.task: placement for placement in schedule.placements}
    wrong = [f"task {t.name!r} has no mode {at[t.name].mode}" for t in problem.tasks if not 0 <= at[t.name].mode < len(t.modes)]
    if wrong:
        return tuple(wrong)
    wrong += _streams(problem, at)
    wrong += _waits(problem, at)
    wrong += _times(problem, at)
    wrong += _lanes(schedule)
    wrong += _machine(problem, at)
    program = {name: number for number, name in enumerate(names)}
    if list(schedule.placements) != sorted(schedule.placements, key=lambda p: (p.start, p.end, program[p.task])):
        wrong.append("the placements are not ordered by (start, end, program order)")
    if schedule.makespan != max((placement.end for placement in schedule.placements), default=0):
        wrong.append(f"the makespan {schedule.makespan} is not the last end")
    return tuple(wrong)


def _streams(problem: Problem, at: dict[str, Placement]) -> Iterator[str]:
    clusters: dict[str, set[str]] = {}
    for task in problem.tasks:
        stream = at[task.name].stream
        if task.cluster is not None:
            clusters.setdefault(task.cluster, set()).add(stream)
    fixed_clusters = {task.cluster: task.stream for task in problem.tasks if task.cluster is not None and task.stream is not None}
    for task in problem.tasks:
        stream = at[task.name].stream
        fixed = task.stream or fixed_clusters.get(task.cluster or task.name)
        allowed = problem.open_streams if fixed is None else (fixed,)
        if stream not in allowed:
            yield f"task {task.name!r} is on {stream!r}, allowed: {', '.join(allowed)}"
    for cluster, streams in clusters.items():
        if len(streams) > 1:
            yield f"cluster {cluster!r} is spread over {', '.join(sorted(streams))}"


def _waits(problem: Problem, at: dict[str, Placement]) -> Iterator[str]:
    waits = sum(at[one.before].stream != at[one.after].stream for one in problem.precedences)
    if problem.max_waits is not None and waits > problem.max_waits:
        yield f"{waits} precedences change streams, allowed: {problem.max_waits}"


def _times(problem: Problem, at: dict[str, Placement]) -> Iterator[str]:
    for task in problem.tasks:
        placement = at[task.name]
        if placement.start < 0 or placement.end - placement.start < task.modes[placement.mode].duration:
            yield f"task {task.name!r} runs from {placement.start} to {placement.end}, less than the duration of its mode"
    for precedence in problem.precedences:
        before, after = at[precedence.before], at[precedence.after]
        lag = problem.sync if before.stream != after.stream else 0
        if after.start < before.end + lag:
            yield f"{after.task!r} starts at {after.start}, before {before.task!r} has ended at {before.end} + sync {lag}"


def _lanes(schedule: Schedule) -> Iterator[str]:
    for stream, lane in schedule.streams().items():
        for first, second in itertools.pairwise(sorted(lane, key=lambda placement: (placement.start, placement.end))):
            if first.start < second.end and second.start < first.end:
                yield f"{first.task!r} and {second.task!r} overlap on {stream!r}"


def _machine(problem: Problem, at: dict[str, Placement]) -> Iterator[str]:
    """Between two instants at which something starts or ends the same tasks run, each at a rate of its own."""
    capacity = {"aic": problem.aic, "aiv": problem.aiv, "comm": 1}
    modes = {task.name: task.modes[at[task.name].mode] for task in problem.tasks}
    instants = sorted({time for placement in at.values() for time in (placement.start, placement.end)})
    starting: dict[int, list[Placement]] = {}
    for placement in at.values():
        starting.setdefault(placement.start, []).append(placement)
    done = dict.fromkeys(modes, Fraction(0))
    running: list[Placement] = []
    for now, then in itertools.pairwise(instants):
        running = [placement for placement in running if placement.end > now]
        running += [placement for placement in starting.get(now, ()) if placement.end > now]
        held = [modes[placement.task] for placement in running]
        for kind, limit in capacity.items():
            used = sum(min(getattr(mode, kind), limit) for mode in held)
            if used > limit:
                yield f"at {now} the tasks {', '.join(p.task for p in running)} hold {used} of {limit} {kind}"
        for placement, mode in zip(running, held, strict=True):
            done[placement.task] += (then - now) / _stretch(problem, mode, held)
    for name, mode in modes.items():
        # Times are rounded to ns and stretches to thousandths.
        if abs(done[name] - mode.duration) > 3 + mode.duration // 50:
            yield f"task {name!r} has done {float(done[name]):.0f} of {mode.duration} ns when it ends at {at[name].end}"


def _stretch(problem: Problem, mode: Mode, held: Sequence[Mode]) -> Fraction:
    """By how much a task takes longer than alone while it runs among the modes `held`, itself included."""
    shares = [min(one.hbm, problem.hbm) for one in held if one.hbm]
    contention = Fraction(problem.hbm_contention, 1000) if len(shares) > 1 else 1
    stretch = max(Fraction(1), Fraction(sum(shares), problem.hbm) * contention) if mode.hbm else Fraction(1)
    collectives = sum(one.comm > 0 for one in held)
    kernels = sum(not one.comm and (one.aic > 0 or one.aiv > 0) for one in held)
    kernel = not mode.comm and (mode.aic > 0 or mode.aiv > 0)
    if kernel and kernels > 1:
        stretch *= Fraction(problem.cube_vector_slowdown, 1000)
    if (kernel and collectives) or (mode.comm and kernels):
        stretch *= Fraction(problem.compute_comm_slowdown, 1000)
    return stretch
