"""Prove an emitted graph safe before anything is swapped: on the FX level always, on the Ascend IR where it can be made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from torch import fx

from autostream.cost.model import Cost, Machine
from autostream.errors import ConversionError, OfflineError, VerificationError, plural
from autostream.graph import OpGraph, Unit
from autostream.offline import Converted
from autostream.program import EdgeKind, Finding, Intended, Severity, StreamProgram, read_ascend_ir, verify
from autostream.program.kinds import DEFAULT, HCCL
from autostream.program.reading.fx import read_fx
from autostream.program.reading.writeback import written_back
from autostream.rewrite.sync import task_orders

#: Converts a graph to Ascend IR.
Convert = Callable[[fx.GraphModule], Converted]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What an operator holds while it runs, and what there is: the ground for proofs about cores and communication."""

    costs: Mapping[str, Cost]
    machine: Machine


_DATA = EdgeKind.DATA
#: (before, after, reason) by FX node: what must have ended when what starts.
Orders = tuple[tuple[str, str, str], ...]


def prove(
    program: StreamProgram, graph: OpGraph, prices: Prices | None = None, *, orders: Orders | None = None
) -> tuple[Finding, ...]:
    """Return the findings on a program read back from the emitted graph; none of them is an error.

    Args:
        program: read back from the emitted graph.
        graph: of the graph as it was given; every order in it must hold in the program.
        prices: if given, it is also proved that no gangs of cores that wait for their peers can meet and not fit.
        orders: what `orders_of` returns for the two, where that is known already.

    Raises:
        VerificationError: an order is lost or cannot be shown to hold, a storage is raced for, a wait is lost, or the program
            waits for itself.
    """
    findings = _verify(program, graph, orders_of(program, graph) if orders is None else orders, prices, beyond=True)
    unproven = [finding for finding in findings if finding.kind == "order-unproven"]
    if unproven:
        raise VerificationError(f"the emitted graph could not be proved: {unproven[0].explanation}")
    return _without_errors(findings, "emitted graph")


def prove_ascend_ir(
    graph_module: fx.GraphModule,
    graph: OpGraph,
    convert: Convert | None,
    prices: Prices | None = None,
    *,
    emitted: StreamProgram | None = None,
    orders: Orders | None = None,
) -> tuple[Converted | None, tuple[str, ...]]:
    """Repeat the proof on what TorchAir makes of the emitted graph; return that, or notes that say why there is none.

    `emitted` is what `read_fx` reads back from `graph_module` and `orders` what `orders_of` returns for it, where they are known
    already.

    Raises:
        VerificationError: as for `prove`.
        ConversionError: TorchAir is here and cannot convert the graph.
    """
    if convert is None:
        return None, ()
    try:
        converted = convert(graph_module)
    except ConversionError:
        raise
    except OfflineError as error:
        return None, (f"proved on the FX graph only; the Ascend IR could not be made here: {error}",)
    program = read_ascend_ir(converted.serialized, in_order=True, written_back=written_back(graph_module))
    emitted = emitted or read_fx(graph_module)
    _labels_kept(emitted, program)
    _limits_kept(emitted, graph, program)
    renamed = _renamed(orders_of(emitted, graph) if orders is None else orders, graph, program)
    _without_errors(_verify(program, graph, renamed, prices, beyond=False), "Ascend IR")
    return converted, ()


def _labels_kept(emitted: StreamProgram, converted: StreamProgram) -> None:
    """Check that every labelled stream of the emitted graph is one of the converted graph: else nobody carries the plan out.

    Raises:
        VerificationError: a label is gone.
    """
    kept = {*converted.streams(), DEFAULT, HCCL}
    lost = [stream for stream in emitted.streams() if stream not in kept]
    if lost:
        raise VerificationError(f"the Ascend IR lost {len(lost)} of the graph's streams, the first: {lost[0]!r}")


def limits_written(program: StreamProgram, limits: Mapping[str, tuple[int, int]]) -> None:
    """Check that a program read back from the emitted graph limits the cores of operators as the plan does.

    Raises:
        VerificationError: an operator has another limit than planned.
    """
    for step in program.steps:
        planned = limits.get(step.name)
        if planned is not None and step.cores != planned:
            raise VerificationError(f"{step.name!r} was to run on {planned} cube and vector cores; its scope says {step.cores}")


