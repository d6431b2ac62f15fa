"""Local search on streams and order, every step judged by running the whole plan.

What a solver cannot say in its model (who is ready first gets the cores, what runs at once slows down) this search simply tries.
Moves start from the tasks that the end of the plan hangs on. Steps that lose little are taken for a while (late acceptance, Burke
and Bykov, 2017). Deterministic: integers only, a fixed seed, and an effort counted in tasks that were run.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from autostream.scheduling.machine.division import part
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan, replay

_SEED = 0
#: A step may be as bad as the plan was so many steps ago.
_MEMORY = 50
#: After so many steps per task without progress the search goes on from so many random steps away from the best plan, or fewer.
_PATIENCE = 5
_KICKS = 6
#: Most steps, per task and beyond that: a small instance needs no more.
_STEPS, _LEAST = 20, 600
#: Longest stretch of a stream that changes streams as a whole, and of neighbours that a task overtakes.
_STRETCH = 8
_OVERTAKEN = 4
#: Tasks in a window, and how far the next one is.
_WINDOW = 80
_STEP = 32

#: Streams, order and modes of a step.
_Step = tuple[list[int], list[int], Sequence[int]]


def climb(instance: Instance, plan: Plan, lower: int, effort: int) -> Plan:
    """Return a plan at least as good (by `Plan.rank`), having run at most about `effort` tasks; stops at the lower bound."""
    if len(instance) < 2 or plan.makespan <= lower:
        return plan
    return Climb(instance, plan).best_within(lower, effort)


def uncrossed(instance: Instance, plan: Plan, effort: int, enough: int = 0) -> Plan:
    """Return a plan with fewer crossings if the search finds one within `effort`; it takes no longer, or `enough` ns at most."""
    if not plan.crossings:
        return plan
    return Climb(instance, plan, enough=max(enough, plan.makespan)).best_within(0, effort)


def climb_in_windows(instance: Instance, plan: Plan, lower: int, effort: int) -> Plan:
    """The same as `climb` for a large instance: the tasks that start within one window after another are searched alone."""
    count = len(instance)
    firsts = range(0, max(count - _WINDOW, 0) + _STEP, _STEP)
    for first in firsts:
        if plan.makespan <= lower:
            break
        tasks = sorted(plan.order()[first : first + _WINDOW])
        inside = set(tasks)
        pins = {task: plan.stream[task] for task in tasks if not inside.issuperset(instance.members[instance.unit[task]])}
        alone = part(instance, tasks, pins=pins)
        order = sorted(range(len(tasks)), key=lambda number: (plan.start[tasks[number]], tasks[number]))
        before = replay(alone, [plan.stream[task] for task in tasks], order, [plan.mode[task] for task in tasks])
        after = climb(alone, before, 0, effort // len(firsts))
        if after.rank < before.rank:
            plan = min(plan, _with_window(instance, plan, tasks, after, first), key=lambda one: one.rank)
    return plan


def _with_window(instance: Instance, plan: Plan, tasks: Sequence[int], window: Plan, first: int) -> Plan:
    """The plan with the tasks of one window, which come after `first` others, rearranged among themselves."""
    stream, mode, order = list(plan.stream), list(plan.mode), plan.order()
    for number, task in enumerate(tasks):
        stream[task], mode[task] = window.stream[number], window.mode[number]
    order[first : first + len(tasks)] = [tasks[number] for number in window.order()]
    return replay(instance, stream, order, mode)


class Climb:
    """A plan, and random steps from it."""

    def __init__(self, instance: Instance, plan: Plan, *, enough: int = 0) -> None:
        """Begin at `plan`; a makespan below `enough`, ns, is worth nothing."""
        self.instance = instance
        self.enough = enough
        self.dice = random.Random(_SEED)
        self.free = [len(instance.allowed[unit]) > 1 for unit in instance.unit]
        self.edges = [(one, other) for one, other in instance.edges() if self.free[one] or self.free[other]]
        #: What has been run, by the tasks of each stream in order and their modes: in a small instance steps come back.
        self.known: dict[object, Plan] = {}
        self.choices = [task for task in range(len(instance)) if len(instance.modes[task]) > 1]
        self._stand_on(plan, plan.order(), self.rank_of(plan))

    def best_within(self, lower: int, effort: int) -> Plan:
        """The best plan by `rank_of` that is met within `effort`, in tasks that are run; stops at the lower bound."""
        count = len(self.instance)
        best, best_rank, progress, kicks = self.plan, self.rank, 0, 0
        memory = [self.rank] * _MEMORY
        for step in range(min(effort // count, _STEPS * count + _LEAST)):
            if best.makespan <= lower or not (best.crossings or best.makespan > self.enough):
                break
            if step - progress > _PATIENCE * count + _MEMORY:
                self._stand_on(best, best.order(), best_rank)
                progress, kicks = step, self.dice.randint(1, _KICKS)
            moved = self._moved()
            if moved is None:
                continue
            stream, order, mode = moved
            slot = step % _MEMORY
            good = max(self.rank, memory[slot])
            found = self._ran(stream, order, mode)
            rank = self.rank_of(found)
            if kicks or rank <= good:
                self._stand_on(found, order, rank)
                if rank < best_rank:
                    best, best_rank, progress = found, rank, step
            if kicks:
                kicks -= 1
                memory = [self.rank] * _MEMORY
            memory[slot] = min(memory[slot], self.rank)
        return best

    def _ran(self, stream: Sequence[int], order: Sequence[int], mode: Sequence[int]) -> Plan:
        lanes: dict[int, list[int]] = {}
        for task in order:
            lanes.setdefault(stream[task], []).append(task)
        key = tuple(mode), tuple([(number, *lane) for number, lane in lanes.items()])
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = replay(self.instance, stream, order, mode)
        return found

    def rank_of(self, plan: Plan) -> tuple[int, int, int]:
        """What the search makes smaller."""
        makespan, crossings, streams = plan.rank
        return max(makespan, self.enough), crossings, streams

    def _stand_on(self, plan: Plan, order: list[int], rank: tuple[int, int, int]) -> None:
        self.plan, self.order, self.rank = plan, order, rank
        self._place: list[int] | None = None
        self._hinges: list[int] | None = None
        self._crossings: list[tuple[int, int]] | None = None

    @property
    def place(self) -> list[int]:
        """Where each task is in the order."""
        if self._place is None:
            self._place = [0] * len(self.order)
            for place, task in enumerate(self.order):
                self._place[task] = place
        return self._place

    @property
    def hinges(self) -> list[int]:
        """See `hinges`."""
        if self._hinges is None:
            self._hinges = hinges(self.instance, self.plan)
        return self._hinges

    @property
    def crossings(self) -> list[tuple[int, int]]:
        """The crossings of which one end may move."""
        if self._crossings is None:
            stream = self.plan.stream
            self._crossings = [(one, other) for one, other in self.edges if stream[one] != stream[other]]
        return self._crossings

    # -- moves ------------------------------------------------------------------------------------------------------

    def _moved(self) -> _Step | None:
        """One random step, None if the one that was tried is not possible."""
        kind = self.dice.randrange(20)
        if self.choices and kind < 4:
            return self._other_mode()
        if self.crossings and (kind < 7 or (self.enough and kind < 14)):
            return self._joined()
        if kind < 11:
            return self._other_stream()
        if kind < 18:
            return self._overtaking()
        return self._exchanged()

    def _task(self) -> int:
        """A task that matters, three times out of four."""
        if self.dice.randrange(4):
            return self.hinges[self.dice.randrange(len(self.hinges))]
        return self.dice.randrange(len(self.order))

    def _other_mode(self) -> _Step:
        task = self.choices[self.dice.randrange(len(self.choices))]
        mode = list(self.plan.mode)
        mode[task] = self.dice.randrange(len(self.instance.modes[task]))
        return list(self.plan.stream), self.order, mode

    def _joined(self) -> _Step | None:
        """One end of a crossing goes to the stream of the other."""
        task, other = self.dice.sample(self.crossings[self.dice.randrange(len(self.crossings))], 2)
        there, unit = self.plan.stream[other], self.instance.unit[task]
        if there not in self.instance.allowed[unit]:
            return None
        stream = list(self.plan.stream)
        for member in self.instance.members[unit]:
            stream[member] = there
        return stream, self.order, self.plan.mode

    def _other_stream(self) -> _Step | None:
        """A task, or a stretch of its stream or a chain that begins with it, goes to another stream."""
        task = self._task()
        if not self.free[task]:
            return None
        here = self.plan.stream[task]
        others = [stream for stream in self.instance.allowed[self.instance.unit[task]] if stream != here]
        there = others[self.dice.randrange(len(others))]
        kind, length = self.dice.randrange(3), self.dice.randint(2, _STRETCH)
        moving = [task] if kind == 0 else self._stretch(task, length) if kind == 1 else self._chain(task, length)
        stream = list(self.plan.stream)
        for other in moving:
            for member in self.instance.members[self.instance.unit[other]]:
                stream[member] = there
        return stream, self.order, self.plan.mode

    def _stretch(self, task: int, length: int) -> list[int]:
        """A task and what follows it on its stream."""
        stream, found = self.plan.stream, [task]
        for other in self.order[self.place[task] + 1 :]:
            if stream[other] == stream[task] and self.free[other]:
                found.append(other)
                if len(found) == length:
                    break
        return found

    def _chain(self, task: int, length: int) -> list[int]:
        """A task and, one after another, successors on its stream."""
        stream, found = self.plan.stream, [task]
        while len(found) < length:
            after = [one for one in self.instance.after[found[-1]] if stream[one] == stream[task] and self.free[one]]
            if not after:
                break
            found.append(min(after, key=lambda one: self.place[one]))
        return found

    def _overtaking(self) -> _Step | None:
        """A task goes before some of those in front of it on its stream, or behind some that follow, as precedences allow."""
        task = self._task()
        earlier = self.dice.randrange(3) > 0
        instance, order, place = self.instance, self.order, self.place
        here = place[task]
        if earlier:
            last = max((place[before] for before in instance.before[task]), default=-1)
            between = range(here - 1, last, -1)
        else:
            last = min((place[after] for after in instance.after[task]), default=len(order))
            between = range(here + 1, last)
        stream, left, there = self.plan.stream, self.dice.randint(1, _OVERTAKEN), here
        for at in between:
            if stream[order[at]] == stream[task]:
                there = at
                left -= 1
                if not left:
                    break
        if there == here:
            return None
        moved = order.copy()
        del moved[here]
        moved.insert(there, task)
        return list(stream), moved, self.plan.mode

    def _exchanged(self) -> _Step | None:
        """From some time on two streams take each other's tasks."""
        open_streams = self.instance.open
        if len(open_streams) < 2:
            return None
        one, other = self.dice.sample(open_streams, 2)
        swap = {one: other, other: one}
        time = self.plan.start[self._task()]
        stream = list(self.plan.stream)
        for unit, members in enumerate(self.instance.members):
            if stream[members[0]] in swap and len(self.instance.allowed[unit]) > 1 and self.plan.start[members[0]] >= time:
                for member in members:
                    stream[member] = swap[stream[member]]
        return stream, self.order, self.plan.mode


def hinges(instance: Instance, plan: Plan) -> list[int]:
    """The tasks that the end of the plan hangs on: each starts when one before it in the list has ended, or let go of cores."""
    ending: dict[int, list[int]] = {}
    for task, end in enumerate(plan.end):
        ending.setdefault(end, []).append(task)
    task = max(range(len(instance)), key=lambda one: (plan.end[one], -one))
    found = {task: None}
    while plan.start[task] > 0:
        start = plan.start[task]
        synced = (before for before in instance.before[task] if plan.end[before] + instance.sync == start)
        reason = next((before for before in synced if plan.stream[before] != plan.stream[task]), None)
        if reason is None:
            before = [one for one in ending.get(start, ()) if one not in found]
            if not before:
                break
            reason = min(before, key=lambda one: (plan.stream[one] != plan.stream[task], one))
        if reason in found:
            break
        found[reason] = None
        task = reason
    return list(found)
