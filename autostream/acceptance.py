"""Accept or decline: is the simulated gain larger than what the cost model could be wrong by?

Two questions, answered on the same two simulated programs.

Corners: costs of one unit tend to be wrong in the same direction, so the gain is recomputed with all costs of one unit at one end
of their error band while the others stay, and with every unit at the same end. What overlapping costs, the sync and the
interference, is taken at its dear and at its cheap end.

Draws: a fixed set of random worlds, in which each class of operators has an error of its own, each kind of operator scatters
around that, collectives wait for the slowest rank, and syncs and interference are off. They give the distribution of the gain.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from autostream.cost.measured.scaled import floor
from autostream.cost.measured.signature import Signature, signature
from autostream.cost.model import Cost, Machine
from autostream.errors import percentage
from autostream.graph.model import Op, OpGraph, Unit
from autostream.program import StreamProgram
from autostream.program.simulation.running import Slowdowns
from autostream.program.simulation.simulate import Simulator

_SEED = 0
#: Draws per decision: as many as this number of simulated tasks pays for, within limits. Twenty are the fewest of which two lie
#: beyond p10.
_SIMULATED_TASKS = 20_000
_FEWEST, _MOST = 20, 200
#: Random numbers are integers of so many parts of one, and so is all that is computed from them: the same on every machine.
_ONE = 1000
#: The time by which ranks may be apart is divided into so many parts; a collective is late up to the middle of one of them: there
#: are few, so that layers repeat within a draw.
_LATENESS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Simulated times (ns) and the gain (share of the serial time): at its worst and best corner, and over the draws."""

    serial: int
    scheduled: int
    low: float
    high: float
    p10: float
    p50: float
    p90: float

    @property
    def nominal(self) -> float:
        """Gain at the predicted costs."""
        return _gain(self.serial, self.scheduled)


