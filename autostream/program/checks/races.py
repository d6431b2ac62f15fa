"""Races: two accesses to one storage, at least one a write, that nothing orders."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from autostream.errors import plural
from autostream.graph.regions import Part, Region, neighbours, overlap, parts_of
from autostream.program.checks.happens import HappensBefore
from autostream.program.model import Finding, Semantics, Severity, Step, StreamProgram

_HAZARDS = {(False, True): "write after read", (True, False): "read after write", (True, True): "write after write"}


@dataclass(slots=True)
class _Conflicts:
    """The unordered pairs of one kind: the first of them, and how many there are."""

    first: Step
    second: Step
    count: int = 0


def conflict(one: Step, two: Step) -> bool:
    """Return True if both may touch a byte that at least one of them writes."""
    if set(one.writes).isdisjoint((*two.reads, *two.writes)) and set(one.reads).isdisjoint(two.writes):
        return False
    reads, writes = parts_of(two.reads, two.read_regions), parts_of(two.writes, two.write_regions)
    own = parts_of(one.reads, one.read_regions)
    return any(
        _meet(parts, other.get(storage, ()))
        for storage, parts in parts_of(one.writes, one.write_regions).items()
        for other in (reads, writes)
    ) or any(_meet(parts, own.get(storage, ())) for storage, parts in writes.items())


def _meet(some: Sequence[Part], others: Sequence[Part]) -> bool:
    return any(one is None or two is None or overlap(one, two) for one in some for two in others)


def races(program: StreamProgram, certain: HappensBefore, emitted: HappensBefore) -> Iterator[Finding]:
    """Yield one finding per storage and pair of streams with unordered accesses.

    ERROR: unordered. WARNING: ordered only if the backend keeps the order in which the steps of one stream were emitted.
    """
    lanes = {stream: certain.mask(step.name for step in steps) for stream, steps in program.streams().items()}
    by_name = {step.name: step for step in program.steps}
    unordered_with = functools.cache(certain.unordered)
    for storage, accesses in _accesses(program).items():
        touching = certain.mask(accesses)
        if not any(touching & unordered_with(name) for name in accesses if storage in by_name[name].writes):
            continue
        found: dict[tuple[str, str, bool], _Conflicts] = {}
        for step, others in _conflicting(storage, [by_name[name] for name in accesses], certain):
            unordered = others & unordered_with(step.name)
            if not unordered:
                continue
            by_emission = unordered & ~emitted.unordered(step.name)
            for stream, lane in lanes.items():
                for relies, pairs in ((False, unordered & ~by_emission & lane), (True, by_emission & lane)):
                    if pairs:
                        low, high = sorted((str(step.stream), stream))
                        first, second = sorted((step, by_name[certain.first(pairs)]), key=lambda one: accesses[one.name])
                        found.setdefault((low, high, relies), _Conflicts(first, second)).count += pairs.bit_count()
        for (_, _, relies), conflicts in found.items():
            yield _finding(program, storage, conflicts, relies=relies)


def _accesses(program: StreamProgram) -> dict[str, dict[str, int]]:
    """Return for every storage that is written the tasks that touch it, with their place in emission order."""
    touched: dict[str, dict[str, int]] = {}
    written: set[str] = set()
    for position, step in enumerate(program.steps):
        if step.stream is None:
            continue
        written.update(step.writes)
        for storage in dict.fromkeys((*step.reads, *step.writes)):
            touched.setdefault(storage, {})[step.name] = position
    return {storage: steps for storage, steps in touched.items() if storage in written and len(steps) > 1}


def _conflicting(storage: str, accesses: Sequence[Step], happens: HappensBefore) -> Iterator[tuple[Step, int]]:
    """Yield every writer of a storage with those that may touch a byte it writes, without the writers that had it already."""
    read = [(s, parts_of((storage,), _in(storage, s.read_regions))[storage]) for s in accesses if storage in s.reads]
    wrote = [(s, parts_of((storage,), _in(storage, s.write_regions))[storage]) for s in accesses if storage in s.writes]
    near = neighbours(dict.fromkeys(part for _, parts in (*read, *wrote) for part in parts))
    touching = dict.fromkeys(near, 0)
    for step, parts in (*read, *wrote):
        for part in parts:
            touching[part if part in near else None] |= happens.mask([step.name])
    had = dict.fromkeys(near, 0)
    for step, parts in wrote:
        known = {part if part in near else None for part in parts}
        around = {other for part in known for other in near[part]}
        others = done = 0
        for part in around:
            others |= touching[part]
            done |= had[part]
        yield step, others & ~done
        for part in known:
            had[part] |= happens.mask([step.name])


def _in(storage: str, regions: Iterable[tuple[str, Region]]) -> Iterator[tuple[str, Region]]:
    return (item for item in regions if item[0] == storage)


def _finding(program: StreamProgram, storage: str, conflicts: _Conflicts, *, relies: bool) -> Finding:
    first, second = conflicts.first, conflicts.second
    hazard = _HAZARDS[storage in first.writes, storage in second.writes]
    more = f" (and {plural(conflicts.count - 1, 'more pair')} on these streams)" if conflicts.count > 1 else ""
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
