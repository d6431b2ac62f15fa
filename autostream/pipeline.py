"""The product: capture, estimate, solve, emit, read back, verify, simulate, accept or decline."""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import fx

from autostream import acceptance, hints
from autostream.budget import Ledger, Limits, need_of
from autostream.core_split import Judge, split_cores
from autostream.cost.model import FREE, Cost, CostModel, Machine
from autostream.errors import AutostreamError, ConversionError, OfflineError, RewriteError, VerificationError
from autostream.graph import OpGraph
from autostream.graph.capture import capture
from autostream.graph.routing import expected_load
from autostream.options import Options
from autostream.outcome import Outcome
from autostream.pricing import price, price_added, unmeasured
from autostream.program import (
    Memory,
    StreamProgram,
    cross_edges,
    growth_findings,
    peak_memory,
    prefetch_findings,
    returned_storages,
    simulate,
)
from autostream.program.fx import read_fx
from autostream.proof import Convert, Prices, limits_written, prove, prove_ascend_ir
from autostream.rewrite.dialect import Dialect
from autostream.rewrite.emit import emit
from autostream.scheduling import Problem, Schedule, build_problem, critical_path, lower_bound, strategy
from autostream.scheduling.plans import Kept, code_digest
from autostream.scheduling.problem import HCCL, MAIN, Strategy
from autostream.verdict import Verdict

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep Python from searching for cyclic garbage: among the many objects of a deep graph that takes a quarter of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_collector_paused()
def plan(
    graph_module: fx.GraphModule,
    *,
    model: CostModel,
    options: Options,
    dialect: Dialect,
    convert: Convert | None = None,
    notes: tuple[str, ...] = (),
    ledger: Ledger | None = None,
    plans: Path | None = None,
    solver: Strategy | None = None,
) -> Outcome:
    """Schedule an ATen graph. `graph_module` is not changed, whatever happens.

    Args:
        graph_module: ATen graph; every node's ``meta["val"]`` tells its shape.
        model: prices operators.
        options: see `Options`.
        dialect: vocabulary of the backend.
        convert: if given, the emitted graph is converted and the proof repeated on the Ascend IR.
        notes: what the report should tell about how the graph was captured.
        ledger: counts the streams and events of the graphs that are compiled together; an accepted plan is entered. None: this
            graph is the only one.
        plans: folder in which the solver's answers are kept and looked up; None: every graph is solved.
        solver: decides instead of what the options name; what it wishes for is emitted, proved and judged like any plan, and not
            kept in `plans`.

    Raises:
        Exception: only with ``options.strict``; otherwise a failure is a declined verdict.
    """
    graph = capture(graph_module)
    try:
        outcome = _plan(graph_module, graph, model, options, dialect, convert, solver or _solver(options, plans))
        outcome = within_budget(outcome, model, options, ledger or Ledger())
    except AutostreamError as error:
        if options.strict:
            raise
        code = "unverified" if isinstance(error, VerificationError) else "error"
        logger.warning("autostream left the graph as it was: %s", error)
        outcome = Outcome(verdict=verdict_of(model, code, str(error)), graph=graph)
    except Exception as error:
        if options.strict:
            raise
        logger.warning("autostream left the graph as it was", exc_info=True)
        reason = f"unexpected {type(error).__name__}: {error}"
        outcome = Outcome(verdict=verdict_of(model, "error", reason), graph=graph)
    told = hints.tell(options.wanted, graph, outcome.after, outcome.verdict)
    told += hints.tell_collectives(graph, outcome.verdict)
    return replace(outcome, notes=(*notes, *told, *outcome.notes))


