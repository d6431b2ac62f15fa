"""What the rest of a plan takes at least, at any moment of its run: for the bounds of a whole instance and for the exact search.

A task starts after its predecessors, and a sync later than all those on other streams than its own, whichever that is. From these
starts on, all that is left is one machine's work, by any prices (see `bounds.prices`): the preemptive schedule of
Jackson, longest tail first, is the least time it can take.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from autostream.scheduling.bounds.prices import ONE, SETS, Prices
from autostream.scheduling.machine.bitsets import members
from autostream.scheduling.machine.granting import PS
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.paths import tails

#: Prices kept at hand. New ones are sought at one moment in so many, and at fewer where the program is large.
_KEPT = 4
_SOUGHT, _SETS = 8, 10
#: How much more the work of a row counts when its own prices are sought.
_ROW = 1000
#: A start, ps, the task, and how much of its work is left, ps.
_Item = tuple[int, int, int]


class Rest:
    """The bound for one instance whose tasks have one mode each; times are ps."""

    def __init__(self, instance: Instance, prices: Prices) -> None:
        count = len(instance)
        self._before, self._sync, self._prices = instance.before, instance.sync * PS, prices
        self._tail = [time * PS for time in tails(instance)]
        self._work = [row[0].work for row in instance.claims]
        self._alone = [instance.rules.stretches([row[0]])[0] * row[0].work // 1000 for row in instance.claims]
        self._everything = (1 << count) - 1
        self._asked, self._sought = 0, max(_SOUGHT, prices.sets // _SETS)
        rows = [
            [2 * instance.modes[task][0].demand[kind] > instance.capacity[kind] for task in range(count)] for kind in range(2)
        ]
        weights = [[work * _ROW if inside else work for work, inside in zip(self._work, row, strict=True)] for row in rows]
        self._kept = [prices.best(work) for work in (*weights, self._work)]

    @classmethod
    def of(cls, instance: Instance, most: int = SETS) -> Rest | None:
        """The bound for an instance; see `Prices.of` for where there is none."""
        prices = Prices.of(instance, most) if len(instance) else None
        return None if prices is None else cls(instance, prices)

    def makespan(self) -> int:
        """What a plan takes at least, ns."""
        return (self.whole() + PS // 2) // PS

    def whole(self) -> int:
        """What a run takes at least from its beginning, ps."""
        count = len(self._before)
        items, least = self._items(0, 0, (), [-1] * count, [-1] * count, None)
        return max([least, *(self._least(items, prices) for prices in self._kept)])

    def reaches(
        self, limit: int, now: int, started: int, running: Sequence[tuple[int, int]], end: Sequence[int], lane: Sequence[int]
    ) -> bool:
        """True if the run is sure to last until `limit`; see `least`."""
        return self.least(limit, now, started, running, end, lane) >= limit

    def least(
        self, limit: int, now: int, started: int, running: Sequence[tuple[int, int]], end: Sequence[int], lane: Sequence[int]
    ) -> int:
        """When the run ends at the earliest, ps; where that is `limit` or later, no more than this may be said.

        Args:
            limit: a time, ps.
            now: the time, ps.
            started: the tasks that have started, as bits.
            running: those that run, and how much of their work is left, ps.
            end: when each task ended; -1 where it has not, or where that is more than a sync ago.
            lane: the stream of each task, -1 where it is open.
        """
        items, least = self._items(now, started, running, end, lane, limit)
        if least >= limit:
            return least
        for number, prices in enumerate(self._kept):
            least = max(least, self._least(items, prices))
            if least >= limit:
                self._kept.insert(0, self._kept.pop(number))
                return least
        self._asked += 1
        if self._asked % self._sought == 1:
            left = [0] * len(self._before)
            for _, task, todo in items:
                left[task] = todo
            self._kept.insert(0, self._prices.best(left))
            del self._kept[_KEPT:]
            least = max(least, self._least(items, self._kept[0]))
        return least

    def _items(
        self,
        now: int,
        started: int,
        running: Sequence[tuple[int, int]],
        end: Sequence[int],
        lane: Sequence[int],
        limit: int | None,
    ) -> tuple[list[_Item], int]:
        """What is left, by earliest start, and what the longest chain takes; not all of it once that reaches the limit."""
        tail, alone, sync, before = self._tail, self._alone, self._sync, self._before
        items, ends, least = [], list(end), now
        for task, left in running:
            ends[task] = now + left
            items.append((now, task, left))
            least = max(least, ends[task] + tail[task])
        for task in members(self._everything & ~started):
            # The latest end, the latest of a known stream, and the latest of any other known stream.
            ready, home, first, second, stream = now, lane[task], -1, -1, -1
            for one in before[task]:
                time, there = ends[one], lane[one]
                if time > ready:
                    ready = time
                if there < 0 or time < 0:
                    continue
                if home >= 0:
                    if there != home and time > second:
                        second = time
                elif there == stream:
                    if time > first:
                        first = time
                elif time > first:
                    first, second, stream = time, first, there
                elif time > second:
                    second = time
            if second >= 0 and second + sync > ready:
                ready = second + sync
            ends[task] = ready + alone[task]
            if ends[task] + tail[task] > least:
                least = ends[task] + tail[task]
                if limit is not None and least >= limit:
                    return items, least
            items.append((ready, task, self._work[task]))
        items.sort()
        return items, least

    def _least(self, items: Sequence[_Item], prices: Sequence[int]) -> int:
        """When the work can be over, done by one machine at these prices, the longest tail first; ps."""
        tail, count = self._tail, len(items)
        waiting: list[list[int]] = []
        now = last = number = 0
        while number < count or waiting:
            if not waiting:
                now = max(now, items[number][0])
            while number < count and items[number][0] <= now:
                _, task, left = items[number]
                worth = left * prices[task] // ONE
                if worth:
                    heapq.heappush(waiting, [-tail[task], worth])
                number += 1
            if not waiting:
                continue
            top = waiting[0]
            if number == count or now + top[1] <= items[number][0]:
                now += top[1]
                last = max(last, now - top[0])
                heapq.heappop(waiting)
            else:
                top[1] -= items[number][0] - now
                now = items[number][0]
        return last
