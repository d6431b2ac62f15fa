"""The application, and the options that several commands take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from autostream.cli.session import Session
from autostream.errors import InputError

app = typer.Typer(
    name="autostream",
    help="Decide which operators of a PyTorch graph run on which Ascend stream; prove, simulate and report the result.",
    epilog="Exit codes: 0 done (also when a plan was declined), 1 checked and failed, 2 bad input, 3 a defect of autostream.",
    add_completion=False,
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        try:
            typer.echo(f"autostream {metadata.version('autostream')}")
        except metadata.PackageNotFoundError:
            typer.echo("autostream, from a source tree that is not installed")
        raise typer.Exit


Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log and full tracebacks on stderr.")]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document on stdout.")]
Chip = Annotated[
    str | None, typer.Option("--chip", metavar="NAME", help="Chip (see 'autostream chips'), or the path of your own chip file.")
]
Measured = Annotated[
    Path | None,
    typer.Option("--profile", metavar="PATH", help="Profile of this model: operators that ran there cost what they took."),
]
Device = Annotated[
    str | None, typer.Option("--device", metavar="N", help="Device or rank to read, where the profile holds several.")
]
Setting = Annotated[
    list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="Set an option of those below; may be repeated.")
]
Program = Annotated[
    str,
    typer.Argument(metavar="TARGET", help="A .pt2 file; or module:factory, file.py:factory, file.py giving (model, inputs)."),
]


class WithOptions(TyperCommand):
    """A command whose help lists what ``--option`` may set."""

    def format_epilog(self, _ctx: Any, formatter: Any) -> None:
        """List the options with their defaults, what they are for, and the values they may have."""
        from autostream.options import described

        with formatter.section("What --option sets, with the default"):
            formatter.write_dl([(f"{one.name}={one.default}", f"{one.meaning}. Allowed: {one.allowed}.") for one in described()])


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Hold the options that come before a command."""


def begin(context: typer.Context, verbose: bool) -> Session:
    """Return the session of this run."""
    session = context.ensure_object(Session)
    if verbose:
        session.set_verbose()
    else:
        session.set_brief()
    return session


def parse_options(settings: Sequence[str] | None) -> Any:
    """Return Options from ``key=value`` texts.

    Raises:
        InputError: names the setting and what is allowed.
    """
    from autostream.options import Options

    values: dict[str, str] = {}
    for setting in settings or ():
        key, equals, value = setting.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise InputError(f"--option {setting!r}: write it as KEY=VALUE; keys: {', '.join(sorted(Options.model_fields))}")
        if key in values:
            raise InputError(f"--option {setting!r}: {key!r} is given twice")
        values[key] = value.strip()
    return Options.of(values)
