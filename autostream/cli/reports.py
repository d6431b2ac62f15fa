"""The commands that read reports: show, diff, explain. They import neither torch nor a solver."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autostream.cli.app import Json, Verbose, app, begin
from autostream.cli.session import Session
from autostream.errors import InputError

if TYPE_CHECKING:
    from autostream.report import Document

Folder = Annotated[Path, typer.Argument(metavar="REPORT", help="A folder that autostream wrote, or its report.json.")]


def read(path: Path) -> Document:
    """Return the report in a folder or file.

    Raises:
        InputError: it is not there, cannot be read, or is no report.
    """
    from autostream.report import Document
    from autostream.report.files import REPORT

    file = path / REPORT if path.is_dir() else path
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not a text file; a report is the {REPORT} in a folder that autostream wrote") from error
    except OSError as error:
        raise InputError(
            f"cannot read {file}: {error.strerror or error}; give a folder that autostream wrote, or its {REPORT}"
        ) from error
    return Document.from_json(text, where=str(file))


@app.command()
def show(
    context: typer.Context,
    report: Folder,
    html: Annotated[Path | None, typer.Option(help="Write the report as a page into this file.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the operators as CSV into this file.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write the timelines as a picture into this file.")] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write the timelines for Perfetto or MindStudio Insight into this file.")
    ] = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show a report again, or write it in another form."""
    session = begin(context, verbose)
    document = read(report)
    from autostream.report import table, terminal
    from autostream.report import trace as timelines
    from autostream.report.files import write
    from autostream.report.html import page
    from autostream.report.svg import timeline_svg

    forms = ((html, page), (csv, table.table), (svg, timeline_svg), (trace, timelines.trace))
    written = [write(path, form(document)) for path, form in forms if path is not None]
    if json:
        session.print_text(document.to_json())
    elif not written:
        terminal.render(document, session.console())
    for path in written:
        session.tell(f"written to {path}")


@app.command()
def diff(
    context: typer.Context,
    first: Folder,
    second: Annotated[
        Path, typer.Argument(metavar="REPORT|PROFILE", help="Another report, or a profile of a run: a file or the output folder.")
    ],
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Compare two reports, or a report with the profile of a run: what was predicted and what the device did."""
    session = begin(context, verbose)
    if _is_profile(first) and not _is_profile(second) and second.exists():
        raise InputError(f"{first} is no report: give the report first, then the profile")
    old = read(first)
    if _is_profile(second):
        _against_profile(session, old, first, second, json=json)
        return
    new = read(second)
    from autostream.report import diff as comparison

    difference = comparison.diff(old, new)
    if json:
        session.print_text(difference.to_json())
    else:
        comparison.render(difference, session.console(), first=str(first), second=str(second))


def _is_profile(path: Path) -> bool:
    """Tell a profile (a CSV file, a profiler's trace, a folder without a report) from a report."""
    from autostream.report.files import REPORT

    if path.is_dir():
        return not (path / REPORT).exists()
    return path.suffix.lower() == ".csv" or path.name.startswith("trace_view")


def _against_profile(session: Session, document: Document, report: Path, profile: Path, *, json: bool) -> None:
    from autostream.profiles import read_profile
    from autostream.report.measured import compare
    from autostream.report.measured_view import render

    comparison = compare(document, read_profile(profile), where=str(report))
    if json:
        session.print_text(comparison.to_json())
    else:
        render(comparison, session.console(), report=str(report))


@app.command()
def explain(
    context: typer.Context,
    report: Folder,
    operator: Annotated[
        str | None,
        typer.Argument(metavar="OP", help="Name of an operator, or a part of it that is clear; without it, list the regions."),
    ] = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Explain one operator: why it is where it is, what it waits for, its slack, what would change that; or every region."""
    session = begin(context, verbose)
    document = read(report)
    if operator is None:
        from autostream.report.terminal import render_regions

        if json:
            session.print_json([region.model_dump(mode="json") for region in document.regions])
        else:
            render_regions(document, session.console())
        return
    from autostream.report.explain import explain as explained

    found = explained(document, operator)
    if json:
        session.print_json(found.model_dump(mode="json"))
        return
    from rich.table import Table
    from rich.text import Text

    console = session.console()
    console.print(Text(f"{found.name}  {found.target}", style="bold"))
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for title, text in found.facts:
        table.add_row(Text(title, style="bold"), Text(text))
    console.print(table)
