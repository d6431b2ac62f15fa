"""Local search on streams and order, every step judged by running the whole plan.

What a solver cannot say in its model (who is ready first gets the cores, what runs at once slows down) this search simply tries.
Moves start from the tasks that the end of the plan hangs on. Steps that lose little are taken for a while (late acceptance, Burke
and Bykov, 2017). Deterministic: integers only, a fixed seed, and an effort counted in tasks that were run.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from autostream.scheduling.instance import Instance
from autostream.scheduling.replay import Plan, replay

_SEED = 0
#: A step may be as bad as the plan was so many steps ago.
_MEMORY = 25
#: Give up after so many steps per task without progress.
_PATIENCE = 12
#: Longest stretch of a stream that changes streams as a whole, and of neighbours that a task overtakes.
_STRETCH = 8
_OVERTAKEN = 4

#: Streams, order and modes of a step.
_Step = tuple[list[int], list[int], Sequence[int]]


def climb(instance: Instance, plan: Plan, lower: int, effort: int) -> Plan:
    """Return a plan at least as good (by `Plan.rank`), having run at most about `effort` tasks; stops at the lower bound."""
    if len(instance) < 2 or plan.makespan <= lower:
        return plan
    return _Climb(instance, plan).best_within(lower, effort)


class _Climb:
    def __init__(self, instance: Instance, plan: Plan) -> None:
        self.instance = instance
        self.dice = random.Random(_SEED)
        self.free = [len(instance.allowed[unit]) > 1 for unit in instance.unit]
        self.choices = [task for task in range(len(instance)) if len(instance.modes[task]) > 1]
        self._stand_on(plan, plan.order())

    def best_within(self, lower: int, effort: int) -> Plan:
        count = len(self.instance)
        best = self.plan
        memory = [best.rank] * _MEMORY
        progress = 0
        for step in range(effort // count):
            if best.makespan <= lower or step - progress > _PATIENCE * count + 100:
                break
            moved = self._moved()
            if moved is None:
                continue
            stream, order, mode = moved
            found = replay(self.instance, stream, order, mode)
            slot = step % _MEMORY
            if found.rank <= self.plan.rank or found.rank <= memory[slot]:
                self._stand_on(found, order)
            memory[slot] = min(memory[slot], self.plan.rank)
            if self.plan.rank < best.rank:
                best, progress = self.plan, step
        return best

    def _stand_on(self, plan: Plan, order: list[int]) -> None:
        self.plan, self.order = plan, order
        self.place = [0] * len(order)
        for place, task in enumerate(order):
            self.place[task] = place
        self.hinges = hinges(self.instance, plan)

    # -- moves ------------------------------------------------------------------------------------------------------

    def _moved(self) -> _Step | None:
        """One random step, None if the one that was tried is not possible."""
        kind = self.dice.randrange(20)
        if self.choices and kind < 4:
            return self._other_mode()
        if kind < 10:
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

    def _other_stream(self) -> _Step | None:
        """A task, or a stretch of its stream that begins with it, goes to another stream."""
        task = self._task()
        if not self.free[task]:
            return None
        here = self.plan.stream[task]
        others = [stream for stream in self.instance.allowed[self.instance.unit[task]] if stream != here]
        there = others[self.dice.randrange(len(others))]
        length = self.dice.randint(1, _STRETCH) if self.dice.randrange(2) else 1
        stream = list(self.plan.stream)
        for other in self.order[self.place[task] :]:
            if self.plan.stream[other] == here and self.free[other]:
                for member in self.instance.members[self.instance.unit[other]]:
                    stream[member] = there
                length -= 1
                if not length:
                    break
        return stream, self.order, self.plan.mode

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
