"""What the page's script draws from: columns instead of objects and tables instead of repeated texts, to keep the file small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

from autostream.graph.model import Unit
from autostream.report.occupancy import Run, counters, given, lanes, shown
from autostream.report.overlap import OTHER, unit_of
from autostream.report.schema import Document
from autostream.report.wording import operator

_UNITS = [unit.value for unit in (Unit.CUBE, Unit.VECTOR, Unit.MIXED, Unit.COMM, Unit.HOST, Unit.FREE)] + [OTHER]
_COLOURS = {"AIC": "cube", "AIV": "vector", "HBM": "hbm", "Communication": "comm"}
#: The layer of operators that no module is known of; the page offers it to nobody.
_NO_LAYER = ""


def page_data(document: Document) -> dict[str, Any]:
    """Return the data of the page as plain JSON types."""
    rows = document.ops
    targets = sorted({operator(row.target) for row in rows})
    layers = [_NO_LAYER, *dict.fromkeys(layer for row in rows if (layer := layer_of(row.module_path)))]
    index = {row.name: number for number, row in enumerate(rows)}
    planned = document.shows in ("scheduled", "refused")
    title = {"scheduled": "Scheduled", "refused": "Refused plan"}.get(document.shows, "")
    panels = [_panel(document, "before", "As given", given(document))] if document.shows != "nothing" else []
    if planned:
        panels.append(_panel(document, "after", title, shown(document)))
    return {
        "units": _UNITS,
        "targets": targets,
        "layers": layers,
        "explained": "after" if planned else "before",
        "panels": panels,
        "ops": {
            "name": [row.name for row in rows],
            "target": [targets.index(operator(row.target)) for row in rows],
            "unit": [_UNITS.index(unit_of(row)) for row in rows],
            "layer": [layers.index(layer_of(row.module_path)) for row in rows],
            "module": [row.module_path for row in rows],
            "source": [row.source_line for row in rows],
            "tier": [row.tier.value if row.tier else "" for row in rows],
            "error": [round(row.error, 3) for row in rows],
            "duration": [row.duration_ns for row in rows],
            "slack": [row.slack_ns for row in rows],
            "terms": [list(astuple(row.breakdown)) for row in rows],
            "held": [list(astuple(row.resources)) for row in rows],
            "before": [_span(row.before_stream, row.before_start_ns, row.before_end_ns) for row in rows],
            "after": [_span(row.stream, row.start_ns, row.end_ns) if planned else None for row in rows],
        },
        "edges": [
            [index[edge.before], index[edge.after]] for edge in document.edges if edge.before in index and edge.after in index
        ],
        "critical": [[index[link.op], link.cause.value, index.get(link.after)] for link in document.critical if link.op in index],
    }


def layer_of(module_path: str) -> str:
    """Return the part of a module's path that names its layer: up to and with the first number, else the first name.

    ``"model.layers.12.mlp.gate"`` is of ``"model.layers.12"``, ``"head.norm"`` of ``"head"``.
    """
    parts = module_path.split(".")
    number = next((place for place, part in enumerate(parts) if part.isdecimal()), 0)
    return ".".join(parts[: number + 1])


def _span(stream: str | None, start: int | None, end: int | None) -> list[Any] | None:
    return None if stream is None or start is None or end is None else [stream, start, end]


def _panel(document: Document, key: str, title: str, runs: Sequence[Run]) -> dict[str, Any]:
    machine = document.machine
    meters = counters(runs, aic=machine.aic, aiv=machine.aiv) if machine else ()
    return {
        "key": key,
        "title": title,
        "lanes": list(lanes(runs)),
        "makespan": max((run.end for run in runs), default=0),
        "meters": [
            {
                "name": f"{meter.name} ({meter.capacity})" if meter.name.startswith("AI") else meter.name,
                "colour": _COLOURS[meter.name],
                "capacity": meter.capacity,
                "points": [list(point) for point in meter.points],
            }
            for meter in meters
            if meter.points
        ],
    }
