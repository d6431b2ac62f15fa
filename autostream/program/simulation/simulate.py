"""Simulate a program: in-order streams, waits, exclusive cores, shared memory bandwidth, interference.

Time is kept in integer picoseconds so that equal programs give equal timelines everywhere; slots are in nanoseconds.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from autostream.cost.model import FREE, Cost, Machine
from autostream.errors import VerificationError
from autostream.program.model import Slot, StreamProgram, Timeline
from autostream.program.order import Order, order_of
from autostream.program.simulation.parts import Parts, cut
from autostream.program.simulation.running import PS, Slowdowns, Tasks, run


def simulate(program: StreamProgram, costs: Mapping[str, Cost], machine: Machine) -> Timeline:
    """Return when every step with a task runs.

    Streams run their steps in emission order. A step starts when the step before it on its stream has ended, everything it
    waits for has ended (plus ``machine.sync`` where that is on another stream), and its cores and the communication engine
    are free. Streams are served in the order they became ready; a later one does not overtake an earlier one on a resource
    that both need. Where the bandwidth wanted by the running steps exceeds what there is, those that use it are stretched in
    proportion for as long as that lasts. What operators that run at the same time cost each other beyond that comes from the
    machine (see `autostream.program.simulation.running.Tasks`); a program on one stream pays none of it.

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
        #: An error band may reach below nothing; a wait never takes less than that.
        self._sync = max(0, machine.sync)
        #: Under which name each step finds its cost; its own for one without.
        self.keys = tuple(_keys(program, self._order, costs))
        found = [costs.get(key, FREE) for key in self.keys]
        #: Of each step, as predicted, ns.
        self.durations = tuple(cost.duration for cost in found)
        number = {stream: lane for lane, stream in enumerate(dict.fromkeys(self._order.streams))}
        lanes = [number[stream] for stream in self._order.streams]
        self._tasks = Tasks(lanes, self._order.waits, [cost.resources for cost in found], machine)

    @property
    def tasks(self) -> int:
        """Steps with a task."""
        return len(self.keys)

    def timeline(self) -> Timeline:
        """Return when every step with a task runs at the predicted costs; see `simulate`."""
        order, streams = self._order, self._order.streams
        starts, ends = self._run(self.durations, self._sync)
        slots = sorted(
            (
                Slot(step=name, stream=stream, start=_ns(start), end=_ns(end))
                for name, stream, start, end in zip(order.names, streams, starts, ends, strict=True)
            ),
            key=lambda slot: slot.start,
        )
        return Timeline(
            slots=tuple(slots),
            makespan=_ns(max(ends, default=0)),
            crossings=sum(streams[b] != streams[a] for a, waits in enumerate(order.waits) for b in waits),
        )

    def makespan(
        self, durations: Sequence[int] | None = None, *, sync: int | None = None, slowdowns: Slowdowns | None = None
    ) -> int:
        """Return when the last step ends, ns.

        Args:
            durations: of each step, ns; None: as predicted.
            sync: price of a wait between streams, ns; None: the machine's.
            slowdowns: what operators that run at the same time cost each other; None: what the machine says.

        Raises:
            VerificationError: the program waits for itself and never ends.
        """
        taken = self.durations if durations is None else durations
        price = max(0, self._sync if sync is None else sync)
        if self._parts is None:
            return _ns(max(self._run(taken, price)[1]))
        return _ns(self._parts.length(taken, price, slowdowns))

    @functools.cached_property
    def _parts(self) -> Parts | None:
        return cut(self._tasks)

    def _run(self, durations: Sequence[int], sync: int) -> tuple[list[int], list[int]]:
        """Return when each step starts and ends, ps."""
        starts, ends = run(self._tasks, [duration * PS for duration in durations], sync * PS)
        if -1 in ends:
            raise VerificationError(self._deadlock(ends))
        return starts, ends

    def _deadlock(self, ends: Sequence[int]) -> str:
        order = self._order
        heads = [next((step for step in lane if ends[step] < 0), None) for lane in self._tasks.lanes]
        missing = "; ".join(
            f"{order.names[head]!r} on stream {order.streams[head]!r} waits for "
            + ", ".join(repr(order.names[before]) for before in order.waits[head] if ends[before] < 0)
            for head in heads
            if head is not None
        )
        return f"the program deadlocks: {missing}"


def _ns(picoseconds: int) -> int:
    return (picoseconds + PS // 2) // PS


def _keys(program: StreamProgram, order: Order, costs: Mapping[str, Cost]) -> list[str]:
    source = {step.name: step.source for step in program.steps}
    last = {source[name]: name for name in order.names}
    return [
        source[name] if name not in costs and last[source[name]] == name and source[name] in costs else name
        for name in order.names
    ]
