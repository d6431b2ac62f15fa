"""A genetic search over the orders of a project's tasks, scheduled backwards and forwards in turn.

Two populations, as in Debels and Vanhoucke, "A bi-population based genetic algorithm for the resource-constrained project
scheduling problem" (2005): the children of schedules that are packed to the left are packed to the right, and the other way
round, so that one pass for each child justifies it as well. Two-point crossover of orders (Hartmann, 1998). A child takes a place
only if it is no worse than who was there. The populations grow with the effort: small ones soon agree on one schedule.
Deterministic: a fixed seed, and an effort counted in placed tasks.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from autostream.scheduling.machine.paths import topological
from autostream.scheduling.machine.times import Times
from autostream.scheduling.solver.project import Project
from autostream.scheduling.solver.sgs import early

_SEED = 0
#: A population is so large that the effort is enough for so many generations, within limits.
_GENERATIONS = 100
_FEWEST, _MOST = 30, 400
#: In so many tasks it takes as long again to find a place for one as all else that is done for it.
_SEARCHED = 100
#: How far a priority may be off in the first population, in tenths of the whole.
_SPREAD = 4
#: One child in so many is mutated: so many pairs of neighbours in a hundred tasks change places.
_MUTATED = 3
_SWAPS = 5


def evolve(project: Project, lower: int, effort: int) -> Times:
    """Return the best times found within an `effort`; stops at the bound. No sync is charged.

    A unit of effort places one task of a small project. In a larger one a task takes longer, for the profile is longer.
    """
    return _Populations(project, effort).best(lower)


def tightened(project: Project, times: Times) -> Times:
    """Schedule backwards in order of the ends, then forwards in order of the starts that this gives; the better of both."""
    late = early(project, _turned(times, backwards=False), _links(project, backwards=True))
    again = early(project, _turned(late, backwards=True), _links(project, backwards=False))
    return min(times, again, key=lambda one: one.makespan)


def _links(project: Project, *, backwards: bool) -> list[list[tuple[int, int]]]:
    if backwards:
        return [[(link.after, link.lag) for link in links] for links in project.after]
    return [[(link.before, link.lag) for link in links] for links in project.before]


def _turned(times: Times, *, backwards: bool) -> list[int]:
    """The order in which to schedule in the other direction: what ends last comes first. `backwards` is the one of `times`."""
    tasks = range(len(times.end))
    # The sort is stable. Of equal ends, whoever must come first in the other direction has the smaller number there.
    return sorted(tasks if backwards else reversed(tasks), key=times.end.__getitem__, reverse=True)


class _Person(NamedTuple):
    """A schedule, and the order that it gives for the other direction."""

    makespan: int
    order: list[int]
    times: Times


class _Populations:
    """Schedules forwards and schedules backwards, each generation bred from the one before it."""

    def __init__(self, project: Project, effort: int) -> None:
        self.project = project
        self.dice = random.Random(_SEED)
        count = len(project)
        self.births = max(effort // max(count + count * count // _SEARCHED, 1), 1)
        self.size = min(max(self.births // _GENERATIONS, _FEWEST), _MOST)
        self.links = [_links(project, backwards=backwards) for backwards in (False, True)]
        self.linked = {pair for link in project.links for pair in ((link.before, link.after), (link.after, link.before))}
        tail = project.tails()
        self.rank = [shortest + after for shortest, after in zip(project.shortest, tail, strict=True)]
        self.people: tuple[list[_Person], list[_Person]] = ([], [])

    def best(self, lower: int) -> Times:
        """Breed until the effort is spent or the bound is reached; the best schedule, forwards."""
        best, best_backwards = self._born(self._first(0), backwards=False), False
        self.people[0].append(best)
        for number in range(1, self.births):
            if best.makespan <= lower:
                break
            generation, place = divmod(number, self.size)
            backwards = generation % 2 == 1
            order = self._child(self.people[not backwards], place) if generation else self._first(place)
            born = self._born(order, backwards=backwards)
            if born.makespan < best.makespan:
                best, best_backwards = born, backwards
            mine = self.people[backwards]
            if place == len(mine):
                mine.append(born)
            elif born.makespan <= mine[place].makespan:
                mine[place] = born
        return self._forwards(best) if best_backwards else best.times

    def _born(self, order: Sequence[int], *, backwards: bool) -> _Person:
        times = early(self.project, order, self.links[backwards])
        return _Person(times.makespan, _turned(times, backwards=backwards), times)

    def _first(self, place: int) -> list[int]:
        """The longest tails first: exactly so for the first schedule, with random errors for the others."""
        project, longest = self.project, max(self.rank, default=0)
        spread = self.dice.randint(1, _SPREAD) * longest // 10 if place else 0
        key = [self.dice.randint(-spread, spread) - rank for rank in self.rank]
        before = [[link.before for link in links] for links in project.before]
        after = [[link.after for link in links] for links in project.after]
        return topological(before, after, key)

    def _child(self, parents: Sequence[_Person], place: int) -> list[int]:
        """A stretch in the order of one parent, between the beginning and the end of the other."""
        dice, count = self.dice, len(self.project)
        one = parents[place]
        other = min(dice.choice(parents), dice.choice(parents), key=lambda person: person.makespan)
        mother, father = (one.order, other.order) if dice.randrange(2) else (other.order, one.order)
        length = dice.randint(count // 4, max(3 * count // 4, count // 4))
        first = dice.randrange(count - length + 1)
        order = father[:first]
        taken = set(order)
        stretch = [task for task in mother if task not in taken][:length]
        taken.update(stretch)
        order += stretch
        order += [task for task in father if task not in taken]
        if count > 1 and dice.randrange(_MUTATED) == 0:
            self._mutate(order)
        return order

    def _mutate(self, order: list[int]) -> None:
        """Let some neighbours change places where no precedence forbids it."""
        for _ in range(max(len(order) * _SWAPS // 100, 1)):
            place = self.dice.randrange(len(order) - 1)
            first, second = order[place], order[place + 1]
            if (first, second) not in self.linked:
                order[place], order[place + 1] = second, first

    def _forwards(self, person: _Person) -> Times:
        """A schedule that runs backwards, turned round and packed to the left."""
        makespan, times = person.makespan, person.times
        turned = Times(
            mode=times.mode,
            start=tuple([makespan - end for end in times.end]),
            end=tuple([makespan - start for start in times.start]),
        )
        packed = early(self.project, person.order, self.links[False])
        return min(packed, turned, key=lambda one: one.makespan)
