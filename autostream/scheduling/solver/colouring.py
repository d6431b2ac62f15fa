"""Streams for tasks whose times are known, as a CP-SAT model: colouring the intervals."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ortools.sat.python import cp_model

from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan, replay
from autostream.scheduling.solver.timing import SOLVED, solver


def coloured(instance: Instance, plan: Plan, timed: Plan, budget: float, movable: Collection[int] | None = None) -> Plan:
    """Return what the times of `timed` give on the streams that suit them best, or `plan` if the solver finds none in time.

    Only the units that are `movable` change streams; None lets all move.
    """
    colouring = Colouring(instance, timed, movable)
    engine = solver(budget)
    if engine.solve(colouring.model) not in SOLVED:
        return plan
    return replay(instance, colouring.streams(engine), timed.order(), timed.mode)


class Colouring:
    """Streams for tasks whose times are given: least delay (overlaps, late syncs), then fewest crossings, then fewest streams.

    Units that are not `movable` stay where they are; None lets all move.
    """

    def __init__(self, instance: Instance, timed: Plan, movable: Collection[int] | None = None) -> None:
        self.instance = instance
        self.timed = timed
        lead = [timed.stream[members[0]] for members in instance.members]
        self.allowed = [
            streams if movable is None or unit in movable else (lead[unit],) for unit, streams in enumerate(instance.allowed)
        ]
        self.model = cp_model.CpModel()
        #: By unit: the literal of each stream it may be on.
        self.on = [
            {stream: self.model.new_bool_var(f"on_{unit}_{stream}") for stream in allowed}
            for unit, allowed in enumerate(self.allowed)
        ]
        #: What a crossing weighs against the streams in use, and a ns of delay against all crossings.
        self.crossing = len(instance.streams) + 1
        self.delay = self.crossing * (len(instance.edges()) + 1)
        self._units()
        self.model.minimize(sum([*self._streams_used(), *self._crossings(), *self._clashes()]))

    def streams(self, solver: cp_model.CpSolver) -> list[int]:
        """The stream of each task in a solution."""
        chosen = [next(stream for stream, literal in row.items() if solver.boolean_value(literal)) for row in self.on]
        return [chosen[unit] for unit in self.instance.unit]

    def _units(self) -> None:
        """Each unit is on one stream."""
        for unit, row in enumerate(self.on):
            self.model.add_exactly_one(row.values())
            for stream, literal in row.items():
                self.model.add_hint(literal, stream == self.timed.stream[self.instance.members[unit][0]])

    def _streams_used(self) -> Iterator[cp_model.LinearExprT]:
        for number in range(len(self.instance.streams)):
            used = self.model.new_bool_var(f"used_{number}")
            for row in self.on:
                if number in row:
                    self.model.add_implication(row[number], used)
            yield used

    def _crossings(self) -> Iterator[cp_model.LinearExprT]:
        for before, after in self.instance.edges():
            first, second = self.on[self.instance.unit[before]], self.on[self.instance.unit[after]]
            if self.instance.may_cross(before, after) and len(first) + len(second) > 2:
                crosses = self.model.new_bool_var(f"cross_{before}_{after}")
                for stream, literal in first.items():
                    self.model.add_bool_or(~literal, crosses, *([second[stream]] if stream in second else []))
                late = max(self.timed.end[before] + self.instance.sync - self.timed.start[after], 0)
                yield (self.crossing + self.delay * late) * crosses

    def _clashes(self) -> Iterator[cp_model.LinearExprT]:
        for one, other in _overlaps(self.timed):
            first, second = self.on[self.instance.unit[one]], self.on[self.instance.unit[other]]
            if self.instance.may_cross(one, other) and len(first) + len(second) > 2:
                clash = self.model.new_bool_var(f"clash_{one}_{other}")
                for stream in [stream for stream in first if stream in second]:
                    self.model.add_bool_or(~first[stream], ~second[stream], clash)
                length = min(self.timed.end[one], self.timed.end[other]) - max(self.timed.start[one], self.timed.start[other])
                yield self.delay * length * clash


def _overlaps(timed: Plan) -> list[tuple[int, int]]:
    """Pairs of tasks that run at the same time."""
    pairs: list[tuple[int, int]] = []
    running: list[int] = []
    for task in timed.order():
        running = [other for other in running if timed.end[other] > timed.start[task]]
        pairs += [(other, task) for other in running]
        running.append(task)
    return pairs
