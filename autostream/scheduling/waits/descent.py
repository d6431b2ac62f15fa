"""The way down from a plan to the fewest crossings: the price of a crossing rises, and at each price what is not worth it goes.

Beside the changes of `local.joining`, whole pieces of work go to another stream, and what a stream does between
two crossings goes to the other one, so that every side branch can be undone. What saves little is tried first: the way is to
pass as many numbers of crossings as it can. Deterministic; the effort is counted in tasks that were run.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from autostream.scheduling.local.joining import Change, Search
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan

#: The price rises by this factor.
_RISE = 2
#: No change may cost more than the price of so many crossings: what saves more comes when smaller steps have become dear.
_STEP = 4
#: How many crossings between two streams further what becomes one stream's may end.
_BETWEEN = 3


def descent(instance: Instance, plan: Plan, effort: int, price: int) -> list[Plan]:
    """Return the plans on the way from `plan` down, itself first.

    Args:
        instance: what is scheduled.
        plan: where to begin.
        effort: tasks that may be run.
        price: what one crossing that is saved may cost at first, ns; a high one makes a short way of fewer plans.
    """
    way = _Descent(instance, plan, effort, max(price, 1))
    most = sum(instance.shortest(task) for task in range(len(instance)))
    while way.plan.crossings and way.effort > 0 and way.price <= most:
        while way.sweep():
            pass
        way.price *= _RISE
    return way.passed


class _Descent(Search):
    """Every plan that it stands on is kept."""

    def __init__(self, instance: Instance, plan: Plan, effort: int, price: int) -> None:
        #: The plans so far.
        self.passed: list[Plan] = []
        super().__init__(instance, plan, 0, effort)
        #: What one crossing that is saved may cost, ns.
        self.price = price
        #: By the hash of a change: how much longer the plan became when it was last tried.
        self._longer: dict[int, int] = {}

    def stand_on(self, plan: Plan) -> None:
        """Go on from a plan."""
        super().stand_on(plan)
        self.passed.append(plan)

    def sweep(self) -> bool:
        """Make the changes that are worth the price, the cheapest crossings first; True if one was made and effort is left.

        What a change costs is known from when it was last tried, and found out again when it is its turn. One that was too dear
        is likely to be so still, until the price has risen.
        """
        made = False
        for _, _, change in self._by_cost():
            moves = {unit: stream for unit, stream in change if self.on[unit] != stream}
            worth, key = self._worth(moves), hash(tuple(moves.items()))
            if worth <= 0 or self._longer.get(key, 0) > worth:
                continue
            if self.effort <= 0:
                return False
            self._longer[key], found = self.ran(moves, worth)
            if found is not None and self._longer[key] <= worth:
                self.stand_on(found)
                made = True
        return made

    def _by_cost(self) -> list[tuple[int, int, tuple[tuple[int, int], ...]]]:
        """The changes that save crossings: how much longer the plan becomes for each, in thousandths of a ns, and how many."""
        found = []
        for change in dict.fromkeys(tuple(sorted(change.items())) for change in self.changes()):
            moves, key = dict(change), hash(change)
            saved = -self.crossings_more(moves)
            if saved > 0:
                if key not in self._longer and self.effort > 0:
                    self._longer[key] = self.estimated(moves)
                found.append((self._longer.get(key, 0) * 1000 // saved, saved, change))
        return sorted(found)

    def _worth(self, moves: Change) -> int:
        """How much longer the plan may become by a change, ns."""
        return min(-self.crossings_more(moves), _STEP) * self.price

    def changes(self) -> Iterator[Change]:
        """What is tried in one sweep."""
        yield from super().changes()
        yield from self._pieces()
        free = [unit for unit, allowed in enumerate(self.instance.allowed) if len(allowed) > 1]
        free.sort(key=lambda unit: (self.start[unit], unit))
        for here, there in permutations(sorted({self.on[unit] for unit in free}), 2):
            yield from self._between(here, there, [unit for unit in free if self.on[unit] in (here, there)])

    def _pieces(self) -> Iterator[Change]:
        """What hangs together on a stream goes to one that it has crossings with."""
        on, allowed = self.on, self.instance.allowed
        found: set[int] = set()
        for unit in range(len(on)):
            if unit in found or len(allowed[unit]) < 2:
                continue
            piece = [unit]
            found.add(unit)
            for one in piece:
                for other in self.links[one]:
                    if other not in found and on[other] == on[unit] and len(allowed[other]) > 1:
                        found.add(other)
                        piece.append(other)
            beside = {on[other] for one in piece for other in self.links[one]}
            for stream in sorted(beside - {on[unit]}):
                if stream in allowed[unit]:
                    yield dict.fromkeys(piece, stream)

    def _between(self, here: int, there: int, units: list[int]) -> Iterator[Change]:
        """What a stream does between two times at which it crosses with another one goes to that one.

        The two then take each other's work from there on, where that saves more: which one goes on may be settled in between.
        `units` are those on both streams that may move, by start.
        """
        names = {here: there, there: here}
        times = self._meetings(here, there)
        swapped = self._swapped(names, units, times)
        for number, first in enumerate(times):
            for last in times[number + 1 : number + 1 + _BETWEEN]:
                moving = {u: there for u in units if self.on[u] == here and first <= self.start[u] < last}
                plain, more = 0, swapped[last]
                for unit in moving:
                    for other, count in self.links[unit].items():
                        if other in moving:
                            continue
                        stream = self.on[other]
                        plain += count * ((stream != there) - (stream != here))
                        if self.start[other] >= last and len(self.instance.allowed[other]) > 1:
                            stream = names.get(stream, stream)
                        more += count * ((stream != there) - (stream != here))
                if moving and plain < 0:
                    yield moving
                if moving and more < min(plain, 0):
                    yield moving | {u: names[self.on[u]] for u in units if self.start[u] >= last}

    def _swapped(self, names: Change, units: list[int], times: list[int]) -> dict[int, int]:
        """How many crossings more there are when two streams take each other's work from some time on, by time."""
        found, more, left = {}, 0, list(units)
        moved: dict[int, int] = {}
        for time in reversed(times):
            while left and self.start[left[-1]] >= time:
                unit = left.pop()
                here = self.on[unit]
                for linked, count in self.links[unit].items():
                    there = moved.get(linked, self.on[linked])
                    more += count * ((there != names[here]) - (there != here))
                moved[unit] = names[here]
            found[time] = more
        return found

    def _meetings(self, here: int, there: int) -> list[int]:
        """When units start that cross with one of the other stream; the beginning, and behind the end."""
        streams = {here, there}
        times = {
            max(self.start[unit], self.start[other])
            for unit, links in enumerate(self.links)
            for other in links
            if self.on[unit] != self.on[other] and {self.on[unit], self.on[other]} == streams
        }
        return sorted({0, *times, max(self.start, default=0) + 1})
