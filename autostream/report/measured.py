"""A report against a profile: what was predicted, and what the device did. Times in ns."""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal

import networkx as nx

from autostream.cost.measured.kernels import normal_dtype
from autostream.cost.measured.matching import Matching, match
from autostream.errors import InputError
from autostream.graph.model import Op, OpGraph, TensorSpec, Unit
from autostream.profiles.model import Profile
from autostream.profiles.reading import Overlap as FoundOverlap
from autostream.profiles.reading import read
from autostream.report.schema import Document, OpRow, Part
from autostream.report.wording import duration, operator, percent, percentage

#: Less overlap than this share of the busy time is parallelism on paper only.
HARDLY = 0.05
_TENSOR = re.compile(r"(\w+)\[([\d,]*)\]")


class MeasuredRow(Part):
    """One operator of the report and what its kernels took."""

    name: str
    target: str
    unit: str
    predicted_ns: int
    #: Median of its kernels.
    measured_ns: int
    #: Measured over predicted.
    ratio: float
    kernels: int
    #: Half-width of the predicted band (a factor less one), and whether the measured time lies in it.
    error: float
    within: bool
    tier: str
    #: How it was told from others of its kind: ``signature``, ``name`` or ``order``.
    by: str


class ClassRow(Part):
    """All matched operators of one unit."""

    unit: str
    operators: int
    predicted_ns: int
    measured_ns: int
    median_ratio: float
    #: Share of the measured time that lies within the predicted bands.
    within: float


class OverlapCheck(Part):
    """Overlap as predicted for one run of the graph, and as found in the profile, which may hold several runs."""

    predicted_streams: int
    predicted_overlap_ns: int
    predicted_total_ns: int
    #: Time with at least two streams busy as a share of the time with any.
    predicted_share: float
    found_streams: int
    found_overlap_ns: int
    found_busy_ns: int
    found_share: float
    #: In Ascend's words, over the whole profile.
    computing_ns: int
    communication_ns: int
    communication_not_overlapped_ns: int
    free_ns: int


class Lost(Part):
    """Operators, or kernels of one type, that found no partner."""

    name: str
    count: int
    reason: str


