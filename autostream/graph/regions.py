"""Where in a buffer a view lies, and whether two views of one buffer have a byte in common.

The storage is taken to start at the start of a block. The test is exact for any two strided boxes; where it would take too many
steps, and where a view's place is not known, the answer is that they overlap.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

#: Bytes of memory that are written together.
_BLOCK = 32
#: Steps that one test may take before it gives up and says "overlap".
_BUDGET = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """The bytes ``offset + sum(i[k] * strides[k])``, ``0 <= i[k] < sizes[k]``, of one buffer.

    Make one with `region`, so that equal sets of bytes written differently are more often equal.
    """

    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def end(self) -> int:
        """The byte after the last one."""
        return self.offset + sum((size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True)) + 1


def region(*, offset: int, sizes: Sequence[int], strides: Sequence[int], itemsize: int) -> Region | None:
    """Return the bytes of a strided tensor (offset and strides in elements, none negative), or None if it has none."""
    if any(size == 0 for size in sizes):
        return None
    dims = [(size, stride * itemsize) for size, stride in zip(sizes, strides, strict=True) if size > 1 and stride]
    merged: list[tuple[int, int]] = []
    for size, stride in sorted([*dims, (itemsize, 1)], key=lambda dim: (dim[1], dim[0])):
        inner = merged[-1] if merged else None
        if inner is not None and stride == inner[0] * inner[1]:  # the two dimensions run on into each other
            merged[-1] = (inner[0] * size, inner[1])
        else:
            merged.append((size, stride))
    return Region(
        offset=offset * itemsize, sizes=tuple(size for size, _ in merged), strides=tuple(stride for _, stride in merged)
    )


def in_blocks(part: Region) -> Region:
    """Return the blocks of memory that a part lies in, as a region that holds at least these.

    Vector cores move whole blocks of 32 bytes (Ascend C, DataCopy): of two kernels that write into one block at the same time,
    one may put back what the block held before.
    """
    run = 1
    outer: list[tuple[int, int]] = []
    for size, stride in zip(part.sizes, part.strides, strict=True):
        if stride % _BLOCK:
            run += (size - 1) * stride
        else:
            outer.append((size, stride))
    start = part.offset % _BLOCK
    run = -(-(start + run) // _BLOCK) * _BLOCK
    return Region(
        offset=part.offset - start, sizes=(run, *(size for size, _ in outer)), strides=(1, *(stride for _, stride in outer))
    )


def overlap(one: Region, two: Region) -> bool:
    """Return False only if the two certainly have no byte in common."""
    if one.end <= two.offset or two.end <= one.offset:
        return False
    # one.offset + sum(i * s) == two.offset + sum(j * t): of equal strides only the difference of the two sums matters.
    low: dict[int, int] = {}
    high: dict[int, int] = {}
    for size, stride in zip(one.sizes, one.strides, strict=True):
        high[stride] = high.get(stride, 0) + size - 1
    for size, stride in zip(two.sizes, two.strides, strict=True):
        low[stride] = low.get(stride, 0) - (size - 1)
    strides = sorted({*low, *high}, reverse=True)
    return _Equation([(stride, low.get(stride, 0), high.get(stride, 0)) for stride in strides]).solvable(two.offset - one.offset)


#: A part of a storage; None is any of it.
Part = Region | None
#: A storage that is accessed in more different parts than this is not told apart any further.
_MOST_PARTS = 64


def parts_of(storages: Iterable[str], regions: Iterable[tuple[str, Region]]) -> dict[str, tuple[Part, ...]]:
    """Return which parts of every storage are meant, given those that are known."""
    known: dict[str, list[Region]] = {}
    for name, part in regions:
        known.setdefault(name, []).append(part)
    return {name: tuple(known.get(name, (None,))) for name in storages}


def neighbours(parts: Collection[Part]) -> dict[Part, frozenset[Part]]:
    """Return for every part of one storage those that it may overlap, itself included; look up None for a part that is not there.

    More than a few parts are all one, which keeps what is done with them linear.
    """
    told = parts if len(parts) <= _MOST_PARTS else (None,)
    return {one: frozenset(two for two in told if one is None or two is None or overlap(one, two)) for one in told}


class _Equation:
    """Whether ``sum(x[k] * strides[k]) == total`` has a solution within bounds; terms are (stride, low, high)."""

    def __init__(self, terms: Sequence[tuple[int, int, int]]) -> None:
        self._terms = terms
        #: By term: the smallest and the largest sum of it and those behind it, and what divides any such sum.
        self._rest = [(0, 0, 0)]
        for stride, low, high in reversed(terms):
            least, most, divisor = self._rest[-1]
            self._rest.append((least + low * stride, most + high * stride, math.gcd(divisor, stride)))
        self._rest.reverse()
        self._steps = 0

    def solvable(self, total: int, term: int = 0) -> bool:
        """Return False only if there is certainly no solution."""
        least, most, divisor = self._rest[term]
        if not least <= total <= most or (divisor and total % divisor):
            return False
        if term == len(self._terms):
            return True
        self._steps += 1
        if self._steps > _BUDGET:
            return True
        stride, low, high = self._terms[term]
        least, most, _ = self._rest[term + 1]
        # Only those x that leave the smaller strides a total within their reach.
        first, last = max(low, -(-(total - most) // stride)), min(high, (total - least) // stride)
        return any(self.solvable(total - x * stride, term + 1) for x in range(first, last + 1))
