"""The schema of a report: plain data with a versioned JSON form and no graph objects.

Everything here is predicted by the cost model or simulated from the emitted program. The same graph, options, chip and versions
give the same bytes: there is no wall-clock time, no solver time and no machine-dependent folder in a document.
"""

from __future__ import annotations

import json
from importlib import metadata
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from autostream.cost.model import Breakdown, Resources, Tier
from autostream.errors import InputError
from autostream.graph.model import Unit
from autostream.options import Options
from autostream.program.model import EdgeKind, Finding
from autostream.program.simulation.critical import Cause
from autostream.report.notebook import document_html
from autostream.verdict import Verdict

FORMAT = "autostream-report"
SCHEMA_VERSION = 1
#: Which timeline a document describes: the accepted plan, one that was tried and refused, the graph as given, or none.
Shows = Literal["scheduled", "refused", "unscheduled", "nothing"]
BASIS = "modelled; nothing here was measured on an NPU"
#: The same where a profile, or a chip file fitted to one, priced operators (the cost model's fingerprint says so).
MEASURED_BASIS = "operators priced from a profile where the confidence says measured or scaled; the rest modelled, all simulated"


class Part(BaseModel):
    """Base of everything in a document: frozen, and readable by older versions (fields they do not know are ignored)."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Provenance(Part):
    """What the numbers rest on."""

    autostream: str
    torch: str | None
    torch_npu: str | None
    chip: str
    #: What identifies the cost model and the data files it read (their hashes); empty if no cost was asked for.
    chip_digest: str
    options: dict[str, Any]
    options_fingerprint: str
    basis: str = BASIS

    @classmethod
    def of(cls, *, chip: str, chip_digest: str, options: Options) -> Provenance:
        """Return the provenance of a run in this environment (installed versions are read without importing anything)."""
        return cls(
            autostream=installed_version("autostream") or "0+unknown",
            torch=installed_version("torch"),
            torch_npu=installed_version("torch_npu"),
            chip=chip,
            chip_digest=chip_digest,
            options=options.model_dump(mode="json"),
            options_fingerprint=options.fingerprint(),
            basis=MEASURED_BASIS if chip_digest.startswith(("measured-", "scaled-")) else BASIS,
        )


class StreamRow(Part):
    """One stream of the timeline that is shown."""

    name: str
    ops: int
    start_ns: int
    end_ns: int
    busy_ns: int
    #: Busy time as a share of the whole timeline.
    share: float
    #: Busy time by unit of the chip; ``"other"`` for steps that are not operators of the graph.
    units: dict[str, int]


class OpRow(Part):
    """One operator, or one step of the emitted program that is none of the graph's operators (then `unit` is None)."""

    name: str
    target: str
    unit: Unit | None = None
    stream: str | None = None
    #: Simulated, in the timeline that is shown; None where there is none.
    start_ns: int | None = None
    end_ns: int | None = None
    #: Simulated, in the graph as it was given.
    before_stream: str | None = None
    before_start_ns: int | None = None
    before_end_ns: int | None = None
    #: Predicted time of the operator alone on the chip.
    duration_ns: int = 0
    breakdown: Breakdown = Breakdown()
    resources: Resources = Resources()
    tier: Tier | None = None
    error: float = 0.0
    #: Its tensors, ``"bfloat16[64,7168]"``: what a kernel of a profile is told by.
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    #: By how much it could end later in the timeline that is shown without making it longer; None where that is not known.
    slack_ns: int | None = None
    module_path: str = ""
    source_line: str = ""
    #: Why it is on its stream; empty where the scheduler was free to choose.
    placed: str = ""


class EdgeRow(Part):
    """One cross-stream dependency of the program whose timeline is shown."""

    before: str
    after: str
    from_stream: str
    to_stream: str
    kind: EdgeKind


class OverlapRow(Part):
    """Two kinds of operator that run beside each other, summed over the timeline."""

    targets: tuple[str, str]
    units: tuple[str, str]
    streams: tuple[str, str]
    #: The pair of operators that overlaps longest.
    example: tuple[str, str]
    times: int
    ns: int


