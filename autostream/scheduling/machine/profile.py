"""What is free when: the resources of the machine, and the gaps of one stream."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from autostream.scheduling.machine.resources import Packing


class Profile:
    """Free resources over time, as a step function: `_free[i]` holds from `_times[i]` to `_times[i + 1]`, the last for ever."""

    def __init__(self, packing: Packing) -> None:
        self._guards = packing.guards
        self._times = [0]
        self._free = [packing.free]

    def earliest(self, ready: int, duration: int, demand: int) -> int:
        """First time from `ready` on at which the packed `demand` (within the capacity) is free for `duration`."""
        if not demand:
            return ready
        times, free, guards = self._times, self._free, self._guards
        if ready >= times[-1]:
            return ready
        step = bisect_right(times, ready) - 1
        last = len(times) - 1
        start = ready
        while True:
            if (free[step] - demand) & guards != guards:
                # The last step is the empty machine, where everything fits: there is always a next one here.
                step += 1
                start = times[step]
            elif step == last or times[step + 1] >= start + duration:
                return start
            else:
                step += 1

    def hold(self, start: int, end: int, demand: int) -> None:
        """Take the packed `demand` from `start` to `end`."""
        if start == end or not demand:
            return
        first, last = self._split(start), self._split(end)
        free = self._free
        for step in range(first, last):
            free[step] -= demand
        self._join(last)
        self._join(first)

    def _split(self, time: int) -> int:
        """Make `time` the beginning of a step and return that step."""
        step = bisect_left(self._times, time)
        if step == len(self._times) or self._times[step] != time:
            self._times.insert(step, time)
            self._free.insert(step, self._free[step - 1])
        return step

    def _join(self, step: int) -> None:
        """Drop the beginning of a step that equals the one before it: long busy stretches stay one step."""
        if step and self._free[step] == self._free[step - 1]:
            del self._times[step], self._free[step]


class Lane:
    """The busy stretches of one stream, touching ones merged."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        #: True once something runs on it.
        self.used = False

    def earliest(self, ready: int, duration: int) -> int:
        """First time from `ready` on at which the stream is idle for `duration`."""
        if not self._ends or ready >= self._ends[-1]:
            return ready
        stretch = bisect_right(self._ends, ready)
        start = ready
        while stretch < len(self._starts) and self._starts[stretch] < start + duration:
            start = self._ends[stretch]
            stretch += 1
        return start

    def hold(self, start: int, end: int) -> None:
        """Occupy the stream from `start` to `end`, where it is idle."""
        if start == end:
            return
        self.used = True
        stretch = bisect_left(self._starts, start)
        if stretch < len(self._starts) and self._starts[stretch] == end:
            self._starts[stretch] = start
        else:
            self._starts.insert(stretch, start)
            self._ends.insert(stretch, end)
        if stretch and self._ends[stretch - 1] == start:
            self._ends[stretch - 1] = self._ends[stretch]
            del self._starts[stretch], self._ends[stretch]
