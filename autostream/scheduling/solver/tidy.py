"""Fewest crossings, then fewest streams, within a makespan that is already reached: times and streams together, as CP-SAT.

Naming streams is costly for the solver, so this is for regions of moderate size.
"""

from __future__ import annotations

from ortools.sat.python import cp_model

from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.paths import heads, tails
from autostream.scheduling.machine.replay import Plan, replay
from autostream.scheduling.solver.timing import SOLVED, solver


def tidied(instance: Instance, plan: Plan, budget: float) -> Plan:
    """Return a plan no longer than `plan`, with the fewest crossings that the solver finds; modes stay."""
    tidy = _Tidy(instance, plan)
    engine = solver(budget)
    if engine.solve(tidy.model) not in SOLVED:
        return plan
    start = [engine.value(variable) for variable in tidy.start]
    order = sorted(range(len(instance)), key=lambda task: (start[task], task))
    found = replay(instance, tidy.streams(engine), order, plan.mode)
    return min(plan, found, key=lambda candidate: candidate.rank)


class _Tidy:
    """The model. Each method states one kind of constraint."""

    def __init__(self, instance: Instance, plan: Plan) -> None:
        self.instance, self.plan = instance, plan
        self.model = cp_model.CpModel()
        head, tail = heads(instance), tails(instance)
        self.duration = [instance.modes[task][plan.mode[task]].duration for task in range(len(instance))]
        latest = [plan.makespan - tail[task] - self.duration[task] for task in range(len(instance))]
        self.start = [self.model.new_int_var(first, last, "start") for first, last in zip(head, latest, strict=True)]
        for variable, value in zip(self.start, plan.start, strict=True):
            self.model.add_hint(variable, value)
        #: By unit: the literal of each stream it may be on.
        self.on = [{stream: self.model.new_bool_var("on") for stream in allowed} for allowed in instance.allowed]
        self._units()
        self._lanes()
        self._machine()
        crossing = len(instance.streams) + 1
        self.model.minimize(sum([*(crossing * literal for literal in self._crossings()), *self._used()]))

    def streams(self, engine: cp_model.CpSolver) -> list[int]:
        """The stream of each task in a solution."""
        chosen = [next(stream for stream, literal in row.items() if engine.boolean_value(literal)) for row in self.on]
        return [chosen[unit] for unit in self.instance.unit]

    def _units(self) -> None:
        """Each unit is on one stream."""
        for row, members in zip(self.on, self.instance.members, strict=True):
            self.model.add_exactly_one(row.values())
            for stream, literal in row.items():
                self.model.add_hint(literal, stream == self.plan.stream[members[0]])

    def _lanes(self) -> None:
        """One task at a time on each stream."""
        for stream in range(len(self.instance.streams)):
            self.model.add_no_overlap(
                [
                    self.model.new_optional_fixed_size_interval_var(
                        self.start[task], self.duration[task], self.on[unit][stream], "run"
                    )
                    for task, unit in enumerate(self.instance.unit)
                    if stream in self.on[unit]
                ]
            )

    def _machine(self) -> None:
        """Cores, bandwidth and communication suffice at every instant."""
        runs = [
            self.model.new_fixed_size_interval_var(start, duration, "run")
            for start, duration in zip(self.start, self.duration, strict=True)
        ]
        for kind, capacity in enumerate(self.instance.capacity):
            demands = [self.instance.modes[task][self.plan.mode[task]].demand[kind] for task in range(len(self.instance))]
            held = [(run, demand) for run, demand in zip(runs, demands, strict=True) if demand]
            if sum(demand for _, demand in held) <= capacity:
                continue
            if 2 * min(demand for _, demand in held) > capacity:
                self.model.add_no_overlap([run for run, _ in held])
            else:
                self.model.add_cumulative([run for run, _ in held], [demand for _, demand in held], capacity)

    def _crossings(self) -> list[cp_model.IntVar]:
        """A precedence costs a sync where it crosses."""
        literals: list[cp_model.IntVar] = []
        for before, after in self.instance.edges():
            end = self.start[before] + self.duration[before]
            self.model.add(self.start[after] >= end + self.instance.sure_lag(before, after))
            if self.instance.may_cross(before, after):
                first, second = self.on[self.instance.unit[before]], self.on[self.instance.unit[after]]
                crosses = self.model.new_bool_var("cross")
                self.model.add_hint(crosses, self.plan.stream[before] != self.plan.stream[after])
                for stream, literal in first.items():
                    self.model.add_bool_or(~literal, crosses, *([second[stream]] if stream in second else []))
                self.model.add(self.start[after] >= end + self.instance.sync).only_enforce_if(crosses)
                literals.append(crosses)
        return literals

    def _used(self) -> list[cp_model.IntVar]:
        """A stream is used by the tasks on it."""
        used = [self.model.new_bool_var("used") for _ in self.instance.streams]
        for row in self.on:
            for stream, literal in row.items():
                self.model.add_implication(literal, used[stream])
        return used
