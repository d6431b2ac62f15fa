"""The commands. Each imports what it needs when it runs, so that help and the chip table stay fast."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autostream.cli.session import Session
from autostream.errors import InputError

if TYPE_CHECKING:
    from autostream.api import ScheduleResult

app = typer.Typer(
    name="autostream",
    help="Decide which operators of a PyTorch graph run on which Ascend stream; prove, simulate and report the result.",
    epilog="Exit codes: 0 done (also when a plan was declined), 1 checked and failed, 2 bad input.",
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
Chip = Annotated[str | None, typer.Option("--chip", metavar="NAME", help="Chip to schedule for (see 'autostream chips').")]
Setting = Annotated[list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="Set an option; may be repeated.")]
Program = Annotated[str, typer.Argument(metavar="TARGET", help="A .pt2 file, or module:factory returning (model, inputs).")]


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Hold the options that come before a command."""


@app.command()
def demo(
    context: typer.Context,
    chip: Chip = None,
    batch: Annotated[int, typer.Option(min=1, help="Tokens this card decodes in one step.")] = 64,
    out: Annotated[Path, typer.Option(help="Folder for the report and the graphs.")] = Path("autostream-demo"),
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Schedule a built-in DeepSeek-style MoE decode layer: no model and no NPU needed."""
    session = _begin(context, verbose)
    with session.working("Scheduling a DeepSeek-style MoE decode layer"):
        from autostream import api, offline
        from autostream.demo import moe_decode_layer

        missing = offline.why_unavailable()
        module, inputs = moe_decode_layer(npu=missing is None, batch=batch)
        result = api.schedule(module, inputs, chip=chip)
        paths = result.save(out)
    if missing is not None:
        session.tell(f"autostream: the layer is built from aten operators and no Ascend IR is made: {missing}")
    _show_result(session, result, paths, json=json)


@app.command()
def schedule(
    context: typer.Context,
    target: Program,
    chip: Chip = None,
    option: Setting = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the report and the graphs.")] = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Schedule a program and report what it gains."""
    session = _begin(context, verbose)
    options = parse_options(option)
    with session.working(f"Scheduling {target}"):
        from autostream import api
        from autostream.cli.targets import load

        loaded = load(target)
        result = api.schedule(loaded.program, loaded.example_inputs, chip=chip, options=options)
        paths = result.save(out) if out is not None else ()
    _show_result(session, result, paths, json=json)


@app.command()
def check(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A .pt2 file, an Ascend IR dump (.pbtxt, .pb, .txt) or module:factory.")
    ],
    json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Check the streams of a program or an Ascend IR dump; exit 1 if it has errors."""
    session = _begin(context, verbose)
    with session.working(f"Checking {target}"):
        from autostream import api
        from autostream.cli.targets import load

        loaded = load(target, dumps=True)
        inspection = api.inspect(loaded.program, loaded.example_inputs)
    from autostream.cli import checked

    if json:
        session.print_json({"target": target, **checked.as_data(inspection)})
    else:
        checked.show(target, inspection, session.console())
    return 1 if checked.errors(inspection) else 0


@app.command()
def lower(
    context: typer.Context,
    target: Program,
    chip: Chip = None,
    option: Setting = None,
    out: Annotated[Path | None, typer.Option(help="File for the Ascend IR; without it, stdout.")] = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Print the Ascend IR (GraphDef in text form) of the scheduled program, made here without an NPU."""
    session = _begin(context, verbose)
    options = parse_options(option)
    with session.working(f"Lowering {target}"):
        from autostream import api
        from autostream.cli.targets import load
        from autostream.report.files import write

        loaded = load(target)
        result = api.schedule(loaded.program, loaded.example_inputs, chip=chip, options=options)
        text = result.lower()
        if out is not None:
            write(out, text)
    if json:
        verdict = {"accepted": result.verdict.accepted, "reason": result.verdict.reason}
        session.print_json(
            {"target": target, "file": str(out) if out is not None else None, "ascend_ir": text, "verdict": verdict}
        )
        return
    session.tell(("scheduled: " if result.verdict.accepted else "lowered as it was given: ") + result.verdict.reason)
    if out is None:
        session.print_text(text)
    else:
        session.tell(f"Ascend IR written to {out}")


@app.command()
def chips(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show every number of this chip and its source.")] = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """List the chips autostream knows, or every number of one chip with its source."""
    from autostream.cli import chips as tables

    session = _begin(context, verbose)
    if json:
        session.print_json(tables.as_data(name))
    else:
        session.console().print(tables.as_table(name))


def _begin(context: typer.Context, verbose: bool) -> Session:
    session = context.ensure_object(Session)
    if verbose:
        session.set_verbose()
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


def _show_result(session: Session, result: ScheduleResult, paths: Sequence[Path], *, json: bool) -> None:
    if json:
        session.print_text(result.report.to_json())
        return
    from autostream.report.terminal import render

    console = session.console()
    render(result.report, console)
    if paths:
        console.print()
        session.print_text("Files:")
        for path in paths:
            session.print_text(f"  {path}")