def _limits_kept(emitted: StreamProgram, graph: OpGraph, converted: StreamProgram) -> None:
    """Check that every operator with a core limit has a task with it in the converted graph.

    Raises:
        VerificationError: a limit is gone: the operator would take the whole chip.
    """
    limits = {step.name: step.cores for step in emitted.steps if step.cores is not None and step.name in graph.ops}
    if not limits:
        return
    sources = {name: source for name, source, _ in _renamed([(name, name, "") for name in limits], graph, converted)}
    tasks: dict[str, list[tuple[int, int] | None]] = {}
    for step in converted.steps:
        if step.stream is not None:
            tasks.setdefault(step.source, []).append(step.cores)
    for name, limit in limits.items():
        if graph.ops[name].unit is Unit.FREE:
            continue
        found = tasks.get(sources.get(name, name), ())
        # A view of an input that is written outside the scope becomes a task beside the kernel, without a limit. TorchAir may
        # drop an operator that the user's own scope holds; what the plan limits are kernels.
        if limit not in found and (found or not graph.ops[name].scope):
            raise VerificationError(f"the Ascend IR lost the core limit {limit} of {name!r}: its tasks have {found or None}")


def orders_of(program: StreamProgram, graph: OpGraph) -> Orders:
    """Return every order that must hold in an emitted program, as (before, after, reason) in names of FX nodes.

    Beside those of the graph: a view that became a task copies its storage, so it must come after whatever wrote the storage
    before the operator that reads the view.
    """
    orders = task_orders(graph)
    written_before: dict[str, list[str]] = {}
    for before, after, reason in orders:
        if "raw" in reason.split("+"):
            written_before.setdefault(after, []).append(before)
    tasks = {op.name for op in graph if op.unit is not Unit.FREE}
    copies = [step for step in program.steps if step.stream is not None and step.reads and step.name not in tasks]
    readers = _readers(program, tasks) if copies else {}
    added = {
        (writer, copy.name, "raw")
        for copy in copies
        for reader in readers.get(copy.name, ())
        for writer in written_before.get(reader, ())
        if set(graph.ops[writer].writes) & set(copy.reads)
    }
    return (*orders, *sorted(added))


def _readers(program: StreamProgram, tasks: set[str]) -> dict[str, set[str]]:
    """Return for every step that is no operator with a task the operators that get its value, directly or through others."""
    readers: dict[str, set[str]] = {}
    users: dict[str, list[str]] = {}
    for edge in program.edges:
        if edge.kind is _DATA:
            users.setdefault(edge.before, []).append(edge.after)
    for step in reversed(program.steps):
        if step.name not in tasks:
            after = users.get(step.name, ())
            readers[step.name] = {u for u in after if u in tasks}.union(*(readers.get(u, set()) for u in after if u not in tasks))
    return readers


def _verify(
    program: StreamProgram, graph: OpGraph, orders: Iterable[tuple[str, str, str]], prices: Prices | None, *, beyond: bool
) -> tuple[Finding, ...]:
    """Return what `verify` finds; `beyond`: also the waits beyond the orders, which are a warning and no error."""
    orders = tuple(orders)
    tasks = (op.name for op in graph if op.unit is not Unit.FREE)
    intended = Intended(orders=orders, operators=tuple(tasks)) if beyond else None
    if prices is None:
        return verify(program, required=orders, intended=intended)
    groups = {op.name: op.group for op in graph}
    return verify(program, required=orders, costs=prices.costs, machine=prices.machine, groups=groups, intended=intended)


def _renamed(orders: Iterable[tuple[str, str, str]], graph: OpGraph, program: StreamProgram) -> list[tuple[str, str, str]]:
    """Return the orders in the names of the Ascend IR: a no-op view behind an operator takes over the name of its GE operator."""
    tasks = {step.source for step in program.steps if step.stream is not None}

    def known(name: str) -> str:
        current = name
        while current not in tasks:
            views = [after for after in graph.dag.successors(current) if graph.ops[after].unit is Unit.FREE]
            if len(views) != 1:
                return name
            current = views[0]
        return current

    return [(known(before), known(after), reason) for before, after, reason in orders]


def _without_errors(findings: tuple[Finding, ...], what: str) -> tuple[Finding, ...]:
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        raise VerificationError(f"the {what} failed {plural(len(errors), 'proof')}, the first: {errors[0].explanation}")
    return findings
