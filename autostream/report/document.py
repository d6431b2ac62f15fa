"""Build the report of one graph from what the pipeline found out about it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from autostream.cost.model import Breakdown, Cost, Machine, Resources, Tier
from autostream.graph.model import OpGraph, TensorSpec, Unit
from autostream.program.checks.lifetimes import Memory
from autostream.program.model import Finding, Slot, Step, StreamProgram, Timeline
from autostream.program.order import cross_edges
from autostream.program.simulation.critical import Critical, critical
from autostream.report.overlap import overlap, stream_rows
from autostream.report.schema import (
    CriticalRow,
    Document,
    EdgeRow,
    MachineRow,
    MemoryRow,
    OpRow,
    Overlap,
    Provenance,
    RegionRow,
    Shows,
)
from autostream.scheduling.problem import Region, Schedule
from autostream.verdict import Verdict

__all__ = ["Document", "Provenance", "build", "short_source"]


def build(
    *,
    name: str,
    verdict: Verdict,
    provenance: Provenance,
    graph: OpGraph | None = None,
    costs: Mapping[str, Cost] | None = None,
    before: Timeline | None = None,
    after: Timeline | None = None,
    program: StreamProgram | None = None,
    serial: StreamProgram | None = None,
    machine: Machine | None = None,
    schedule: Schedule | None = None,
    placed: Mapping[str, str] | None = None,
    findings: Iterable[Finding] = (),
    memory: Memory | None = None,
    notes: Iterable[str] = (),
) -> Document:
    """Return the document of one graph; leave out what the pipeline did not get to.

    `before` is the simulated run of the graph as given, `after` that of the plan (emitted, or tried and refused), `program`
    what was read back from the emitted graph, `serial` what was read from the given one, `schedule` what the
    strategy wished for. Streams, operators, overlap and the critical path describe `after` where there is one, else `before`.
    """
    costs = costs or {}
    shown = after or before
    steps = {step.name: step for step in program.steps} if program else {}
    owner = _owners(graph, steps)
    ran = program if after is not None else serial
    chain = critical(ran, shown, costs, machine) if ran is not None and shown is not None and machine is not None else None
    rows = _op_rows(graph, costs, steps, owner, before, after, chain, placed or {})
    by_step = _rows_by_step(rows, owner, shown)
    tasks = [cost for op, cost in costs.items() if graph is None or op in graph.ops]
    told = (*graph.refusals, *graph.notes, *notes) if graph is not None else tuple(notes)
    decisive = (verdict.reason, f"{verdict.code}: {verdict.reason}")
    return Document(
        name=name,
        verdict=verdict,
        gain=round(verdict.gain, 6),
        shows=_shows(verdict, before, after),
        provenance=provenance,
        streams=stream_rows(shown, by_step) if shown else (),
        ops=tuple(rows.values()),
        edges=_edge_rows(ran, owner),
        overlap=overlap(shown, by_step) if shown else Overlap(),
        contention_ns=_contention(shown, owner, costs) if shown else 0,
        machine=MachineRow(aic=machine.aic, aiv=machine.aiv, sync_ns=machine.sync) if machine else None,
        critical=_critical_rows(chain, owner) if chain else (),
        regions=tuple(_region_row(region) for region in schedule.regions) if schedule else (),
        bound_by=schedule.bound_by if schedule else "",
        confidence=_confidence(tasks),
        memory=_memory_row(memory) if memory else None,
        notes=tuple(note for note in dict.fromkeys(told) if note not in decisive),
        findings=tuple(findings),
    )


def short_source(text: str) -> str:
    """Shorten the file of a ``"file:line"`` to how Python finds it, so that it is the same on every machine.

    ``"/home/me/env/lib/python3.11/site-packages/pkg/moe.py:12"`` becomes ``"pkg/moe.py:12"``.
    """
    file, colon, line = text.rpartition(":")
    return f"{_short_path(file, tuple(sys.path))}{colon}{line}" if file else text


@functools.lru_cache(maxsize=256)  # a graph has many operators and few source files
def _short_path(text: str, search_path: tuple[str, ...]) -> str:
    path = Path(text)
    if not path.is_absolute():
        return text
    roots = [root for root in (Path(entry).absolute() for entry in search_path) if path.is_relative_to(root)]
    return path.relative_to(max(roots, key=lambda root: len(root.parts))).as_posix() if roots else path.name


def _memory_row(memory: Memory) -> MemoryRow:
    by_stream = {pool.stream: pool.peak for pool in memory.pools}
    return MemoryRow(peak_bytes=memory.peak, one_stream_bytes=memory.serial_peak, streams=by_stream)


def _shows(verdict: Verdict, before: Timeline | None, after: Timeline | None) -> Shows:
    if after is not None:
        return "scheduled" if verdict.accepted else "refused"
    return "unscheduled" if before is not None else "nothing"


def _owners(graph: OpGraph | None, steps: Mapping[str, Step]) -> dict[str, str]:
    """Return the operator each step belongs to; a step of no operator is its own owner."""
    ops = graph.ops if graph else {}
    owner = {name: name for name in ops}
    for step in steps.values():
        owner[step.name] = step.name if step.name in ops or step.source not in ops else step.source
    return owner


def _op_rows(
    graph: OpGraph | None,
    costs: Mapping[str, Cost],
    steps: Mapping[str, Step],
    owner: Mapping[str, str],
    before: Timeline | None,
    after: Timeline | None,
    chain: Critical | None,
    placed: Mapping[str, str],
) -> dict[str, OpRow]:
    """Return the rows by name: operators that emit work in graph order, then the emitted steps that are no operator."""
    shown = after or before
    now, earlier = _spans(shown, owner), _spans(before, owner)
    slack = _slack(chain, owner)
    rows: dict[str, OpRow] = {}
    for op in graph or ():
        if op.unit is Unit.FREE and op.name not in now:
            continue
        cost = costs.get(op.name)
        rows[op.name] = OpRow(
            name=op.name,
            target=op.target,
            unit=op.unit,
            duration_ns=cost.duration if cost else 0,
            breakdown=cost.breakdown if cost else Breakdown(),
            resources=cost.resources if cost else Resources(),
            tier=cost.tier if cost else None,
            error=cost.error if cost else 0.0,
            inputs=tuple(map(_tensor, op.inputs)),
            outputs=tuple(map(_tensor, op.outputs)),
            module_path=op.module_path,
            source_line=short_source(op.source_line),
            slack_ns=slack.get(op.name),
            placed=placed.get(op.name, ""),
            **_times(op.name, now, earlier),
        )
    for name, slot in now.items():
        if name not in rows:
            target = steps[name].kind if name in steps else ""
            rows[name] = OpRow(
                name=name,
                target=target,
                duration_ns=slot.end - slot.start,
                slack_ns=slack.get(name),
                **_times(name, now, earlier),
            )
    return rows


def _tensor(spec: TensorSpec) -> str:
    return f"{spec.dtype}[{','.join(map(str, spec.shape))}]"


def _spans(timeline: Timeline | None, owner: Mapping[str, str]) -> dict[str, Slot]:
    """Return from the start of the first to the end of the last slot of each operator; what takes no time is left out."""
    spans: dict[str, Slot] = {}
    for slot in timeline.slots if timeline else ():
        if slot.end == slot.start:
            continue
        name = owner.get(slot.step, slot.step)
        known = spans.get(name, slot)
        spans[name] = Slot(step=name, stream=known.stream, start=min(known.start, slot.start), end=max(known.end, slot.end))
    return spans


def _slack(chain: Critical | None, owner: Mapping[str, str]) -> dict[str, int]:
    """Return the slack of each operator: that of its step that has least."""
    slack: dict[str, int] = {}
    for step, ns in chain.slack.items() if chain else ():
        name = owner.get(step, step)
        slack[name] = min(ns, slack.get(name, ns))
    return slack


def _critical_rows(chain: Critical, owner: Mapping[str, str]) -> tuple[CriticalRow, ...]:
    """Return the chain without what takes no time and waits for nothing."""
    return tuple(
        CriticalRow(
            op=owner.get(link.step, link.step),
            cause=link.cause,
            after=owner.get(link.after, link.after),
            start_ns=link.start,
            end_ns=link.end,
            sync_ns=link.sync,
        )
        for link in chain.path
        if link.end > link.start or link.sync
    )


def _region_row(region: Region) -> RegionRow:
    return RegionRow(
        number=region.number,
        name=region.name,
        ops=len(region.tasks),
        serial_ns=region.serial,
        scheduled_ns=region.makespan,
        lower_bound_ns=region.lower_bound,
        status=region.status,
        side_streams=len(region.side_streams),
        cross_edges=region.crossings,
        reason=region.reason,
    )


def _times(name: str, now: Mapping[str, Slot], earlier: Mapping[str, Slot]) -> dict[str, Any]:
    current, previous = now.get(name), earlier.get(name)
    return {
        "stream": current.stream if current else None,
        "start_ns": current.start if current else None,
        "end_ns": current.end if current else None,
        "before_stream": previous.stream if previous else None,
        "before_start_ns": previous.start if previous else None,
        "before_end_ns": previous.end if previous else None,
    }


def _rows_by_step(rows: Mapping[str, OpRow], owner: Mapping[str, str], timeline: Timeline | None) -> dict[str, OpRow]:
    by_step = {}
    for slot in timeline.slots if timeline else ():
        row = rows.get(owner.get(slot.step, slot.step))
        if row is not None:
            by_step[slot.step] = row
    return by_step


def _edge_rows(program: StreamProgram | None, owner: Mapping[str, str]) -> tuple[EdgeRow, ...]:
    if program is None:
        return ()
    stream = {step.name: step.stream or "" for step in program.steps}
    return tuple(
        EdgeRow(
            before=owner.get(edge.before, edge.before),
            after=owner.get(edge.after, edge.after),
            from_stream=stream[edge.before],
            to_stream=stream[edge.after],
            kind=edge.kind,
        )
        for edge in cross_edges(program)
    )


def _contention(timeline: Timeline, owner: Mapping[str, str], costs: Mapping[str, Cost]) -> int:
    """Return by how much the operators take longer in the timeline than each would alone on the chip."""
    taken: dict[str, int] = {}
    for slot in timeline.slots:
        name = owner.get(slot.step, slot.step)
        taken[name] = taken.get(name, 0) + slot.end - slot.start
    return sum(max(0, time - costs[name].duration) for name, time in taken.items() if name in costs)


def _confidence(costs: Iterable[Cost]) -> dict[Tier, float]:
    """Return the share of the serial operator time by tier."""
    times = dict.fromkeys(Tier, 0)
    for cost in costs:
        times[cost.tier] += cost.duration
    total = sum(times.values())
    return {tier: round(time / total, 6) if total else 0.0 for tier, time in times.items()}
