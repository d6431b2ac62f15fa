"""Cheap local improvement of a plan: bring back to MAIN what gains nothing elsewhere, and remove crossings.

Every change is judged by replaying the whole plan, so the work is bounded by a number of replayed tasks.
"""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx

from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan, replay

#: Replayed tasks one improvement may cost: about a fifth of a second.
_EFFORT = 30_000


def improve(instance: Instance, plan: Plan) -> Plan:
    """Return a plan that is at least as good (by `Plan.rank`): whole streams first, then excursions, then single units."""
    left = max(_EFFORT // max(len(instance), 1), 4)
    for moves in (_streams, _excursions, _crossings):
        best = plan
        for units, target in moves(instance, plan):
            if left == 0:
                return best
            left -= 1
            best = min(best, _moved(instance, best, units, target), key=lambda candidate: candidate.rank)
        plan = best
    return plan


def _moved(instance: Instance, plan: Plan, units: tuple[int, ...], target: int) -> Plan:
    """The plan with some units on another stream, every stream keeping the order of the old starts."""
    stream = list(plan.stream)
    for unit in units:
        for task in instance.members[unit]:
            stream[task] = target
    return replay(instance, stream, plan.order(), plan.mode)


def _streams(instance: Instance, plan: Plan) -> Iterator[tuple[tuple[int, ...], int]]:
    """Each side stream as a whole, the least used first."""
    lanes = _movable(instance, plan)
    for _, units in sorted(lanes.items(), key=lambda item: (len(item[1]), -item[0])):
        yield tuple(units), 0


def _excursions(instance: Instance, plan: Plan) -> Iterator[tuple[tuple[int, ...], int]]:
    """Each connected piece of work on a side stream, the shortest first."""
    pieces: list[tuple[int, tuple[int, ...]]] = []
    for units in _movable(instance, plan).values():
        inside = set(units)
        web = nx.Graph()
        web.add_nodes_from(units)
        web.add_edges_from(
            (instance.unit[before], instance.unit[after])
            for before, after in instance.edges()
            if instance.unit[before] in inside and instance.unit[after] in inside
        )
        for piece in nx.connected_components(web):
            time = sum(plan.end[task] - plan.start[task] for unit in piece for task in instance.members[unit])
            pieces.append((time, tuple(sorted(piece))))
    for _, piece_units in sorted(pieces):
        yield piece_units, 0


def _crossings(instance: Instance, plan: Plan) -> Iterator[tuple[tuple[int, ...], int]]:
    """Each end of each crossing, moved to the stream of the other end."""
    seen: set[tuple[int, int]] = set()
    for before, after in instance.edges():
        for task, other in ((before, after), (after, before)):
            unit, target = instance.unit[task], plan.stream[other]
            if plan.stream[task] != target and target in instance.allowed[unit] and (unit, target) not in seen:
                seen.add((unit, target))
                yield (unit,), target


def _movable(instance: Instance, plan: Plan) -> dict[int, list[int]]:
    """The units that are on a side stream and may go to MAIN, by stream."""
    lanes: dict[int, list[int]] = {}
    for unit, tasks in enumerate(instance.members):
        stream = plan.stream[tasks[0]]
        if stream != 0 and 0 in instance.allowed[unit]:
            lanes.setdefault(stream, []).append(unit)
    return lanes
