"""Show a report in a terminal: the verdict first, then streams, overlap, price, confidence and notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autostream.cost.model import Tier
from autostream.program.model import Finding, Severity
from autostream.report import causes
from autostream.report.schema import Document, MemoryRow, OverlapRow, StreamRow
from autostream.report.wording import change, duration, operator, percent, plural, verdict_line

#: Width from which tables show more columns.
WIDE = 110
#: Rows a terminal shows of a longer list; the report file has them all.
ROWS = 8

#: Reasons that a terminal shows of the regions without overlap.
_REFUSED = 3

_TIMELINE = {
    "scheduled": "Streams of the scheduled graph (simulated)",
    "refused": "Streams of the plan that was refused (simulated)",
    "unscheduled": "Streams of the graph as it is (simulated)",
}
_STYLE = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


def render(document: Document, console: Console) -> None:
    """Print a document: readable as plain text at 80 columns, with more columns from 110 on."""
    accepted = document.verdict.accepted
    line = Text(verdict_line(document))
    line.stylize("bold green" if accepted else "bold yellow", 0, line.plain.index(":"))
    console.print(line)
    if document.streams:
        console.print()
        console.print(_stream_table(document, wide=console.width >= WIDE))
    if document.overlap.rows:
        console.print()
        console.print(_overlap_table(document.overlap.rows[:ROWS], wide=console.width >= WIDE))
    if document.what_if:
        console.print()
        console.print(_what_if_table(document))
    console.print()
    for line in _summary(document):
        console.print(line)
    if document.findings:
        console.print()
        render_findings(document.findings, console)
    _list("Notes", document.notes, console)


def render_regions(document: Document, console: Console) -> None:
    """Print the verdict, and every part of the graph that was scheduled on its own: what became of it, and why."""
    console.print(Text(verdict_line(document)))
    console.print()
    if not document.regions:
        console.print(Text("No regions: the graph was not divided, or not scheduled at all."))
        return
    table = Table(title="Regions (as the scheduler saw them)", title_justify="left", title_style="bold")
    table.add_column("Operators", overflow="fold")
    for heading in ("In order", "Scheduled", "Bound", "Waits"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("Why", overflow="fold")
    for row in document.regions:
        times = map(duration, (row.serial_ns, row.scheduled_ns, row.lower_bound_ns))
        why = ": ".join(part for part in (row.status, row.reason) if part)
        cells = (f"{row.number}: {row.name} ({row.ops})", *times, str(row.cross_edges), why)
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)


def render_findings(findings: Sequence[Finding], console: Console) -> None:
    """Print findings, the worst first."""
    order = list(Severity)
    for finding in sorted(findings, key=lambda finding: order.index(finding.severity)):
        head = Text.assemble(
            (finding.severity.value.upper(), _STYLE[finding.severity]), f" {finding.kind}: {finding.explanation}"
        )
        console.print(head)
        if finding.steps:
            where = f" (on {', '.join(finding.streams)})" if finding.streams else ""
            console.print(Text(f"  at: {_some(finding.steps)}{where}"))
        if finding.remedy:
            console.print(Text(f"  fix: {finding.remedy}"))


def _stream_table(document: Document, *, wide: bool) -> Table:
    table = Table(title=_TIMELINE[document.shows], title_justify="left", title_style="bold")
    table.add_column("Stream", overflow="fold")
    for heading in ("Ops", "Busy", "Share", *(("From", "To") if wide else ())):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("Busy time by unit")
    for row in document.streams:
        span = (duration(row.start_ns), duration(row.end_ns)) if wide else ()
        cells = (row.name, str(row.ops), duration(row.busy_ns), percent(row.share), *span, _units(row))
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _units(row: StreamRow) -> str:
    shares = sorted(row.units.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{unit} {percent(spent / row.busy_ns)}" for unit, spent in shares)


def _overlap_table(rows: Iterable[OverlapRow], *, wide: bool) -> Table:
    table = Table(title="What runs beside what (simulated)", title_justify="left", title_style="bold")
    for heading in ("Operator", "beside", *(("Units", "Longest pair") if wide else ())):
        table.add_column(heading, overflow="fold")
    for heading in (*(("Times",) if wide else ()), "Together"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        details = (" + ".join(row.units), " | ".join(row.example), str(row.times)) if wide else ()
        cells = (*map(operator, row.targets), *details, duration(row.ns))
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _what_if_table(document: Document) -> Table:
    table = Table(title="What if (simulated)", title_justify="left", title_style="bold")
    table.add_column("Options", overflow="fold")
    for heading in ("Before", "On streams", "Change", "At worst", "Waits"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("Decision", overflow="fold")
    for row in document.what_if:
        times = (duration(row.serial_ns), duration(row.scheduled_ns), change(row.gain), change(row.gain_low))
        cells = (row.label, *times, str(row.cross_edges), "accepted" if row.accepted else row.code)
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _memory(memory: MemoryRow) -> str:
    growth = memory.peak_bytes / memory.one_stream_bytes if memory.one_stream_bytes else 1.0
    return f"intermediate buffers {memory.peak_bytes / 2**20:.1f} MiB at their peak, {growth:.2f} times those of one stream"


def _summary(document: Document) -> Iterable[Text]:
    verdict = document.verdict
    spent = causes.by_term(document)
    if spent:
        parts = sorted(spent.items(), key=lambda item: -item[1])
        total = sum(spent.values())
        told = ", ".join(f"{causes.TERMS[term]} {percent(ns / total)}" for term, ns in parts)
        yield _entry("Why not faster", f"the critical path is {told}")
    if document.regions:
        yield _entry("Regions", _regions(document))
        refused = Counter(row.reason for row in document.regions if not row.cross_edges and row.reason)
        if refused:
            told = "; ".join(f"{plural(count, 'region')}: {reason}" for reason, count in refused.most_common(_REFUSED))
            yield _entry("Not overlapped", told)
    if document.overlap.total_ns:
        units = sorted(document.overlap.units.items(), key=lambda item: (-item[1], item[0]))
        pairs = ", ".join(f"{pair} {duration(spent)}" for pair, spent in units)
        yield _entry("Overlap", f"at least two streams busy for {duration(document.overlap.total_ns)} simulated ({pairs})")
    if verdict.side_streams or verdict.cross_edges or verdict.control_edges:
        price = [plural(verdict.side_streams, "side stream"), plural(verdict.cross_edges, "cross-stream edge")]
        price.append(plural(verdict.control_edges, "control edge"))
        if document.memory is not None:
            price.append(_memory(document.memory))
        if document.contention_ns:
            price.append(f"operators {duration(document.contention_ns)} longer in all from sharing the chip (simulated)")
        yield _entry("Price", ", ".join(price))
    if verdict.gain_p90:
        drawn = f"{change(verdict.gain_p10)} / {change(verdict.gain_p50)} / {change(verdict.gain_p90)}"
        yield _entry("Drawn errors", f"p10 / p50 / p90 of the change over random errors of the cost model: {drawn}")
    shares = ", ".join(f"{percent(share)} {tier.value}" for tier in Tier if (share := document.confidence.get(tier)) is not None)
    if any(document.confidence.values()):
        yield _entry("Confidence", f"of the predicted operator time: {shares}")
    made = document.provenance
    versions = [f"autostream {made.autostream}", f"torch {made.torch or 'absent'}", f"torch_npu {made.torch_npu or 'absent'}"]
    yield _entry("Basis", f"{made.basis}; {', '.join(versions)}; cost model {made.chip_digest or made.chip}")


def _regions(document: Document) -> str:
    rows = document.regions
    scheduled = sum(row.cross_edges > 0 for row in rows)
    optimal, near = (sum(row.status == status for row in rows) for status in ("optimal", "near-optimal"))
    told = f"{plural(len(rows), 'region')}, {scheduled} with overlap, {optimal} solved to optimality"
    return told + (f", {near} to within 0.1 %" if near else "")


def _list(title: str, lines: Sequence[str], console: Console) -> None:
    if not lines:
        return
    console.print()
    console.print(Text(f"{title}:", style="bold"))
    for line in lines[:ROWS]:
        console.print(Text(f"- {line}"))
    if len(lines) > ROWS:
        console.print(Text(f"- and {len(lines) - ROWS} more in the report file"))


def _entry(title: str, text: str) -> Text:
    return Text.assemble((f"{title}: ", "bold"), text)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - ROWS} more" if len(names) > ROWS else ""
    return ", ".join(names[:ROWS]) + more
