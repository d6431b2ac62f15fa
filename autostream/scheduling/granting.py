"""When the tasks of a plan run: the rule by which the machine grants what they need.

Streams run their tasks in order. A task is *ready* when the one before it on its stream has ended and a sync has passed since the
end of each predecessor on another stream. Cores go to the stream that was ready first; a later one does not overtake it on a kind
of core that both need. Users of the memory that ask for more than there is share it, and what runs at the same time interferes.
This is the rule of `autostream.program.simulate`, on numbered tasks, because searches ask it thousands of times.

Times are integer picoseconds, so that rounding is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from autostream.scheduling.resources import Demand, Packing

PS = 1000
#: The whole, where shares are thousandths.
_WHOLE = 1000


class Claim(NamedTuple):
    """What a task in one of its modes needs to run."""

    #: Time alone, ps.
    work: int
    #: Cube cores, vector cores and the communication engine, packed; and which of them, as bits.
    demand: int
    kinds: int
    #: Share of the memory bandwidth, thousandths.
    hbm: int
    #: On cores and no collective; a collective.
    kernel: bool
    collective: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the machine has, and what tasks that run at the same time cost each other, in thousandths."""

    packing: Packing
    hbm_contention: int
    cube_vector_slowdown: int
    compute_comm_slowdown: int

    def claim(self, duration: int, demand: Demand) -> Claim:
        """The claim of a mode; `demand` is (aic, aiv, hbm, comm), `duration` is in ns."""
        aic, aiv, hbm, comm = demand
        return Claim(
            work=duration * PS,
            demand=self.packing.pack((aic, aiv, comm)),
            kinds=(aic > 0) | (aiv > 0) << 1 | (comm > 0) << 2,
            hbm=hbm,
            kernel=not comm and (aic > 0 or aiv > 0),
            collective=comm > 0,
        )

    def stretches(self, running: Sequence[Claim]) -> list[int]:
        """The time of every running task, in thousandths of its time alone."""
        if len(running) == 1:
            return [max(_WHOLE, running[0].hbm)]
        users = wanted = kernels = collectives = 0
        for claim in running:
            if claim.hbm:
                users += 1
                wanted += claim.hbm
            if claim.kernel:
                kernels += 1
            elif claim.collective:
                collectives += 1
        memory = max(_WHOLE, scaled(wanted, self.hbm_contention) if users > 1 else wanted)
        beside = self.compute_comm_slowdown if collectives else _WHOLE
        kernel = scaled(self.cube_vector_slowdown, beside) if kernels > 1 else beside
        collective = self.compute_comm_slowdown if kernels else _WHOLE
        found = []
        for claim in running:
            one = kernel if claim.kernel else collective if claim.collective else _WHOLE
            found.append(scaled(one, memory) if claim.hbm else one)
        return found


def scaled(value: int, thousandths: int) -> int:
    """Return value x thousandths / 1000, rounded up."""
    return -(-value * thousandths // _WHOLE)


class Run:
    """One run of a plan from beginning to end; times in ps, by task."""

    def __init__(
        self,
        rules: Rules,
        claims: Sequence[Claim],
        before: Sequence[Sequence[int]],
        lanes: Sequence[Sequence[int]],
        sync: int,
    ) -> None:
        """Make a run ready.

        Args:
            rules: the machine.
            claims: by task.
            before: predecessors of each task.
            lanes: the tasks of each stream in order; of heads that are ready at the same time the first lane goes first.
            sync: price of a wait between lanes, ps.
        """
        count = len(claims)
        self._rules, self._claims, self._before, self._lanes, self._sync = rules, claims, before, lanes, sync
        self._lane = [0] * count
        for number, lane in enumerate(lanes):
            for task in lane:
                self._lane[task] = number
        self._next = [0] * len(lanes)
        self._idle = [0] * len(lanes)
        #: Heads that may start, as (ready, lane), and lanes by the task whose end their head waits for.
        self._waiting: list[tuple[int, int]] = []
        self._watching: dict[int, list[int]] = {}
        self.start = [-1] * count
        self.end = [-1] * count

    def to_the_end(self) -> None:
        """Run everything."""
        claims, lanes, waiting, rules = self._claims, self._lanes, self._waiting, self._rules
        guards, free, now = rules.packing.guards, rules.packing.free, 0
        running: list[int] = []
        left: list[int] = []
        stretches: list[int] = []
        for lane in range(len(lanes)):
            self._look_at(lane)
        while waiting or running:
            if not running and len(waiting) == 1:  # nothing can run beside it
                ready, lane = waiting.pop()
                task = lanes[lane][self._next[lane]]
                claim = claims[task]
                self.start[task] = start = max(now, ready)
                now = start - -claim.work * max(_WHOLE, claim.hbm) // _WHOLE
                self._ended(task, now)
                continue
            known = len(running)
            free = self._start_ready(running, left, free, guards, now)
            if len(running) != known or not stretches:
                stretches = rules.stretches([claims[task] for task in running]) if running else []
            upcoming = [now - -todo * stretch // _WHOLE for todo, stretch in zip(left, stretches, strict=True)]
            upcoming += [ready for ready, _ in waiting if ready > now]
            if not upcoming:
                break
            passed, now = min(upcoming) - now, min(upcoming)
            ended = False
            for number, stretch in enumerate(stretches):
                left[number] -= passed * _WHOLE // stretch
                ended = ended or left[number] <= 0
            if ended:
                done = [task for task, todo in zip(running, left, strict=True) if todo <= 0]
                running = [task for task, todo in zip(running, left, strict=True) if todo > 0]
                left = [todo for todo in left if todo > 0]
                stretches = []
                for task in done:
                    free += claims[task].demand
                    self._ended(task, now)

    def _start_ready(self, running: list[int], left: list[int], free: int, guards: int, now: int) -> int:
        """Start every head that can start now, in the order in which they became ready; return what is left free."""
        waiting, claims = self._waiting, self._claims
        while True:
            due = [entry for entry in waiting if entry[0] <= now]
            if len(due) > 1:
                due.sort()
            held, again = 0, False
            for entry in due:
                lane = entry[1]
                task = self._lanes[lane][self._next[lane]]
                claim = claims[task]
                if claim.kinds & held or (free - claim.demand) & guards != guards:
                    held |= claim.kinds
                    continue
                waiting.remove(entry)
                self.start[task] = now
                if claim.work:
                    running.append(task)
                    left.append(claim.work)
                    free -= claim.demand
                else:
                    self._ended(task, now)
                    again = True
            if not again:
                return free

    def _ended(self, task: int, now: int) -> None:
        """Note the end of a task and look at the heads that waited for it."""
        self.end[task] = now
        lane = self._lane[task]
        self._next[lane] += 1
        self._idle[lane] = now
        self._look_at(lane)
        for other in self._watching.pop(task, ()):
            self._look_at(other)

    def _look_at(self, lane: int) -> None:
        """Find out when the head of an idle lane is ready, or which end it waits for."""
        queue, at = self._lanes[lane], self._next[lane]
        if at == len(queue):
            return
        head, ready, end = queue[at], self._idle[lane], self.end
        for before in self._before[head]:
            if self._lane[before] != lane:
                if end[before] < 0:
                    self._watching.setdefault(before, []).append(lane)
                    return
                ready = max(ready, end[before] + self._sync)
        self._waiting.append((ready, lane))
