"""What ``autostream check`` shows: the streams that were read, level by level, and what the verifier says of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autostream.program import EdgeKind, Severity, StreamProgram, cross_edges
from autostream.report.terminal import render_findings
from autostream.report.wording import plural

if TYPE_CHECKING:
    from autostream.api import Inspection

_LEVELS = {"fx": "FX graph", "ascend_ir": "Ascend IR"}


def errors(inspection: Inspection) -> int:
    """Return the number of findings that make a check fail."""
    return sum(finding.severity is Severity.ERROR for finding in inspection.findings)


def as_data(inspection: Inspection) -> dict[str, Any]:
    """Return the outcome of a check as JSON data."""
    return {
        "errors": errors(inspection),
        "findings": [asdict(finding) for finding in inspection.findings],
        "levels": {level: _summary(program) for level, program in inspection.programs.items()},
    }


def show(target: str, inspection: Inspection, console: Console) -> None:
    """Print the outcome of a check, the verdict first."""
    failed = errors(inspection)
    other = len(inspection.findings) - failed
    told = f"{plural(failed, 'error')}, {plural(other, 'other finding')} in {target}"
    console.print(Text.assemble(("FAILED", "bold red") if failed else ("OK", "bold green"), f": {told}"))
    console.print()
    table = Table(title="Streams that were read", title_justify="left", title_style="bold")
    for heading in ("Level", "Streams (steps)", "Cross-stream edges", "of them control"):
        table.add_column(heading, overflow="fold")
    for level, program in inspection.programs.items():
        data = _summary(program)
        streams = ", ".join(f"{name} ({steps})" for name, steps in data["streams"].items())
        cells = (_LEVELS.get(level, level), streams, str(data["cross_edges"]), str(data["control_edges"]))
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)
    if inspection.findings:
        console.print()
        render_findings(inspection.findings, console)


def _summary(program: StreamProgram) -> dict[str, Any]:
    crossing = cross_edges(program)
    return {
        "streams": {name: len(steps) for name, steps in program.streams().items()},
        "cross_edges": len(crossing),
        "control_edges": sum(edge.kind is EdgeKind.CONTROL for edge in crossing),
    }
