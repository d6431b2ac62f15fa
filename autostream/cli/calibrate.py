"""What ``autostream calibrate`` writes and shows: a chip file fitted to profiles, and how much better it predicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autostream.cost.calibration.beside import Company
from autostream.cost.calibration.calibrate import Calibration
from autostream.cost.calibration.heldout import Errors
from autostream.cost.calibration.interference import FACTORS, Measured
from autostream.cost.chips.chipfile import to_yaml
from autostream.errors import InputError, percentage
from autostream.profiles import Profile

FORMAT = "autostream-calibration"
VERSION = 1
_SUFFIXES = (".yaml", ".yml")


def check_target(path: Path, *, force: bool) -> None:
    """Check that the chip file may be written, before the work that fills it.

    Raises:
        InputError: not a .yaml name, or a file is there and `force` is not set.
    """
    if path.suffix.lower() not in _SUFFIXES:
        raise InputError(f"{path}: a chip file ends in .yaml or .yml, or --chip could not read it back")
    if path.is_dir():
        raise InputError(f"{path}: a folder, not a file")
    if path.exists() and not force:
        raise InputError(f"{path}: exists; give another name, or overwrite it with --force")


def save(path: Path, calibration: Calibration, profiles: Sequence[Profile]) -> Path:
    """Write the chip file, complete or not at all.

    Raises:
        InputError: it cannot be written.
    """
    from autostream.report.files import write

    names = "; ".join(f"{profile.name} (sha256 {profile.digest})" for profile in profiles)
    heading = f"{calibration.base.name}, calibrated with {names}"
    return write(path, to_yaml(calibration.chip, heading))


def as_data(calibration: Calibration, path: Path) -> dict[str, Any]:
    """Return the outcome as JSON data."""
    errors = {"before": calibration.before, "after": calibration.after, "measured": calibration.measured}
    return {
        "format": FORMAT,
        "version": VERSION,
        "file": str(path),
        "chip": calibration.chip.name,
        "base": calibration.base.name,
        "rows": calibration.rows,
        "rows_used": calibration.used,
        "errors": {name: {kind: asdict(found) for kind, found in of.items()} for name, of in errors.items()},
        "factors": {family: one.factor.value for family, one in calibration.chip.calibration.items()},
        "interference": {one.company.name.lower(): _measured(one) for one in calibration.interference},
        "notes": list(calibration.notes),
    }


def show(calibration: Calibration, path: Path, console: Console) -> None:
    """Print what was fitted and how far predictions are off before and after."""
    used = f"{calibration.used:,} of {calibration.rows:,} rows are of operators the cost model prices"
    for line in (f"Wrote {path}: use it as --chip {path}", *calibration.notes, used):
        console.print(Text(line))
    console.print()
    for line in interference(calibration):
        console.print(Text(line))
    console.print()
    console.print(_predicted(calibration))
    console.print(Text("Each half of the shapes is predicted with what the other half taught: no shape was learnt from."))
    console.print(Text("What was kept of the fit was chosen by these errors, which flatters them a little."))
    if calibration.measured:
        console.print()
        console.print(_table("Shapes that were measured (--profile)", {"error": calibration.measured}))
        console.print(Text("Half of the rows, drawn at random, predicted by the medians of the other half."))


def _measured(one: Measured) -> dict[str, Any]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(one).items()}


def interference(calibration: Calibration) -> Iterator[str]:
    """Yield a line for each factor of kernels that run together: what was measured, or why the file's value stays."""
    check = next((one for one in calibration.interference if one.company is Company.WAITING), None)
    for one in calibration.interference:
        name = FACTORS.get(one.company)
        if name is None:
            continue
        before = getattr(calibration.base.interference, name)
        assumed = " (assumed)" if before.confidence == "U" else ""
        if one.factor is None or one.value is None:
            yield f"{one.company}: {one.why}; {before.value:g} stays{assumed}"
            continue
        clamped = f"measured {one.factor:.2f}, " if one.factor < 1 else ""
        found = f"from {one.kernels:,} kernels of {one.shapes} shapes; was {before.value:g}{assumed}"
        yield f"{one.company}: x {one.value:.2f} ({clamped}p75 {one.p75:.2f}) {found}"
        yield _caution(one, check)


def _caution(one: Measured, check: Measured | None) -> str:
    if one.company is not Company.TRANSFER or check is None:
        told = "nothing checks that"
    elif check.factor is None:
        told = "too few ran beside waiting collectives to check that"
    else:
        told = f"beside collectives that moved nothing: x {check.factor:.2f} from {check.kernels:,} kernels"
    return f"  Kernels alone and beside others may differ in more than company (pass, cache); {told}."


def _predicted(calibration: Calibration) -> Table:
    return _table("Shapes that were not measured", {"before": calibration.before, "after": calibration.after})


def _table(title: str, columns: Mapping[str, Mapping[str, Errors]]) -> Table:
    table = Table(title=f"{title}: abs(predicted / measured - 1)", title_justify="left", title_style="bold")
    table.add_column("Class", no_wrap=True)
    for heading in ("Rows", "Shapes", *(f"{column} {what}" for column in columns for what in ("median", "p90"))):
        table.add_column(heading, justify="right")
    first = next(iter(columns.values()))
    for kind, found in first.items():
        cells = [kind, f"{found.rows:,}", f"{found.signatures:,}"]
        for of in columns.values():
            one = of.get(kind)
            cells += [percentage(one.median), percentage(one.p90)] if one else ["-", "-"]
        table.add_row(*(Text(cell) for cell in cells))
    return table
