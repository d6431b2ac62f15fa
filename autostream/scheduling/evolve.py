"""A genetic search over the orders of a project's tasks, each schedule tightened by going backwards and forwards.

After Valls, Ballestin and Quintanilla, "A hybrid genetic algorithm for the resource-constrained project scheduling problem"
(2008): serial schedule generation, two-point crossover, justification of every child. Deterministic: a fixed seed, and an effort
counted in placed tasks.
"""

from __future__ import annotations

import random
from bisect import insort
from collections.abc import Sequence

from autostream.scheduling.paths import topological
from autostream.scheduling.project import Project
from autostream.scheduling.sgs import Times, early

_SEED = 0
_POPULATION = 40
#: How far a priority may be off in the first population, and how far a task may move in a mutation, in tenths of the whole.
_SPREAD = 4
_REACH = 1
#: One child in so many is mutated.
_MUTATED = 3


def evolve(project: Project, lower: int, effort: int) -> Times:
    """Return the best times found, having placed at most about `effort` tasks; stops at the bound. No sync is charged."""
    return _Population(project, lower, effort).best()


def tightened(project: Project, times: Times) -> Times:
    """Schedule backwards in order of the ends, then forwards in order of the starts that this gives; the better of both."""
    tasks = range(len(project))
    late = early(project, sorted(tasks, key=lambda task: (-times.end[task], -task)), _links(project, backwards=True))
    again = early(project, sorted(tasks, key=lambda task: (-late.end[task], task)), _links(project))
    return min(times, again, key=lambda one: one.makespan)


def _links(project: Project, *, backwards: bool = False) -> list[list[tuple[int, int]]]:
    if backwards:
        return [[(link.after, link.lag) for link in links] for links in project.after]
    return [[(link.before, link.lag) for link in links] for links in project.before]


class _Population:
    """The individuals as (makespan, age, order of starts, times), the best first."""

    def __init__(self, project: Project, lower: int, effort: int) -> None:
        self.project, self.lower = project, lower
        self.dice = random.Random(_SEED)
        self.before = [[link.before for link in links] for links in project.before]
        self.after = [[link.after for link in links] for links in project.after]
        #: Each individual is scheduled three times.
        self.births = max(effort // max(3 * len(project), 1), 1)
        self.people: list[tuple[int, int, list[int], Times]] = []
        self.seen: set[tuple[int, ...]] = set()

    def best(self) -> Times:
        """Fill the population with random variations of one priority rule, then breed."""
        tail = self.project.tails()
        rank = [tail[task] + self.project.shortest[task] for task in range(len(self.project))]
        for number in range(self.births):
            if number == 0:
                order = topological(self.before, self.after, [-one for one in rank])
            elif number < _POPULATION:
                spread = self.dice.randint(1, _SPREAD) * max(rank) // 10
                order = topological(self.before, self.after, [self.dice.randint(-spread, spread) - one for one in rank])
            else:
                order = self._child()
            self._join(tightened(self.project, early(self.project, order, _links(self.project))))
            if self.people[0][0] <= self.lower:
                break
        return self.people[0][3]

    def _child(self) -> list[int]:
        """The beginning and the end of one parent's order around a stretch in the order of a better one."""
        count, dice = len(self.project), self.dice
        mother = min(dice.randrange(len(self.people)), dice.randrange(len(self.people)))
        father = dice.randrange(len(self.people))
        length = dice.randint(count // 4, max(3 * count // 4, count // 4))
        first = dice.randrange(count - length + 1)
        order = self.people[father][2][:first]
        taken = set(order)
        stretch = [task for task in self.people[mother][2] if task not in taken][:length]
        taken.update(stretch)
        order += stretch
        order += [task for task in self.people[father][2] if task not in taken]
        return self._mutated(order) if dice.randrange(_MUTATED) == 0 else order

    def _mutated(self, order: Sequence[int]) -> list[int]:
        """Move the tasks of a stretch a little."""
        count = len(order)
        middle, reach = self.dice.randrange(count), max(count * _REACH // 10, 1)
        key = [0] * count
        for place, task in enumerate(order):
            near = abs(place - middle) < count // 5
            key[task] = place + (self.dice.randint(0, reach) if near else 0)
        return topological(self.before, self.after, key)

    def _join(self, times: Times) -> None:
        """Take the place of the worst, unless it is better or there is one like it."""
        if times.start in self.seen:
            return
        self.seen.add(times.start)
        if len(self.people) == _POPULATION:
            if times.makespan > self.people[-1][0]:
                return
            self.people.pop()
        order = sorted(range(len(self.project)), key=lambda task: (times.start[task], task))
        insort(self.people, (times.makespan, len(self.seen), order, times), key=lambda one: one[:2])