class Overlap(Part):
    """What runs beside what."""

    #: Time during which at least two streams are busy.
    total_ns: int = 0
    #: By pair of units, ``"cube + vector"``; pairs of more than two streams are counted pair by pair.
    units: dict[str, int] = {}
    #: Longest first, at most `autostream.report.overlap.LONGEST`.
    rows: tuple[OverlapRow, ...] = ()


class CriticalRow(Part):
    """One operator of the chain that sets the length of the timeline that is shown."""

    op: str
    #: What it had to wait for, and the operator that was (empty at the start).
    cause: Cause
    after: str
    start_ns: int
    end_ns: int
    #: From the end of `after` to the start: the price of a wait between streams.
    sync_ns: int


class RegionRow(Part):
    """One part of the graph that was scheduled on its own. Times in ns, as the scheduler saw them."""

    number: int
    #: For people: its first and last operator, or what was set aside.
    name: str
    #: How many operators it has.
    ops: int
    serial_ns: int
    scheduled_ns: int
    lower_bound_ns: int
    #: ``optimal``, ``near-optimal`` (proved to within a thousandth, given up for fewer waits), ``feasible`` or ``serial``.
    status: str
    side_streams: int
    cross_edges: int
    #: Why it is as it is.
    reason: str


class WhatIfRow(Part):
    """What the same graph gives under other options, or another batch. Times in ns, simulated."""

    label: str
    #: Options that differ from those of the report.
    changed: dict[str, Any]
    accepted: bool
    code: str
    serial_ns: int
    scheduled_ns: int
    gain: float
    gain_low: float
    side_streams: int
    cross_edges: int


class MachineRow(Part):
    """What the chip has."""

    aic: int
    aiv: int
    #: Price of a wait between streams.
    sync_ns: int


class MemoryRow(Part):
    """Peak memory of the intermediate buffers, bytes, of the program on its streams and of the same steps on one stream."""

    peak_bytes: int
    one_stream_bytes: int
    #: Peak by the stream whose operators create the buffers: what one stream gave back, another does not get.
    streams: dict[str, int] = {}


class Document(Part):
    """The report of one graph."""

    format: Literal["autostream-report"] = "autostream-report"
    schema_version: Literal[1] = 1
    name: str
    verdict: Verdict
    #: Simulated gain as a share of the time before.
    gain: float
    #: Which timeline streams, ops, overlap and edges describe.
    shows: Shows
    provenance: Provenance
    streams: tuple[StreamRow, ...]
    ops: tuple[OpRow, ...]
    edges: tuple[EdgeRow, ...]
    overlap: Overlap
    #: Time that operators lose by sharing the chip with what runs beside them.
    contention_ns: int
    #: Cores of the chip; None if no cost model was asked.
    machine: MachineRow | None = None
    #: First operator first; empty where there is no timeline.
    critical: tuple[CriticalRow, ...] = ()
    #: What sets the lower bound, in words; empty where that is not known.
    bound_by: str = ""
    #: In program order; empty where the scheduler looked at the graph as a whole.
    regions: tuple[RegionRow, ...] = ()
    #: Empty unless asked for.
    what_if: tuple[WhatIfRow, ...] = ()
    #: Share of the serial operator time whose cost is of each tier.
    confidence: dict[Tier, float]
    #: Of the emitted program; None if there is none.
    memory: MemoryRow | None = None
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]

    def to_json(self) -> str:
        """Return the document as JSON with sorted keys; the same document gives the same text."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, indent=1, allow_nan=False) + "\n"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict and the timelines."""
        return document_html(self)

    @classmethod
    def from_json(cls, text: str, *, where: str = "report") -> Document:
        """Return the document a JSON text holds; `where` names the text in errors.

        Raises:
            InputError: the text is no JSON, no autostream report, of another schema version, or damaged.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: not a JSON file ({error})") from error
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise InputError(f'{where}: JSON, but not an autostream report (no "format": "{FORMAT}" at the top)')
        if data.get("schema_version") != SCHEMA_VERSION:
            given = data.get("schema_version")
            raise InputError(f"{where}: report of schema version {given!r}; this version of autostream reads {SCHEMA_VERSION}")
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise InputError(f"{where}: damaged report: {place}: {first['msg']}") from error


def installed_version(package: str) -> str | None:
    """Return the installed version of a package, or None, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
