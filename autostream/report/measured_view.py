"""How a report against a profile is shown in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autostream.report.measured import Comparison, Lost
from autostream.report.wording import duration, percent, percentage, plural

ROWS = 20


def render(comparison: Comparison, console: Console, *, report: str) -> None:
    """Print a comparison, the share that was predicted well first; `report` names the report."""
    head = (
        f"{plural(len(comparison.rows), 'operator')} of {report} found in {comparison.profile}: {percent(comparison.within)} of "
        f"their measured time lies within the predicted bands; they are {percent(comparison.matched_share)} of the device time"
    )
    console.print(Text(head, style="bold"))
    console.print()
    _print(
        console,
        "By unit",
        ("Unit",),
        ("Operators", "Predicted", "Measured", "Median ratio", "Within band"),
        _class_cells(comparison),
    )
    console.print()
    shown = comparison.rows[:ROWS]
    title = "Predicted alone and measured, furthest off first"
    _print(console, title, ("Operator", "Tier"), ("Predicted", "Measured", "Ratio", "Band"), _row_cells(comparison))
    if len(comparison.rows) > len(shown):
        console.print(Text(f"and {len(comparison.rows) - len(shown)} more"))
    console.print()
    _print(console, "Overlap", ("",), ("Predicted", "Profile"), _overlap_cells(comparison))
    for line in comparison.advice:
        console.print(Text(f"- {line}"))
    _lost(console, "Operators without kernels", comparison.unmatched_ops)
    _lost(console, "Kernels without an operator", comparison.unmatched_kernels)


def _class_cells(comparison: Comparison) -> Iterable[Sequence[str]]:
    for row in comparison.classes:
        times = duration(row.predicted_ns), duration(row.measured_ns)
        yield row.unit, str(row.operators), *times, f"{row.median_ratio:.2f}", percent(row.within)


def _row_cells(comparison: Comparison) -> Iterable[Sequence[str]]:
    for row in comparison.rows[:ROWS]:
        times = duration(row.predicted_ns), duration(row.measured_ns)
        band = f"x {1 + row.error:.2f}{'' if row.within else ', outside'}"
        yield row.name, row.tier, *times, f"{row.ratio:.2f}", band


def _overlap_cells(comparison: Comparison) -> Iterable[Sequence[str]]:
    one = comparison.overlap
    yield "Streams", str(one.predicted_streams), str(one.found_streams)
    yield "At least two streams busy", duration(one.predicted_overlap_ns), duration(one.found_overlap_ns)
    yield "Of the busy time", percentage(one.predicted_share), percentage(one.found_share)
    for title, time in (
        ("Computing", one.computing_ns),
        ("Communication", one.communication_ns),
        ("Communication(Not Overlapped)", one.communication_not_overlapped_ns),
        ("Free", one.free_ns),
    ):
        yield title, "", duration(time)


def _lost(console: Console, title: str, lost: Sequence[Lost]) -> None:
    if not lost:
        return
    console.print()
    console.print(Text(f"{title}: {sum(one.count for one in lost)}", style="bold"))
    for one in lost[:ROWS]:
        console.print(Text(f"- {one.name}{f' ({one.count})' if one.count > 1 else ''}: {one.reason}"))
    if len(lost) > ROWS:
        console.print(Text(f"and {len(lost) - ROWS} more (all with --json)"))


def _print(console: Console, title: str, names: Sequence[str], numbers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in names:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
