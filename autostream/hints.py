"""What a report should tell of wishes and of limits: wanted modules (option ``wanted``), and collectives left alone."""

from __future__ import annotations

from collections.abc import Sequence

from autostream.errors import InputError, nearest, plural
from autostream.graph.model import OpGraph, Unit
from autostream.program.model import Slot, Timeline
from autostream.verdict import Verdict


def refuse_missing(wanted: Sequence[str], graph: OpGraph) -> None:
    """Check that every wanted module is in the graph.

    Raises:
        InputError: an operator of none of the graph's modules comes from one; names the nearest module.
    """
    for name in wanted:
        if not _operators(name, graph):
            raise InputError(_missing(name, graph))


def tell(wanted: Sequence[str], graph: OpGraph, after: Timeline | None, verdict: Verdict) -> tuple[str, ...]:
    """Return one sentence for each wanted module: not in the graph, running beside what, or alone and why.

    Args:
        wanted: module paths, or ends of such paths.
        graph: of the graph as it was given.
        after: the simulated run of the emitted program, if there is one.
        verdict: on the graph.
    """
    return tuple(_sentence(name, graph, after if verdict.accepted else None, verdict) for name in wanted)


def tell_collectives(graph: OpGraph, verdict: Verdict) -> tuple[str, ...]:
    """Return what is not claimed of the collectives of a graph that is left as it is; nothing if there is at most one."""
    found = [op for op in graph if op.unit is Unit.COMM]
    if verdict.accepted or len(found) < 2:
        return ()
    groups = ", ".join(repr(group) for group in dict.fromkeys(op.group or "unknown" for op in found))
    return (f"{len(found)} collectives (groups {groups}) run as the graph has them: nothing is proved of their order or cores",)


def _sentence(name: str, graph: OpGraph, after: Timeline | None, verdict: Verdict) -> str:
    names = _operators(name, graph)
    if not names:
        return _missing(name, graph)
    subject = f"wanted module {name!r} ({plural(len(names), 'operator')})"
    if after is None:
        return f"{subject} runs beside nothing: {verdict.reason}"
    others = [slot for slot in after.slots if slot.step not in names]
    beside = [slot for slot in after.slots if slot.step in names and any(_together(slot, other) for other in others)]
    if not beside:
        return f"{subject} runs beside nothing: the accepted schedule moved other operators"
    streams = ", ".join(dict.fromkeys(slot.stream for slot in beside))
    return f"{subject}: {len(beside)} of {len(names)} beside other operators, on stream {streams} (simulated)"


def _together(one: Slot, two: Slot) -> bool:
    return one.stream != two.stream and one.start < two.end and two.start < one.end


def _operators(name: str, graph: OpGraph) -> frozenset[str]:
    """Return the operators with a task whose module path has the parts of `name` in a row."""
    parts = name.split(".")
    return frozenset(op.name for op in graph if op.unit is not Unit.FREE and _within(parts, op.module_path.split(".")))


def _within(parts: list[str], path: list[str]) -> bool:
    return any(path[start : start + len(parts)] == parts for start in range(len(path) - len(parts) + 1))


def _missing(name: str, graph: OpGraph) -> str:
    paths = sorted({op.module_path for op in graph if op.module_path})
    return f"wanted module {name!r} is not in the graph{nearest(name, paths)}"
