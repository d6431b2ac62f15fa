"""Simulate a program: in-order streams, waits, exclusive cores, shared memory bandwidth, interference.

Time is kept in integer picoseconds so that equal programs give equal timelines everywhere; slots are in nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autostream.cost.model import FREE, Cost, Machine
from autostream.errors import VerificationError
from autostream.program.model import Slot, StreamProgram, Timeline
from autostream.program.order import Order, order_of

_PS = 1000
#: The whole, where shares are thousandths: all of the HBM bandwidth, a time that nothing stretches.
_WHOLE = 1000


def simulate(program: StreamProgram, costs: Mapping[str, Cost], machine: Machine) -> Timeline:
    """Return when every step with a task runs.

    Streams run their steps in emission order. A step starts when the step before it on its stream has ended, everything it
    waits for has ended (plus ``machine.sync`` where that is on another stream), and its cores and the communication engine
    are free. Streams are served in the order they became ready; a later one does not overtake an earlier one on a resource
    that both need. Where the bandwidth wanted by the running steps exceeds what there is, those that use it are stretched in
    proportion for as long as that lasts. What operators that run at the same time cost each other beyond that comes from the
    machine (see `_Run._stretches`); a program on one stream pays none of it.

    Args:
        program: what was read back from a graph.
        costs: by step name, else by FX node: of several steps for one node the last carries the cost. Without a cost: 0 ns.
        machine: cores, the price of a wait between streams, and the interference of operators that run at the same time.

    Raises:
        VerificationError: the program waits for itself and never ends.
    """
    return Simulator(program, costs, machine).timeline()


class Simulator:
    """A program made ready to be simulated many times with other durations, on the resources that `costs` hold.

    Arguments are those of `simulate`.
    """

    def __init__(self, program: StreamProgram, costs: Mapping[str, Cost], machine: Machine) -> None:
        self._order = order_of(program)
        self._sync = machine.sync
        #: Under which name each step finds its duration; None for one without a cost.
        self._keys = _keys(program, self._order, costs)
        found = [FREE if key is None else costs[key] for key in self._keys]
        self._durations = [cost.duration for cost in found]
        self._tasks = _Tasks(self._order, found, machine)

    @property
    def tasks(self) -> int:
        """Steps with a task."""
        return len(self._keys)

    def timeline(self) -> Timeline:
        """Return when every step with a task runs at the predicted costs; see `simulate`."""
        order, streams, run = self._order, self._order.streams, self._run(self._durations, self._sync)
        slots = sorted(
            (
                Slot(step=name, stream=stream, start=_ns(start), end=_ns(end))
                for name, stream, start, end in zip(order.names, order.streams, run.starts, run.ends, strict=True)
            ),
            key=lambda slot: slot.start,
        )
        return Timeline(
            slots=tuple(slots),
            makespan=_ns(max(run.ends, default=0)),
            crossings=sum(streams[b] != streams[a] for a, waits in enumerate(order.waits) for b in waits),
        )

    def makespan(self, durations: Mapping[str, int] | None = None, *, sync: int | None = None) -> int:
        """Return when the last step ends, ns.

        Args:
            durations: ns, under the names that `costs` has; None, or a name it lacks: as predicted.
            sync: price of a wait between streams, ns; None: the machine's.

        Raises:
            VerificationError: the program waits for itself and never ends.
        """
        taken = self._durations
        if durations is not None:
            named = zip(self._keys, taken, strict=True)
            taken = [predicted if key is None else durations.get(key, predicted) for key, predicted in named]
        run = self._run(taken, self._sync if sync is None else sync)
        return _ns(max(run.ends, default=0))

    def _run(self, durations: Sequence[int], sync: int) -> _Run:
        run = _Run(self._tasks, [duration * _PS for duration in durations], sync * _PS)
        run.to_the_end()
        return run


def _ns(picoseconds: int) -> int:
    return (picoseconds + _PS // 2) // _PS


def _keys(program: StreamProgram, order: Order, costs: Mapping[str, Cost]) -> list[str | None]:
    source = {step.name: step.source for step in program.steps}
    last = {source[name]: name for name in order.names}
    keys: list[str | None] = []
    for name in order.names:
        by_source = source[name] if last[source[name]] == name and source[name] in costs else None
        keys.append(name if name in costs else by_source)
    return keys


class _Tasks:
    """What stays the same from run to run; steps are positions in the order, lanes are streams by first use."""

    def __init__(self, order: Order, costs: Sequence[Cost], machine: Machine) -> None:
        self.order = order
        self.machine = machine
        self.capacity = (machine.aic, machine.aiv, 1)
        self.needs = [
            (min(r.aic, machine.aic), min(r.aiv, machine.aiv), min(r.comm, 1)) for r in (cost.resources for cost in costs)
        ]
        self.hbm = [cost.resources.hbm for cost in costs]
        self.collective = [cost.resources.comm > 0 for cost in costs]
        #: On cube or vector cores, and no collective.
        self.kernel = [not r.comm and (r.aic > 0 or r.aiv > 0) for r in (cost.resources for cost in costs)]
        number = {stream: lane for lane, stream in enumerate(dict.fromkeys(order.streams))}
        self.lane = [number[stream] for stream in order.streams]
        self.lanes: list[list[int]] = [[] for _ in number]
        #: Steps to which the end of each step matters, and of how many steps the end matters to each. On a stream steps end in
        #: order: of several on one stream the last matters, and earlier ones on the own stream do not.
        self.after: list[list[int]] = [[] for _ in costs]
        self.missing = [0] * len(costs)
        for step, waits in enumerate(order.waits):
            self.lanes[self.lane[step]].append(step)
            last = {self.lane[before]: before for before in waits}
            for lane, before in last.items():
                if lane != self.lane[step] or before >= step:
                    self.after[before].append(step)
                    self.missing[step] += 1


class _Run:
    """State of one simulation; all times in picoseconds."""

    def __init__(self, tasks: _Tasks, work: list[int], sync: int) -> None:
        self._tasks = tasks
        self._sync = sync
        self._left = work
        self._free = list(tasks.capacity)
        #: The steps of each lane that have not ended, the next one last.
        self._queue = [lane[::-1] for lane in tasks.lanes]
        #: When the head of each lane may start; None while that is not known or the lane is busy.
        self._ready: list[int | None] = [None] * len(tasks.lanes)
        self._missing = tasks.missing.copy()
        #: When the awaited steps that have ended let each step go.
        self._arrival = [0] * len(work)
        self._busy = [False] * len(tasks.lanes)
        self._running: list[int] = []
        self._now = 0
        self.starts = [-1] * len(work)
        self.ends = [-1] * len(work)

    def to_the_end(self) -> None:
        for lane in range(len(self._queue)):
            self._look_at(lane)
        left = self._left
        while True:
            self._run_alone()
            self._start_ready()
            stretches = self._stretches()
            now = self._now
            upcoming = [time for time in self._ready if time is not None and time > now]
            upcoming += [now - -left[step] * stretch // _WHOLE for step, stretch in zip(self._running, stretches, strict=True)]
            if not upcoming:
                break
            self._advance(min(upcoming), stretches)
        stuck = [queue[-1] for queue in self._queue if queue]
        if stuck:
            self._complain(stuck)

    def _complain(self, stuck: Sequence[int]) -> None:
        order = self._tasks.order
        missing = "; ".join(
            f"{order.names[head]!r} on stream {order.streams[head]!r} waits for "
            + ", ".join(repr(order.names[before]) for before in order.waits[head] if self.ends[before] < 0)
            for head in stuck
        )
        raise VerificationError(f"the program deadlocks: {missing}")

    def _run_alone(self) -> None:
        """Run steps one after another while nothing can run beside them: most of a program, without the bookkeeping."""
        ready, hbm = self._ready, self._tasks.hbm
        while not self._running and ready.count(None) == len(ready) - 1:
            lane, time = next((lane, time) for lane, time in enumerate(ready) if time is not None)
            step, start = self._queue[lane][-1], max(time, self._now)
            self.starts[step] = start
            ready[lane] = None
            self._now = start - -self._left[step] * max(_WHOLE, hbm[step]) // _WHOLE
            self._let_go(step, lane)

    # -- starting ---------------------------------------------------------------------------------------------------

    def _look_at(self, lane: int) -> None:
        """Find out when the head of a lane may start, if the lane is idle and all that the head waits for has ended."""
        queue = self._queue[lane]
        if queue and not self._busy[lane] and not self._missing[queue[-1]]:
            # An idle lane has been so since now at the latest: heads are looked at when something ends.
            self._ready[lane] = max(self._now, self._arrival[queue[-1]])

    def _start_ready(self) -> None:
        """Start every head that can start now; a step without work ends at once and may free the next one."""
        again = True
        while again:
            again = False
            now = self._now
            ready = [(time, lane) for lane, time in enumerate(self._ready) if time is not None and time <= now]
            if len(ready) > 1:
                ready.sort()
            held = (0, 0, 0)
            for _, lane in ready:
                step = self._queue[lane][-1]
                needs = self._tasks.needs[step]
                if self._fits(needs, held):
                    self._start(lane)
                    again = again or not self._left[step]
                else:
                    held = (held[0] or needs[0], held[1] or needs[1], held[2] or needs[2])

    def _fits(self, needs: tuple[int, int, int], held: tuple[int, int, int]) -> bool:
        """True if what a step needs is free and no step that was ready before it waits for the same."""
        free = self._free
        return (
            (not needs[0] or (needs[0] <= free[0] and not held[0]))
            and (not needs[1] or (needs[1] <= free[1] and not held[1]))
            and (not needs[2] or (needs[2] <= free[2] and not held[2]))
        )

    def _start(self, lane: int) -> None:
        step = self._queue[lane][-1]
        self.starts[step] = self._now
        self._ready[lane] = None
        self._busy[lane] = True
        free, needs = self._free, self._tasks.needs[step]
        free[0] -= needs[0]
        free[1] -= needs[1]
        free[2] -= needs[2]
        self._running.append(step)
        if not self._left[step]:
            self._end(step)

    def _end(self, step: int) -> None:
        self._running.remove(step)
        lane, needs, free = self._tasks.lane[step], self._tasks.needs[step], self._free
        self._busy[lane] = False
        free[0] += needs[0]
        free[1] += needs[1]
        free[2] += needs[2]
        self._let_go(step, lane)

    def _let_go(self, step: int, lane: int) -> None:
        """Note that a step has ended now, and look at the heads that waited for that."""
        tasks, now = self._tasks, self._now
        missing, arrival = self._missing, self._arrival
        self.ends[step] = now
        self._queue[lane].pop()
        self._look_at(lane)
        for after in tasks.after[step]:
            missing[after] -= 1
            arrival[after] = max(arrival[after], now + self._sync)
            if not missing[after]:
                other = tasks.lane[after]
                if self._queue[other][-1] == after:
                    self._look_at(other)

    # -- time -------------------------------------------------------------------------------------------------------

    def _stretches(self) -> list[int]:
        """Return the time of every running step, in thousandths of its time alone.

        Users of the memory share what it gives to several of them. A step on cores is stretched beside another one, a collective
        and a step on cores beside each other; that comes on top of the memory, once however many run.
        """
        tasks, running = self._tasks, self._running
        if len(running) < 2:
            return [max(_WHOLE, tasks.hbm[step]) for step in running]
        machine = tasks.machine
        shares = [tasks.hbm[step] for step in running]
        users, wanted = len(shares) - shares.count(0), sum(shares)
        memory = max(_WHOLE, _scaled(wanted, machine.hbm_contention) if users > 1 else wanted)
        collectives = sum([tasks.collective[step] for step in running])
        kernels = sum([tasks.kernel[step] for step in running])
        beside_comm = machine.compute_comm_slowdown if collectives else _WHOLE
        kernel = _scaled(machine.cube_vector_slowdown, beside_comm) if kernels > 1 else beside_comm
        collective = machine.compute_comm_slowdown if kernels else _WHOLE
        stretches = []
        for step, share in zip(running, shares, strict=True):
            beside = kernel if tasks.kernel[step] else collective if tasks.collective[step] else _WHOLE
            stretches.append(_scaled(beside, memory) if share else beside)
        return stretches

    def _advance(self, time: int, stretches: Sequence[int]) -> None:
        passed = time - self._now
        self._now = time
        left = self._left
        for step, stretch in zip(tuple(self._running), stretches, strict=True):
            left[step] -= passed * _WHOLE // stretch
            if left[step] <= 0:
                self._end(step)


def _scaled(value: int, thousandths: int) -> int:
    """Return value x thousandths / 1000, rounded up."""
    return -(-value * thousandths // _WHOLE)
