"""What differs between two reports: decision, times, where operators run, what they cost, and what the numbers rest on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autostream.report import causes
from autostream.report.schema import Document, OpRow, Part
from autostream.report.wording import change, duration, operator, percentage, plural

ROWS = 12


class Pair(Part):
    """One quantity in the first and the second report."""

    name: str
    first: Any
    second: Any


class Change(Part):
    """One operator that both reports have."""

    name: str
    target: str
    first_stream: str | None
    second_stream: str | None
    first_ns: int
    second_ns: int


class Difference(Part):
    """The second report against the first. Times in ns, simulated or predicted."""

    format: Literal["autostream-diff"] = "autostream-diff"
    schema_version: Literal[1] = 1
    #: Decision and totals, all of them, whether they differ or not.
    totals: tuple[Pair, ...]
    #: Only what differs from here on.
    provenance: tuple[Pair, ...]
    moved: tuple[Change, ...]
    #: Largest difference of the predicted time first.
    repriced: tuple[Change, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    findings_gone: tuple[str, ...]
    findings_new: tuple[str, ...]

    @property
    def same(self) -> bool:
        """True if the two reports say the same."""
        lists = (self.provenance, self.moved, self.repriced, self.only_first, self.only_second)
        return not any((*lists, self.findings_gone, self.findings_new)) and all(pair.first == pair.second for pair in self.totals)

    def to_json(self) -> str:
        """Return the difference as JSON with sorted keys."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, indent=1, allow_nan=False) + "\n"


def diff(first: Document, second: Document) -> Difference:
    """Compare two reports; operators are the same if they bear the same name and are of the same kind."""
    old, new = _by_key(first), _by_key(second)
    both = [(old[key], new[key]) for key in old if key in new]
    gone, came = _findings(first), _findings(second)
    repriced = [_change(a, b) for a, b in both if a.duration_ns != b.duration_ns]
    return Difference(
        totals=tuple(_totals(first, second)),
        provenance=tuple(_provenance(first, second)),
        moved=tuple(_change(a, b) for a, b in both if a.stream != b.stream),
        repriced=tuple(sorted(repriced, key=lambda row: -abs(row.second_ns - row.first_ns))),
        only_first=tuple(name for name, target in old if (name, target) not in new),
        only_second=tuple(name for name, target in new if (name, target) not in old),
        findings_gone=tuple(text for text in gone if text not in came),
        findings_new=tuple(text for text in came if text not in gone),
    )


def _by_key(document: Document) -> dict[tuple[str, str], OpRow]:
    return {(row.name, row.target): row for row in document.ops}


def _findings(document: Document) -> list[str]:
    return [f"{finding.severity.value} {finding.kind}: {finding.explanation}" for finding in document.findings]


def _change(first: OpRow, second: OpRow) -> Change:
    return Change(
        name=first.name,
        target=first.target,
        first_stream=first.stream,
        second_stream=second.stream,
        first_ns=first.duration_ns,
        second_ns=second.duration_ns,
    )


def _totals(first: Document, second: Document) -> Iterator[Pair]:
    for name in (
        "accepted",
        "code",
        "serial_ns",
        "scheduled_ns",
        "lower_bound_ns",
        "side_streams",
        "cross_edges",
        "control_edges",
    ):
        yield Pair(name=name, first=getattr(first.verdict, name), second=getattr(second.verdict, name))
    yield Pair(name="gain", first=first.gain, second=second.gain)
    yield Pair(name="gain_low", first=first.verdict.gain_low, second=second.verdict.gain_low)
    yield Pair(name="overlap_ns", first=first.overlap.total_ns, second=second.overlap.total_ns)
    yield Pair(name="contention_ns", first=first.contention_ns, second=second.contention_ns)
    peaks = [document.memory.peak_bytes if document.memory else None for document in (first, second)]
    yield Pair(name="peak_bytes", first=peaks[0], second=peaks[1])
    spent = causes.by_term(first), causes.by_term(second)
    for term in causes.TERMS:
        if term in spent[0] or term in spent[1]:
            yield Pair(name=f"critical_{term}_ns", first=spent[0].get(term, 0), second=spent[1].get(term, 0))


