"""How side streams begin and end in the capture modes: behind the stream the graph runs on, and before it."""

from __future__ import annotations

from collections.abc import Iterator

from autostream.program.checks.happens import HappensBefore
from autostream.program.kinds import DEFAULT
from autostream.program.model import Finding, Semantics, Severity, StreamProgram


def unjoined(program: StreamProgram, certain: HappensBefore) -> Iterator[Finding]:
    """Yield the streams that are not joined into the default one before the end; in capture modes every one must be.

    A note where the backend does it: other releases of it may not.
    """
    if program.semantics is not Semantics.CAPTURE:
        return
    lanes = program.streams()
    end = lanes[DEFAULT][-1].name if DEFAULT in lanes else ""
    opened = dict(program.opened)
    for stream, steps in lanes.items():
        if stream != DEFAULT and not certain.before(steps[-1].name, end):
            regions = opened.get(stream, 0)
            more = f"; {regions} scopes open it, and a backend may remember the last exit only" if regions > 1 else ""
            fault = f"stream {stream!r} is not joined: the graph may end before {steps[-1].name!r} has run{more}"
            if stream in program.closed:
                fault = f"stream {stream!r} is left for TorchAir to join: it waits for {steps[-1].name!r} before the output"
            yield Finding(
                kind="unjoined-stream",
                severity=_severity(program, stream),
                steps=(steps[-1].name,),
                streams=(stream,),
                explanation=fault,
                remedy=f"record after {steps[-1].name!r} and wait for it on the default stream before the output",
            )


def unforked(program: StreamProgram, certain: HappensBefore) -> Iterator[Finding]:
    """Yield the streams that do not start behind the default one; in capture modes a replay could overtake the one before it."""
    if program.semantics is not Semantics.CAPTURE:
        return
    roots = {DEFAULT, *program.forked}
    from_there = [step.name for step in program.steps if step.stream in roots]
    for stream, steps in program.streams().items():
        first = steps[0].name
        if stream not in roots and not any(certain.before(name, first) for name in from_there):
            fault = f"stream {stream!r} does not start by waiting for the default stream"
            yield Finding(
                kind="unforked-stream",
                severity=_severity(program, stream),
                steps=(first,),
                streams=(stream,),
                explanation=f"{fault}; TorchAir makes {first!r} wait for the start of the graph"
                if stream in program.closed
                else f"{fault}: {first!r} may run before the graph starts, or while the replay before still does",
                remedy=f"record on the default stream and wait for it before {first!r}",
            )


def _severity(program: StreamProgram, stream: str) -> Severity:
    """An error, or a note where the backend closes the stream by itself."""
    return Severity.NOTE if stream in program.closed else Severity.ERROR
