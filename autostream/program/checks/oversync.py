"""Waits that cost time and order nothing anybody asks for: against a plan, and in hand-written programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from autostream.errors import VerificationError, plural
from autostream.program.checks.happens import HappensBefore, keeps_stream_order
from autostream.program.checks.losses import streams_of
from autostream.program.checks.races import conflict
from autostream.program.kinds import DEFAULT, is_collective, kinds
from autostream.program.model import Edge, EdgeKind, Finding, Semantics, Severity, Step, StreamProgram
from autostream.program.order import Order, order_of, predecessors

#: Predicts how long a program runs, ns.
Predict = Callable[[StreamProgram], int]

_WAIT_TENSOR = ("air.wait_tensor.default", "Identity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Intended:
    """What a plan asks for, by FX node: every order as (before, after, reason), and the operators it knows."""

    orders: tuple[tuple[str, str, str], ...]
    operators: tuple[str, ...]


def over_synchronised(program: StreamProgram, intended: Intended) -> Iterator[Finding]:
    """Yield one finding per pair of streams for the waits that a plan does not ask for, by themselves or with others.

    Args:
        program: read back from an emitted graph, its streams in the order of the plan.
        intended: what the plan asks for; a step of no operator it knows is judged by those that wait behind it.
    """
    order = order_of(program)
    tasks = {step.name: step for step in program.steps if step.stream is not None}
    operators = frozenset(intended.operators)
    known = frozenset(name for name, step in tasks.items() if step.source in operators)
    after = _successors(order, known)
    crossing = [
        (order.names[earlier], order.names[position])
        for position, waits in enumerate(order.waits)
        for earlier in waits
        if order.streams[earlier] != order.streams[position] and order.names[earlier] in known
    ]
    # Nearly all of them are asked for as they are: what follows from several orders takes longer to see.
    asked = {(before, later) for before, later, _ in intended.orders}
    source = {name: step.source for name, step in tasks.items()}
    doubtful = [
        (earlier, name)
        for earlier, name in crossing
        if not all((source[earlier], source[later]) in asked for later in after[name])
    ]
    allowed = _planned(program, order, intended) if doubtful else None
    if allowed is None:
        return
    found: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for earlier, name in doubtful:
        if any(not allowed.before(earlier, later) for later in after[name]):
            found.setdefault(streams_of((tasks[earlier], tasks[name])), []).append((earlier, name))
    for streams, pairs in found.items():
        before, waiting = pairs[0]
        more = f" (and {plural(len(pairs) - 1, 'more wait')} between these streams)" if len(pairs) > 1 else ""
        yield Finding(
            kind="over-synchronised",
            severity=Severity.WARNING,
            steps=(before, waiting),
            streams=streams,
            explanation=f"{waiting!r} waits for {before!r}, which neither data nor storages nor the plan ask for{more}",
            remedy=f"drop the wait of {waiting!r} for {before!r}",
        )


def _planned(program: StreamProgram, order: Order, intended: Intended) -> HappensBefore | None:
    """Return what the plan orders; None if the plan contradicts the emitted order of a stream."""
    tasks: dict[str, list[int]] = {}
    by_name = {name: position for position, name in enumerate(order.names)}
    for step in program.steps:
        if step.name in by_name:
            tasks.setdefault(step.source, []).append(by_name[step.name])
    waits: list[set[int]] = [set() for _ in order.names]
    for before, after, _ in intended.orders:
        for later in tasks.get(after, ()):
            waits[later].update(earlier for earlier in tasks.get(before, ()) if earlier != later)
    planned = replace(order, waits=tuple(tuple(sorted(positions)) for positions in waits), may_vanish=(False,) * len(order.names))
    try:
        return HappensBefore(planned, stream_order=True)
    except VerificationError:
        return None


def _successors(order: Order, known: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """Return the planned tasks that wait with each task: itself, or (of what only the emitted graph has) those behind it."""
    users: dict[str, list[str]] = {}
    for position, waits in enumerate(order.waits):
        for earlier in waits:
            users.setdefault(order.names[earlier], []).append(order.names[position])
    found: dict[str, tuple[str, ...]] = {}
    for name in reversed(order.names):
        behind = dict.fromkeys(later for user in users.get(name, ()) for later in found.get(user, ()))
        found[name] = (name,) if name in known else tuple(behind)
    return found


def idle_waits(program: StreamProgram, predict: Predict | None = None) -> Iterator[Finding]:
    """Yield the hand-written waits between streams that are implied by others, or that nothing needs.

    A wait is needed if some access to a storage that is written, some pair of collectives or gangs, or (capture modes) the fork
    or the join of a stream has no order without the program's own waits and gets one from it.

    Args:
        program: it must not wait for itself.
        predict: if given, a finding tells what the program would gain without the wait.
    """
    order = order_of(program)
    keeps = keeps_stream_order(program)
    full = HappensBefore(order, stream_order=keeps)
    tasks = {step.name: step for step in program.steps if step.stream is not None}
    plain = replace(program, edges=tuple(edge for edge in program.edges if edge.kind is EdgeKind.DATA))
    bare = order_of(plain)
    needs: list[tuple[str, str]] | None = None
    placed = predecessors(order, stream_order=keeps)
    index = {name: position for position, name in enumerate(order.names)}
    for edge in program.edges:
        if edge.kind is EdgeKind.DATA or edge.before not in tasks or edge.after not in tasks:
            continue
        before, after = tasks[edge.before], tasks[edge.after]
        if before.stream == after.stream:
            continue
        one, two = index[edge.before], index[edge.after]
        others = (order.names[other] for other in placed[two] if other != one)
        if one in bare.waits[two]:
            reason = "its data already make it wait"
        elif any(full.before(edge.before, other) for other in others):
            reason = "other waits already see to it"
        else:
            needs = _needs(plain, HappensBefore(bare, stream_order=keeps)) if needs is None else needs
            if any(_at_or_before(full, a, edge.before) and _at_or_before(full, edge.after, b) for a, b in needs):
                continue
            yield _idle("unneeded-wait", edge, tasks, "they share no data and no storage that is written", program, predict)
            continue
        yield _idle("redundant-wait", edge, tasks, reason, program, predict)


def _at_or_before(happens: HappensBefore, one: str, two: str) -> bool:
    return one == two or happens.before(one, two)


def _needs(plain: StreamProgram, bare: HappensBefore) -> list[tuple[str, str]]:
    """Return the pairs of tasks, earlier emitted first, that must be ordered and are not by data and streams alone."""
    tasks = [step for step in plain.steps if step.stream is not None]
    place = {step.name: position for position, step in enumerate(tasks)}
    touching: dict[str, list[Step]] = {}
    written = {storage for step in tasks for storage in step.writes}
    for step in tasks:
        for storage in dict.fromkeys((*step.reads, *step.writes)):
            if storage in written:
                touching.setdefault(storage, []).append(step)
    pairs: dict[tuple[str, str], None] = {}
    for steps in touching.values():
        for second in steps:
            for first in steps:
                apart = first.stream != second.stream and place[first.name] < place[second.name]
                if apart and conflict(first, second) and not bare.ordered(first.name, second.name):
                    pairs[first.name, second.name] = None
    exclusive = [step.name for step in tasks if is_collective(step.kind) or step.kind in kinds().all_core]
    pairs.update({(one, two): None for one, two in pairwise(exclusive) if not bare.ordered(one, two)})
    if plain.semantics is Semantics.CAPTURE:
        lanes = plain.streams()
        main = lanes.get(DEFAULT, ())
        for stream, lane in lanes.items():
            if stream != DEFAULT and main:
                pairs[lane[-1].name, main[-1].name] = None
                pairs.update({(step.name, lane[0].name): None for step in main if place[step.name] < place[lane[0].name]})
    return list(pairs)


def _idle(
    kind: str, edge: Edge, tasks: Mapping[str, Step], reason: str, program: StreamProgram, predict: Predict | None
) -> Finding:
    before, after = tasks[edge.before], tasks[edge.after]
    cost = ""
    if predict is not None:
        gain = predict(program) - predict(replace(program, edges=tuple(other for other in program.edges if other != edge)))
        cost = f"; without it the program is predicted to take {gain / 1000:.1f} us less" if gain > 0 else ""
    return Finding(
        kind=kind,
        severity=Severity.NOTE,
        steps=(before.name, after.name),
        streams=streams_of((before, after)),
        explanation=f"the wait of {after.name!r} for {before.name!r} orders nothing: {reason}{cost}",
        remedy=f"drop the wait of {after.name!r} for {before.name!r}",
    )


def hidden_waits(program: StreamProgram) -> Iterator[Finding]:
    """Yield the steps that wait for another stream only because they read the result of a ``wait_tensor`` written for that one.

    Tracing gives the name of the tensor to the result, also where the program drops it: whoever reads the tensor later reads it.
    """
    tasks = {step.name: step for step in program.steps if step.stream is not None}
    explicit = {edge.after: edge.before for edge in program.edges if edge.kind is not EdgeKind.DATA}
    anchors = {name for name, step in tasks.items() if step.kind in _WAIT_TENSOR and name in explicit}
    if not anchors or program.semantics is not Semantics.GE:
        return
    keeps = keeps_stream_order(program)
    for anchor in (step.name for step in program.steps if step.name in anchors):
        users = [edge.after for edge in program.edges if edge.before == anchor and edge.kind is EdgeKind.DATA]
        strangers = [user for user in users if user in tasks and tasks[user].stream != tasks[anchor].stream]
        cut = {(anchor, user) for user in strangers}
        without = replace(program, edges=tuple(edge for edge in program.edges if (edge.before, edge.after) not in cut))
        happens = HappensBefore(order_of(without), stream_order=keeps) if strangers else None
        for user in strangers:
            if happens is not None and not happens.before(anchor, user):
                yield _hidden(tasks[anchor], tasks[user], explicit[anchor])


def _hidden(anchor: Step, user: Step, awaited: str) -> Finding:
    return Finding(
        kind="hidden-wait",
        severity=Severity.WARNING,
        steps=(anchor.name, user.name),
        streams=streams_of((anchor, user)),
        explanation=f"{user.name!r} on stream {user.stream!r} reads the result of {anchor.name!r}, which waits for {awaited!r} "
        f"on stream {anchor.stream!r}: so it waits for that stream too",
        remedy=f"keep the result of npu_wait_tensor for the steps of stream {anchor.stream!r} alone: wait on a value of its own, "
        "or use torchair.ops.wait, which rebinds nothing",
    )
