"""When the tasks of a plan run: the rule by which the machine grants what they need.

Streams run their tasks in order. A task is *ready* when the one before it on its stream has ended and a sync has passed since the
end of each predecessor on another stream. Cores go to the stream that was ready first; a later one does not overtake it on a kind
of core that both need. Users of the memory that ask for more than there is share it, and what runs at the same time interferes.
This is the rule of `autostream.program.simulate`, on numbered tasks, because searches ask it thousands of times.

Times are integer picoseconds, so that rounding is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from autostream.scheduling.machine.resources import Demand, Packing

PS = 1000
#: The whole, where shares are thousandths.
_WHOLE = 1000
#: Later than anything, ps.
_NEVER = 1 << 80


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
    #: What decides how it stretches others and is stretched.
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the machine has, and what tasks that run at the same time cost each other, in thousandths."""

    packing: Packing
    hbm_contention: int
    cube_vector_slowdown: int
    compute_comm_slowdown: int
    #: The stretches that are known already, by the weights of what runs: a search asks for the same ones over and over.
    known: dict[tuple[int, ...], list[int]] = field(default_factory=dict, compare=False, repr=False)

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
            weight=hbm << 2 | (not comm and (aic > 0 or aiv > 0)) << 1 | (comm > 0),
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
        self._rules, self._claims, self._before, self._sync = rules, claims, before, sync
        self._lane = [0] * count
        for number, lane in enumerate(lanes):
            for task in lane:
                self._lane[task] = number
        #: What each lane has still to run, the next one last, and since when it is idle.
        self._queues = [[*reversed(lane)] for lane in lanes]
        self._idle = [0] * len(lanes)
        #: Heads that may start, as (ready, lane, task), and lanes by the task whose end their head waits for.
        self._waiting: list[tuple[int, int, int]] = []
        self._watching: dict[int, list[int]] = {}
        self.start = [-1] * count
        self.end = [-1] * count

    def to_the_end(self) -> None:
        """Run everything."""
        claims, waiting, known = self._claims, self._waiting, self._rules.known
        guards, free, now = self._rules.packing.guards, self._rules.packing.free, 0
        running: list[int] = []
        left: list[int] = []
        stretches: Sequence[int] = ()
        self._look_at(range(len(self._queues)))
        while waiting or running:  # searches spend their time here: plain loops, for calls and comprehensions cost as much again
            if not running and len(waiting) == 1:  # nothing can run beside it
                now = self._run_alone(now)
                continue
            free = self._start_ready(running, left, free, guards, now)
            if len(stretches) != len(running):
                key = tuple([claims[task].weight for task in running])
                stretches = known.get(key, ())
                if not stretches:
                    stretches = known[key] = self._rules.stretches([claims[task] for task in running])
            soonest = _NEVER
            for todo, stretch in zip(left, stretches, strict=True):
                time = now - -todo * stretch // _WHOLE
                if time < soonest:
                    soonest = time
            for time, _, _ in waiting:
                if now < time < soonest:
                    soonest = time
            if soonest == _NEVER:
                break
            passed, now, ended = (soonest - now) * _WHOLE, soonest, False
            for number, stretch in enumerate(stretches):
                left[number] -= passed // stretch
                if left[number] <= 0:
                    ended = True
            if ended:
                for number in range(len(running) - 1, -1, -1):
                    if left[number] <= 0:
                        task = running.pop(number)
                        del left[number]
                        free += claims[task].demand
                        self._ended(task, now)
                stretches = ()

    def _run_alone(self, now: int) -> int:
        """Run the only head there is, and what follows it, until there is another; return when that is."""
        waiting, claims, start = self._waiting, self._claims, self.start
        while len(waiting) == 1:
            ready, _, task = waiting.pop()
            claim = claims[task]
            start[task] = now = max(now, ready)
            now -= -claim.work * max(_WHOLE, claim.hbm) // _WHOLE
            self._ended(task, now)
        return now

    def _start_ready(self, running: list[int], left: list[int], free: int, guards: int, now: int) -> int:
        """Start every head that can start now, in the order in which they became ready; return what is left free."""
        waiting, claims = self._waiting, self._claims
        while True:
            for ready, _, _ in waiting:
                if ready <= now:
                    break
            else:
                return free
            due = sorted([entry for entry in waiting if entry[0] <= now])
            held, again = 0, False
            for entry in due:
                task = entry[2]
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
        self._queues[lane].pop()
        self._idle[lane] = now
        watching = self._watching.pop(task, None)
        self._look_at((lane,) if watching is None else (lane, *watching))

    def _look_at(self, lanes: Iterable[int]) -> None:
        """Find out when the heads of idle lanes are ready, or which ends they wait for."""
        end, lane_of, sync = self.end, self._lane, self._sync
        for lane in lanes:
            queue = self._queues[lane]
            if not queue:
                continue
            head, ready = queue[-1], self._idle[lane]
            for before in self._before[head]:
                if lane_of[before] != lane:
                    ended = end[before]
                    if ended < 0:
                        self._watching.setdefault(before, []).append(lane)
                        break
                    if ended + sync > ready:
                        ready = ended + sync
            else:
                self._waiting.append((ready, lane, head))