def _provenance(first: Document, second: Document) -> Iterator[Pair]:
    old, new = (
        document.provenance.model_dump(mode="json", exclude={"options", "options_fingerprint"}) for document in (first, second)
    )
    old |= {f"option {key}": value for key, value in first.provenance.options.items()}
    new |= {f"option {key}": value for key, value in second.provenance.options.items()}
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            yield Pair(name=key, first=old.get(key), second=new.get(key))


def render(difference: Difference, console: Console, *, first: str, second: str) -> None:
    """Print a difference; `first` and `second` name the two reports."""
    if difference.same:
        console.print(Text(f"{first} and {second} say the same."))
        return
    console.print(Text(_headline(difference), style="bold"))
    console.print()
    table = Table(title="Simulated totals", title_justify="left", title_style="bold")
    for heading in ("", first, second, "Change"):
        table.add_column(heading, overflow="fold", justify="left" if not heading else "right")
    for pair in difference.totals:
        cells = (
            pair.name.removesuffix("_ns").replace("_", " "),
            _show(pair.name, pair.first),
            _show(pair.name, pair.second),
            _delta(pair),
        )
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)
    _changes("Operators that moved", difference.moved, console, streams=True)
    _changes("Operators with another predicted time", difference.repriced, console, streams=False)
    for title, names in ((f"Only in {first}", difference.only_first), (f"Only in {second}", difference.only_second)):
        if names:
            _heading(console, f"{title}: {plural(len(names), 'operator')}")
            console.print(Text("  " + ", ".join(names[:ROWS]) + (f" and {len(names) - ROWS} more" if len(names) > ROWS else "")))
    for title, texts in (("Findings gone", difference.findings_gone), ("Findings new", difference.findings_new)):
        if texts:
            _heading(console, title)
            for text in texts[:ROWS]:
                console.print(Text(f"- {text}"))
    if difference.provenance:
        _heading(console, "What the numbers rest on")
        for pair in difference.provenance:
            console.print(Text(f"- {pair.name}: {pair.first} -> {pair.second}"))


def _headline(difference: Difference) -> str:
    totals = {pair.name: pair for pair in difference.totals}
    scheduled = totals["scheduled_ns"]
    words = {True: "accepted", False: "declined"}
    decision = totals["accepted"]
    told = [
        f"{words[decision.first]} -> {words[decision.second]}" if decision.first != decision.second else words[decision.first]
    ]
    told.append(f"{duration(scheduled.first)} -> {duration(scheduled.second)} simulated")
    if scheduled.first:
        told.append(change(1 - scheduled.second / scheduled.first))
    return ", ".join(told)


def _show(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name.endswith("_ns"):
        return duration(value)
    if name.startswith("gain"):
        return percentage(value)
    return f"{value / 2**20:.1f} MiB" if name.endswith("_bytes") else str(value)


def _delta(pair: Pair) -> str:
    numbers = isinstance(pair.first, int | float) and isinstance(pair.second, int | float) and not isinstance(pair.first, bool)
    if pair.first == pair.second or not numbers:
        return ""
    if pair.name.startswith("gain"):
        return f"{100 * (pair.second - pair.first):+.1f} points"
    return f"{100 * (pair.second / pair.first - 1):+.1f} %" if pair.first else "new"


def _changes(title: str, rows: tuple[Change, ...], console: Console, *, streams: bool) -> None:
    if not rows:
        return
    _heading(console, f"{title}: {len(rows)}")
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for row in rows[:ROWS]:
        if streams:
            told = f"{row.first_stream or 'no stream'} -> {row.second_stream or 'no stream'}"
        else:
            told = f"{duration(row.first_ns)} -> {duration(row.second_ns)}"
        table.add_row(*(Text(cell) for cell in (row.name, operator(row.target), told)))
    console.print(table)
    if len(rows) > ROWS:
        console.print(Text(f"and {len(rows) - ROWS} more"))


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"))
