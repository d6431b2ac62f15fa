"""Where what was set aside runs: beside work that leaves its resources idle, on a stream that has come just that far.

The machine grants cores to whom is ready first. A task that could have run long ago does not wait for the gap it would fit in: it
takes the cores as soon as they are free, and what is urgent waits. So a task belongs behind one that ends where the gap begins;
and where the stream of that one would go on at once, it goes on elsewhere. Every change is judged by running the whole plan.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import networkx as nx

from autostream.scheduling.machine.division import Division, idle
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.paths import topological
from autostream.scheduling.machine.replay import Plan, replay

#: Places that are tried for each group of tasks.
_PLACES = 12
#: The resources that are granted in whole units: cube cores, vector cores, the communication engine.
_GRANTED = (0, 1, 3)


def placed(instance: Instance, division: Division, plans: Iterable[Plan], lower: int, effort: int) -> Plan:
    """Return the best plan (by `Plan.rank`) that comes of several, each with what was set aside put where it delays least.

    Args:
        instance: what is planned.
        division: says what was set aside; at least one task.
        plans: where to begin, at least one; what makes a good beginning is not known beforehand.
        lower: nothing is shorter, ns.
        effort: tasks that may be run.
    """
    best: Plan | None = None
    for plan in dict.fromkeys(plans):
        if best is None or (effort >= len(instance) and best.makespan > lower):
            search = _Placing(instance, division.aside, plan, lower, effort)
            search.go()
            effort = search.effort
            best = search.plan if best is None else min(best, search.plan, key=lambda one: one.rank)
    assert best is not None, "there is at least one plan"
    return best


class _Place(NamedTuple):
    """Behind a task, on its stream; what follows there goes on on another stream if that is given."""

    anchor: int
    onward: int | None


class _Placing:
    def __init__(self, instance: Instance, aside: Sequence[int], plan: Plan, lower: int, effort: int) -> None:
        self.instance, self.aside, self.plan, self.lower, self.effort = instance, aside, plan, lower, effort

    def go(self) -> None:
        """Move what belongs together, all at once first, then less and less of what runs one after another."""
        pieces = sorted(self._pieces(), key=lambda piece: min(self.plan.start[task] for task in piece))
        size = len(pieces)
        while size:
            for first in range(0, len(pieces) - size + 1, max(size // 2, 1)):
                group = [task for piece in pieces[first : first + size] for task in piece]
                best = self.plan
                for place in self._places(group):
                    if self.effort < len(self.instance) or best.makespan <= self.lower:
                        self.plan = best
                        return
                    self.effort -= len(self.instance)
                    best = min(best, self._moved(group, place), key=lambda one: one.rank)
                self.plan = best
            size //= 2

    def _pieces(self) -> Iterator[list[int]]:
        """What was set aside and needs something of the machine, in pieces that no precedence and no cluster connects."""
        instance, inside = self.instance, set(self.aside)
        web = nx.Graph()
        web.add_nodes_from(self.aside)
        web.add_edges_from((task, after) for task in self.aside for after in instance.after[task] if after in inside)
        web.add_edges_from((task, instance.members[instance.unit[task]][0]) for task in self.aside)
        pieces = (sorted(inside.intersection(piece)) for piece in nx.connected_components(web))
        return (piece for piece in pieces if not idle(instance, piece))

    def _places(self, group: Sequence[int]) -> list[_Place]:
        """Where a group of tasks may go, the longest gaps first, of equal ones the earliest."""
        instance, plan, inside = self.instance, self.plan, set(group)
        work = sum(instance.shortest(task) for task in group)
        begin = max((plan.end[one] for task in group for one in instance.before[task] if one not in inside), default=0)
        end = min((plan.start[one] for task in group for one in instance.after[task] if one not in inside), default=plan.makespan)
        allowed = set(instance.open).intersection(*(instance.allowed[instance.unit[task]] for task in group))
        order = [task for task in plan.order() if task not in inside]
        rivals = self._starts(order, group)
        upcoming = dict.fromkeys(instance.open, plan.makespan)
        found: list[tuple[int, int, _Place]] = []
        for task in reversed(order):
            stream, now = plan.stream[task], plan.end[task]
            if stream in allowed and begin <= now <= end:
                rival = bisect_left(rivals, now)
                gap = min(end, rivals[rival] if rival < len(rivals) else plan.makespan) - now
                here = min(gap, upcoming[stream] - now)
                if here > 0:
                    found.append((-min(here, work), now, _Place(task, None)))
                onward = _free(upcoming, stream, now + gap)
                if here < gap and onward is not None and min(gap, work) > instance.sync:
                    found.append((instance.sync - min(gap, work), now, _Place(task, onward)))
            if stream in upcoming:
                upcoming[stream] = plan.start[task]
        return [place for _, _, place in sorted(found, key=lambda entry: entry[:2])[:_PLACES]]

    def _starts(self, order: Iterable[int], group: Sequence[int]) -> list[int]:
        """When tasks start, of some, that need cores or an engine of which the group needs some, ascending."""
        instance, mode = self.instance, self.plan.mode
        kinds = [kind for kind in _GRANTED if any(instance.modes[task][mode[task]].demand[kind] for task in group)]
        return [self.plan.start[task] for task in order if any(instance.modes[task][mode[task]].demand[kind] for kind in kinds)]

    def _moved(self, group: Sequence[int], place: _Place) -> Plan:
        """The plan with a group elsewhere."""
        instance, plan = self.instance, self.plan
        here, end = plan.stream[place.anchor], plan.end[place.anchor]
        stream = list(plan.stream)
        if place.onward is not None:
            names = {here: place.onward, place.onward: here}
            for unit, members in enumerate(instance.members):
                first = members[0]
                if (
                    len(instance.allowed[unit]) > 1
                    and stream[first] in names
                    and plan.start[first] >= end
                    and first != place.anchor
                ):
                    for member in members:
                        stream[member] = names[plan.stream[member]]
        key = [0.0] * len(instance)
        for number, task in enumerate(plan.order()):
            key[task] = number
        for task in group:
            key[task] = key[place.anchor] + 0.5
            for member in instance.members[instance.unit[task]]:
                stream[member] = here
        return replay(instance, stream, topological(instance.before, instance.after, key), plan.mode)


def _free(upcoming: Mapping[int, int], stream: int, until: int) -> int | None:
    """Another stream on which nothing starts for the longest time, if that is until then."""
    others = [one for one in upcoming if one != stream]
    found = max(others, key=lambda one: (upcoming[one], -one), default=None)
    return found if found is not None and upcoming[found] >= until else None
