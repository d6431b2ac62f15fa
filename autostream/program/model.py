"""A multi-stream program as read back from an emitted graph: what will run, not what was planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from autostream.graph.regions import Region


class Semantics(StrEnum):
    """What the backend orders by itself."""

    #: GE: every data or control edge between tasks is synchronised by an event the engine inserts.
    GE = "ge"
    #: Capture modes: only explicit events order streams; a data edge orders nothing.
    CAPTURE = "capture"


class EdgeKind(StrEnum):
    """How one step is made to wait for another."""

    DATA = "data"
    CONTROL = "control"
    EVENT = "event"


class Step(NamedTuple):
    """One node of the program. A program has thousands of them: hence no dataclass.

    `stream` is None for what occupies no stream (Const, Data, views that GE drops): it passes data on but can neither wait nor
    be waited for. `reads` and `writes` name storages; `read_regions` and `write_regions` tell for some of these where in the
    storage, and one they do not name is touched anywhere. `source` is the FX node it came from (its own name in an FX program,
    may be empty in a dump).
    """

    name: str
    kind: str
    stream: str | None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    source: str = ""
    read_regions: tuple[tuple[str, Region], ...] = ()
    write_regions: tuple[tuple[str, Region], ...] = ()
    #: Cube and vector cores that its scope limits it to; None: no limit.
    cores: tuple[int, int] | None = None


class Edge(NamedTuple):
    """`after` waits for `before`."""

    before: str
    after: str
    kind: EdgeKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A synchronisation that was written but orders nothing, found while reading."""

    kind: str
    step: str
    explanation: str
    #: The step that was to be waited for, if known.
    before: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class StreamProgram:
    """Steps in emission order, and the edges between them."""

    semantics: Semantics
    steps: tuple[Step, ...]
    edges: tuple[Edge, ...]
    #: True if steps of one stream run in emission order (GE: StableRDFS); False if the backend may re-sort independent steps.
    in_order: bool
    lost: tuple[Lost, ...] = ()
    #: Capture modes: streams that start by waiting for the stream the graph runs on before that has any task.
    forked: tuple[str, ...] = ()
    #: Capture modes: streams that the backend itself starts behind the start of the graph and joins before its output.
    closed: tuple[str, ...] = ()
    #: Capture modes: (storage, stream) whose memory the program says is used on that stream too (``record_stream``).
    guards: tuple[tuple[str, str], ...] = ()
    #: Stream labels with the number of scopes that open them.
    opened: tuple[tuple[str, int], ...] = ()

    def streams(self) -> Mapping[str, tuple[Step, ...]]:
        """Return the steps of each stream in emission order; steps without a stream are left out."""
        lanes: dict[str, list[Step]] = {}
        for step in self.steps:
            if step.stream is not None:
                lanes.setdefault(step.stream, []).append(step)
        return {name: tuple(lane) for name, lane in lanes.items()}


class Severity(StrEnum):
    """How bad a finding is: an error makes `check` fail."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something the verifier has to say."""

    #: ``race``, ``lost-sync``, ``wait-on-const``, ``deadlock``, ``unpaired-scope``, ``order-lost``, ``order-unproven``,
    #: ``unordered-collectives``, ``unjoined-stream``, ``relies-on-sort``, ``memory-reuse``, ``memory-growth``,
    #: ``gang-deadlock``, ``communicators-in-parallel``, ``group-on-two-streams``, ``too-few-cores``,
    #: ``collective-beside-update``, ``update-on-side-stream``, ``rank-missing``, ``rank-order``, ``unforked-stream``,
    #: ``sync-not-lowered``, ``event-never-recorded``, ``event-recorded-later``, ``event-recorded-twice``,
    #: ``event-awaited-twice``, ``stream-as-event``, ``guard-on-own-stream``, ``guard-on-copy``, ``guard-without-use``,
    #: ``nested-scope``, ``over-synchronised``, ``redundant-wait``, ``unneeded-wait``, ``hidden-wait``, ``cores-unknown``,
    #: ``stale-suppression``, ``expired-suppression``, ``unexplained-suppression``.
    kind: str
    severity: Severity
    steps: tuple[str, ...]
    streams: tuple[str, ...]
    explanation: str
    remedy: str
    #: By step: module path and ``file:line`` in the user's program, ``"layers.0.mlp (model.py:12)"``; empty where it is unknown.
    where: tuple[str, ...] = ()
    #: On which levels it was found (``"fx"``, ``"ascend_ir"``); empty if nobody said.
    levels: tuple[str, ...] = ()


class Slot(NamedTuple):
    """When one step ran in a simulation, ns."""

    step: str
    stream: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A simulated run: slots ordered by (start, emission order)."""

    slots: tuple[Slot, ...]
    makespan: int
    #: Cross-stream dependencies that were charged.
    crossings: int
