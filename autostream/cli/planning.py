"""The commands that plan: demo, schedule, lower. Each imports what it needs when it runs, so that help stays fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autostream.cli.app import Chip, Json, Measured, Program, Setting, Verbose, WithOptions, app, begin, parse_options
from autostream.cli.session import Session
from autostream.errors import InputError

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from autostream.api import ScheduleResult
    from autostream.report import Document
    from autostream.report.schema import WhatIfRow

WhatIf = Annotated[
    bool, typer.Option("--what-if", help="Also plan with other options (side streams, overlaps) and report what they give.")
]


@app.command()
def demo(
    context: typer.Context,
    chip: Chip = None,
    batch: Annotated[int, typer.Option(min=1, help="Tokens this card decodes in one step.")] = 64,
    profile: Measured = None,
    what_if: WhatIf = False,
    out: Annotated[Path, typer.Option(help="Folder for the report and the graphs.")] = Path("autostream-demo"),
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Schedule a built-in DeepSeek-style MoE decode layer: no model and no NPU needed."""
    session = begin(context, verbose)
    with session.working("Scheduling a DeepSeek-style MoE decode layer"):
        from autostream import api, offline
        from autostream.demo import moe_decode_layer
        from autostream.report.files import check_folder

        check_folder(out)
        missing = offline.why_unavailable()
        module, inputs = moe_decode_layer(npu=missing is None, batch=batch)
        result = api.schedule(module, inputs, chip=chip, profile=profile, what_if=what_if)
        if what_if:
            rows = _other_batches(missing is None, chip, profile)
            result = replace(result, report=result.report.model_copy(update={"what_if": (*result.report.what_if, *rows)}))
        paths = result.save(out)
    if missing is not None:
        session.tell(f"autostream: the layer is built from aten operators and no Ascend IR is made: {missing}")
    _show_report(session, result.report, paths, json=json)


def _other_batches(npu: bool, chip: str | None, profile: Path | None) -> tuple[WhatIfRow, ...]:
    from autostream.chips import cost_model
    from autostream.demo import moe_decode_layer
    from autostream.graph.programs import to_aten
    from autostream.options import Options
    from autostream.rewrite.air import Air
    from autostream.whatif import batches

    def build(batch: int) -> GraphModule:
        return to_aten(*moe_decode_layer(npu=npu, batch=batch)).graph_module

    return batches(build, (1, 8, 64, 256), model=cost_model(chip, profile), options=Options(), dialect=Air())


@app.command(cls=WithOptions)
def schedule(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(metavar="TARGET", help="A .pt2 file; or module:factory, file.py:factory, file.py giving (model, inputs)."),
    ] = None,
    ge_graph: Annotated[
        Path | None,
        typer.Option(
            "--ge-graph", metavar="DUMP", help="Instead of TARGET: an Ascend IR dump (.pbtxt, .pb, .txt) of TorchAir or GE."
        ),
    ] = None,
    chip: Chip = None,
    profile: Measured = None,
    option: Setting = None,
    what_if: WhatIf = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the report and the graphs.")] = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Schedule a program, or the dump of a compiled graph, and report what it gains."""
    session = begin(context, verbose)
    if (target is None) == (ge_graph is None):
        wrong = "Missing argument 'TARGET'" if target is None else "TARGET and --ge-graph are both given"
        raise InputError(f"{wrong}: give either TARGET, a program, or --ge-graph DUMP, the dump of a compiled graph")
    if ge_graph is not None and what_if:
        raise InputError("--what-if goes with TARGET, a program; a dump is planned once: try other options with --option")
    options = parse_options(option)
    with session.working(f"Scheduling {target or ge_graph}"):
        from autostream.report.files import check_folder

        if out is not None:
            check_folder(out)
        if ge_graph is not None:
            from autostream.dumps import schedule_dump

            plan = schedule_dump(ge_graph, profile=profile, chip=chip, options=options)
            report, paths = plan.report, plan.save(out) if out is not None else ()
        else:
            result = _scheduled(str(target), chip, profile, options, what_if=what_if)
            report, paths = result.report, result.save(out) if out is not None else ()
    _show_report(session, report, paths, json=json)


def _scheduled(target: str, chip: str | None, profile: Path | None, options: Any, *, what_if: bool = False) -> ScheduleResult:
    from autostream import api
    from autostream.cli.targets import load

    loaded = load(target)
    return api.schedule(
        loaded.program,
        loaded.example_inputs,
        example_kwargs=loaded.example_kwargs,
        chip=chip,
        profile=profile,
        options=options,
        what_if=what_if,
    )


@app.command(cls=WithOptions)
def lower(
    context: typer.Context,
    target: Program,
    chip: Chip = None,
    profile: Measured = None,
    option: Setting = None,
    out: Annotated[Path | None, typer.Option(help="File for the Ascend IR; without it, stdout.")] = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Print the Ascend IR (GraphDef in text form) of the scheduled program, made here without an NPU."""
    session = begin(context, verbose)
    options = parse_options(option)
    with session.working(f"Lowering {target}"):
        from autostream.report.files import check_file, write

        if out is not None:
            check_file(out)
        result = _scheduled(target, chip, profile, options)
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


def _show_report(session: Session, report: Document, paths: Sequence[Path], *, json: bool) -> None:
    if json:
        session.print_text(report.to_json())
        return
    from autostream.report.terminal import render

    console = session.console()
    render(report, console)
    if paths:
        console.print()
        session.print_text("Files:")
        for path in paths:
            session.print_text(f"  {path}")
