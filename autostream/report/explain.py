"""Explain one operator of a report: where it runs and why, what it waits for, its slack, and what would change that."""

from __future__ import annotations

from dataclasses import asdict

from autostream.errors import InputError, nearest
from autostream.report import causes
from autostream.report.levers import beside, levers
from autostream.report.schema import Document, OpRow, Part
from autostream.report.wording import duration, operator, percentage, plural

#: Neighbours that are listed.
BESIDE = 6


class Explanation(Part):
    """What a report knows of one operator, fact by fact: a title and one sentence or number each."""

    name: str
    target: str
    facts: tuple[tuple[str, str], ...]


def find(document: Document, name: str) -> OpRow:
    """Return the operator of that name, or the only one whose name or kind contains it.

    Raises:
        InputError: there is none, or more than one; names the nearest, or the first few.
    """
    for row in document.ops:
        if row.name == name:
            return row
    rows = [row for row in document.ops if name.lower() in f"{row.name} {row.target}".lower()]
    if len(rows) == 1:
        return rows[0]
    if not rows:
        raise InputError(
            f"no operator {name!r} in the report of {document.name!r}{nearest(name, [row.name for row in document.ops])}"
        )
    some = ", ".join(row.name for row in rows[:8])
    raise InputError(f"{name!r} is in the name or kind of {len(rows)} operators: {some}{', ...' if len(rows) > 8 else ''}")


def explain(document: Document, name: str) -> Explanation:
    """Return what the report knows of an operator.

    Raises:
        InputError: as for `find`.
    """
    row = find(document, name)
    facts: list[tuple[str, str]] = [("where", _where(row)), ("time", _time(row))]
    facts += _before(row)
    facts += _waits(document, row)
    facts += _beside(document, row)
    facts += _slack(document, row)
    facts += levers(document, row)
    facts += [("cost", _cost(row)), ("from", ", ".join(part for part in (row.module_path, row.source_line) if part) or "unknown")]
    return Explanation(name=row.name, target=row.target, facts=tuple(facts))


def _where(row: OpRow) -> str:
    if row.stream is None:
        return "on no stream: it emits no task"
    unit = f"a {row.unit.value} operator" if row.unit else "added by the rewrite"
    return f"stream {row.stream!r}, {unit}{f'; {row.placed}' if row.placed else ''}"


def _time(row: OpRow) -> str:
    if row.start_ns is None or row.end_ns is None:
        return "no timeline"
    took = row.end_ns - row.start_ns
    longer = took - row.duration_ns
    shared = f", {duration(longer)} of them because it shares the chip" if longer > 0 else ""
    return f"{duration(row.start_ns)} to {duration(row.end_ns)}, {duration(took)} simulated{shared}"


def _before(row: OpRow) -> list[tuple[str, str]]:
    if row.before_start_ns is None or row.start_ns is None:
        return []
    moved = row.before_start_ns - row.start_ns
    shift = f"{duration(abs(moved))} {'earlier' if moved > 0 else 'later'} than" if moved else "at the same time as"
    stream = "" if row.stream == row.before_stream else f", where it runs on {row.before_stream!r}"
    return [("as given", f"starts {shift} in the graph as it was given{stream}")]


def _waits(document: Document, row: OpRow) -> list[tuple[str, str]]:
    facts = []
    link = next((link for link in document.critical if link.op == row.name), None)
    if link is not None:
        sync = f", {duration(link.sync_ns)} of it for the wait between streams" if link.sync_ns else ""
        told = f"it had to wait for {causes.WAITED[link.cause]}{f': {link.after!r}' if link.after else ''}{sync}"
        facts.append(("critical", f"on the critical path; {told}"))
    waits = [f"{edge.before!r} on {edge.from_stream!r} ({edge.kind.value})" for edge in document.edges if edge.after == row.name]
    if waits:
        facts.append(("waits for", ", ".join(waits)))
    waited = [f"{edge.after!r} on {edge.to_stream!r}" for edge in document.edges if edge.before == row.name]
    if waited:
        facts.append(("is waited for by", ", ".join(waited)))
    return facts


def _beside(document: Document, row: OpRow) -> list[tuple[str, str]]:
    if row.start_ns is None:
        return []
    together = beside(document, row)
    if not together:
        return [("beside", "nothing runs at the same time")]
    told = ", ".join(f"{run.row.name!r} ({operator(run.row.target)}) {duration(ns)}" for run, ns in together[:BESIDE])
    more = f", and {plural(len(together) - BESIDE, 'other')}" if len(together) > BESIDE else ""
    return [("beside", told + more)]


def _slack(document: Document, row: OpRow) -> list[tuple[str, str]]:
    if row.slack_ns is None:
        return []
    if row.slack_ns:
        return [("slack", f"could end {duration(row.slack_ns)} later without making the whole longer")]
    length = document.verdict.scheduled_ns if document.shows != "unscheduled" else document.verdict.serial_ns
    share = (
        f", {percentage((row.end_ns - row.start_ns) / length)} of the whole"
        if length and row.start_ns is not None and row.end_ns
        else ""
    )
    return [("slack", f"none: what it takes longer, the whole takes longer{share}")]


def _cost(row: OpRow) -> str:
    terms = ", ".join(f"{causes.TERMS[term]} {duration(ns)}" for term, ns in asdict(row.breakdown).items() if ns)
    held = ", ".join(f"{amount} {name}" for name, amount in asdict(row.resources).items() if amount)
    tier = f"{row.tier.value}, within a factor of {1 + row.error:.2f}" if row.tier else "not priced"
    parts = [f"{duration(row.duration_ns)} alone on the chip ({tier})", terms, f"holds {held}" if held else ""]
    return "; ".join(part for part in parts if part)