def _plan(
    graph_module: fx.GraphModule,
    graph: OpGraph,
    model: CostModel,
    options: Options,
    dialect: Dialect,
    convert: Convert | None,
    solver: Strategy,
) -> Outcome:
    scheduled = [op.name for op in graph if op.stream is not None and op.stream.startswith(options.label_prefix)]
    if scheduled:  # its own waits are not hand-written ones
        reason = f"the graph already carries a schedule of autostream ({scheduled[0]!r} and {len(scheduled) - 1} more operators)"
        return Outcome(verdict=verdict_of(model, "already-scheduled", reason), graph=graph)
    if graph.refusals:
        code, _, reason = graph.refusals[0].partition(": ")
        return Outcome(verdict=verdict_of(model, code, reason), graph=graph)
    if options.strict:
        hints.refuse_missing(options.wanted, graph)
    machine = model.machine
    serial = read_fx(graph_module, semantics=dialect.semantics, graph=graph)
    tasks = {step.name for step in serial.steps if step.stream is not None}
    load = expected_load(graph)
    costs = {name: price(op, model, options) if name in tasks else FREE for name, op in load.ops.items()}
    problem = build_problem(graph, costs, machine, options)
    before = simulate(serial, costs, machine)
    schedule = solver.solve(problem)
    judge = _judge(graph_module, graph, serial, costs, machine, options, dialect)
    split = split_cores(problem, schedule, load.ops, model=model, solver=solver, judge=judge) if options.core_limits else None
    schedule = schedule if split is None else split.schedule
    labels = side_streams_of(graph, schedule)
    known: dict[str, Any] = {"graph": graph, "costs": costs, "serial": serial, "before": before, "schedule": schedule}
    known |= {"notes": load.notes, "findings": tuple(prefetch_findings(graph, costs, machine))}
    numbers: dict[str, Any] = {
        "serial_ns": before.makespan,
        "scheduled_ns": before.makespan,
        "lower_bound_ns": lower_bound(problem) if split is None else split.lower_bound,
        "unmeasured": unmeasured(costs),
        "strategy": schedule.strategy,
    }
    if not labels and not saves_by_order(problem, schedule, before.makespan):
        reason = why_nothing_overlaps(problem, before.makespan, options)
        return Outcome(verdict=verdict_of(model, "nothing-to-overlap", reason, numbers), **known)

    limits = {} if split is None else split.limits
    limited = {} if split is None else split.costs
    try:
        emitted = emit(graph_module, graph, schedule, dialect, limits)
    except RewriteError:
        # Where a wait lands is found by converting its operator: one that TorchAir cannot convert at all is the better reason.
        refused = _why_not_convertible(graph_module, convert)
        if refused is None:
            raise
        return Outcome(verdict=verdict_of(model, "not-convertible", refused, numbers), **known)
    rewritten = capture(emitted.graph_module, like=graph)
    program = read_fx(emitted.graph_module, semantics=dialect.semantics, graph=rewritten)
    priced = costs | price_added(program, rewritten, graph, model, options)
    ran = {**priced, **limited}
    prices = Prices(costs=ran, machine=machine)
    limits_written(program, limits)
    findings = prove(program, graph, prices)
    # The rewritten graph may hold buffers that the given one lacks.
    memory = peak_memory(program, rewritten.storages, returned=returned_storages(rewritten))
    after = simulate(program, ran, machine)
    gain = acceptance.gain(serial, program, graph, priced, machine, limited)
    numbers |= {
        "scheduled_ns": after.makespan,
        **gain_numbers(gain),
        "side_streams": len(labels),
        "cross_edges": len(cross_edges(program)),
        "control_edges": emitted.control_edges,
    }
    known |= {"after": after, "program": program, "memory": memory, "costs": {**costs, **limited}}
    known["findings"] = (*known["findings"], *findings, *growth_findings(memory))
    refusal = acceptance.refusal(gain, options.min_gain) or memory_refusal_of(memory, serial, graph, options)
    if refusal is not None:
        return Outcome(verdict=verdict_of(model, *refusal, numbers), **known)
    try:
        ascend_ir, notes = prove_ascend_ir(emitted.graph_module, graph, convert, prices, emitted=program)
    except ConversionError as error:
        return Outcome(verdict=verdict_of(model, "not-convertible", _not_convertible(error), numbers), **known)
    reason = why_accepted(gain)
    verdict = verdict_of(model, "accepted", reason, numbers)
    known["notes"] += notes
    return Outcome(verdict=verdict, graph_module=emitted.graph_module, ascend_ir=ascend_ir, **known)


def _judge(
    graph_module: fx.GraphModule,
    graph: OpGraph,
    serial: StreamProgram,
    costs: Mapping[str, Cost],
    machine: Machine,
    options: Options,
    dialect: Dialect,
) -> Judge:
    """Return what tells the better of two schedules: one that is accepted, and what it gains in nine of ten draws."""

    def judge(schedule: Schedule, limits: Mapping[str, tuple[int, int]], limited: Mapping[str, Cost]) -> tuple[bool, float]:
        written = emit(graph_module, graph, schedule, dialect, limits).graph_module
        program = read_fx(written, semantics=dialect.semantics)
        gain = acceptance.gain(serial, program, graph, costs, machine, limited)
        return acceptance.refusal(gain, options.min_gain) is None, gain.p10

    return judge


