"""Races: two accesses to one storage, at least one a write, that nothing orders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autostream.program.happens import HappensBefore
from autostream.program.model import Finding, Semantics, Severity, Step, StreamProgram

_HAZARDS = {(False, True): "write after read", (True, False): "read after write", (True, True): "write after write"}


@dataclass(frozen=True, slots=True)
class _Conflict:
    first: Step
    second: Step
    hazard: str


def conflict(one: Step, two: Step) -> bool:
    """Return True if both touch a storage that at least one of them writes."""
    return not (_disjoint(one.writes, two.reads) and _disjoint(one.reads, two.writes) and _disjoint(one.writes, two.writes))


def _disjoint(one: tuple[str, ...], two: tuple[str, ...]) -> bool:
    return not one or not two or set(one).isdisjoint(two)


def races(program: StreamProgram, certain: HappensBefore, emitted: HappensBefore) -> Iterator[Finding]:
    """Yield one finding per storage and pair of streams with unordered accesses.

    ERROR: unordered. WARNING: ordered only if the backend keeps the order in which the steps of one stream were emitted.
    """
    for storage, accesses in _accesses(program).items():
        groups: dict[tuple[str, str, bool], list[_Conflict]] = {}
        for conflict in _conflicts(accesses, storage):
            one, two = conflict.first.name, conflict.second.name
            if certain.ordered(one, two):
                continue
            streams = sorted((str(conflict.first.stream), str(conflict.second.stream)))
            groups.setdefault((streams[0], streams[1], emitted.ordered(one, two)), []).append(conflict)
        for (_, _, relies), conflicts in groups.items():
            yield _finding(program, storage, conflicts, relies=relies)


def _accesses(program: StreamProgram) -> dict[str, list[Step]]:
    """Return for every storage that is written the tasks that touch it, in emission order."""
    touched: dict[str, list[Step]] = {}
    written: set[str] = set()
    for step in program.steps:
        if step.stream is None:
            continue
        written.update(step.writes)
        for storage in dict.fromkeys((*step.reads, *step.writes)):
            touched.setdefault(storage, []).append(step)
    return {storage: steps for storage, steps in touched.items() if storage in written and len(steps) > 1}


def _conflicts(accesses: list[Step], storage: str) -> Iterator[_Conflict]:
    """Yield every pair with a write, the earlier emitted step first."""
    writes = [storage in step.writes for step in accesses]
    for i in (index for index, write in enumerate(writes) if write):
        for j in range(len(accesses)):
            if j == i or (j < i and writes[j]):
                continue
            first, second = min(i, j), max(i, j)
            yield _Conflict(accesses[first], accesses[second], _HAZARDS[writes[first], writes[second]])


def _finding(program: StreamProgram, storage: str, conflicts: list[_Conflict], *, relies: bool) -> Finding:
    first, second, hazard = conflicts[0].first, conflicts[0].second, conflicts[0].hazard
    more = f" (and {len(conflicts) - 1} more pair(s) on these streams)" if len(conflicts) > 1 else ""
    where = f"{first.name!r} on stream {first.stream!r} and {second.name!r} on stream {second.stream!r}"
    if relies:
        text = f"{hazard} on storage {storage!r}: {where} are ordered only by emission, and the engine may re-sort a stream{more}"
    else:
        text = f"{hazard} on storage {storage!r}: {where} are not ordered{more}"
    return Finding(
        kind="relies-on-sort" if relies else "race",
        severity=Severity.WARNING if relies else Severity.ERROR,
        steps=(first.name, second.name),
        streams=tuple(dict.fromkeys((str(first.stream), str(second.stream)))),
        explanation=text,
        remedy=_remedy(program.semantics, first, second),
    )


def _remedy(semantics: Semantics, first: Step, second: Step) -> str:
    edge = "a control edge" if semantics is Semantics.GE else "an event"
    return f"add {edge} from {first.name!r} to {second.name!r}: wait for the first directly before the second, on its stream"
