"""The operators of a report as CSV, for scripts and spreadsheets."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict

from autostream.cost.model import Breakdown, Resources
from autostream.report.schema import Document

CSV = "ops.csv"

_PLAIN = (
    "name", "target", "unit", "stream", "start_ns", "end_ns", "before_stream", "before_start_ns", "before_end_ns", "duration_ns",
    "slack_ns", "tier", "error", "module_path", "source_line",
)  # fmt: skip


def table(document: Document) -> str:
    """Return one row per operator, with a header; times in ns, empty where there is none. Stable for the same document."""
    terms = [f"{term}_ns" for term in asdict(Breakdown())]
    held = [f"held_{name}" for name in asdict(Resources())]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*_PLAIN, *terms, *held, "on_critical_path"])
    critical = {link.op for link in document.critical}
    for row in document.ops:
        plain = row.model_dump(mode="json", include=set(_PLAIN))
        values = [*asdict(row.breakdown).values(), *asdict(row.resources).values(), int(row.name in critical)]
        writer.writerow(["" if plain[key] is None else plain[key] for key in _PLAIN] + values)
    return out.getvalue()
