"""Renewable resources: what a task holds while it runs and gives back when it ends.

Demands are *packed*: one integer with a field for each resource and a guard bit above each field, so that one subtraction
compares them all, however many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

#: What a task holds, by resource.
Demand = tuple[int, ...]


class NumberedMode(NamedTuple):
    """One way to run a task; the demand is clipped to what there is."""

    duration: int
    demand: Demand


class Packing:
    """The fields of a packed demand."""

    def __init__(self, capacity: Demand) -> None:
        self._shifts: list[int] = []
        self.guards = 0
        shift = 0
        for limit in capacity:
            self._shifts.append(shift)
            shift += limit.bit_length() + 1
            self.guards |= 1 << (shift - 1)
        #: Everything is free; the guard bits are set.
        self.free = self.pack(capacity) | self.guards

    def pack(self, demand: Sequence[int]) -> int:
        """Return a demand (within the capacity) as one integer."""
        return sum(held << shift for held, shift in zip(demand, self._shifts, strict=True))
