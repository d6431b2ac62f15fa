"""The command that judges streams: check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autostream.cli.app import Chip, Json, Verbose, app, begin


@app.command()
def check(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="A .pt2 file, an Ascend IR dump (.pbtxt, .pb, .txt), or module:factory, file.py:factory or file.py.",
        ),
    ],
    chip: Chip = None,
    semantics: Annotated[
        str,
        typer.Option("--semantics", metavar="WHICH", help="ge (max-autotune), capture (reduce-overhead, npugraph_ex), or auto."),
    ] = "auto",
    suppress: Annotated[
        Path | None, typer.Option("--suppress", metavar="FILE", help="YAML file of accepted findings, which do not fail a check.")
    ] = None,
    write_suppressions: Annotated[
        Path | None,
        typer.Option("--write-suppressions", metavar="FILE", help="Write the present findings as a file of accepted ones."),
    ] = None,
    json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Check the streams of a program or an Ascend IR dump; exit 1 if it has errors."""
    session = begin(context, verbose)
    with session.working(f"Checking {target}"):
        from autostream import api
        from autostream.cli import checked
        from autostream.cli.targets import load

        checked.refuse_overwriting(write_suppressions)
        loaded = load(target, dumps=True)
        inspection = api.inspect(
            loaded.program,
            loaded.example_inputs,
            example_kwargs=loaded.example_kwargs,
            chip=chip,
            semantics=semantics,
            suppressions=suppress,
        )
        if write_suppressions is not None:
            checked.write_suppressions(inspection, write_suppressions)
    if json:
        session.print_json({"target": target, **checked.as_data(inspection)})
    else:
        checked.show(target, inspection, session.console())
    if write_suppressions is not None:
        session.tell(f"suppressions written to {write_suppressions}: say in each why it is accepted")
    return 1 if checked.errors(inspection) else 0
