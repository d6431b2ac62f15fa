"""What would change the decision about an operator, read from a report alone: its stream, its time, or the whole plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from autostream.cost.model import Resources
from autostream.program.kinds import DEFAULT, HCCL
from autostream.program.simulation.critical import Cause
from autostream.report import causes
from autostream.report.occupancy import Run, shown
from autostream.report.schema import Document, MachineRow, OpRow
from autostream.report.wording import change, duration, percent

#: What lifts the refusal of a plan, by the code of its verdict.
_LIFTS = {
    "nothing-to-overlap": "it takes more to overlap: a larger batch, or a branch that needs other cores",
    "within-error": "it takes surer prices: a profile of the model (--profile), or a fitted chip file (autostream calibrate)",
    "dynamic-shape": "it takes static shapes",
    "no-shapes": "it takes shapes: trace the model with example or fake inputs",
    "hand-written-sync": "it takes the graph without the streams written by hand ('autostream check' judges those)",
    "already-scheduled": "it takes the graph as it was before it was scheduled",
    "not-convertible": "it takes a TorchAir that converts every operator of the graph",
    "ranks-disagree": "it takes the same plan on every rank: the same graph, options and versions everywhere",
}
#: What `autostream.scheduling.bounds.lower` says sets the bound where operators depend on each other.
_CHAIN = "critical path"
#: The options that decide about a refused plan, by the code of its verdict.
_OPTIONS = {
    "nothing-to-overlap": ("strategy", "side_streams", "same_unit_overlap", "core_limits"),
    "no-gain": ("min_gain",),
    "within-error": ("min_gain",),
    "over-memory-cap": ("max_extra_bytes",),
    "over-wait-cap": ("max_waits",),
    "over-budget": ("stream_budget", "event_budget"),
}


def levers(document: Document, row: OpRow) -> list[tuple[str, str]]:
    """Return what would move an operator, what would make it count for less, and what would have a refused plan accepted.

    Each is a title and a sentence. Nothing is planned again: they hold while all else runs as the report shows it.
    """
    facts = [
        ("to move it", _to_move(document, row)),
        ("to gain", _to_gain(document, row)),
        ("to be accepted", _to_accept(document)),
    ]
    return [(title, text) for title, text in facts if text]


def beside(document: Document, row: OpRow) -> list[tuple[Run, int]]:
    """Return what runs at the same time on other streams and for how many ns, the longest first."""
    runs = shown(document)
    own = next((run for run in runs if run.row.name == row.name), None)
    if own is None:
        return []
    both = [(run, min(run.end, own.end) - max(run.start, own.start)) for run in runs if run.stream != own.stream]
    return sorted(((run, ns) for run, ns in both if ns > 0), key=lambda pair: (-pair[1], pair[0].row.name))


def _to_move(document: Document, row: OpRow) -> str:
    if row.start_ns is None or row.unit is None or document.shows not in ("scheduled", "refused"):
        return ""
    if row.stream == HCCL:
        off = not document.provenance.options.get("side_collectives")
        return "option side_collectives=True allows collectives on side streams" if off else ""
    if row.stream != DEFAULT:
        return _from_side(document, row)
    return "on its own it cannot: see 'where'" if row.placed else _from_default(document, row)


def _from_side(document: Document, row: OpRow) -> str:
    together = beside(document, row)
    if not together:
        return "nothing runs beside it: on the default stream it would take as long, and need no wait"
    run, ns = together[0]
    return f"on {run.stream!r} it would run after or before {run.row.name!r}, not beside it for {duration(ns)}"


def _from_default(document: Document, row: OpRow) -> str:
    if row.slack_ns:
        return "free to move, but it does not set the length: elsewhere it would cost a wait and gain nothing"
    link = next((link for link in document.critical if link.op == row.name), None)
    if link is None:
        return ""
    if link.cause is Cause.START:
        return "free to move, but it starts with the program where it is"
    if link.cause is not Cause.STREAM:
        return f"free to move, but it waits for {causes.WAITED[link.cause]}: another stream would not start it earlier"
    before = next((other for other in document.ops if other.name == link.after), None)
    conflict = _conflict(before.resources, row.resources, document.machine) if before and document.machine else ""
    if conflict:
        return f"free to move, but {link.after!r}, the one before it, and it want more {conflict} than the chip has"
    return f"free to move: beside {link.after!r}, if what that saves is worth a wait between streams"


def _conflict(one: Resources, two: Resources, machine: MachineRow) -> str:
    """Return what two operators want more of than the chip has, ``"aic and aiv"``; empty if both fit."""
    has = {"aic": machine.aic, "aiv": machine.aiv, "comm": 1}
    first, second = asdict(one), asdict(two)
    return " and ".join(name for name, amount in has.items() if min(first[name], amount) + min(second[name], amount) > amount)


def _to_gain(document: Document, row: OpRow) -> str:
    if row.slack_ns is None or row.start_ns is None or row.end_ns is None:
        return ""
    took = row.end_ns - row.start_ns
    if row.slack_ns:
        return f"faster is no use; slower is free until it takes {duration(took + row.slack_ns)}"
    # What runs at the same time is on no path through this operator, so the least slack there is the most that can be won here.
    others = [(run.row.slack_ns, run.row.name) for run, _ in beside(document, row) if run.row.slack_ns is not None]
    slack, name = min(others, default=(took, ""))
    if not slack:
        return f"a shorter one alone gains nothing: {name!r}, at the same time, sets the length as well"
    if slack < took:
        return f"a shorter one gains at most {duration(slack)}: then {name!r}, at the same time, sets the length"
    return "a shorter one shortens the whole: nothing that runs at the same time would set the length in its place"


def _to_accept(document: Document) -> str:
    verdict = document.verdict
    if verdict.accepted or verdict.code == "as-written":
        return ""
    told = f"declined, {verdict.reason.rstrip('.')}"
    if verdict.code == "nothing-to-overlap" and document.bound_by == _CHAIN and verdict.lower_bound_ns >= verdict.serial_ns:
        return f"{told}; no option changes that, only a graph with branches that do not depend on each other"
    parts = (told, _LIFTS.get(verdict.code, ""), *_limits(document), *_tried(document))
    return "; ".join(part for part in parts if part)


def _limits(document: Document) -> Iterable[str]:
    verdict = document.verdict
    given = document.provenance.options
    options = [f"{name}={given[name]}" for name in _OPTIONS.get(verdict.code, ()) if name in given]
    if options:
        yield f"{'options that decide' if len(options) > 1 else 'the option that decides'}: {', '.join(options)}"
    if verdict.serial_ns and document.shows == "refused":
        yield f"the plan changes the time by {change(verdict.gain)}, at the model's worst by {change(verdict.gain_low)}"
    if verdict.serial_ns and verdict.lower_bound_ns:
        most = max(0.0, 1 - verdict.lower_bound_ns / verdict.serial_ns)
        yield (
            f"no plan under these options gains more than {percent(most)}"
            if most
            else "no plan under these options gains anything"
        )


def _tried(document: Document) -> Iterable[str]:
    accepted = [row.label for row in document.what_if if row.accepted]
    if accepted:
        yield f"accepted under: {', '.join(accepted)}"
    elif document.what_if:
        yield "none of the variants under 'what if' is accepted"
