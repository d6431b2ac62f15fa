"""How far the predicted kernel times are from measured ones.

    python tests/benchmarks/costs.py [--rows FILE.csv] [--leave-one-chip-out] [--json]

Columns of the file: see `tests/cost/rows.py`. Without an option the shipped numbers predict every row; most were fitted on the
default file, so its errors then say little. With --leave-one-chip-out every number of the fit (`calibration.knobs`) is fitted
anew, by the code behind the shipped ones, without the chip that is predicted. The rates of the L2, the bytes of a vector block
and the HF32 rate were read off all rows by hand and stay, as does the form of the model. The bands of the chip files are made by
`bands.py`, from more kernels.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from autostream.cost.calibration.fitting import Spread, fit, relative_errors, spread
from autostream.cost.chips.factors import load_factors
from autostream.errors import InputError
from tests.cost.rows import FILE, Row, Rows, read_rows

#: Bytes moved, for the residuals by size.
_SIZES = ((1e5, "under 100 kB"), (1e7, "100 kB - 10 MB"), (1.5e8, "10 - 150 MB"), (float("inf"), "above 150 MB"))
_VECTOR = ("elementwise", "vector")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A row, the class and group that price it, and predicted / measured - 1."""

    row: Row
    band: str
    group: str
    error: float


def predict(rows: Rows, *, leave_one_chip_out: bool = False) -> list[Prediction]:
    """Return one prediction for each row, in file order."""
    if not leave_one_chip_out:
        return _label(rows.rows, relative_errors([row.sample for row in rows.rows], rows.chips, load_factors()))
    found: dict[int, Prediction] = {}
    for chip in sorted({row.chip for row in rows.rows}):
        others = [row.sample for row in rows.rows if row.chip != chip]
        left_out = [row for row in rows.rows if row.chip == chip]
        fitted = fit(others, rows.chips, load_factors(), anew=True)
        errors = relative_errors([row.sample for row in left_out], fitted.chips, fitted.factors)
        found |= {item.row.line: item for item in _label(left_out, errors)}
    return [found[row.line] for row in rows.rows]


def _label(rows: Sequence[Row], errors: Sequence[float]) -> list[Prediction]:
    factors = load_factors()
    names = {id(group): name for name, group in factors.file.groups.items()}
    labelled = []
    for row, error in zip(rows, errors, strict=True):
        group = factors.find(row.sample.op.target)
        band = group.band if group else "unknown"
        labelled.append(Prediction(row=row, band=band, group=names.get(id(group), "none"), error=error))
    return labelled


def summary(rows: Rows, predictions: Sequence[Prediction]) -> dict[str, Any]:
    """Return what the benchmark reports, as plain data."""
    vector = [item for item in predictions if item.band in _VECTOR]
    return {
        "rows": len(predictions),
        "refused": dict(rows.refused),
        "refused_lines": {reason: list(lines) for reason, lines in rows.refused_lines.items()},
        "all": _spread(predictions),
        "by_class": _by(predictions, lambda item: item.band) | ({"all vector operators": _spread(vector)} if vector else {}),
        "by_chip": _by(predictions, lambda item: item.row.chip),
        "by_class_and_chip": _by(predictions, lambda item: f"{item.band} on {item.row.chip}"),
        "by_group": _by(predictions, lambda item: item.group),
        "by_kernel": _by(predictions, lambda item: item.row.kernel),
        "by_class_and_size": _by(predictions, lambda item: f"{item.band}, {_size(item)}"),
    }


def _by(predictions: Sequence[Prediction], key: Callable[[Prediction], str]) -> dict[str, Any]:
    parts: dict[str, list[Prediction]] = {}
    for item in predictions:
        parts.setdefault(key(item), []).append(item)
    return {name: _spread(items) for name, items in sorted(parts.items())}


def _spread(predictions: Iterable[Prediction]) -> dict[str, float] | None:
    errors = [item.error for item in predictions]
    if not errors:
        return None
    found: Spread = spread(abs(error) for error in errors)
    # Whether the rows come out too long (above 0) or too short.
    return asdict(found) | {"bias": sorted(errors)[len(errors) // 2]}


def _size(item: Prediction) -> str:
    moved = item.row.sample.op.bytes_read + item.row.sample.op.bytes_written
    return next(name for limit, name in _SIZES if moved <= limit)


def main(
    rows: Annotated[Path, typer.Option(help="measurements as CSV")] = FILE,
    leave_one_chip_out: Annotated[
        bool, typer.Option("--leave-one-chip-out", help="fit without the chip that is predicted")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Compare predicted with measured kernel times."""
    try:
        table = read_rows(rows)
    except InputError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    report = summary(table, predict(table, leave_one_chip_out=leave_one_chip_out))
    if as_json:
        typer.echo(json.dumps(report, indent=2))
        return
    console = Console()
    numbers = "fitted without the chip that is predicted" if leave_one_chip_out else "as shipped"
    console.print(f"{report['rows']} rows of {rows}, numbers {numbers}")
    for reason, count in report["refused"].items():
        lines = ", ".join(map(str, report["refused_lines"][reason][:10]))
        console.print(f"not priced: {count} rows: {reason} (lines {lines})")
    for title in ("by_class", "by_chip", "by_class_and_chip", "by_class_and_size", "by_group", "by_kernel"):
        console.print(_table(title.replace("_", " "), report[title]))
    console.print(_table("all", {"all rows": report["all"]}))


def _table(title: str, parts: dict[str, Any]) -> Table:
    table = Table(title=f"relative error {title}", title_justify="left")
    table.add_column("")
    for column in ("rows", "median", "p75", "p90", "bias"):
        table.add_column(column, justify="right")
    for name, part in parts.items():
        if part:
            percents = [f"{100 * part[column]:.0f} %" for column in ("median", "p75", "p90", "bias")]
            table.add_row(name, str(part["rows"]), *percents)
    return table


if __name__ == "__main__":
    typer.run(main)
