"""Deadlock by contention: what may run at the same time, and must not, because it waits for its peers while it holds something.

ERROR: it may happen in a run that keeps the order of emission. WARNING: only if the engine re-sorts a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from autostream.cost.model import Cost, Machine
from autostream.errors import plural
from autostream.program.checks.gangs import Gang, gang_of, heaviest_sets, per_step
from autostream.program.checks.happens import HappensBefore
from autostream.program.kinds import DEFAULT, is_collective, kinds
from autostream.program.model import Finding, Semantics, Severity, Step, StreamProgram


class Overlaps:
    """Which steps may run at the same time."""

    def __init__(self, program: StreamProgram, certain: HappensBefore, emitted: HappensBefore) -> None:
        self._certain = certain
        self._emitted = emitted
        by_name = {step.name: step for step in program.steps}
        #: Steps with a task such that an edge from an earlier to a later one closes no cycle.
        self.steps = tuple(by_name[name] for name in emitted.sequence)
        self.severities = (Severity.ERROR,) if certain is emitted else (Severity.ERROR, Severity.WARNING)

    def may(self, one: Step, two: Step, severity: Severity) -> bool:
        """Return True if the two may overlap: in emission order (ERROR), or in any order the engine may choose (WARNING)."""
        order = self._emitted if severity is Severity.ERROR else self._certain
        return one.stream != two.stream and not order.ordered(one.name, two.name)

    def pairs(
        self, steps: Iterable[Step], forbidden: Callable[[Step, Step], bool]
    ) -> Iterator[tuple[Severity, list[tuple[Step, Step]]]]:
        """Yield the forbidden pairs of `steps` that may overlap, gathered by severity and pair of streams."""
        found: dict[tuple[Severity, str, str], list[tuple[Step, Step]]] = {}
        for severity, one, two in self._unordered(tuple(steps)):
            if forbidden(one, two):
                low, high = sorted((str(one.stream), str(two.stream)))
                found.setdefault((severity, low, high), []).append((one, two))
        for (severity, _, _), pairs in found.items():
            yield severity, pairs

    def concurrent(self, steps: Sequence[Step], severity: Severity) -> Iterator[tuple[int, int]]:
        """Yield the pairs of `steps`, by position, ascending, that may overlap as `may` has it."""
        order = self._emitted if severity is Severity.ERROR else self._certain
        at = {step.name: position for position, step in enumerate(steps)}
        later = order.mask(at)
        lanes: dict[str | None, int] = {}
        for step in steps:
            lanes[step.stream] = lanes.get(step.stream, 0) | order.mask([step.name])
        for position, step in enumerate(steps):
            later &= ~order.mask([step.name])
            yield from ((position, at[name]) for name in order.names_in(order.unordered(step.name) & later & ~lanes[step.stream]))

    def _unordered(self, steps: Sequence[Step]) -> Iterator[tuple[Severity, Step, Step]]:
        """Yield the pairs that may overlap with the worst severity at which they do."""
        pairs: dict[tuple[int, int], Severity] = {}
        for severity in self.severities:
            for pair in self.concurrent(steps, severity):
                pairs.setdefault(pair, severity)
        for one, two in sorted(pairs):
            yield pairs[one, two], steps[one], steps[two]


def contention(
    program: StreamProgram,
    certain: HappensBefore,
    emitted: HappensBefore,
    *,
    costs: Mapping[str, Cost] | None,
    machine: Machine | None,
    groups: Mapping[str, str | None] | None,
) -> Iterator[Finding]:
    """Yield what may stop for ever because it runs at the same time; nothing if neither costs nor groups are known.

    Args:
        program: what was read back from a graph.
        certain: what always holds.
        emitted: what holds if the backend also keeps the order of emission.
        costs: by step name or FX node. Cores are checked if `machine` is given too.
        machine: how many cores there are.
        groups: process groups by step name or FX node; None or an empty name is an unknown group.
    """
    if costs is None and groups is None:
        return
    overlaps = Overlaps(program, certain, emitted)
    group = {name: value for name, value in per_step(program, groups or {}).items() if value}
    yield from groups_on_two_streams(overlaps, group)
    if costs is not None and machine is not None:
        cost = per_step(program, costs)
        yield from gang_deadlocks(overlaps, cost, machine)
        yield from communicators_in_parallel(overlaps, cost, group)
        yield from too_few_cores(overlaps, cost, machine)
    if program.semantics is Semantics.CAPTURE:
        yield from updates(overlaps)


def gang_deadlocks(overlaps: Overlaps, costs: Mapping[str, Cost], machine: Machine) -> Iterator[Finding]:
    """Yield the heaviest sets of gangs that may run at once and need more cores than there are."""
    gangs = [gang for step in overlaps.steps if (gang := gang_of(step, costs.get(step.name), machine))]
    reported: set[tuple[Severity, tuple[int, ...]]] = set()
    for resource, capacity, needs in (
        ("AIV", machine.aiv, [gang.aiv for gang in gangs]),
        ("AIC", machine.aic, [gang.aic for gang in gangs]),
    ):
        for severity in overlaps.severities:
            pairs = overlaps.concurrent([gang.step for gang in gangs], severity)
            for found in heaviest_sets(needs, pairs, capacity):
                members = [(gangs[position], needs[position]) for position in found]
                known = (severity, found) in reported
                if not known and (severity is Severity.ERROR or not _at_once(overlaps, [gang for gang, _ in members])):
                    reported.add((severity, found))
                    yield _gang_finding(members, resource, capacity, severity)


def _at_once(overlaps: Overlaps, gangs: Iterable[Gang]) -> bool:
    """Return True if the gangs may overlap without any re-sorting: they have been reported then."""
    return all(overlaps.may(one.step, two.step, Severity.ERROR) for one, two in combinations(gangs, 2))


def _gang_finding(members: list[tuple[Gang, int]], resource: str, capacity: int, severity: Severity) -> Finding:
    total = sum(need for _, need in members)
    steps = [gang.step for gang, _ in members]
    listed = ", ".join(f"{gang.step.name!r} ({need}) on stream {gang.step.stream!r}" for gang, need in members)
    if len(members) == 1:
        reason, remedy = "more cores than there are", f"limit {steps[0].name!r} to {capacity} cores"
    else:
        reason = "each waits for all its cores while it keeps those it has from the others"
        heaviest = sorted(range(len(members)), key=lambda position: -members[position][1])[:2]
        one, two = (steps[position] for position in sorted(heaviest))
        remedy = f"{_serialise(one, two)}, or limit their cores to {capacity} together"
    resorts = " if the engine re-sorts a stream" if severity is Severity.WARNING else ""
    return Finding(
        kind="gang-deadlock",
        severity=severity,
        steps=tuple(step.name for step in steps),
        streams=_streams(steps),
        explanation=f"gang {resource} sum {total} > {capacity}{resorts}: {listed}: {reason}",
        remedy=remedy,
    )


def communicators_in_parallel(overlaps: Overlaps, costs: Mapping[str, Cost], groups: Mapping[str, str]) -> Iterator[Finding]:
    """Yield collectives in AIV mode that may overlap; those of one known group are left to `groups_on_two_streams`."""

    def differ(one: Step, two: Step) -> bool:
        return one.name not in groups or groups[one.name] != groups.get(two.name)

    for severity, pairs in overlaps.pairs(_in_aiv_mode(overlaps, costs), differ):
        what = "are collectives on vector cores, of which the library supports one at a time, and may run together"
        yield _pair_finding("communicators-in-parallel", severity, pairs, what)


def groups_on_two_streams(overlaps: Overlaps, groups: Mapping[str, str]) -> Iterator[Finding]:
    """Yield collectives of one process group on two streams that nothing orders."""
    steps = [step for step in overlaps.steps if step.name in groups]
    for severity, pairs in overlaps.pairs(steps, lambda one, two: groups[one.name] == groups[two.name]):
        what = f"use process group {groups[pairs[0][0].name]!r} from two streams in no order"
        yield _pair_finding("group-on-two-streams", severity, pairs, what)


def too_few_cores(overlaps: Overlaps, costs: Mapping[str, Cost], machine: Machine) -> Iterator[Finding]:
    """Yield collectives in AIV mode that get fewer vector cores than the communication library accepts."""
    least = min(kinds().communicator_min_aiv, machine.aiv)
    for step in _in_aiv_mode(overlaps, costs):
        held = costs[step.name].resources.aiv
        if held < least:
            yield Finding(
                kind="too-few-cores",
                severity=Severity.ERROR,
                steps=(step.name,),
                streams=_streams([step]),
                explanation=f"{step.name!r} communicates on {held} vector cores; the library refuses fewer than {least}",
                remedy=f"give {step.name!r} at least {least} vector cores",
            )


def updates(overlaps: Overlaps) -> Iterator[Finding]:
    """Yield collectives beside a captured step that waits for the host, and such steps on a side stream."""
    updated = [step for step in overlaps.steps if step.kind in kinds().host_updated]
    names = {step.name for step in updated}
    involved = [step for step in overlaps.steps if step.name in names or is_collective(step.kind)]
    for severity, pairs in overlaps.pairs(involved, lambda one, two: (one.name in names) != (two.name in names)):
        what = "may run together: one communicates, the other waits for the host before it is replayed"
        yield _pair_finding("collective-beside-update", severity, pairs, what)
    for step in updated:
        if step.stream != DEFAULT:
            yield Finding(
                kind="update-on-side-stream",
                severity=Severity.WARNING,
                steps=(step.name,),
                streams=_streams([step]),
                explanation=f"{step.name!r} waits for the host before it is replayed, on stream {step.stream!r}",
                remedy=f"keep {step.name!r} on the default stream",
            )


def _in_aiv_mode(overlaps: Overlaps, costs: Mapping[str, Cost]) -> list[Step]:
    """Return the library's own collectives that run on vector cores."""
    candidates = [step for step in overlaps.steps if step.kind in kinds().communicators and step.name in costs]
    return [step for step in candidates if costs[step.name].resources.aiv]


def _pair_finding(kind: str, severity: Severity, pairs: list[tuple[Step, Step]], what: str) -> Finding:
    one, two = pairs[0]
    more = f" (and {plural(len(pairs) - 1, 'more pair')} on these streams)" if len(pairs) > 1 else ""
    resorts = ", if the engine re-sorts a stream" if severity is Severity.WARNING else ""
    return Finding(
        kind=kind,
        severity=severity,
        steps=(one.name, two.name),
        streams=_streams((one, two)),
        explanation=f"{one.name!r} on stream {one.stream!r} and {two.name!r} on stream {two.stream!r} {what}{resorts}{more}",
        remedy=_serialise(one, two),
    )


def _serialise(one: Step, two: Step) -> str:
    return f"make {two.name!r} wait for {one.name!r}, the same way on every rank"


def _streams(steps: Iterable[Step]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(step.stream) for step in steps))
