"""Synchronisation that was written but orders nothing: how bad that is, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable

from autostream.program.checks.happens import HappensBefore
from autostream.program.model import EdgeKind, Finding, Lost, Severity, Step, StreamProgram

#: Nothing was there to be waited for, or nobody waits: no order is missed.
_HARMLESS = frozenset(
    {
        "wait-on-input",
        "unused-record",
        "event-recorded-twice",
        "event-awaited-twice",
        "guard-on-own-stream",
        "guard-without-use",
        "nested-scope",
    }
)
_OWN_KIND = frozenset(
    {
        "wait-on-const",
        "unpaired-scope",
        "nested-scope",
        "sync-not-lowered",
        "event-never-recorded",
        "event-recorded-later",
        "event-recorded-twice",
        "event-awaited-twice",
        "stream-as-event",
        "guard-on-own-stream",
        "guard-on-copy",
        "guard-without-use",
    }
)
_REMEDIES = {
    "wait-on-const": "put torch.ops.air.wait_tensor on an input of the operator, or wait before one that emits its task first",
    "wait-on-view": "write the wait directly before an operator with a task, after its views",
    "wait-on-copy": "write the wait before the operator that computes the value that is copied",
    "record-after-view": "wait for the tensor of the operator behind the view",
    "trailing-wait": "write the wait before the operator that must wait, inside the same scope",
    "empty-record": "write the record after the operator to wait for, inside the same scope",
    "unused-wait": "use the result of npu_wait_tensor in place of its first argument, in the same scope",
    "empty-wait": "give the wait the record or the tensor to wait for",
    "dangling-wait": "wait for an operator that stays in the graph",
    "wait-on-input": "drop the wait: a graph input is there from the start",
    "unused-record": "drop the record, or wait for it",
    "unpaired-scope": "pair every scope_enter with one scope_exit",
    "nested-scope": "close the outer stream scope first: do not nest stream scopes",
    "sync-not-lowered": "use the words of the backend: air.record, air.wait and npu_wait_tensor for max-autotune, "
    "tagged events for the capture modes",
    "event-never-recorded": "record the event on the stream to wait for, before the wait; or drop the wait",
    "event-recorded-later": "record the event before the wait in program order",
    "event-recorded-twice": "use one tag for one record",
    "event-awaited-twice": "record one event for each stream that waits",
    "stream-as-event": "record an event on that stream and wait for the event, or wait for the stream itself",
    "guard-on-own-stream": "guard the value for the stream that uses it beside its own",
    "guard-on-copy": "guard the very value that the other stream reads",
    "guard-without-use": "drop the guard, or guard the value that the other stream reads",
}


def lost_finding(program: StreamProgram, lost: Lost, certain: HappensBefore | None) -> Finding:
    """Return the finding on one lost synchronisation; a note if its order holds anyway (`certain` is None in a cycle)."""
    severity = Severity.WARNING if lost.kind in _HARMLESS else Severity.ERROR
    explanation = lost.explanation
    if severity is Severity.ERROR and certain is not None and _holds_anyway(program, lost, certain):
        severity = Severity.NOTE
        explanation += "; the order it asks for holds by other means"
    by_name = {step.name: step for step in program.steps}
    return Finding(
        kind=lost.kind if lost.kind in _OWN_KIND else "lost-sync",
        severity=severity,
        steps=tuple(name for name in (lost.before, lost.step) if name),
        streams=streams_of(by_name[name] for name in (lost.before, lost.step) if name in by_name),
        explanation=explanation,
        remedy=_REMEDIES.get(lost.kind, ""),
    )


def _holds_anyway(program: StreamProgram, lost: Lost, certain: HappensBefore) -> bool:
    """True if the operator the wait was written for comes after the awaited one without it."""
    waiting = _waiting(program, lost.step)
    return bool(waiting) and all(certain.before(lost.before, step.name) for step in waiting)


def _waiting(program: StreamProgram, landed: str) -> tuple[Step, ...]:
    """Return the tasks a wait that landed on `landed` was written for: those that get its value, through views or directly."""
    steps = {step.name: step for step in program.steps}
    waiting: dict[str, Step] = {}
    stack, seen = [landed], {landed}
    while stack:
        current = stack.pop()
        for after in (edge.after for edge in program.edges if edge.before == current and edge.kind is EdgeKind.DATA):
            if steps[after].stream is not None:
                waiting[after] = steps[after]
            elif after not in seen:
                seen.add(after)
                stack.append(after)
    return tuple(waiting.values())


def streams_of(steps: Iterable[Step]) -> tuple[str, ...]:
    """Return the streams of some steps, each once."""
    return tuple(dict.fromkeys(step.stream for step in steps if step.stream is not None))
