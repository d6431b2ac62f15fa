"""The commands about what operators cost: chips, profile, calibrate. They need neither torch nor a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autostream.cli.app import Chip, Device, Json, Verbose, app, begin


@app.command()
def chips(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Show every number of this chip (or of a chip file) and its source.")
    ] = None,
    from_ini: Annotated[
        Path | None, typer.Option("--from-ini", metavar="FILE", help="Make a chip file of a CANN platform_config ini.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="File for what --from-ini makes; without it, stdout.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the chip file if it is there.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of chip files.")] = False,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """List the chips autostream knows, show every number of one with its source, or make a chip file."""
    from autostream.cli import chips as tables

    session = begin(context, verbose)
    tables.refuse_mixture(name, from_ini, out, schema=schema, force=force)
    if schema:
        session.print_json(tables.schema())
    elif from_ini is not None:
        tables.make(session, from_ini, out, json=json)
    elif json:
        session.print_json(tables.as_data(name))
    else:
        session.console().print(tables.as_table(name))


@app.command()
def profile(
    context: typer.Context,
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="kernel_details.csv, op_summary*.csv, trace_view.json, or the output folder.")
    ],
    top: Annotated[int, typer.Option("--top", min=0, help="How many of the biggest kernels to list.")] = 10,
    step: Annotated[int | None, typer.Option("--step", help="Read this step alone.")] = None,
    device: Device = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Read a profile: its chip, streams, overlap, units, biggest kernels and gaps."""
    from autostream.cli import profile as reading
    from autostream.profiles import read_profile
    from autostream.profiles.reading import read

    session = begin(context, verbose)
    found = read_profile(path, device=device)
    told = read(found, step=step, top=top)
    if json:
        session.print_json(reading.as_data(found, told))
    else:
        reading.show(found, told, session.console())


@app.command()
def calibrate(
    context: typer.Context,
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Profiles of one chip: files or output folders.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Chip file to write (.yaml).")],
    chip: Chip = None,
    device: Device = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the chip file if it is there.")] = False,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Fit a chip file to your profiles, and tell on shapes kept aside how much better it predicts.

    What kernels cost each other is measured where enough of them ran together; beside collectives that takes the trace_view.json
    next to the profile.
    """
    from autostream.cli import calibrate as fitting
    from autostream.cost.calibration.calibrate import calibrate as fit_chip
    from autostream.profiles import read_profile

    session = begin(context, verbose)
    fitting.check_target(out, force=force)
    with session.working("Fitting a chip file"):
        profiles = [read_profile(path, device=device) for path in paths]
        calibration = fit_chip(profiles, chip)
        fitting.save(out, calibration, profiles)
    if json:
        session.print_json(fitting.as_data(calibration, out))
    else:
        fitting.show(calibration, out, session.console())
