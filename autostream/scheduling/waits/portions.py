"""Crossings shared out among the segments of a program: for every number of them the choice that saves most time.

Each segment has its own frontier, with its cuts on MAIN, so that any plan of one goes with any plan of the next; equal segments
are searched once. Times and crossings of segments add up, so the best choice is a knapsack, which is solved exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autostream.scheduling.bounds.lower import bound
from autostream.scheduling.lists.serial import serial
from autostream.scheduling.machine.division import Division, Segment, part
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.paths import topological
from autostream.scheduling.machine.replay import Plan, replay
from autostream.scheduling.waits.frontier import Frontier, frontier, prove


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """Equal segments: one of them as an instance of its own, and what the whole plan makes of each."""

    alone: Instance
    segments: list[Segment] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Plans of the whole with ever fewer crossings, each the best choice of plans for the segments, and what is proved."""

    plans: list[Plan]
    #: What no plan of the whole with at most so many crossings beats, ns.
    proven: Mapping[int, int]


def shared_out(instance: Instance, division: Division, plan: Plan, budget: float, effort: int) -> Shares:
    """Share out crossings.

    Args:
        instance: the whole program.
        division: how it falls apart.
        plan: a plan of the whole: where searches begin, and where what was set aside runs.
        budget: for the searches of all segments together, about seconds.
        effort: tasks that may be run for plans of the whole.
    """
    kinds = _kinds(instance, division, plan)
    total = sum(one.crossings for kind in kinds for one in kind.plans)
    points: dict[int, list[Plan]] = {}
    least: dict[int, list[tuple[int, int]]] = {}
    for kind in kinds:
        share = budget * sum(one.crossings for one in kind.plans) / max(total, 1)
        found = frontier(kind.alone, kind.plans, share) if share else _as_it_is(kind)
        row, lower = found.points(), _least(instance, kind, found, share)
        for segment in kind.segments:
            points[id(segment)], least[id(segment)] = row, lower
    choices = best_choices([[(one.crossings, one.makespan) for one in points[id(segment)]] for segment in division.segments])
    ways = _ways(instance, division)
    every = -(-len(choices) * len(ways) * len(instance) // max(effort, 1))
    plans = []
    for choice in choices[::-1][::every]:
        chosen = [points[id(segment)][one] for segment, one in zip(division.segments, choice, strict=True)]
        plans += [_whole(instance, division.segments, plan, chosen, way) for way in ways]
    proven = {} if division.aside else _proven(instance, division, [least[id(segment)] for segment in division.segments])
    return Shares(plans=plans, proven=proven)


def _ways(instance: Instance, division: Division) -> list[dict[int, int]]:
    """Other streams for what was set aside: none, and the first one for all that does not share that of a task of a segment."""
    if not division.aside:
        return [{}]
    core = {instance.unit[task] for segment in division.segments for task in segment.tasks}
    units = {task: instance.unit[task] for task in division.aside}
    return [{}, {task: instance.allowed[unit][0] for task, unit in units.items() if unit not in core}]


def _least(instance: Instance, kind: _Kind, found: Frontier, budget: float) -> list[tuple[int, int]]:
    """What a segment takes at least, ns, by the crossings it may have, ever shorter; wherever its cuts are.

    Residual connections, which may cross as well, are left out; they delay nothing (`Segment.part`).
    """
    alone = part(instance, kind.segments[0].tasks)
    known = Frontier(dict(found.plans))
    if budget:
        prove(alone, known, budget)
    lower = max(bound(alone), known.least)
    row: list[tuple[int, int]] = []
    most = 0
    while most in known.proven:
        if not row or known.proven[most] < row[-1][1]:
            row.append((most, max(known.proven[most], lower)))
        most += 1
    return row if row and row[-1][1] <= lower else [*row, (most, lower)]


def _proven(instance: Instance, division: Division, rows: Sequence[Sequence[tuple[int, int]]]) -> dict[int, int]:
    """What the whole takes at least by the crossings it may have: its segments run one after the other, and share their cuts."""
    shared = sum(segment.overlap(instance) for segment in division.segments) + len(division.regions) // 2  # each is rounded
    found: dict[int, int] = {}
    for choice in best_choices(rows):
        chosen = [row[one] for row, one in zip(rows, choice, strict=True)]
        crossings = sum(one[0] for one in chosen)
        for fewer in range(max(found, default=-1) + 1, crossings):
            found[fewer] = found[fewer - 1]
        found[crossings] = sum(one[1] for one in chosen) - shared
    return found


def _as_it_is(kind: _Kind) -> Frontier:
    found = Frontier()
    found.add([serial(kind.alone), *kind.plans])
    return found


def _kinds(instance: Instance, division: Division, plan: Plan) -> list[_Kind]:
    """The segments by kind, and by whether they have cuts at both ends."""
    place = {task: number for number, task in enumerate(plan.order())}
    kinds: dict[object, _Kind] = {}
    known: dict[object, None] = {}
    for segment, number in zip(division.segments, division.kinds, strict=True):
        key = number, segment.entry is None, segment.exit is None
        if key not in kinds:
            kinds[key] = _Kind(alone=segment.part(instance, {cut: 0 for cut in (segment.entry, segment.exit) if cut is not None}))
        kind = kinds[key]
        kind.segments.append(segment)
        stream = _streams(kind.alone, segment, plan)
        order = sorted(range(len(segment.tasks)), key=lambda one: place[segment.tasks[one]])
        mode = [plan.mode[task] for task in segment.tasks]
        form = key, tuple(stream), tuple(order), tuple(mode)
        if form not in known:
            known[form] = None
            kind.plans.append(replay(kind.alone, stream, order, mode))
    return list(kinds.values())


def _streams(alone: Instance, segment: Segment, plan: Plan) -> list[int]:
    """The streams of a segment in the plan, with that of its entry and MAIN exchanged, where its tasks may be there."""
    here = 0 if segment.entry is None else plan.stream[segment.entry]
    names = {here: 0, 0: here}
    streams = [names.get(plan.stream[task], plan.stream[task]) for task in segment.tasks]
    allowed = [alone.allowed[unit] for unit in alone.unit]
    return [stream if stream in row else row[0] for stream, row in zip(streams, allowed, strict=True)]


def best_choices(rows: Sequence[Sequence[tuple[int, int]]]) -> list[list[int]]:
    """The best choices of one point of each row, as positions, for every total number of crossings that makes one shorter.

    Points are (crossings, time), the fewest crossings first and ever shorter.
    """
    least = [row[0][0] for row in rows]
    most = sum(row[-1][0] for row in rows) - sum(least)
    time = [0] * (most + 1)
    taken: list[list[int]] = []
    for row, fewest in zip(rows, least, strict=True):
        if len(row) == 1:
            time = [before + row[0][1] for before in time]
            taken.append([0] * (most + 1))
            continue
        steps = [(crossings - fewest, took) for crossings, took in row]
        chosen, after = [0] * (most + 1), [0] * (most + 1)
        for total in range(most + 1):
            ways = [(time[total - more] + took, number) for number, (more, took) in enumerate(steps) if more <= total]
            after[total], chosen[total] = min(ways)
        taken.append(chosen)
        time = after
    totals = [total for total in range(most + 1) if total == 0 or time[total] < time[total - 1]]
    return [_traced(rows, taken, total) for total in totals]


def _traced(rows: Sequence[Sequence[tuple[int, int]]], taken: Sequence[Sequence[int]], total: int) -> list[int]:
    choice = []
    for row, chosen in zip(reversed(rows), reversed(taken), strict=True):
        choice.append(chosen[total])
        total -= row[chosen[total]][0] - row[0][0]
    return choice[::-1]


def _whole(
    instance: Instance, segments: Sequence[Segment], plan: Plan, chosen: Sequence[Plan], streams: Mapping[int, int]
) -> Plan:
    """The plan with its segments as they were chosen, and with some other tasks on other streams."""
    stream, mode, key = list(plan.stream), list(plan.mode), [0] * len(instance)
    for place, task in enumerate(plan.order()):
        key[task] = place
    for segment, found in zip(segments, chosen, strict=True):
        places = sorted(key[task] for task in segment.tasks)
        for place, number in zip(places, found.order(), strict=True):
            task = segment.tasks[number]
            mode[task], key[task] = found.mode[number], place
            for member in instance.members[instance.unit[task]]:
                stream[member] = found.stream[number]
    for task, there in streams.items():
        stream[task] = there
    return replay(instance, stream, topological(instance.before, instance.after, key), mode)