def _why_not_convertible(graph_module: fx.GraphModule, convert: Convert | None) -> str | None:
    """Return why TorchAir cannot convert a graph; None if it can, or is not here."""
    try:
        if convert is not None:
            convert(graph_module)
    except ConversionError as error:
        return _not_convertible(error)
    except OfflineError:
        pass
    return None


def _not_convertible(error: ConversionError) -> str:
    return f"TorchAir cannot compile this graph, scheduled or not: {error}"


def _solver(options: Options, plans: Path | None) -> Strategy:
    solver = strategy(options)
    return solver if plans is None else Kept(solver, plans, identity=f"{options.fingerprint()} {code_digest()}")


def gain_numbers(gain: acceptance.Gain) -> dict[str, float]:
    """Return what a verdict tells of a gain, in the names of its fields."""
    names = ("low", "high", "p10", "p50", "p90")
    return {f"gain_{name}": getattr(gain, name) for name in names}


def why_accepted(gain: acceptance.Gain) -> str:
    """Return the reason of an accepted plan."""
    return f"simulated gain {gain.nominal:.1%}, at least {gain.low:.1%} within the cost model's error"


def why_nothing_overlaps(problem: Problem, serial: int, options: Options) -> str:
    """Return why a schedule opens no side stream; `serial` is the time of the graph as given, ns."""
    if options.strategy == "serial" or not options.side_streams:
        return f"the options open no side stream (strategy={options.strategy!r}, side_streams={options.side_streams})"
    duration = {task.name: min(mode.duration for mode in task.modes) for task in problem.tasks}
    if sum(duration[name] for name in critical_path(problem)) >= serial:
        return "every operator waits for the one before it, so no two can run at once"
    if lower_bound(problem) >= serial:
        return "its branches need the same cores, and kernels of one kind are not credited with running at once"
    return f"what could run at once is worth less than the waits between streams, {problem.sync} ns each"


def within_budget(outcome: Outcome, model: CostModel, options: Options, ledger: Ledger) -> Outcome:
    """Enter an accepted plan into the ledger, or decline it."""
    if not outcome.verdict.accepted or outcome.program is None:
        return outcome
    reason = ledger.reserve(need_of(outcome.program), Limits.of(model.machine, options))
    if reason is None:
        return outcome
    verdict = replace(outcome.verdict, accepted=False, code="over-budget", reason=reason)
    return replace(outcome, verdict=verdict, graph_module=None, ascend_ir=None)


def memory_refusal_of(memory: Memory, serial: StreamProgram, graph: OpGraph, options: Options) -> tuple[str, str] | None:
    """Return (code, reason) if a plan takes more memory beyond the program as given than the user allows, else None."""
    if options.max_extra_bytes is None:
        return None
    as_given = peak_memory(serial, graph.storages, returned=returned_storages(graph))
    return acceptance.memory_refusal(memory.peak - as_given.peak, options.max_extra_bytes)


def verdict_of(model: CostModel, code: str, reason: str, numbers: Mapping[str, Any] | None = None) -> Verdict:
    """Return the verdict of this code; accepted only if the code says so."""
    return Verdict(accepted=code == "accepted", code=code, reason=reason, chip=model.machine.name, **(numbers or {}))


def saves_by_order(problem: Problem, schedule: Schedule, serial: int) -> bool:
    """True if a schedule is shorter than the `serial` time (ns) because it runs a stream in another order than the program.

    That is how computation gets between a collective, which has the engine's own stream, and what waits for it.
    """
    position = {task.name: number for number, task in enumerate(problem.tasks)}
    lanes = ([position[p.task] for p in lane] for lane in schedule.streams().values())
    return schedule.makespan < serial and any(lane != sorted(lane) for lane in lanes)


def side_streams_of(graph: OpGraph, schedule: Schedule) -> frozenset[str]:
    """Return the labels the schedule opens beside the default streams and the user's own."""
    own = {op.stream for op in graph}
    return frozenset(p.stream for p in schedule.placements) - {MAIN, HCCL} - own
