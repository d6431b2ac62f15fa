"""What the compiled graphs of one process take together of what a driver has few of: streams and events.

A driver gives these to a process, not to a graph: many captured batch sizes, or two families of graphs, run out of them although
each graph alone is modest. Compiled graphs are never taken apart, so only a plan that is not used gives back what it took.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from autostream.cost.model import Machine
from autostream.graph.model import OpGraph, Unit
from autostream.options import Options
from autostream.program.kinds import DEFAULT, HCCL
from autostream.program.model import StreamProgram
from autostream.program.order import cross_edges


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Streams (the default one counts) and events of one graph, or of several together."""

    streams: int
    events: int

    def __add__(self, other: Need) -> Need:
        return Need(streams=self.streams + other.streams, events=self.events + other.events)

    def __sub__(self, other: Need) -> Need:
        return Need(streams=self.streams - other.streams, events=self.events - other.events)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Streams and events that a process may take; None where no limit is known."""

    streams: int | None
    events: int | None

    @classmethod
    def of(cls, machine: Machine, options: Options) -> Limits:
        """Return the user's limits, and the chip's where the user says nothing."""
        return cls(
            streams=machine.max_streams if options.stream_budget is None else options.stream_budget,
            events=machine.max_events if options.event_budget is None else options.event_budget,
        )

    def allow(self, need: Need) -> bool:
        """Return True if both are within their limits."""
        return all(limit is None or amount <= limit for amount, limit in self._pairs(need))

    def fit(self, need: Need) -> int | None:
        """Return how many graphs that each need this much fit into an empty process; None if nothing limits them."""
        return min((limit // amount for amount, limit in self._pairs(need) if limit is not None and amount), default=None)

    def _pairs(self, need: Need) -> tuple[tuple[int, int | None], tuple[int, int | None]]:
        return (need.streams, self.streams), (need.events, self.events)


class Ledger:
    """Counts what graphs take; may be used from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used = Need(streams=0, events=0)
        self._graphs = 0

    @property
    def used(self) -> Need:
        """What has been taken so far."""
        return self._used

    def left(self, limits: Limits) -> Limits:
        """Return what is left of the limits, below 0 where what runs as it is takes more."""
        used = self._used
        return Limits(
            streams=None if limits.streams is None else limits.streams - used.streams,
            events=None if limits.events is None else limits.events - used.events,
        )

    def reserve(self, need: Need, limits: Limits) -> str | None:
        """Take what one graph needs and return None, or take nothing and return why that is too much."""
        with self._lock:
            if not limits.allow(self._used + need):
                return _explain(need, self._used, self._graphs, limits)
            self._take(need)
            return None

    def charge(self, need: Need) -> None:
        """Take what a graph that runs as it is needs, whatever the limits."""
        with self._lock:
            self._take(need)

    def release(self, need: Need) -> None:
        """Give back what was reserved for a plan that is not used after all."""
        with self._lock:
            self._used -= need
            self._graphs -= 1

    def reset(self) -> None:
        """Forget everything."""
        with self._lock:
            self._used = Need(streams=0, events=0)
            self._graphs = 0

    def _take(self, need: Need) -> None:
        self._used += need
        self._graphs += 1


#: The ledger of this process, for every graph that is compiled in it.
process = Ledger()


def reset() -> None:
    """Empty the ledger of this process, as a test needs it; compiled graphs go on holding what they have."""
    process.reset()


def need_of(program: StreamProgram) -> Need:
    """Return what an emitted program takes: its streams, and one event for each wait between two of them."""
    return Need(streams=len(program.streams()), events=len(cross_edges(program)))


def need_as_given(graph: OpGraph | None) -> Need:
    """Return what a graph takes that is compiled as it is: the engine's own streams and those of the user's labels.

    One stream for a graph that was not read. Hand-written events are not counted.
    """
    tasks = [op for op in graph or () if op.unit is not Unit.FREE]
    streams = {op.stream or (HCCL if op.on_comm_stream else DEFAULT) for op in tasks}
    return Need(streams=max(1, len(streams)), events=0)


def _explain(need: Need, used: Need, graphs: int, limits: Limits) -> str:
    taken = " and ".join(
        f"{amount} of {limit} {what}"
        for what, amount, limit in (("streams", used.streams, limits.streams), ("events", used.events, limits.events))
        if limit is not None
    )
    return (
        f"the scheduled graph needs {need.streams} streams and {need.events} events; {graphs} graphs compiled in this process "
        f"hold {taken}, and {limits.fit(need)} graphs of this size fit into an empty process"
    )
