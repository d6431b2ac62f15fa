"""Prove a program safe, or say what is wrong with it: a pipeline of checks over one happens-before relation.

To add a check, write a function from `Evidence` to findings and name it in `_CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from autostream.cost.model import Cost, Machine
from autostream.errors import plural
from autostream.graph.model import Why
from autostream.program.checks.contention import contention
from autostream.program.checks.happens import HappensBefore, keeps_stream_order
from autostream.program.checks.joins import unforked, unjoined
from autostream.program.checks.losses import lost_finding, streams_of
from autostream.program.checks.oversync import Intended, over_synchronised
from autostream.program.checks.races import conflict, races
from autostream.program.kinds import HCCL, is_collective
from autostream.program.model import Finding, Severity, Step, StreamProgram
from autostream.program.order import find_cycle, order_of, predecessors

#: (before, after, reason): names of FX nodes; the first must have ended when the second starts.
Required = Iterable[tuple[str, str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the checks look at."""

    program: StreamProgram
    #: What always holds.
    certain: HappensBefore
    #: What holds if the backend also keeps the order in which one stream's steps were emitted.
    emitted: HappensBefore
    required: tuple[tuple[str, str, str], ...]
    costs: Mapping[str, Cost] | None
    machine: Machine | None
    groups: Mapping[str, str | None] | None


def verify(
    program: StreamProgram,
    required: Required = (),
    *,
    costs: Mapping[str, Cost] | None = None,
    machine: Machine | None = None,
    groups: Mapping[str, str | None] | None = None,
    intended: Intended | None = None,
) -> tuple[Finding, ...]:
    """Return everything that is wrong or doubtful, in a fixed order; no finding of severity ERROR means proved.

    Args:
        program: what was read back from a graph.
        required: orders that must hold beside the storage hazards that the program itself shows, by FX node. The reason is
            one or more values of `Why`, joined by ``+``.
        costs: by step name or FX node: what holds which cores. With it, and `machine`, contention for cores is checked.
        machine: how many cores there are.
        groups: process group of the collectives, by step name or FX node. With it the use of one group from two streams is
            checked.
        intended: if given, what a plan asks for: a wait beyond it is a finding.
    """
    order = order_of(program)
    keeps = keeps_stream_order(program)
    cycle = [order.names[i] for i in find_cycle(predecessors(order, stream_order=keeps))]
    if cycle:
        return (_deadlock(program, cycle), *(lost_finding(program, lost, None) for lost in program.lost))
    certain = HappensBefore(order, stream_order=keeps)
    # Emission against the edges: the backend must re-sort, so nothing more can be read from the emission order.
    consistent = keeps or not find_cycle(predecessors(order, stream_order=True))
    emitted = HappensBefore(order, stream_order=True) if consistent and not keeps else certain
    evidence = Evidence(
        program=program,
        certain=certain,
        emitted=emitted,
        required=tuple(required),
        costs=costs,
        machine=machine,
        groups=groups,
    )
    found = [finding for check in _CHECKS for finding in check(evidence)]
    return (*found, *(over_synchronised(program, intended) if intended is not None else ()))


def _deadlock(program: StreamProgram, cycle: list[str]) -> Finding:
    by_name = {step.name: step for step in program.steps}
    return Finding(
        kind="deadlock",
        severity=Severity.ERROR,
        steps=tuple(cycle),
        streams=streams_of(by_name[name] for name in cycle),
        explanation=f"these steps wait for each other: {' -> '.join((*cycle, cycle[0]))}",
        remedy="drop one of the waits between them, or emit the steps of one stream in the order of the waits",
    )


# -- lost synchronisation -------------------------------------------------------------------------------------------------


def _lost(evidence: Evidence) -> Iterator[Finding]:
    for lost in evidence.program.lost:
        yield lost_finding(evidence.program, lost, evidence.certain)


# -- hazards and required orders ------------------------------------------------------------------------------------------


def _races(evidence: Evidence) -> Iterator[Finding]:
    yield from races(evidence.program, evidence.certain, evidence.emitted)


