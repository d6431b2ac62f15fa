"""Simulate a program: in-order streams, waits, exclusive cores, shared memory bandwidth.

Time is kept in integer picoseconds so that equal programs give equal timelines everywhere; slots are in nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autostream.cost.model import FREE, Cost, Machine
from autostream.errors import VerificationError
from autostream.program.model import Slot, StreamProgram, Timeline
from autostream.program.order import Order, order_of

_PS = 1000
#: All of the HBM bandwidth.
_HBM = 1000


def simulate(program: StreamProgram, costs: Mapping[str, Cost], machine: Machine) -> Timeline:
    """Return when every step with a task runs.

    Streams run their steps in emission order. A step starts when the step before it on its stream has ended, everything it
    waits for has ended (plus ``machine.sync`` where that is on another stream), and its cores and the communication engine
    are free. Streams are served in the order they became ready; a later one does not overtake an earlier one on a resource
    that both need. Where the bandwidth wanted by the running steps exceeds what there is, those that use it are stretched in
    proportion for as long as that lasts.

    Args:
        program: what was read back from a graph.
        costs: by step name, else by FX node: of several steps for one node the last carries the cost. Without a cost: 0 ns.
        machine: cores and the price of a wait between streams.

    Raises:
        VerificationError: the program waits for itself and never ends.
    """
    order = order_of(program)
    run = _Run(order, _costs(program, order, costs), machine)
    run.to_the_end()
    slots = sorted(
        (
            Slot(step=name, stream=stream, start=_ns(start), end=_ns(end))
            for name, stream, start, end in zip(order.names, order.streams, run.starts, run.ends, strict=True)
        ),
        key=lambda slot: slot.start,
    )
    return Timeline(
        slots=tuple(slots),
        makespan=max((slot.end for slot in slots), default=0),
        crossings=sum(order.streams[b] != order.streams[a] for a, waits in enumerate(order.waits) for b in waits),
    )


def _ns(picoseconds: int) -> int:
    return (picoseconds + _PS // 2) // _PS


def _costs(program: StreamProgram, order: Order, costs: Mapping[str, Cost]) -> list[Cost]:
    """Return the cost of every step with a task."""
    source = {step.name: step.source for step in program.steps}
    last = {source[name]: name for name in order.names}
    found = []
    for name in order.names:
        by_source = costs.get(source[name]) if last[source[name]] == name else None
        found.append(costs.get(name) or by_source or FREE)
    return found


class _Run:
    """State of one simulation; steps are positions in `order`."""

    def __init__(self, order: Order, costs: Sequence[Cost], machine: Machine) -> None:
        self._order = order
        self._sync = machine.sync * _PS
        self._work = [cost.duration * _PS for cost in costs]
        self._hbm = [cost.resources.hbm for cost in costs]
        capacity = (machine.aic, machine.aiv, 1)
        self._needs = [
            tuple(min(need, most) for need, most in zip((r.aic, r.aiv, r.comm), capacity, strict=True))
            for r in (cost.resources for cost in costs)
        ]
        self._free = list(capacity)
        lanes: dict[str, list[int]] = {}
        for position, stream in enumerate(order.streams):
            lanes.setdefault(stream, []).append(position)
        self._lanes = list(lanes.values())
        self._next = [0] * len(self._lanes)
        self._lane_free = [0] * len(self._lanes)
        #: When the head of each lane may start, once known.
        self._ready: list[int | None] = [None] * len(self._lanes)
        self._running: dict[int, int] = {}  # step -> lane
        self._left = list(self._work)
        self._now = 0
        self.starts = [-1] * len(costs)
        self.ends = [-1] * len(costs)

    def to_the_end(self) -> None:
        while True:
            self._start_ready()
            upcoming = self._upcoming()
            if not upcoming:
                break
            self._advance(min(upcoming))
        stuck = [lane[self._next[i]] for i, lane in enumerate(self._lanes) if self._next[i] < len(lane)]
        if stuck:
            names = self._order.names
            missing = "; ".join(
                f"{names[head]!r} on stream {self._order.streams[head]!r} waits for "
                + ", ".join(repr(names[before]) for before in self._order.waits[head] if self.ends[before] < 0)
                for head in stuck
            )
            raise VerificationError(f"the program deadlocks: {missing}")

    # -- starting ---------------------------------------------------------------------------------------------------

    def _start_ready(self) -> None:
        """Start every head that can start now; a step without work ends at once and may free the next one."""
        progress = True
        while progress:
            progress = False
            held = [False] * len(self._free)
            self._find_ready()
            ready = [(time, lane) for lane, time in enumerate(self._ready) if time is not None and time <= self._now]
            for _, lane in sorted(ready):
                needs = self._needs[self._lanes[lane][self._next[lane]]]
                if all(need <= free and not taken for need, free, taken in zip(needs, self._free, held, strict=True) if need):
                    self._start(lane)
                    progress = True
                else:
                    held = [taken or need > 0 for taken, need in zip(held, needs, strict=True)]

    def _find_ready(self) -> None:
        """Find out when the head of each free lane may start, where that has become known."""
        for lane, steps in enumerate(self._lanes):
            if self._ready[lane] is None and self._next[lane] < len(steps) and self._lane_free[lane] >= 0:
                self._ready[lane] = self._ready_time(steps[self._next[lane]], self._lane_free[lane])

    def _ready_time(self, step: int, lane_free: int) -> int | None:
        time = lane_free
        for before in self._order.waits[step]:
            end = self.ends[before]
            if end < 0:
                return None
            crosses = self._order.streams[before] != self._order.streams[step]
            time = max(time, end + self._sync if crosses else end)
        return time

    def _start(self, lane: int) -> None:
        step = self._lanes[lane][self._next[lane]]
        self.starts[step] = self._now
        self._ready[lane] = None
        self._lane_free[lane] = -1
        for resource, need in enumerate(self._needs[step]):
            self._free[resource] -= need
        self._running[step] = lane
        if self._work[step] == 0:
            self._end(step)

    def _end(self, step: int) -> None:
        lane = self._running.pop(step)
        self.ends[step] = self._now
        self._next[lane] += 1
        self._lane_free[lane] = self._now
        for resource, need in enumerate(self._needs[step]):
            self._free[resource] += need

    # -- time -------------------------------------------------------------------------------------------------------

    def _wanted(self) -> int:
        """Return the bandwidth the running steps want, at least all there is: what their progress is divided by."""
        return max(_HBM, sum(self._hbm[step] for step in self._running))

    def _upcoming(self) -> list[int]:
        """Return the times at which something changes next."""
        wanted = self._wanted()
        times = [self._now + (-(-self._left[s] * wanted // _HBM) if self._hbm[s] else self._left[s]) for s in self._running]
        times += [ready for ready in self._ready if ready is not None and ready > self._now]
        return times

    def _advance(self, time: int) -> None:
        passed, wanted = time - self._now, self._wanted()
        self._now = time
        for step in list(self._running):
            self._left[step] -= passed * _HBM // wanted if self._hbm[step] else passed
            if self._left[step] <= 0:
                self._end(step)
