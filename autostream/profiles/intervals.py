"""Unions and overlaps of time intervals, in whole nanoseconds."""

from __future__ import annotations

import bisect
from collections.abc import Iterable

#: Start and end; the end is not part of it.
Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the same time as disjoint intervals in order."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def length(intervals: Iterable[Interval]) -> int:
    """Return the sum of the lengths."""
    return sum(end - start for start, end in intervals)


def common(one: list[Interval], other: list[Interval]) -> int:
    """Return the time that two unions share."""
    total = first = second = 0
    while first < len(one) and second < len(other):
        total += max(0, min(one[first][1], other[second][1]) - max(one[first][0], other[second][0]))
        if one[first][1] < other[second][1]:
            first += 1
        else:
            second += 1
    return total


def without(one: list[Interval], other: list[Interval]) -> list[Interval]:
    """Return the time of one union that another does not share."""
    left: list[Interval] = []
    first = 0
    for start, end in one:
        while first < len(other) and other[first][1] <= start:
            first += 1
        at, hole = start, first
        while hole < len(other) and other[hole][0] < end:
            if other[hole][0] > at:
                left.append((at, other[hole][0]))
            at = max(at, other[hole][1])
            hole += 1
        if at < end:
            left.append((at, end))
    return left


def overlaps(unions: list[Interval], one: Interval) -> bool:
    """Return whether an interval shares time with a union."""
    before = bisect.bisect_left(unions, (one[1], one[1]))
    return before > 0 and unions[before - 1][1] > one[0]


def covered_at_least(unions: Iterable[list[Interval]], times: int) -> int:
    """Return the time in which at least `times` of the unions are busy."""
    events = sorted((at, step) for intervals in unions for start, end in intervals for at, step in ((start, 1), (end, -1)))
    total = busy = last = 0
    for at, step in events:
        if busy >= times:
            total += at - last
        busy, last = busy + step, at
    return total