class Comparison(Part):
    """What a profile says of a report."""

    format: Literal["autostream-measured"] = "autostream-measured"
    schema_version: Literal[1] = 1
    profile: str
    #: Furthest from its prediction first.
    rows: tuple[MeasuredRow, ...]
    classes: tuple[ClassRow, ...]
    #: Share of the measured time of the matched operators that lies within the predicted bands.
    within: float
    #: Share of the profile's device time that belongs to operators of the report.
    matched_share: float
    overlap: OverlapCheck
    unmatched_ops: tuple[Lost, ...]
    unmatched_kernels: tuple[Lost, ...]
    #: What to look for, most likely first; empty where overlap is as predicted.
    advice: tuple[str, ...]

    def to_json(self) -> str:
        """Return the comparison as JSON with sorted keys."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, indent=1, allow_nan=False) + "\n"


def compare(document: Document, profile: Profile, *, where: str = "the report") -> Comparison:
    """Compare a report with the profile of a run of its graph.

    Raises:
        InputError: the report has no shapes (an older version wrote it), or no operator of it ran in the profile.
    """
    tasks = [row for row in document.ops if row.unit not in (None, Unit.FREE)]
    if tasks and not any(row.inputs or row.outputs for row in tasks):
        raise InputError(f"{where}: its operators have no shapes to be known by; write it again with this version of autostream")
    found = match(_graph(tasks), profile)
    if not found.matches:
        raise InputError(
            f"profile {profile.name}: none of its {len(profile.kernels)} kernels belongs to an operator of {where}; "
            f"it holds {_listed([kernel.type for kernel in profile.kernels])}, the report "
            f"{_listed([operator(row.target) for row in tasks])}; give a profile of a run of this graph"
        )
    rows = tuple(sorted(_rows(tasks, found), key=lambda row: (-max(row.ratio, 1 / row.ratio), row.name)))
    overlap = _overlap(document, profile)
    matched = sum(kernel.duration for one in found.matches for kernel in one.kernels)
    return Comparison(
        profile=profile.name,
        rows=rows,
        classes=tuple(_classes(rows)),
        within=_within(rows),
        matched_share=round(matched / profile.device_time, 6) if profile.device_time else 0.0,
        overlap=overlap,
        unmatched_ops=tuple(Lost(name=name, count=1, reason=why) for name, why in found.unmatched_ops.items()),
        unmatched_kernels=tuple(
            Lost(name=name, count=count, reason=why) for name, (count, why) in found.unmatched_kernels.items()
        ),
        advice=tuple(_advice(document, overlap)),
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(list(dict.fromkeys(names))[:5]) or "none"


# ---- operators ----


def _graph(rows: Sequence[OpRow]) -> OpGraph:
    """Return the operators of a report as a graph without edges: matching looks at nothing else."""
    ops = {
        row.name: Op(
            name=row.name,
            target=row.target,
            unit=row.unit or Unit.MIXED,
            position=index,
            inputs=tuple(_specs(row.inputs)),
            outputs=tuple(_specs(row.outputs)),
            flops=0,
            bytes_read=0,
            bytes_written=0,
        )
        for index, row in enumerate(rows)
    }
    return OpGraph(dag=nx.DiGraph(), ops=ops, storages={}, outputs=())


def _specs(texts: Sequence[str]) -> Iterator[TensorSpec]:
    """Read tensors such as ``"bfloat16[64,7168]"``; another text is passed over."""
    for text in texts:
        told = _TENSOR.fullmatch(text)
        if told is not None:
            _, itemsize = normal_dtype(told[1]) or ("", 1)
            shape = tuple(int(size) for size in told[2].split(",") if size)
            yield TensorSpec(shape=shape, dtype=told[1], itemsize=itemsize)


def _rows(tasks: Sequence[OpRow], found: Matching) -> Iterator[MeasuredRow]:
    by_name = {row.name: row for row in tasks}
    for one in found.matches:
        row = by_name[one.op]
        measured = statistics.median_low(sorted(kernel.duration for kernel in one.kernels))
        if not row.duration_ns or not measured:
            continue
        yield MeasuredRow(
            name=row.name,
            target=row.target,
            unit=row.unit.value if row.unit else "",
            predicted_ns=row.duration_ns,
            measured_ns=measured,
            ratio=round(measured / row.duration_ns, 6),
            kernels=len(one.kernels),
            error=row.error,
            within=row.duration_ns <= measured * (1 + row.error) and measured <= row.duration_ns * (1 + row.error),
            tier=row.tier.value if row.tier else "",
            by=one.by,
        )


def _classes(rows: Sequence[MeasuredRow]) -> Iterator[ClassRow]:
    groups: dict[str, list[MeasuredRow]] = defaultdict(list)
    for row in rows:
        groups[row.unit].append(row)
    for unit, members in sorted(groups.items()):
        yield ClassRow(
            unit=unit,
            operators=len(members),
            predicted_ns=sum(row.predicted_ns for row in members),
            measured_ns=sum(row.measured_ns for row in members),
            median_ratio=round(statistics.median(row.ratio for row in members), 6),
            within=_within(members),
        )


def _within(rows: Sequence[MeasuredRow]) -> float:
    total = sum(row.measured_ns for row in rows)
    return round(sum(row.measured_ns for row in rows if row.within) / total, 6) if total else 0.0


# ---- overlap ----


def _overlap(document: Document, profile: Profile) -> OverlapCheck:
    reading = read(profile, top=0)
    found: FoundOverlap = reading.overlap
    busy = found.span - found.free
    ends = [row.end_ns for row in document.streams]
    total = max(ends, default=0)
    return OverlapCheck(
        predicted_streams=len(document.streams),
        predicted_overlap_ns=document.overlap.total_ns,
        predicted_total_ns=total,
        predicted_share=round(document.overlap.total_ns / total, 6) if total else 0.0,
        found_streams=len(reading.streams),
        found_overlap_ns=found.two_streams,
        found_busy_ns=busy,
        found_share=round(found.two_streams / busy, 6) if busy else 0.0,
        computing_ns=found.computing,
        communication_ns=found.communication,
        communication_not_overlapped_ns=found.communication_not_overlapped,
        free_ns=found.free,
    )


def _advice(document: Document, overlap: OverlapCheck) -> Iterator[str]:
    """Say what to look for where the profile shows less overlap than was predicted, or where little was."""
    if overlap.predicted_share < HARDLY:
        if document.verdict.side_streams:
            yield (
                f"overlap is predicted for {percentage(overlap.predicted_share)} of the time only, under {percent(HARDLY)}: the "
                "side stream is parallel on paper; look for what its first operator waits for ('autostream explain')"
            )
        return
    if overlap.found_share >= max(HARDLY, overlap.predicted_share / 2):
        return
    hardly = f" (under {percent(HARDLY)}: no overlap to speak of)" if overlap.found_share < HARDLY else ""
    share = f"{percentage(overlap.found_share)} of the busy time{hardly}"
    yield f"at least two streams are busy for {share}, where {percentage(overlap.predicted_share)} was predicted"
    if overlap.found_streams < 2:
        yield (
            "all kernels ran on one stream: was the scheduled graph run? Labels have no effect with enable_single_stream, nor on "
            "a graph of dynamic shape without ENABLE_DYNAMIC_SHAPE_MULTI_STREAM=1"
        )
    for row in document.overlap.rows[:3]:
        one, two = row.example
        yield f"look for {one!r} beside {two!r} (predicted {duration(row.ns)} on streams {' and '.join(row.streams)})"
    if overlap.found_streams > 1:
        yield (
            "does the side stream start late? Then its first kernel was sorted behind work that waits: set "
            "topology_sorting_strategy to StableRDFS, or give the first real operator of the branch a control edge"
        )
        yield ("do both kernels take all cores (Block Num)? Kernels of one kind then take turns: limit the cores of one of them")
    if overlap.free_ns > overlap.found_busy_ns:
        yield "the device is idle for more than half of the time: the host is too slow for streams to matter"
