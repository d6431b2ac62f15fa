"""A report as a timeline that MindStudio Insight, Perfetto and chrome://tracing open (trace-event format, JSON).

The graph as it was given and the plan are two processes with a lane per stream, flow arrows for waits between streams and
counters for what is held; a third and a fourth process split each into Computing, Communication, Communication(Not Overlapped)
and Free, as Ascend's profiler does. Every time is simulated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from autostream.report.occupancy import Run, counters, given, lanes, shown, split
from autostream.report.schema import Document
from autostream.report.wording import operator

#: MindStudio Insight finds a timeline by this name.
TRACE = "trace_view.json"

Event = dict[str, Any]

_PLAN = {"scheduled": "Scheduled", "refused": "Refused plan"}


def trace(document: Document) -> str:
    """Return the timelines of a document as trace-event JSON; the same document gives the same text."""
    events: list[Event] = []
    before = given(document)
    if before:
        events += _process(document, 1, "As given (simulated)", before)
        events += _overlap_analysis(3, "Overlap Analysis, as given", before)
    if document.shows in _PLAN:
        title = _PLAN[document.shows]
        after = shown(document)
        events += _process(document, 2, f"{title} (simulated)", after)
        events += _waits(document, 2, after)
        events += _overlap_analysis(4, f"Overlap Analysis, {title.lower()}", after)
    data = {
        "displayTimeUnit": "ns",
        "otherData": {
            "autostream": document.provenance.autostream,
            "basis": document.provenance.basis,
            "chip": document.provenance.chip,
            "graph": document.name,
            "verdict": document.verdict.reason,
        },
        "traceEvents": events,
    }
    return json.dumps(data, sort_keys=True, allow_nan=False) + "\n"


def _process(document: Document, pid: int, title: str, runs: Sequence[Run]) -> Iterator[Event]:
    streams = lanes(runs)
    yield from _named(pid, title, streams)
    for run in runs:
        yield _slice(pid, streams.index(run.stream), operator(run.row.target), run.start, run.end, _details(run))
    if document.machine is not None:
        for counter in counters(runs, aic=document.machine.aic, aiv=document.machine.aiv):
            name = f"{counter.name} (of {counter.capacity})"
            for time, value in counter.points:
                yield {"ph": "C", "pid": pid, "tid": 0, "ts": _us(time), "name": name, "args": {"held": value}}


def _named(pid: int, title: str, rows: Sequence[str]) -> Iterator[Event]:
    yield {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": title}}
    yield {"ph": "M", "pid": pid, "tid": 0, "name": "process_labels", "args": {"labels": "NPU"}}
    yield {"ph": "M", "pid": pid, "tid": 0, "name": "process_sort_index", "args": {"sort_index": pid}}
    for tid, row in enumerate(rows):
        yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": row}}
        yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}


def _details(run: Run) -> dict[str, Any]:
    row = run.row
    details = {
        "operator": row.name,
        "unit": row.unit.value if row.unit else None,
        "alone (us)": _us(row.duration_ns),
        "cost from": row.tier.value if row.tier else None,
        "error": row.error,
        "slack (us)": _us(row.slack_ns) if row.slack_ns is not None else None,
        "module": row.module_path,
        "source": row.source_line,
        "cost (ns)": {term: ns for term, ns in asdict(row.breakdown).items() if ns},
        "holds": {name: amount for name, amount in asdict(row.resources).items() if amount},
    }
    return {key: value for key, value in details.items() if value not in (None, "", {})}


def _slice(pid: int, tid: int, name: str, start: int, end: int, args: dict[str, Any]) -> Event:
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": _us(start), "dur": _us(end - start), "args": args}


def _waits(document: Document, pid: int, runs: Sequence[Run]) -> Iterator[Event]:
    """Yield an arrow for every wait between streams whose two operators take time; it leaves inside the slice it starts from."""
    streams = lanes(runs)
    at = {run.row.name: run for run in runs}
    for number, edge in enumerate(document.edges):
        if edge.before not in at or edge.after not in at:
            continue
        before, after = at[edge.before], at[edge.after]
        common = {"pid": pid, "cat": "wait", "name": f"wait ({edge.kind.value})", "id": number}
        yield common | {"ph": "s", "tid": streams.index(before.stream), "ts": _us(before.end - 1)}
        yield common | {"ph": "f", "bp": "e", "tid": streams.index(after.stream), "ts": _us(after.start)}


def _overlap_analysis(pid: int, title: str, runs: Sequence[Run]) -> Iterator[Event]:
    parts = split(runs)
    rows = {
        "Computing": parts.computing,
        "Communication": parts.communication,
        "Communication(Not Overlapped)": parts.not_overlapped,
        "Free": parts.free,
    }
    yield from _named(pid, title, list(rows))
    for tid, (name, spans) in enumerate(rows.items()):
        for start, end in spans:
            yield _slice(pid, tid, name, start, end, {})


def _us(ns: int) -> float:
    return round(ns / 1000, 3)
