"""A report as one self-contained HTML file: nothing is fetched, it can be forwarded and opened anywhere."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

from autostream.cost.model import Tier
from autostream.report import causes
from autostream.report.html.data import page_data
from autostream.report.schema import Document, StreamRow
from autostream.report.wording import change, duration, operator, percent

HTML = "report.html"
_HEAVIEST = 10
#: A section that is one table: its anchor, its title, the heads of the columns (`_head`), the rows.
Section = tuple[str, str, list[dict[str, Any]], list[list[str]]]


def page(document: Document) -> str:
    """Return the report as HTML; the same document gives the same text."""
    found: str = _template().render(
        doc=document,
        style=_text("style.css"),
        script=_text("report.js"),
        # "</script>" in a name must not end the script.
        data=json.dumps(page_data(document), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        has_timeline=document.shows != "nothing",
        numbers=list(_numbers(document)),
        total=duration(_makespan(document)),
        causes=_stack(causes.by_term(document), {term: (label, term) for term, label in causes.TERMS.items()}, time=True),
        heaviest=[_heavy(kind, _makespan(document)) for kind in causes.heaviest(document)[:_HEAVIEST]],
        waited=[(causes.WAITED[cause], count) for cause, count in causes.waited_for(document).items()],
        bound_text=_bound(document),
        streams=[_stream(row) for row in document.streams],
        overlaps=list(_overlaps(document)),
        overlap_total=duration(document.overlap.total_ns),
        extra=[table for table in (_regions(document), _what_if(document)) if table],
        price=list(_price(document)),
        confidence=_stack(
            {tier.value: document.confidence.get(tier, 0.0) for tier in Tier},
            {
                "measured": ("measured", "comm"),
                "scaled": ("scaled", "cube"),
                "analytic": ("analytic", "vector"),
                "unknown": ("unknown", "sync"),
            },
        ),
        provenance=list(_provenance(document)),
    )
    return found


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


@functools.cache
def _template() -> Any:
    import jinja2  # torch depends on it

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_text("page.html.j2"))


def _makespan(document: Document) -> int:
    return document.verdict.scheduled_ns if document.shows != "unscheduled" else document.verdict.serial_ns


def _numbers(document: Document) -> Iterable[tuple[str, str]]:
    verdict = document.verdict
    if verdict.serial_ns:
        yield duration(verdict.serial_ns), "before, simulated"
    if document.shows in ("scheduled", "refused"):
        yield duration(verdict.scheduled_ns), "on streams, simulated"
        yield change(verdict.gain), "change of the time"
        yield f"{change(verdict.gain_low)} to {change(verdict.gain_high)}", "within the model's error"
        yield change(verdict.gain_p10), "at least, in nine of ten draws of its errors"
    if verdict.lower_bound_ns:
        yield duration(verdict.lower_bound_ns), "no schedule can beat"
        yield percent(max(0.0, _makespan(document) / verdict.lower_bound_ns - 1)), "above that bound"
    if verdict.side_streams:
        yield str(verdict.side_streams), "side stream" if verdict.side_streams == 1 else "side streams"
        yield str(verdict.cross_edges), "waits between streams"


def _bound(document: Document) -> str:
    verdict = document.verdict
    if not verdict.lower_bound_ns:
        return ""
    above = percent(max(0.0, _makespan(document) / verdict.lower_bound_ns - 1))
    by = "all better ones were ruled out" if document.bound_by == "search" else document.bound_by
    why = f" ({by})" if by else ""
    return (
        f"No schedule on these streams takes less than {duration(verdict.lower_bound_ns)}{why}; this one is {above} above that."
    )


def _stack(amounts: Mapping[str, float], labels: Mapping[str, tuple[str, str]], *, time: bool = False) -> list[dict[str, Any]]:
    """Return the parts of a stacked bar: label, text, width in per cent and name of the colour."""
    total = sum(amounts.values())
    return [
        {
            "label": labels[key][0],
            "colour": labels[key][1],
            "percent": round(100 * amount / total, 3),
            "text": f"{duration(round(amount))} ({percent(amount / total)})" if time else percent(amount / total),
        }
        for key, amount in amounts.items()
        if total and amount
    ]


def _heavy(kind: causes.Heavy, total: int) -> dict[str, Any]:
    share = percent(kind.ns / total) if total else ""
    return {"target": kind.target, "stream": kind.stream, "times": kind.times, "time": duration(kind.ns), "share": share}


def _stream(row: StreamRow) -> dict[str, Any]:
    parts = sorted(row.units.items(), key=lambda item: (-item[1], item[0]))
    return {
        "name": row.name,
        "ops": row.ops,
        "busy": duration(row.busy_ns),
        "share": percent(row.share),
        "title": ", ".join(f"{unit} {duration(ns)}" for unit, ns in parts),
        "parts": [{"percent": round(100 * ns / row.busy_ns, 3), "colour": unit} for unit, ns in parts],
    }


def _overlaps(document: Document) -> Iterable[dict[str, Any]]:
    for row in document.overlap.rows:
        yield {
            "one": operator(row.targets[0]),
            "two": operator(row.targets[1]),
            "units": " + ".join(row.units),
            "example": " | ".join(row.example),
            "times": row.times,
            "together": duration(row.ns),
        }


def _head(*titles: str) -> list[dict[str, Any]]:
    """Return the heads of columns; those after a "#" hold numbers."""
    return [{"text": title.removeprefix("#"), "num": title.startswith("#")} for title in titles]


def _regions(document: Document) -> Section | None:
    if not document.regions:
        return None
    head = _head("Region", "Operators", "#Count", "#In order", "#Scheduled", "#Bound", "#Waits", "Solved", "Why")
    rows = [
        [
            str(row.number),
            row.name,
            str(row.ops),
            duration(row.serial_ns),
            duration(row.scheduled_ns),
            duration(row.lower_bound_ns),
            str(row.cross_edges),
            row.status,
            row.reason,
        ]
        for row in document.regions
    ]
    return "regions", "Regions", head, rows


def _what_if(document: Document) -> Section | None:
    if not document.what_if:
        return None
    head = _head("What if", "#Before", "#On streams", "#Change", "#At worst", "#Streams", "#Waits", "Decision")
    rows = [
        [
            row.label,
            duration(row.serial_ns),
            duration(row.scheduled_ns),
            change(row.gain),
            change(row.gain_low),
            str(row.side_streams),
            str(row.cross_edges),
            "accepted" if row.accepted else f"declined ({row.code})",
        ]
        for row in document.what_if
    ]
    return "what-if", "What if (simulated)", head, rows


def _price(document: Document) -> Iterable[tuple[str, str]]:
    verdict = document.verdict
    yield "Side streams", str(verdict.side_streams)
    yield "Waits between streams", f"{verdict.cross_edges}, of them {verdict.control_edges} that carry no value"
    if document.memory is not None:
        memory = document.memory
        yield (
            "Peak of intermediate buffers",
            f"{memory.peak_bytes / 2**20:.1f} MiB, on one stream {memory.one_stream_bytes / 2**20:.1f} MiB",
        )
    yield "Lost by sharing the chip", duration(document.contention_ns)


def _provenance(document: Document) -> Iterable[tuple[str, str]]:
    made = document.provenance
    yield "autostream", made.autostream
    yield "torch, torch_npu", f"{made.torch or 'absent'}, {made.torch_npu or 'absent'}"
    yield "Chip", made.chip
    yield "Cost model", made.chip_digest or made.chip
    yield "Strategy", document.verdict.strategy or "none"
    yield "Options", ", ".join(f"{key}={value}" for key, value in sorted(made.options.items()))
    yield "Options fingerprint", made.options_fingerprint
