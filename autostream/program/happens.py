"""Happens-before between the steps of a program."""

from __future__ import annotations

from collections.abc import Sequence

from autostream.errors import VerificationError
from autostream.program.model import Semantics, StreamProgram
from autostream.program.order import Order, find_cycle, linear_extension, order_of, predecessors


class HappensBefore:
    """Answers whether one step has ended before another starts, in every run of the program.

    The engine may remove some steps (an Identity). Between two other steps, the place of such a step on its stream proves
    nothing; what concerns the step itself is judged as if it stays.
    """

    def __init__(self, order: Order, *, stream_order: bool) -> None:
        placed = predecessors(order, stream_order=stream_order)
        cycle = find_cycle(placed)
        if cycle:
            raise VerificationError(f"the program waits for itself: {' -> '.join(order.names[i] for i in (*cycle, cycle[0]))}")
        sequence = linear_extension(placed)
        #: Steps with a task in an order that respects happens-before.
        self.sequence = tuple(order.names[position] for position in sequence)
        self._index = {name: position for position, name in enumerate(order.names)}
        self._may_vanish = order.may_vanish
        lanes = order.streams if stream_order else None
        self._placed = _Clocks(sequence, placed, lanes)
        self._certain = self._placed
        if stream_order and any(order.may_vanish):
            alone = [f"{i}" if vanishes else f"stream {order.streams[i]}" for i, vanishes in enumerate(order.may_vanish)]
            self._certain = _Clocks(sequence, predecessors(order, stream_order=True, vanishing=False), alone)

    def before(self, first: str, second: str) -> bool:
        """Return True if `first` has always ended when `second` starts; False if either has no task."""
        one, two = self._index.get(first), self._index.get(second)
        if one is None or two is None:
            return False
        clocks = self._placed if self._may_vanish[one] or self._may_vanish[two] else self._certain
        return clocks.before(one, two)

    def ordered(self, one: str, two: str) -> bool:
        """Return True if one of the two always comes before the other."""
        return self.before(one, two) or self.before(two, one)


def happens_before(program: StreamProgram, *, stream_order: bool | None = None) -> HappensBefore:
    """Return the happens-before relation of a program.

    Args:
        program: what was read back from a graph.
        stream_order: True if the emission order of one stream counts. None: it does in capture modes, and in GE mode if the
            program says that the engine keeps it.

    Raises:
        VerificationError: the program waits for itself; the cycle is in the message.
    """
    if stream_order is None:
        stream_order = keeps_stream_order(program)
    return HappensBefore(order_of(program), stream_order=stream_order)


def keeps_stream_order(program: StreamProgram) -> bool:
    """Return True if steps of one stream run in emission order."""
    return program.in_order or program.semantics is Semantics.CAPTURE


class _Clocks:
    """Vector clocks: per step and lane, the last place on the lane that is known to be over; places count from 1.

    Without lanes every step is a lane of its own: its clock entries are then 0 or 1 and kept as bits.
    """

    def __init__(self, sequence: Sequence[int], before: Sequence[Sequence[int]], lanes: Sequence[str] | None) -> None:
        self._bits: list[int] = []
        self._clocks: list[list[int]] = []
        self._lanes: list[int] = []
        self._places: list[int] = []
        if lanes is None:
            self._fill_bits(sequence, before)
        else:
            self._number(lanes)
            self._fill_clocks(sequence, before)

    def before(self, one: int, two: int) -> bool:
        if self._clocks:
            return self._clocks[two][self._lanes[one]] >= self._places[one]
        return bool(self._bits[two] >> one & 1)

    def _number(self, lanes: Sequence[str]) -> None:
        numbers: dict[str, int] = {}
        counts: list[int] = []
        for name in lanes:
            lane = numbers.setdefault(name, len(numbers))
            if lane == len(counts):
                counts.append(0)
            counts[lane] += 1
            self._lanes.append(lane)
            self._places.append(counts[lane])

    def _fill_clocks(self, sequence: Sequence[int], before: Sequence[Sequence[int]]) -> None:
        width = max(self._lanes, default=-1) + 1
        self._clocks = [[] for _ in sequence]
        for position in sequence:
            clock = [0] * width
            for source in before[position]:
                clock = list(map(max, clock, self._clocks[source]))
                clock[self._lanes[source]] = max(clock[self._lanes[source]], self._places[source])
            self._clocks[position] = clock

    def _fill_bits(self, sequence: Sequence[int], before: Sequence[Sequence[int]]) -> None:
        self._bits = [0] * len(sequence)
        for position in sequence:
            for source in before[position]:
                self._bits[position] |= self._bits[source] | 1 << source
