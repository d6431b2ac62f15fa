"""Sets of tasks as the bits of an integer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def bits(tasks: Sequence[int]) -> int:
    """Return the set of some tasks, none of them twice."""
    return sum(1 << task for task in tasks)


def members(tasks: int) -> Iterator[int]:
    """Yield the tasks of a set, by number."""
    while tasks:
        bit = tasks & -tasks
        tasks ^= bit
        yield bit.bit_length() - 1
