"""The scheduling problem and its answer, free of graphs and solvers. All times are integer nanoseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

#: The unlabelled stream GE puts AI-core work on.
MAIN = "default"
#: The stream GE puts unlabelled collectives on; it costs no label and takes no part in stream capacity.
HCCL = "hccl"


class Mode(NamedTuple):
    """One way to run a task: its time and what it holds (see `autostream.cost.model.Resources`)."""

    duration: int
    aic: int = 0
    aiv: int = 0
    hbm: int = 0
    comm: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One operator that emits work."""

    name: str
    modes: tuple[Mode, ...]
    #: The only stream it may run on (user label, MAIN, HCCL), or None if the scheduler chooses.
    stream: str | None = None
    #: Tasks of one cluster share a stream (a fusable chain is never cut); None for a task on its own.
    cluster: str | None = None


class Precedence(NamedTuple):
    """`after` starts when `before` has ended, plus the sync cost if they are on different streams."""

    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Tasks in program order (a topological order), precedences, and what the machine has."""

    tasks: tuple[Task, ...]
    precedences: tuple[Precedence, ...]
    #: MAIN first, then the side streams the scheduler may use, then streams only fixed tasks use.
    streams: tuple[str, ...]
    aic: int
    aiv: int
    #: Cost of one cross-stream precedence, ns.
    sync: int
    #: HBM share available, thousandths.
    hbm: int = 1000
    #: The streams at the end of `streams` that only tasks fixed to them may use.
    fixed_streams: tuple[str, ...] = ()
    #: What tasks that run at the same time cost each other, thousandths (see `autostream.cost.model.Machine`).
    hbm_contention: int = 1000
    cube_vector_slowdown: int = 1000
    compute_comm_slowdown: int = 1000
    #: Most precedences whose tasks are on different streams; None = as many as pay.
    max_waits: int | None = None

    @property
    def open_streams(self) -> tuple[str, ...]:
        """The streams a task without a fixed stream may run on, MAIN first."""
        return tuple(name for name in self.streams if name != HCCL and name not in self.fixed_streams)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where and when one task runs."""

    task: str
    stream: str
    mode: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A part of the program that was solved alone: what it would take on the default streams, and what it takes now."""

    number: int
    #: For people: the first and the last task, or what was set aside.
    name: str
    #: In program order. Tasks that everything else waits for belong to no region.
    tasks: tuple[str, ...]
    serial: int
    makespan: int
    #: What no schedule of the region can beat.
    lower_bound: int
    #: ``"optimal"`` (it is proved that no plan is shorter), ``"near-optimal"`` (none is shorter by more than the thousandth that
    #: may be paid for fewer crossings, see `autostream.scheduling.tolerance`), ``"feasible"``, or ``"serial"`` where what may be
    #: moved shares one stream.
    status: str
    #: Side streams that its tasks are on, and precedences that change streams.
    side_streams: tuple[str, ...] = ()
    crossings: int = 0
    #: Why it is not better, one sentence.
    reason: str = ""

    @property
    def gain(self) -> int:
        """Time saved, ns."""
        return self.serial - self.makespan


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A wish: placements ordered by (start, end, program order). `seconds` is informative and takes no part in equality."""

    placements: tuple[Placement, ...]
    strategy: str
    #: ``"optimal"``, ``"near-optimal"`` (as for a `Region`), ``"feasible"``.
    status: str
    makespan: int
    lower_bound: int
    #: The parts that were solved alone, in program order; empty if the strategy does not divide.
    regions: tuple[Region, ...] = ()
    #: What the lower bound rests on: see `autostream.scheduling.bounds.lower.Bound`.
    bound_by: str = ""
    seconds: float = field(default=0.0, compare=False)

    def streams(self) -> Mapping[str, tuple[Placement, ...]]:
        """Return the placements by stream, each in start order."""
        lanes: dict[str, list[Placement]] = {}
        for placement in self.placements:
            lanes.setdefault(placement.stream, []).append(placement)
        return {name: tuple(lane) for name, lane in lanes.items()}


class Strategy(Protocol):
    """A way to solve a problem."""

    def solve(self, problem: Problem) -> Schedule:
        """Return a schedule that meets every constraint of the problem."""
        ...
