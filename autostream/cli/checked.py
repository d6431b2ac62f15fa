"""What ``autostream check`` shows: what was found and where, what was accepted, and the streams that were read by level."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autostream.errors import InputError
from autostream.program import EdgeKind, Finding, Semantics, Severity, Step, StreamProgram, cross_edges
from autostream.report.files import check_file, write
from autostream.report.wording import operator, plural
from autostream.suppressions import as_yaml

if TYPE_CHECKING:
    from autostream.inspection import Inspection

#: Name and version of the JSON form: fields may be added, never renamed or removed, while it stays the same.
SCHEMA = "autostream.check/1"

_LEVELS = {"fx": "FX graph", "ascend_ir": "Ascend IR"}
_MODES = {Semantics.GE: "max-autotune", Semantics.CAPTURE: "a capture mode"}
_STYLE = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_TITLES = {Severity.ERROR: "Errors", Severity.WARNING: "Warnings", Severity.NOTE: "Notes"}
#: Steps and findings of one kind that are shown before the rest is only counted; the JSON form has them all.
_STEPS, _PER_KIND = 8, 20


def errors(inspection: Inspection) -> int:
    """Return the number of findings that make a check fail."""
    return _count(inspection, Severity.ERROR)


def as_data(inspection: Inspection) -> dict[str, Any]:
    """Return the outcome of a check as JSON data, see `SCHEMA`."""
    steps = _steps(inspection)
    return {
        "schema": SCHEMA,
        "ok": not errors(inspection),
        "errors": errors(inspection),
        "warnings": _count(inspection, Severity.WARNING),
        "notes": list(inspection.notes),
        "semantics": inspection.semantics.value,
        "chip": inspection.chip or None,
        "findings": [_finding(finding, steps) for finding in inspection.findings],
        "suppressed": [{**_finding(entry.finding, steps), "reason": entry.reason} for entry in inspection.suppressed],
        "levels": {level: _summary(program) for level, program in inspection.programs.items()},
    }


def refuse_overwriting(path: Path | None) -> None:
    """Refuse a file of suppressions that is there, whose reasons would be lost, or one that cannot be written.

    Raises:
        InputError: names the file.
    """
    if path is None:
        return
    if path.is_file():
        raise InputError(f"--write-suppressions {str(path)!r}: the file is there; name a new one, so that no reason is lost")
    check_file(path)


def write_suppressions(inspection: Inspection, path: Path) -> None:
    """Write the findings as a file of accepted ones, with a reason to fill in.

    Raises:
        InputError: the file cannot be written.
    """
    write(path, as_yaml(inspection.findings))


def show(target: str, inspection: Inspection, console: Console) -> None:
    """Print the outcome of a check, the verdict first."""
    failed = errors(inspection)
    told = f"{plural(failed, 'error')}, {plural(len(inspection.findings) - failed, 'other finding')} in {target}"
    if inspection.suppressed:
        told += f"; {len(inspection.suppressed)} suppressed"
    console.print(Text.assemble(("FAILED", "bold red") if failed else ("OK", "bold green"), f": {told}"))
    console.print()
    console.print(_table(inspection))
    steps = _steps(inspection)
    for severity in Severity:
        _show_findings([finding for finding in inspection.findings if finding.severity is severity], severity, steps, console)
    if inspection.suppressed:
        console.print()
        console.print(Text("Suppressed", style="bold"))
        for entry in inspection.suppressed:
            console.print(Text(f"- {entry.finding.kind}: {entry.finding.explanation}"))
            console.print(Text(f"  accepted: {entry.reason}"))
    if inspection.notes:
        console.print()
        for note in inspection.notes:
            console.print(Text(f"Note: {note}"))


def _show_findings(findings: Sequence[Finding], severity: Severity, steps: dict[str, Step], console: Console) -> None:
    """Print the findings of one severity, those of one kind together; a remedy that several share is told once."""
    if not findings:
        return
    console.print()
    console.print(Text(f"{_TITLES[severity]} ({len(findings)})", style="bold"))
    for kind in dict.fromkeys(finding.kind for finding in findings):
        alike = [finding for finding in findings if finding.kind == kind]
        for position, finding in enumerate(alike[:_PER_KIND]):
            console.print(Text.assemble((severity.value.upper(), _STYLE[severity]), f" {kind}: {finding.explanation}"))
            for line in _places(finding, steps):
                console.print(Text(f"  {line}"))
            following = alike[position + 1].remedy if position + 1 < len(alike[:_PER_KIND]) else ""
            if finding.remedy and finding.remedy != following:
                console.print(Text(f"  fix: {finding.remedy}"))
        if len(alike) > _PER_KIND:
            console.print(Text(f"  and {len(alike) - _PER_KIND} more of this kind (all with --json)"))


def _places(finding: Finding, steps: dict[str, Step]) -> list[str]:
    """Return one line for each step: its name, operator and stream, and where it was written."""
    if not finding.steps:
        return []
    lines = []
    for position, name in enumerate(finding.steps[:_STEPS]):
        step = steps.get(name)
        where = finding.where[position] if position < len(finding.where) else ""
        what = f" ({operator(step.kind)})" if step else ""
        stream = f" on stream {step.stream}" if step and step.stream else ""
        lines.append(f"at: {name}{what}{stream}" + (f", {where}" if where else ""))
    if len(finding.steps) > _STEPS:
        lines.append(f"and {len(finding.steps) - _STEPS} more steps")
    return lines


def _table(inspection: Inspection) -> Table:
    table = Table(title=f"Streams as {_MODES[inspection.semantics]} runs them", title_justify="left", title_style="bold")
    for heading in ("Level", "Streams (steps)", "Cross-stream edges", "of them explicit"):
        table.add_column(heading, overflow="fold")
    for level, program in inspection.programs.items():
        data = _summary(program)
        streams = ", ".join(f"{name} ({steps})" for name, steps in data["streams"].items())
        cells = (_LEVELS.get(level, level), streams, str(data["cross_edges"]), str(data["control_edges"]))
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _count(inspection: Inspection, severity: Severity) -> int:
    return sum(finding.severity is severity for finding in inspection.findings)


def _steps(inspection: Inspection) -> dict[str, Step]:
    """Return the steps of all levels by name; where two levels share a name, the first level's."""
    steps: dict[str, Step] = {}
    for program in inspection.programs.values():
        for step in program.steps:
            steps.setdefault(step.name, step)
    return steps


def _finding(finding: Finding, steps: dict[str, Step]) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "severity": finding.severity.value,
        "levels": list(finding.levels),
        "steps": list(finding.steps),
        "streams": list(finding.streams),
        "places": [
            {
                "step": name,
                "operator": steps[name].kind if name in steps else None,
                "stream": steps[name].stream if name in steps else None,
                "where": (finding.where[position] if position < len(finding.where) else "") or None,
            }
            for position, name in enumerate(finding.steps)
        ],
        "explanation": finding.explanation,
        "remedy": finding.remedy,
    }


def _summary(program: StreamProgram) -> dict[str, Any]:
    crossing = cross_edges(program)
    return {
        "streams": {name: len(steps) for name, steps in program.streams().items()},
        "cross_edges": len(crossing),
        "control_edges": sum(edge.kind is not EdgeKind.DATA for edge in crossing),
    }