def gain(
    before: StreamProgram | Simulator,
    after: StreamProgram | Simulator,
    graph: OpGraph,
    costs: Mapping[str, Cost],
    machine: Machine,
    limited: Mapping[str, Cost] | None = None,
) -> Gain:
    """Simulate both programs at the predicted costs, at every corner and in every draw.

    A program may be given as its simulator, made with the same costs (those of `limited` too for `after`) and machine.
    `limited` are the costs of the operators whose cores only the scheduled program limits: what `costs` is wrong by, they are
    wrong by too, in proportion.

    Raises:
        VerificationError: one of the programs waits for itself and never ends.
    """
    limited = limited or {}
    serial, scheduled = _simulator(before, costs, machine), _simulator(after, {**costs, **limited}, machine)
    classes = _Classes(graph, costs)
    given, split = _Prices(costs, classes), _Prices(limited, classes)

    one, other = _Priced(serial, given), _Priced(scheduled, given, split)

    def at(world: _Corner | _Draw, *overlaps: _Overlap) -> Iterator[float]:
        here, there = one.durations(world), other.durations(world)
        for overlap in overlaps:
            yield _gain(serial.makespan(here, **overlap._asdict()), scheduled.makespan(there, **overlap._asdict()))

    dear, cheap = _Overlap.of(machine, _ONE, _ONE), _Overlap.of(machine, -_ONE, -_ONE)
    corners = [found for corner in _corners(graph, costs) for found in at(corner, dear, cheap)]
    count = min(_MOST, max(_FEWEST, _SIMULATED_TASKS // max(1, scheduled.tasks)))
    draws = _draws(count, classes, _skews(graph, costs), machine)
    drawn = sorted(found for draw in draws for found in at(draw, draw.overlap))
    tail = (count - 1) // 10
    return Gain(
        serial=serial.makespan(),
        scheduled=scheduled.makespan(),
        low=min(corners),
        high=max(corners),
        p10=drawn[tail],
        p50=drawn[(count - 1) // 2],
        p90=drawn[count - 1 - tail],
    )


def _simulator(program: StreamProgram | Simulator, costs: Mapping[str, Cost], machine: Machine) -> Simulator:
    return program if isinstance(program, Simulator) else Simulator(program, costs, machine)


class _Overlap(NamedTuple):
    """What running at the same time costs: a wait between streams, ns, and what operators cost each other."""

    sync: int
    slowdowns: Slowdowns

    @classmethod
    def of(cls, machine: Machine, sync: int, interference: int) -> _Overlap:
        """Return what it costs where both are off, each by so many parts of `_ONE` of the half-width of its band."""
        sync_error, interference_error = round(machine.sync_error * _ONE), round(machine.interference_error * _ONE)
        return cls(_moved(machine.sync, sync * sync_error), Slowdowns.of(machine, interference * interference_error // _ONE))


class _Class(NamedTuple):
    """Where an operator finds its two errors, and how wide they are, in parts of `_ONE`."""

    shared: int
    error: int
    own: int
    scatter: int


class _Kind(NamedTuple):
    """What operators have in common that take equally long in every world, but for late collectives."""

    duration: int
    unit: Unit
    error: float
    of: _Class


@dataclass(frozen=True, slots=True, kw_only=True)
class _Corner:
    """All costs of some units at one end (sign) of their error bands."""

    units: frozenset[Unit]
    sign: int
    late: ClassVar[Mapping[str, int]] = {}

    def duration(self, kind: _Kind) -> int:
        """Return the duration of such operators, ns."""
        if kind.unit not in self.units:
            return kind.duration
        return _stretched(kind.duration, self.sign * round(kind.error * _ONE) * _ONE)


def _corners(graph: OpGraph, costs: Mapping[str, Cost]) -> Iterator[_Corner]:
    """Yield every corner; one without any change if nothing takes time."""
    units = sorted({_unit(graph, name) for name in costs} - {Unit.FREE})
    groups = [frozenset({unit}) for unit in units]
    if len(units) != 1:
        groups.append(frozenset(units))
    for group in groups:
        for sign in (-1, 1):
            yield _Corner(units=group, sign=sign)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draw:
    """One random world: errors by number, in parts of `_ONE`, lateness of collectives, ns, and what overlapping costs."""

    shared: Sequence[int]
    own: Sequence[int]
    late: Mapping[str, int]
    overlap: _Overlap

    def duration(self, kind: _Kind) -> int:
        """Return the duration of such operators where none is late, ns."""
        group, error, alike, scatter = kind.of
        return _stretched(_stretched(kind.duration, self.shared[group] * error), self.own[alike] * scatter)


class _Classes:
    """Which operators are wrong alike.

    Operators of one unit whose error bands are equally wide are one class and share an error, anywhere in that band. On top of
    it all operators with the same signature share a scatter (see `_scatter`).
    """

    def __init__(self, graph: OpGraph, costs: Mapping[str, Cost]) -> None:
        self.units = {name: _unit(graph, name) for name in costs}
        self.of: dict[str, _Class] = {}
        shared: dict[object, int] = {}
        own: dict[object, int] = {}
        #: By target and tensors, on which a signature depends: layers repeat, and these are sooner compared than it is read.
        signatures: dict[object, Signature] = {}
        for name, cost in costs.items():
            if cost.duration:
                op = graph.ops.get(name)
                alike: object = cost  # what only the emitted graph has are copies: alike are those of equally many bytes
                if op is not None:
                    tensors = op.target, op.inputs, op.outputs
                    alike = signatures.get(tensors) or signatures.setdefault(tensors, signature(op))
                self.of[name] = _Class(
                    shared=shared.setdefault((self.units[name], cost.error), len(shared)),
                    error=round(cost.error * _ONE),
                    own=own.setdefault(alike, len(own)),
                    scatter=round(_scatter(cost) * _ONE),
                )
        self.counts = len(shared), len(own)


class _Prices:
    """Costs by name, sorted by kind: layers repeat, so that a world has far fewer durations than operators."""

    def __init__(self, costs: Mapping[str, Cost], classes: _Classes) -> None:
        kinds: dict[_Kind, int] = {}
        #: The kind of what takes time, by name.
        self.kind: dict[str, int] = {}
        for name, cost in costs.items():
            if cost.duration:
                kind = _Kind(cost.duration, classes.units[name], cost.error, classes.of[name])
                self.kind[name] = kinds.setdefault(kind, len(kinds))
        self.kinds = tuple(kinds)


class _Priced:
    """The steps of a program, each with its kind."""

    def __init__(self, program: Simulator, *prices: _Prices) -> None:
        """Sort the steps of a program; where several prices have a name, the last ones hold."""
        self._kinds = [kind for one in prices for kind in one.kinds]
        number: dict[str, int] = {}
        first = 0
        for one in prices:
            number |= {name: first + kind for name, kind in one.kind.items()}
            first += len(one.kinds)
        #: What nobody prices takes as long in every world.
        self._fixed = program.durations
        self._number = [number.get(name, first + step) for step, name in enumerate(program.keys)]
        self._steps: dict[str, list[int]] = {}
        for step, name in enumerate(program.keys):
            if name in number:
                self._steps.setdefault(name, []).append(step)

    def durations(self, world: _Corner | _Draw) -> list[int]:
        """Return the duration of each step, ns."""
        taken = [*map(world.duration, self._kinds), *self._fixed]
        found = [taken[number] for number in self._number]
        for name, late in world.late.items():
            for step in self._steps.get(name, ()):
                found[step] += late
        return found


def _draws(count: int, classes: _Classes, skews: Mapping[str, int], machine: Machine) -> Iterator[_Draw]:
    """Yield `count` random worlds, always the same ones.

    A collective waits for the slowest rank: for up to the time by which what ran since the collective before it differs from run
    to run, in both programs alike.
    """
    dice = random.Random(_SEED)
    for _ in range(count):
        shared, own = ([dice.randint(-_ONE, _ONE) for _ in range(size)] for size in classes.counts)
        late = {name: skew * (2 * dice.randrange(_LATENESS) + 1) // (2 * _LATENESS) for name, skew in skews.items()}
        overlap = _Overlap.of(machine, dice.randint(-_ONE, _ONE), dice.randint(-_ONE, _ONE))
        yield _Draw(shared=shared, own=own, late=late, overlap=overlap)


def _moved(duration: int, share: int) -> int:
    """Return duration x (1 + share), at least 0; the share is in parts of ``_ONE * _ONE``."""
    return max(0, duration * (_ONE * _ONE + share) // (_ONE * _ONE))


def _stretched(duration: int, share: int) -> int:
    """Return duration x (1 + share), or for a negative share duration / (1 - share): as a factor it is as wide downwards."""
    whole = _ONE * _ONE
    return duration * (whole + share) // whole if share >= 0 else duration * whole // (whole - share)


def _scatter(cost: Cost) -> float:
    """Return the half-width of what single operators scatter beside the error of their class.

    Nine of ten operators stay within `Cost.spread` with both errors at work. Taken as uniform, that is a half-width of
    spread / 0.9, and variances add up.
    """
    return math.sqrt(max(0.0, (cost.spread / 0.9) ** 2 - cost.error**2))


def _skews(graph: OpGraph, costs: Mapping[str, Cost]) -> dict[str, int]:
    """Return for each collective by how much ranks may arrive apart, ns.

    That is what two runs of the kernels since the collective before it differ by: they repeat within a few percent each (see
    `autostream.cost.measured.scaled.floor`), independently of each other. Costs that do not scatter at all do not do so here.
    """
    skews: dict[str, int] = {}
    squares = 0
    for op in graph:
        cost = costs.get(op.name)
        if cost is None:
            continue
        if op.unit is Unit.COMM:
            skews[op.name] = math.isqrt(squares)
            squares = 0
        elif op.unit is not Unit.FREE:
            squares += round(cost.duration * min(floor(op), max(cost.spread, cost.error))) ** 2
    return skews


def _unit(graph: OpGraph, name: str) -> Unit:
    """Return the unit of an operator; what only the emitted graph has are copies."""
    op: Op | None = graph.ops.get(name)
    return Unit.VECTOR if op is None else op.unit


def _gain(serial: int, scheduled: int) -> float:
    return 1.0 - scheduled / serial if serial else 0.0


def refusal(gain: Gain, min_gain: float) -> tuple[str, str] | None:
    """Return (code, reason) if the gain is not worth a rewrite, else None."""
    if gain.nominal < min_gain:
        return "no-gain", f"the simulated gain of {percentage(gain.nominal)} is below min_gain ({percentage(min_gain)})"
    within = f"the simulated gain of {percentage(gain.nominal)} is within the cost model's error"
    if gain.low <= 0:
        return "within-error", f"{within} (worst corner {percentage(gain.low)})"
    if gain.p10 <= 0:
        return "within-error", f"{within} (p10 {percentage(gain.p10)})"
    return None


def memory_refusal(extra: int, cap: int) -> tuple[str, str] | None:
    """Return (code, reason) if the plan takes more memory beyond the graph as given than the user allows, else None; bytes."""
    if extra <= cap:
        return None
    text = f"intermediate buffers would take {extra} bytes more at their peak than the graph as given; max_extra_bytes is {cap}"
    return "over-memory-cap", text
