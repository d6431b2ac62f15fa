"""Happens-before between the steps of a program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from autostream.errors import VerificationError
from autostream.program.model import Semantics, StreamProgram
from autostream.program.order import Order, find_cycle, linear_extension, order_of, predecessors


class HappensBefore:
    """Answers whether one step has ended before another starts, in every run of the program.

    The engine may remove some steps (an Identity). Between two other steps, the place of such a step on its stream proves
    nothing; what concerns the step itself is judged as if it stays.

    Sets of steps are bit masks over the positions of the tasks in emission order: see `mask`.
    """

    def __init__(self, order: Order, *, stream_order: bool) -> None:
        placed = predecessors(order, stream_order=stream_order)
        sequence = linear_extension(placed)
        if len(sequence) < len(placed):
            cycle = find_cycle(placed)
            raise VerificationError(f"the program waits for itself: {' -> '.join(order.names[i] for i in (*cycle, cycle[0]))}")
        #: Steps with a task in an order that respects happens-before.
        self.sequence = tuple(order.names[position] for position in sequence)
        self._names = order.names
        self._index = {name: position for position, name in enumerate(order.names)}
        self._may_vanish = order.may_vanish
        self._vanishing = self.mask(name for name, vanishes in zip(order.names, order.may_vanish, strict=True) if vanishes)
        self._all = (1 << len(order.names)) - 1
        self._placed = _Reach(sequence, placed)
        self._certain = self._placed
        if stream_order and self._vanishing:
            self._certain = _Reach(sequence, predecessors(order, stream_order=True, vanishing=False))

    def before(self, first: str, second: str) -> bool:
        """Return True if `first` has always ended when `second` starts; False if either has no task."""
        one, two = self._index.get(first), self._index.get(second)
        if one is None or two is None:
            return False
        reach = self._placed if self._may_vanish[one] or self._may_vanish[two] else self._certain
        return bool(reach.past[two] >> one & 1)

    def ordered(self, one: str, two: str) -> bool:
        """Return True if one of the two always comes before the other."""
        return self.before(one, two) or self.before(two, one)

    def mask(self, names: Iterable[str]) -> int:
        """Return a set of steps with a task as a bit mask."""
        found = 0
        for name in names:
            found |= 1 << self._index[name]
        return found

    def unordered(self, name: str) -> int:
        """Return the other steps that come neither before nor after one step, as a bit mask."""
        position = self._index[name]
        placed = self._placed.ordered(position)
        if self._certain is self._placed or self._may_vanish[position]:
            return self._all & ~placed
        return self._all & ~(placed & self._vanishing | self._certain.ordered(position) & ~self._vanishing)

    def names_in(self, mask: int) -> Iterator[str]:
        """Yield the steps of a set in emission order."""
        while mask:
            low = mask & -mask
            yield self._names[low.bit_length() - 1]
            mask ^= low

    def first(self, mask: int) -> str:
        """Return the step of a set, not empty, that is emitted first."""
        return self._names[(mask & -mask).bit_length() - 1]


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


class _Reach:
    """Per step, what is over when it starts and what starts when it is over: one pass each way over the edges."""

    def __init__(self, sequence: Sequence[int], before: Sequence[Sequence[int]]) -> None:
        self.past = past = [0] * len(sequence)
        self._future = future = [0] * len(sequence)
        for position in sequence:
            behind = 0
            for source in before[position]:
                behind |= past[source] | 1 << source
            past[position] = behind
        for position in reversed(sequence):
            ahead = future[position] | 1 << position
            for source in before[position]:
                future[source] |= ahead

    def ordered(self, position: int) -> int:
        """Return the step itself and all that come before or after it."""
        return self.past[position] | self._future[position] | 1 << position
