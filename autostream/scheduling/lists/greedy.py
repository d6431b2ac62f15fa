"""List scheduling by upward rank: the task with the longest tail goes where it finishes first, sync included."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autostream.scheduling.bounds.lower import lower_bound
from autostream.scheduling.lists.serial import serial
from autostream.scheduling.local.improve import improve
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.profile import Lane, Profile
from autostream.scheduling.machine.replay import Plan, replay
from autostream.scheduling.problem import Problem, Schedule

#: Most rounds of backward and forward scheduling; most plans settle in two or three.
_ROUNDS = 4
#: Above so many tasks one list schedule has to do; the rounds and the local improvement would make it up to 3 % shorter, in
#: several times the time. Deep programs are divided into regions, which have all of that to themselves.
DEEP = 1000


class Greedy:
    """List scheduling, then a cheap local improvement; never worse than the program as it is."""

    def solve(self, problem: Problem) -> Schedule:
        """Return the best schedule found."""
        began = time.perf_counter()
        instance = Instance.of(problem)
        plan = greedy(instance)
        return plan.renamed(instance).schedule(
            instance, strategy="greedy", bound=lower_bound(problem), seconds=time.perf_counter() - began
        )


def greedy(instance: Instance) -> Plan:
    """The plan behind `Greedy`."""
    baseline = serial(instance)
    order = by_rank(instance)
    if len(instance) > DEEP:
        return min(baseline, list_schedule(instance, order), key=lambda candidate: candidate.rank)
    # The price decides ties against needless crossings; which of the two is better is not known beforehand.
    plans = [_justified(instance, drafted(instance, order, price=price), price) for price in (0, instance.sync)]
    plan = min(plans, key=lambda candidate: candidate.rank)
    if plan.rank < baseline.rank:
        plan = improve(instance, plan)
    return min(baseline, plan, key=lambda candidate: candidate.rank)


def there_and_back(instance: Instance, backwards: Instance, draft: Draft, price: int = 0) -> Draft:
    """Schedule backwards in order of the ends, then forwards in order of the starts that this gives."""
    late = drafted(backwards, sorted(range(len(instance)), key=lambda task: (-draft.end[task], -task)), price=price)
    return drafted(instance, sorted(range(len(instance)), key=lambda task: (-late.end[task], task)), price=price)


def by_rank(instance: Instance) -> list[int]:
    """Tasks by falling rank: one outranks its successors, or ties with a smaller number, so the order is topological."""
    rank = upward_rank(instance)
    return sorted(range(len(instance)), key=lambda task: (-rank[task], task))


def _justified(instance: Instance, draft: Draft, price: int) -> Plan:
    """Schedule backwards and forwards as long as that helps: it closes gaps that ranks do not see."""
    backwards = instance.reversed()
    best = draft.plan()
    for _ in range(_ROUNDS):
        draft = there_and_back(instance, backwards, draft, price)
        early = draft.plan()
        if early.rank >= best.rank:
            break
        best = early
    return best


def upward_rank(instance: Instance) -> list[int]:
    """Length of the longest way from the start of each task to the end of the program, ns.

    A sync counts in full where the streams are sure to differ, and not at all elsewhere: a good schedule continues its longest
    way on one stream.
    """
    rank = [0] * len(instance)
    for task in reversed(range(len(instance))):
        tail = max((instance.sure_lag(task, after) + rank[after] for after in instance.after[task]), default=0)
        rank[task] = instance.shortest(task) + tail
    return rank


@dataclass(slots=True)
class Draft:
    """What has been placed so far, at the times of `wished`."""

    instance: Instance
    profile: Profile
    lanes: list[Lane]
    issue: Sequence[int]
    stream: list[int]
    mode: list[int]
    start: list[int]
    end: list[int]

    def plan(self) -> Plan:
        """What it comes to when it runs."""
        place = {task: number for number, task in enumerate(self.issue)}
        order = sorted(self.issue, key=lambda task: (self.start[task], place[task]))
        return replay(self.instance, self.stream, order, self.mode)


def list_schedule(
    instance: Instance, order: Sequence[int], *, price: int = 0, given: Mapping[int, tuple[int, int]] | None = None
) -> Plan:
    """Draft and run the tasks; see `drafted`."""
    return drafted(instance, order, price=price, given=given).plan()


def drafted(
    instance: Instance, order: Sequence[int], *, price: int = 0, given: Mapping[int, tuple[int, int]] | None = None
) -> Draft:
    """Place the tasks in the given topological order, each where it finishes first, gaps included.

    Args:
        instance: what to schedule.
        order: every task once.
        price: ns of delay that one precedence across streams is worth.
        given: the stream and the mode of tasks for which they are decided.
    """
    count = len(instance)
    lanes = [Lane() for _ in instance.streams]
    draft = Draft(instance, Profile(instance.packing), lanes, order, *([0] * count for _ in range(4)))
    home: dict[int, int] = {}
    for task in order:
        unit = instance.unit[task]
        if given is not None and task in given:
            stream = _place(draft, task, given[task][:1], given[task][1:], price)
        else:
            streams = (home[unit],) if unit in home else _candidates(draft, instance.allowed[unit])
            stream = _place(draft, task, streams, range(len(instance.modes[task])), price)
        home.setdefault(unit, stream)
    return draft


def _candidates(draft: Draft, allowed: tuple[int, ...]) -> tuple[int, ...]:
    """The streams in use, MAIN, and one fresh stream: fresh ones are all alike."""
    found = list(allowed[:1])
    fresh = False
    for stream in allowed[1:]:
        used = draft.lanes[stream].used
        if used or not fresh:
            found.append(stream)
            fresh = fresh or not used
    return tuple(found)


def _place(draft: Draft, task: int, streams: Sequence[int], modes: Sequence[int], price: int) -> int:
    """Put one task where it finishes first, each precedence across streams counted as a delay of `price`.

    Ties go to the stream of the predecessor that ends last, then to MAIN. A fresh side stream must win by more than a sync:
    the tasks that follow will have to come back.
    """
    instance, ends, on = draft.instance, draft.end, draft.stream
    work, sync, befores = instance.work[task], instance.sync, instance.before[task]
    favourite, latest = streams[0], -1
    for before in befores:
        if ends[before] >= latest:
            favourite, latest = on[before], ends[before]
    best: tuple[int, bool, int, int, int] | None = None
    for stream in streams:
        lane, ready = draft.lanes[stream], 0
        handicap = sync if stream and len(streams) > 1 and not lane.used else 0
        for before in befores:
            end = ends[before]
            if on[before] != stream:
                end += sync
                handicap += price
            if end > ready:
                ready = end
        for mode in modes:
            duration, demand = work[mode]
            start = _earliest(draft.profile, lane, ready, duration, demand)
            key = (start + duration + handicap, stream != favourite, stream, mode, start)
            if best is None or key < best:
                best = key
    assert best is not None, "every unit has at least one stream and one mode"
    _, _, stream, mode, start = best
    duration, demand = work[mode]
    draft.stream[task], draft.mode[task], draft.start[task], draft.end[task] = stream, mode, start, start + duration
    draft.lanes[stream].hold(start, start + duration)
    draft.profile.hold(start, start + duration, demand)
    return stream


def _earliest(profile: Profile, lane: Lane, ready: int, duration: int, demand: int) -> int:
    """First time from `ready` on at which both the stream is idle and the machine has room."""
    while True:
        idle = lane.earliest(ready, duration)
        ready = profile.earliest(idle, duration, demand)
        if ready == idle:
            return ready
