"""How wide the error bands of the chip files must be: the errors of prices on kernels that taught them nothing.

    python tests/benchmarks/bands.py [--json]

Every class by one rule: its band covers 80 % of the kernels to come, its p90 nine of ten (`calibration.heldout.covering`: the
fewer kernels, the wider), and is never narrower than what two runs of one kernel differ by. Errors are factors less one. Every
number of the fit is fitted anew without the chip that is predicted. The class `unknown` stands for what was never measured: each
group of operators in turn is priced by a fit without it, groups count alike, and the next group is the one nobody measured
(`covering_next_group`). About a minute.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from autostream.cost.analytic.roofline import RooflineModel
from autostream.cost.calibration.fitting import Fit, Sample, fit
from autostream.cost.calibration.heldout import BAND, SPREAD, covering, covering_next_group, off
from autostream.cost.chips.chip import load_chip
from autostream.cost.chips.factors import load_factors
from autostream.cost.measured.scaled import floor
from tests.cost import evidence
from tests.cost.evidence import Compared, Measured
from tests.cost.rows import FILE, Rows, read_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What a chip file should say of a class: band and p90 (None: too few to say), and what they rest on."""

    kernels: int
    chips: int
    groups: int
    median: float
    band: float | None
    p90: float | None


def bands(rows: Rows, measured: Sequence[Measured], collectives: Sequence[Compared]) -> dict[str, Stated]:
    """Return what to state of every class but `unknown`."""
    found: dict[str, list[float]] = defaultdict(list)
    for one, error in zip(measured, without_their_chip(rows, measured), strict=True):
        found[one.band].append(error)
    stated = {band: _stated(errors, [one for one in measured if one.band == band]) for band, errors in sorted(found.items())}
    if collectives:
        stated["comm"] = _stated([off(one.predicted, one.measured) for one in collectives], [])
    return stated


def without_their_chip(rows: Rows, measured: Sequence[Measured]) -> list[float]:
    """Return the error of each kernel, priced by a fit to the rows of the other chips."""
    chips = sorted({one.sample.chip for one in measured})
    fits = {chip: _fit(rows, [row.sample for row in rows.rows if row.sample.chip != chip]) for chip in chips}
    return [_error(one.sample, fits[one.sample.chip]) for one in measured]


def without_their_group(rows: Rows, measured: Sequence[Measured]) -> dict[str, list[float]]:
    """Return the errors of the kernels of each group, priced by a fit to the rows of the others."""
    found: dict[str, list[float]] = {}
    for group in sorted({one.group for one in measured}):
        fitted = _fit(rows, [row.sample for row in rows.rows if evidence.group_of(row.sample.op) != group])
        found[group] = [_error(one.sample, fitted) for one in measured if one.group == group]
    return found


def never_measured(by_group: Mapping[str, Sequence[float]]) -> Stated:
    """Return what to state of the class `unknown`. Its p90 stays open: half of the groups are far better than that."""
    errors = [error for group in by_group.values() for error in group]
    return Stated(
        kernels=len(errors),
        chips=0,
        groups=len(by_group),
        median=covering_next_group(by_group.values(), Fraction(1, 2)) or 0.0,
        band=covering_next_group(by_group.values(), BAND),
        p90=None,
    )


def _fit(rows: Rows, samples: Sequence[Sample]) -> Fit:
    return fit(samples, rows.chips, load_factors(), anew=True)


def _error(sample: Sample, fitted: Fit) -> float:
    return off(RooflineModel(fitted.chips[sample.chip], fitted.factors).estimate(sample.op).duration, sample.duration)


def _stated(errors: Sequence[float], measured: Sequence[Measured]) -> Stated:
    """The band is never narrower than what two runs of one kernel differ by."""
    covers, repeats = covering(errors, BAND), max((floor(one.sample.op) for one in measured), default=0.0)
    return Stated(
        kernels=len(errors),
        chips=len({one.sample.chip for one in measured}),
        groups=len({one.group for one in measured}),
        median=statistics.median(errors),
        band=None if covers is None else max(covers, repeats),
        p90=covering(errors, SPREAD),
    )


def report() -> dict[str, Any]:
    """Return everything as plain data.

    Raises:
        InputError: the public measurements cannot be read.
    """
    rows = read_rows()
    measured = evidence.kernels(rows)
    collectives = [*evidence.all_reduces(load_chip("910B2")), *evidence.published(load_chip("910_9391"))]
    by_group = without_their_group(rows, measured)
    stated = bands(rows, measured, collectives) | {"unknown": never_measured(by_group)}
    cpu = evidence.ai_cpu()
    return {
        "bands": {band: asdict(one) for band, one in stated.items()},
        "never_measured_by_group": {group: _short(errors) for group, errors in by_group.items()},
        "collectives": [asdict(one) | {"error": off(one.predicted, one.measured)} for one in collectives],
        "ai_cpu_us": {"kernels": len(cpu), "median": statistics.median(cpu) / 1000, "from": cpu[0] / 1000, "to": cpu[-1] / 1000},
    }


def _short(errors: Sequence[float]) -> dict[str, Any]:
    return {"kernels": len(errors), "median": statistics.median(errors), "largest": max(errors)}


def main(as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False) -> None:
    """Print the bands of all classes, and what they rest on."""
    if not FILE.is_file():
        typer.echo(f"the public measurements are not on this machine ({FILE})", err=True)
        raise typer.Exit(2)
    found = report()
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    console = Console()
    console.print(_table("Bands (factor less one)", found["bands"]))
    console.print(_table("Groups priced by a fit without them", found["never_measured_by_group"]))
    shown = ("measured", "predicted", "error")
    collectives = {
        f"{one['what']}, {one['ranks']} ranks, {one['nbytes'] / 1e6:.1f} MB": {key: one[key] for key in shown}
        for one in found["collectives"]
    }
    console.print(_table("Collectives (ns)", collectives))
    console.print(f"AI CPU, us: {found['ai_cpu_us']}")


def _table(title: str, lines: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for column in next(iter(lines.values())):
        table.add_column(column, justify="right")
    for name, line in lines.items():
        table.add_row(name, *(_cell(value) for value in line.values()))
    return table


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    typer.run(main)