def _required(evidence: Evidence) -> Iterator[Finding]:
    tasks: dict[str, list[Step]] = {}
    for step in evidence.program.steps:
        if step.stream is not None:
            tasks.setdefault(step.source, []).append(step)
    unproven: list[str] = []
    failed: dict[tuple[str, tuple[str, ...]], list[tuple[Step, Step, str]]] = {}
    for before, after, reason in evidence.required:
        if before not in tasks or after not in tasks:
            unproven.append(f"{before} -> {after}")
            continue
        pair = _unordered(evidence, tasks[before], tasks[after], reason)
        if pair is not None:
            kind = "relies-on-sort" if evidence.emitted.before(pair[0].name, pair[1].name) else "order-lost"
            failed.setdefault((kind, streams_of(pair)), []).append((*pair, f"{before!r} before {after!r} ({reason})"))
    for (kind, _), pairs in failed.items():
        yield _order_finding(kind, pairs)
    if unproven:
        yield Finding(
            kind="order-unproven",
            severity=Severity.NOTE,
            steps=(),
            streams=(),
            explanation=f"{plural(len(unproven), 'required order')} without a task at one end here, the first: {unproven[0]}",
            remedy="",
        )


def _unordered(evidence: Evidence, befores: list[Step], afters: list[Step], reason: str) -> tuple[Step, Step] | None:
    """Return a task of one operator that must come before one of another and need not, the least ordered such pair.

    Tasks that touch the same memory are held to the order. If none do, the last task of each stands for its operator; but a
    value may flow from any task of the first (one of several results) through a view that is a task of its own. Of two
    collectives the communication is meant.
    """
    if all(evidence.certain.before(before.name, after.name) for before in befores for after in afters):
        return None
    if any(is_collective(step.kind) for step in befores) and any(is_collective(step.kind) for step in afters):
        befores = [step for step in befores if is_collective(step.kind)]
        afters = [step for step in afters if is_collective(step.kind)]
    pairs = [(b, a) for b in befores for a in afters if conflict(b, a)]
    if not pairs and reason == Why.DATA and any(evidence.certain.before(step.name, afters[-1].name) for step in befores):
        return None
    pairs = pairs or [(befores[-1], afters[-1])]
    lost = [(b, a) for b, a in pairs if not evidence.certain.before(b.name, a.name)]
    unordered = (pair for pair in lost if not evidence.emitted.before(pair[0].name, pair[1].name))
    return next(unordered, lost[0] if lost else None)


def _order_finding(kind: str, pairs: list[tuple[Step, Step, str]]) -> Finding:
    before, after, what = pairs[0]
    more = f" (and {plural(len(pairs) - 1, 'more order')} between these streams)" if len(pairs) > 1 else ""
    relies = kind == "relies-on-sort"
    fault = "holds only by the order of emission, which the engine may change" if relies else "is not kept by any edge"
    return Finding(
        kind=kind,
        severity=Severity.WARNING if relies else Severity.ERROR,
        steps=(before.name, after.name),
        streams=streams_of((before, after)),
        explanation=f"{what} {fault}{more}",
        remedy=f"make {after.name!r} wait for {before.name!r}",
    )


# -- collectives and joins ------------------------------------------------------------------------------------------------


def _collectives(evidence: Evidence) -> Iterator[Finding]:
    """Collectives must come in one order, or ranks may meet them in different ones: check neighbours in a linear extension."""
    by_name = {step.name: step for step in evidence.program.steps}
    found = [step for name in evidence.certain.sequence if _communicates(step := by_name[name])]
    doubtful = [(one, two) for one, two in pairwise(found) if not evidence.certain.before(one.name, two.name)]
    for severity in (Severity.ERROR, Severity.WARNING):
        pairs = [(one, two) for one, two in doubtful if (one.stream == two.stream) == (severity is Severity.WARNING)]
        if not pairs:
            continue
        one, two = pairs[0]
        yield Finding(
            kind="unordered-collectives",
            severity=severity,
            steps=(one.name, two.name),
            streams=streams_of((one, two)),
            explanation=f"{one.name!r} and {two.name!r} communicate in no fixed order"
            + (", the engine may re-sort their stream" if severity is Severity.WARNING else "")
            + (f" ({plural(len(pairs) - 1, 'more pair')} like them)" if len(pairs) > 1 else ""),
            remedy=f"make {two.name!r} wait for {one.name!r}, the same way on every rank",
        )


def _communicates(step: Step) -> bool:
    return step.stream == HCCL or is_collective(step.kind)


def _unjoined(evidence: Evidence) -> Iterator[Finding]:
    yield from unforked(evidence.program, evidence.certain)
    yield from unjoined(evidence.program, evidence.certain)


# -- contention -----------------------------------------------------------------------------------------------------------


def _contention(evidence: Evidence) -> Iterator[Finding]:
    yield from contention(
        evidence.program,
        evidence.certain,
        evidence.emitted,
        costs=evidence.costs,
        machine=evidence.machine,
        groups=evidence.groups,
    )


_CHECKS: tuple[Callable[[Evidence], Iterable[Finding]], ...] = (
    _lost,
    _races,
    _required,
    _collectives,
    _unjoined,
    _contention,
)
