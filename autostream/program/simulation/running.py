"""The rules by which the steps of a program run: who may start, how fast it goes, what its end lets go.

Steps are numbers, on each lane (stream) in the order in which they run there. All times are integer picoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from autostream.cost.model import Machine, Resources

#: Picoseconds in a nanosecond.
PS = 1000
#: The whole, where shares are thousandths: all of the HBM bandwidth, a time that nothing stretches.
WHOLE = 1000


class Slowdowns(NamedTuple):
    """What steps that run at the same time cost each other, in thousandths; see `Machine`."""

    hbm_contention: int
    cube_vector: int
    compute_comm: int

    @classmethod
    def of(cls, machine: Machine, error: int = 0) -> Slowdowns:
        """Return those of a machine, off by `error` thousandths, but never below no slowdown at all."""
        factors = machine.hbm_contention, machine.cube_vector_slowdown, machine.compute_comm_slowdown
        return cls(*(max(WHOLE, _scaled(factor, WHOLE + error)) for factor in factors))


class Tasks:
    """What stays the same from run to run: where steps run, what they hold, and for what they wait."""

    def __init__(self, lane: Sequence[int], waits: Sequence[Sequence[int]], held: Sequence[Resources], machine: Machine) -> None:
        """Make steps ready to be run.

        Args:
            lane: of each step, from 0 without a gap; of steps that are ready at the same time that on the lowest is first.
            waits: steps that each step waits for, ascending; the order of a lane need not be in it.
            held: what each step holds while it runs.
            machine: what there is, and what steps that run at the same time cost each other.
        """
        self.machine = machine
        self.slowdowns = Slowdowns.of(machine)
        self.lane = lane
        self.waits = waits
        self.held = held
        self.capacity = (machine.aic, machine.aiv, 1)
        self.needs = [(min(r.aic, machine.aic), min(r.aiv, machine.aiv), min(r.comm, 1)) for r in held]
        self.hbm = [r.hbm for r in held]
        #: The time of each step that runs alone, in thousandths of the one that was predicted.
        self.alone = [max(WHOLE, share) for share in self.hbm]
        self.collective = [r.comm > 0 for r in held]
        #: On cube or vector cores, and no collective.
        self.kernel = [not r.comm and (r.aic > 0 or r.aiv > 0) for r in held]
        self.lanes: list[list[int]] = [[] for _ in range(max(lane, default=-1) + 1)]
        #: Steps to which the end of each step matters, and of how many steps the end matters to each. On a lane steps end in
        #: order: of several on one lane the last matters, and earlier ones on the own lane do not.
        self.after: list[list[int]] = [[] for _ in held]
        self.missing = [0] * len(held)
        for step, before_it in enumerate(waits):
            self.lanes[lane[step]].append(step)
            last = {lane[before]: before for before in before_it}
            for other, before in last.items():
                if other != lane[step] or before >= step:
                    self.after[before].append(step)
                    self.missing[step] += 1
        self._known: dict[Slowdowns, dict[tuple[int, ...], tuple[int, ...]]] = {}

    def known_stretches(self, slowdowns: Slowdowns) -> dict[tuple[int, ...], tuple[int, ...]]:
        """Return what `stretches` has found so far."""
        return self._known.setdefault(slowdowns, {})

    def stretches(self, running: Sequence[int], slowdowns: Slowdowns) -> tuple[int, ...]:
        """Return the time of every running step, in thousandths of the one that was predicted.

        Users of the memory share what it gives to several of them. A step on cores is stretched beside another one, a collective
        and a step on cores beside each other; that comes on top of the memory, once however many run.
        """
        key, known = tuple(running), self.known_stretches(slowdowns)
        found = known.get(key)
        if found is None:
            found = known[key] = self._beside_each_other(key, slowdowns)
        return found

    def _beside_each_other(self, running: Sequence[int], slowdowns: Slowdowns) -> tuple[int, ...]:
        if len(running) < 2:
            return tuple(self.alone[step] for step in running)
        shares = [self.hbm[step] for step in running]
        users, wanted = len(shares) - shares.count(0), sum(shares)
        memory = max(WHOLE, _scaled(wanted, slowdowns.hbm_contention) if users > 1 else wanted)
        collectives = sum(self.collective[step] for step in running)
        kernels = sum(self.kernel[step] for step in running)
        beside_comm = slowdowns.compute_comm if collectives else WHOLE
        kernel = _scaled(slowdowns.cube_vector, beside_comm) if kernels > 1 else beside_comm
        collective = slowdowns.compute_comm if kernels else WHOLE
        stretches = []
        for step, share in zip(running, shares, strict=True):
            beside = kernel if self.kernel[step] else collective if self.collective[step] else WHOLE
            stretches.append(_scaled(beside, memory) if share else beside)
        return tuple(stretches)


def _scaled(value: int, thousandths: int) -> int:
    """Return value x thousandths / 1000, rounded up."""
    return -(-value * thousandths // WHOLE)


def run(tasks: Tasks, work: Sequence[int], sync: int, slowdowns: Slowdowns | None = None) -> tuple[list[int], list[int]]:
    """Return when each step starts and ends, ps; -1 for steps that wait for each other and never run.

    Simulation spends its time here: hence one loop with hardly a call in it. In each turn what is ready starts, then time goes on
    to where something ends or becomes ready, and what has ended lets others go.

    Args:
        tasks: the steps.
        work: how long each takes alone where nothing is short, ps.
        sync: price of a wait between lanes, ps.
        slowdowns: what steps that run at the same time cost each other; None: what the machine says.
    """
    slowdowns = slowdowns or tasks.slowdowns
    lanes, needs, after, alone, known = tasks.lane, tasks.needs, tasks.after, tasks.alone, tasks.known_stretches(slowdowns)
    left, missing, starts, ends = list(work), tasks.missing.copy(), [-1] * len(work), [-1] * len(work)
    # What each lane has still to run, the next one last; when that may start, by lane, where all it waits for has ended; when the
    # last of that which has ended lets each step go.
    queues = [lane[::-1] for lane in tasks.lanes]
    ready = {lane: 0 for lane, queue in enumerate(queues) if not missing[queue[-1]]}
    arrival = [0] * len(work)
    free_aic, free_aiv, free_comm = tasks.capacity
    running: list[int] = []
    now = 0
    while ready or running:
        ended: list[int] = []
        if len(ready) == 1 and not running:  # nothing can come beside it
            lane, time = ready.popitem()
            step = queues[lane][-1]
            starts[step] = now = max(time, now)
            now -= -left[step] * alone[step] // WHOLE
            ended.append(step)
        else:
            # What is wanted by a step that was ready earlier and does not fit: later ones do not take it away from that step.
            held_aic = held_aiv = held_comm = 0
            due = [(time, lane) for lane, time in ready.items() if time <= now] if ready else []
            if len(due) > 1:
                due.sort()
            for _, lane in due:
                step = queues[lane][-1]
                aic, aiv, comm = needs[step]
                if (
                    (aic and (held_aic or aic > free_aic))
                    or (aiv and (held_aiv or aiv > free_aiv))
                    or (comm and (held_comm or comm > free_comm))
                ):
                    held_aic, held_aiv, held_comm = held_aic or aic, held_aiv or aiv, held_comm or comm
                    continue
                del ready[lane]
                starts[step] = now
                if left[step]:
                    running.append(step)
                    free_aic -= aic
                    free_aiv -= aiv
                    free_comm -= comm
                else:
                    ended.append(step)
            if not ended:  # what takes no time may let others start before time goes on
                stretches = known.get(tuple(running)) or tasks.stretches(running, slowdowns)
                # strict=True would cost a fifth of the whole time; both are as long as `running`.
                upcoming = [now - -left[step] * stretch // WHOLE for step, stretch in zip(running, stretches)]  # noqa: B905
                if ready:
                    upcoming += [time for time in ready.values() if time > now]
                before, now = now, min(upcoming)
                passed = (now - before) * WHOLE
                for step, stretch in zip(running, stretches):  # noqa: B905
                    left[step] -= passed // stretch
                    if left[step] <= 0:
                        ended.append(step)
                for step in ended:
                    running.remove(step)
                    aic, aiv, comm = needs[step]
                    free_aic += aic
                    free_aiv += aiv
                    free_comm += comm
        for step in ended:
            ends[step] = now
            queue = queues[lanes[step]]
            queue.pop()
            if queue and not missing[queue[-1]]:
                ready[lanes[step]] = max(now, arrival[queue[-1]])
            for waiting in after[step]:
                missing[waiting] -= 1
                arrival[waiting] = now + sync
                if not missing[waiting] and queues[lanes[waiting]][-1] == waiting:
                    ready[lanes[waiting]] = now + sync
    return starts, ends
