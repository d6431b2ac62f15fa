"""A problem in numbers: tasks, units and streams by position, so that the algorithms index lists instead of hashing names.

A *unit* is what is moved between streams as a whole: the tasks of one cluster, or one task on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from autostream.errors import InputError, nearest
from autostream.scheduling.machine.granting import Claim, Rules
from autostream.scheduling.machine.resources import Demand, NumberedMode, Packing
from autostream.scheduling.problem import MAIN, Mode, Problem, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """The numbered form of a problem; tasks keep the order of the problem."""

    names: tuple[str, ...]
    streams: tuple[str, ...]
    #: What the machine has: aic, aiv, hbm, comm.
    capacity: Demand
    sync: int
    modes: tuple[tuple[NumberedMode, ...], ...]
    #: The same as (duration, packed demand), and how demands are packed.
    work: tuple[tuple[tuple[int, int], ...], ...]
    packing: Packing
    #: What each mode claims of the machine when the plan runs, and by which rules it is granted.
    claims: tuple[tuple[Claim, ...], ...]
    rules: Rules
    #: Predecessors and successors of each task.
    before: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]
    #: The unit of each task, the tasks of each unit, and the streams each unit may run on.
    unit: tuple[int, ...]
    members: tuple[tuple[int, ...], ...]
    allowed: tuple[tuple[int, ...], ...]
    #: The streams that tasks which are not fixed may run on.
    open: tuple[int, ...]
    #: What follows from all that, found out once, by name: see `fact`.
    _facts: dict[str, tuple[int, ...]] = field(default_factory=dict, init=False, compare=False, repr=False)

    @classmethod
    def of(cls, problem: Problem) -> Instance:
        """Number a problem.

        Raises:
            InputError: for a problem that contradicts itself (unknown names, tasks out of topological order, a cluster
                fixed to two streams, a task without a mode).
        """
        names = tuple(task.name for task in problem.tasks)
        position = {name: number for number, name in enumerate(names)}
        if len(position) != len(names):
            raise InputError("problem: two tasks have the same name")
        if not problem.streams or problem.streams[0] != MAIN:
            raise InputError(f"problem: the first stream must be {MAIN!r}, not {problem.streams[:1]}")
        capacity = (problem.aic, problem.aiv, problem.hbm, 1)
        before, after = _neighbours(problem, position)
        unit, members = _units(problem)
        packing = Packing(capacity)
        rules = Rules(
            packing=Packing((problem.aic, problem.aiv, 1)),
            hbm_contention=problem.hbm_contention,
            cube_vector_slowdown=problem.cube_vector_slowdown,
            compute_comm_slowdown=problem.compute_comm_slowdown,
        )
        # The layers of a deep model have the same few modes.
        known: dict[tuple[Mode, ...], _Numbered] = {}
        rows = []
        for task in problem.tasks:
            if not task.modes:
                raise InputError(f"problem: task {task.name!r} has no mode")
            row = known.get(task.modes)
            if row is None:
                row = known[task.modes] = _Numbered.of(task.modes, capacity, packing, rules)
            rows.append(row)
        stream_number = {name: number for number, name in enumerate(problem.streams)}
        open_streams = tuple(stream_number[name] for name in problem.open_streams)
        return cls(
            names=names,
            streams=problem.streams,
            capacity=capacity,
            sync=problem.sync,
            modes=tuple([row.modes for row in rows]),
            work=tuple([row.work for row in rows]),
            packing=packing,
            claims=tuple([row.claims for row in rows]),
            rules=rules,
            before=before,
            after=after,
            unit=unit,
            members=members,
            open=open_streams,
            allowed=tuple(_allowed([problem.tasks[t] for t in tasks], stream_number, open_streams) for tasks in members),
        )

    def __len__(self) -> int:
        return len(self.names)

    def form(self) -> tuple[object, ...]:
        """What the answers depend on: instances of one form have the same schedules, task by task."""
        return self.streams, self.capacity, self.sync, self.modes, self.before, self.unit, self.allowed

    def reversed(self) -> Instance:
        """The same instance with time running backwards."""
        return replace(self, before=self.after, after=self.before)

    def edges(self) -> tuple[tuple[int, int], ...]:
        """Every precedence as (before, after), ordered by `after`."""
        return tuple((before, after) for after, befores in enumerate(self.before) for before in befores)

    def sure_lag(self, before: int, after: int) -> int:
        """The sync cost if no choice puts the two tasks on one stream, else 0."""
        first, second = self.allowed[self.unit[before]], self.allowed[self.unit[after]]
        return 0 if first == second or any(stream in second for stream in first) else self.sync

    def may_cross(self, before: int, after: int) -> bool:
        """True if it depends on the choice of streams whether two tasks are on the same one."""
        first, second = self.unit[before], self.unit[after]
        choices = {*self.allowed[first], *self.allowed[second]}
        return first != second and len(choices) > 1 and any(stream in self.allowed[second] for stream in self.allowed[first])

    def fact(self, name: str, find: Callable[[Instance], Iterable[int]]) -> tuple[int, ...]:
        """Return what `find` says of this instance, one number a task, found out at the first call with that name."""
        known = self._facts.get(name)
        if known is None:
            known = self._facts[name] = tuple(find(self))
        return known

    @property
    def durations(self) -> tuple[int, ...]:
        """Duration of each task in its fastest mode."""
        return self.fact("durations", _durations)

    def shortest(self, task: int) -> int:
        """Duration of the fastest mode."""
        return self.durations[task]


def _durations(instance: Instance) -> Iterator[int]:
    return (row[0].duration if len(row) == 1 else min(mode.duration for mode in row) for row in instance.modes)


class _Numbered(NamedTuple):
    """The modes of a task in the three forms that an instance has them in."""

    modes: tuple[NumberedMode, ...]
    work: tuple[tuple[int, int], ...]
    claims: tuple[Claim, ...]

    @classmethod
    def of(cls, modes: tuple[Mode, ...], capacity: Demand, packing: Packing, rules: Rules) -> _Numbered:
        row = tuple(NumberedMode(mode.duration, clip(mode, capacity)) for mode in modes)
        return cls(
            modes=row,
            work=tuple((mode.duration, packing.pack(mode.demand)) for mode in row),
            claims=tuple(rules.claim(mode.duration, mode.demand) for mode in row),
        )


def clip(mode: Mode, capacity: Demand) -> Demand:
    """A task that asks for more than the machine has gets all of it."""
    return tuple(map(min, (mode.aic, mode.aiv, mode.hbm, mode.comm), capacity))


def _neighbours(problem: Problem, position: Mapping[str, int]) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
    before: list[dict[int, None]] = [{} for _ in position]
    after: list[dict[int, None]] = [{} for _ in position]
    for precedence in problem.precedences:
        for name in (precedence.before, precedence.after):
            if name not in position:
                raise InputError(f"problem: a precedence names the unknown task {name!r}{nearest(name, position)}")
        first, second = position[precedence.before], position[precedence.after]
        if first >= second:
            raise InputError(f"problem: {precedence.before!r} must come before {precedence.after!r} in the order of the tasks")
        before[second][first] = None
        after[first][second] = None
    return tuple(tuple(sorted(row)) for row in before), tuple(tuple(sorted(row)) for row in after)


def _units(problem: Problem) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    number: dict[str, int] = {}
    members: list[list[int]] = []
    unit: list[int] = []
    for position, task in enumerate(problem.tasks):
        found = number.get(task.cluster) if task.cluster is not None else None
        if found is None:
            found = len(members)
            members.append([])
            if task.cluster is not None:
                number[task.cluster] = found
        members[found].append(position)
        unit.append(found)
    return tuple(unit), tuple(tuple(tasks) for tasks in members)


def _allowed(tasks: list[Task], stream_number: Mapping[str, int], open_streams: tuple[int, ...]) -> tuple[int, ...]:
    fixed = {task.stream: task.name for task in tasks if task.stream is not None}
    if not fixed:
        return open_streams
    if len(fixed) > 1:
        raise InputError(f"problem: cluster {tasks[0].cluster!r} is fixed to several streams: {', '.join(fixed)}")
    (stream, name) = next(iter(fixed.items()))
    if stream not in stream_number:
        raise InputError(f"problem: task {name!r} is fixed to {stream!r}; the streams are {', '.join(stream_number)}")
    return (stream_number[stream],)
