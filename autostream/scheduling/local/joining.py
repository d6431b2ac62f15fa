"""Fewer crossings: work goes to the stream of its neighbours wherever the plan, run again, allows it.

Two kinds of change are tried: one end of a crossing goes to the stream of the other, alone or with units it is tied to; and from
some time on two streams take each other's work. How many crossings that saves is counted beforehand, so that only changes that
save some are run. In a long plan a change is first tried on the stretch around it, which is all that most of them touch.
Deterministic; the effort is counted in tasks that were run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from autostream.scheduling.machine.division import part
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan, replay

#: Most units that go to a stream together.
_GROUP = 6
#: Most times at which two streams are made to take each other's work, in one sweep.
_EXCHANGES = 3
#: Tasks of the stretch that is tried first, and by how much it begins before the change.
_WINDOW = 128
_AHEAD = 32

#: The new stream of each unit that moves.
Change = Mapping[int, int]


def joined(instance: Instance, plan: Plan, limit: int, effort: int) -> Plan:
    """Return a plan with fewer crossings, or `plan` itself.

    Args:
        instance: what is scheduled.
        plan: where to begin.
        limit: longest makespan that is allowed, ns; a crossing that is saved may cost one sync at most.
        effort: tasks that may be run.
    """
    search = Search(instance, plan, max(limit - plan.makespan, 0), effort)
    while search.sweep():
        pass
    return search.plan


class Search:
    """A plan that becomes better step by step, and what is known about it."""

    def __init__(self, instance: Instance, plan: Plan, slack: int, effort: int) -> None:
        """Begin at `plan`, which may become longer by `slack`, ns, than the shortest one on the way."""
        self.instance, self.slack, self.effort = instance, slack, effort
        self.limit = plan.makespan + slack
        #: By unit: precedences from or to each other unit.
        self.links: list[dict[int, int]] = [{} for _ in instance.members]
        for before, after in instance.edges():
            one, other = instance.unit[before], instance.unit[after]
            if one != other:
                self.links[one][other] = self.links[one].get(other, 0) + 1
                self.links[other][one] = self.links[other].get(one, 0) + 1
        #: How much longer the plan might have become, ns, when a change was refused.
        self.refused: dict[tuple[tuple[int, int], ...], int] = {}
        self.stand_on(plan)

    def stand_on(self, plan: Plan) -> None:
        """Go on from a plan."""
        self.plan, self.order = plan, plan.order()
        self.place = {task: number for number, task in enumerate(self.order)}
        #: The stream and the start of each unit.
        self.on = [plan.stream[members[0]] for members in self.instance.members]
        self.start = [plan.start[members[0]] for members in self.instance.members]
        self.stretches: dict[int, _Stretch] = {}
        self.limit = min(self.limit, plan.makespan + self.slack)

    def sweep(self) -> bool:
        """Try every change that saves crossings once, what saves most first; True if one was made and effort is left."""
        made = False
        changes = dict.fromkeys(tuple(sorted(change.items())) for change in self.changes())
        saving = sorted((self.crossings_more(dict(change)), change) for change in changes)
        for _, change in saving:
            moves = {unit: stream for unit, stream in change if self.on[unit] != stream}
            key = tuple(moves.items())
            more = self.crossings_more(moves)
            slack = min(self.limit - self.plan.makespan, -more * self.instance.sync)
            if more >= 0 or self.refused.get(key, -1) >= slack:
                continue
            if self.effort <= 0:
                return False
            if self._try(moves, slack):
                made = True
            else:
                self.refused[key] = slack
        return made

    def changes(self) -> Iterator[Change]:
        """What is tried in one sweep."""
        yield from self._joins()
        yield from self._exchanges()

    def crossings_more(self, moves: Change) -> int:
        """How many crossings more there are when some units have moved."""
        on, more = self.on, 0
        for unit, stream in moves.items():
            here = on[unit]
            for other, count in self.links[unit].items():
                if other not in moves:
                    more += count * ((on[other] != stream) - (on[other] != here))
                elif unit < other:
                    more += count * ((moves[other] != stream) - (on[other] != here))
        return more

    # -- changes ----------------------------------------------------------------------------------------------------

    def _joins(self) -> Iterator[Change]:
        """Either end of each crossing goes to the stream of the other; then with one unit more that it is tied to, and so on."""
        on, allowed = self.on, self.instance.allowed
        ends = ((unit, on[other]) for unit, links in enumerate(self.links) for other in links if on[other] != on[unit])
        for unit, stream in dict.fromkeys(ends):
            if stream not in allowed[unit]:
                continue
            group = {unit: stream}
            yield dict(group)
            while len(group) < _GROUP:
                tied = dict.fromkeys(other for one in group for other in self.links[one] if other not in group)
                more = {
                    other: self.crossings_more({**group, other: stream})
                    for other in tied
                    if on[other] != stream and stream in allowed[other]
                }
                if not more:
                    break
                near = min(more, key=lambda other: (more[other], abs(self.start[other] - self.start[unit]), other))
                group[near] = stream
                yield dict(group)

    def _exchanges(self) -> Iterator[Change]:
        """Two streams take each other's work from some time on, at the times at which that saves most."""
        free = [unit for unit, allowed in enumerate(self.instance.allowed) if len(allowed) > 1]
        free.sort(key=lambda unit: (-self.start[unit], -unit))
        for one, other in combinations(sorted({self.on[unit] for unit in free}), 2):
            names = {one: other, other: one}
            moved: dict[int, int] = {}
            more, known = 0, []
            for unit in free:
                here = self.on[unit]
                if here not in names or names[here] not in self.instance.allowed[unit]:
                    continue
                for linked, count in self.links[unit].items():
                    there = moved.get(linked, self.on[linked])
                    more += count * ((there != names[here]) - (there != here))
                moved[unit] = names[here]
                known.append((more, len(moved)))
            units = list(moved)
            for _, length in sorted(entry for entry in _valleys(known) if entry[0] < 0)[:_EXCHANGES]:
                yield {unit: moved[unit] for unit in units[:length]}

    # -- trying -----------------------------------------------------------------------------------------------------

    def _try(self, moves: Change, slack: int) -> bool:
        """Make a change if the plan becomes longer by no more than `slack`; return whether it was made."""
        more, found = self.ran(moves, slack)
        if found is None or more > slack:
            return False
        self.stand_on(found)
        return True

    def ran(self, moves: Change, slack: int) -> tuple[int, Plan | None]:
        """How much longer the plan becomes by a change, ns, and the plan; None if the stretch around it gets too long."""
        if len(self.order) > _WINDOW and (more := self.estimated(moves)) > slack:
            return more, None
        self.effort -= len(self.order)
        found = replay(self.instance, self._moved(moves), self.order, self.plan.mode)
        return found.makespan - self.plan.makespan, found

    def estimated(self, moves: Change) -> int:
        """How much longer the stretch around a change becomes, ns."""
        self.effort -= min(_WINDOW, len(self.order))
        place = min(self.place[self.instance.members[unit][0]] for unit in moves)
        return self._stretch(place).longer(self._moved(moves))

    def _moved(self, moves: Change) -> list[int]:
        """The stream of each task when some units have moved."""
        stream = list(self.plan.stream)
        for unit, there in moves.items():
            for task in self.instance.members[unit]:
                stream[task] = there
        return stream

    def _stretch(self, place: int) -> _Stretch:
        """The stretch around a place in the order."""
        first = max(0, min(place - _AHEAD, len(self.order) - _WINDOW)) // _AHEAD * _AHEAD
        if first not in self.stretches:
            self.stretches[first] = _Stretch(self.instance, self.plan, self.order[first : first + _WINDOW])
        return self.stretches[first]


class _Stretch:
    """Some tasks that start one after another, alone."""

    def __init__(self, instance: Instance, plan: Plan, order: Sequence[int]) -> None:
        self.tasks = sorted(order)
        number = {task: position for position, task in enumerate(self.tasks)}
        self.alone = part(instance, self.tasks)
        self.order = [number[task] for task in order]
        self.mode = [plan.mode[task] for task in self.tasks]
        self.makespan = self._makespan(plan.stream)

    def longer(self, stream: Sequence[int]) -> int:
        """How much longer it becomes on other streams, which are given for all tasks of the plan, ns."""
        return self._makespan(stream) - self.makespan

    def _makespan(self, stream: Sequence[int]) -> int:
        return replay(self.alone, [stream[task] for task in self.tasks], self.order, self.mode).makespan


def _valleys(known: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The entries with fewer crossings than the one before and no more than the one behind."""
    for at, entry in enumerate(known):
        if (at == 0 or known[at - 1][0] > entry[0]) and (at + 1 == len(known) or known[at + 1][0] >= entry[0]):
            yield entry
