"""The product: capture, estimate, solve, emit, read back, verify, simulate, accept or decline."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import fx

from autostream import acceptance
from autostream.cost.model import FREE, CostModel
from autostream.errors import AutostreamError, ConversionError, VerificationError
from autostream.graph import OpGraph, capture, expected_load
from autostream.options import Options
from autostream.outcome import Outcome
from autostream.pricing import price, price_added, unmeasured
from autostream.program import (
    Memory,
    StreamProgram,
    cross_edges,
    growth_findings,
    peak_memory,
    read_fx,
    returned_storages,
    simulate,
)
from autostream.proof import Convert, Prices, prove, prove_ascend_ir
from autostream.rewrite.dialect import Dialect
from autostream.rewrite.emit import emit
from autostream.scheduling import Problem, Schedule, build_problem, critical_path, lower_bound, strategy
from autostream.scheduling.problem import HCCL, MAIN
from autostream.verdict import Verdict

logger = logging.getLogger(__name__)


def plan(
    graph_module: fx.GraphModule,
    *,
    model: CostModel,
    options: Options,
    dialect: Dialect,
    convert: Convert | None = None,
    notes: tuple[str, ...] = (),
) -> Outcome:
    """Schedule an ATen graph. `graph_module` is not changed, whatever happens.

    Args:
        graph_module: ATen graph; every node's ``meta["val"]`` tells its shape.
        model: prices operators.
        options: see `Options`.
        dialect: vocabulary of the backend.
        convert: if given, the emitted graph is converted and the proof repeated on the Ascend IR.
        notes: what the report should tell about how the graph was captured.

    Raises:
        Exception: only with ``options.strict``; otherwise a failure is a declined verdict.
    """
    graph = capture(graph_module)
    try:
        outcome = _plan(graph_module, graph, model, options, dialect, convert)
    except AutostreamError as error:
        if options.strict:
            raise
        code = "unverified" if isinstance(error, VerificationError) else "error"
        logger.warning("autostream left the graph as it was: %s", error)
        outcome = Outcome(verdict=_verdict(model, code, str(error)), graph=graph)
    except Exception as error:
        if options.strict:
            raise
        logger.warning("autostream left the graph as it was", exc_info=True)
        reason = f"unexpected {type(error).__name__}: {error}"
        outcome = Outcome(verdict=_verdict(model, "error", reason), graph=graph)
    return replace(outcome, notes=(*notes, *outcome.notes))


def _plan(
    graph_module: fx.GraphModule,
    graph: OpGraph,
    model: CostModel,
    options: Options,
    dialect: Dialect,
    convert: Convert | None,
) -> Outcome:
    scheduled = [op.name for op in graph if op.stream is not None and op.stream.startswith(options.label_prefix)]
    if scheduled:  # its own waits are not hand-written ones
        reason = f"the graph already carries a schedule of autostream ({scheduled[0]!r} and {len(scheduled) - 1} more operators)"
        return Outcome(verdict=_verdict(model, "already-scheduled", reason), graph=graph)
    if graph.refusals:
        code, _, reason = graph.refusals[0].partition(": ")
        return Outcome(verdict=_verdict(model, code, reason), graph=graph)
    machine = model.machine
    serial = read_fx(graph_module, semantics=dialect.semantics)
    tasks = {step.name for step in serial.steps if step.stream is not None}
    load = expected_load(graph)
    costs = {name: price(op, model, options) if name in tasks else FREE for name, op in load.ops.items()}
    problem = build_problem(graph, costs, machine, options)
    before = simulate(serial, costs, machine)
    schedule = strategy(options).solve(problem)
    labels = _side_streams(graph, schedule)
    known: dict[str, Any] = {"graph": graph, "costs": costs, "before": before, "schedule": schedule, "notes": load.notes}
    numbers: dict[str, Any] = {
        "serial_ns": before.makespan,
        "scheduled_ns": before.makespan,
        "lower_bound_ns": lower_bound(problem),
        "unmeasured": unmeasured(costs),
        "strategy": schedule.strategy,
    }
    if not labels:
        reason = _why_nothing_overlaps(problem, before.makespan, options)
        return Outcome(verdict=_verdict(model, "nothing-to-overlap", reason, numbers), **known)

    emitted = emit(graph_module, graph, schedule, dialect)
    program = read_fx(emitted.graph_module, semantics=dialect.semantics)
    priced = costs | price_added(program, emitted.graph_module, graph, model, options)
    prices = Prices(costs=priced, machine=machine)
    findings = prove(program, graph, prices)
    memory = _memory(program, emitted.graph_module)
    after = simulate(program, priced, machine)
    gain = acceptance.gain(serial, program, graph, priced, machine)
    numbers |= {
        "scheduled_ns": after.makespan,
        "gain_low": gain.low,
        "gain_high": gain.high,
        "side_streams": len(labels),
        "cross_edges": len(cross_edges(program)),
        "control_edges": emitted.control_edges,
    }
    known |= {"after": after, "program": program, "findings": (*findings, *growth_findings(memory)), "memory": memory}
    refusal = acceptance.refusal(gain, options.min_gain)
    if refusal is not None:
        return Outcome(verdict=_verdict(model, *refusal, numbers), **known)
    try:
        ascend_ir, notes = prove_ascend_ir(emitted.graph_module, graph, convert, prices)
    except ConversionError as error:
        reason = f"TorchAir cannot compile this graph, scheduled or not: {error}"
        return Outcome(verdict=_verdict(model, "not-convertible", reason, numbers), **known)
    reason = f"simulated gain {gain.nominal:.1%}, at least {gain.low:.1%} within the cost model's error"
    verdict = _verdict(model, "accepted", reason, numbers)
    known["notes"] += notes
    return Outcome(verdict=verdict, graph_module=emitted.graph_module, ascend_ir=ascend_ir, **known)


def _why_nothing_overlaps(problem: Problem, serial: int, options: Options) -> str:
    if options.strategy == "serial" or not options.side_streams:
        return f"the options open no side stream (strategy={options.strategy!r}, side_streams={options.side_streams})"
    duration = {task.name: min(mode.duration for mode in task.modes) for task in problem.tasks}
    if sum(duration[name] for name in critical_path(problem)) >= serial:
        return "every operator waits for the one before it, so no two can run at once"
    if lower_bound(problem) >= serial:
        return "its branches need the same cores, and kernels of one kind are not credited with running at once"
    return f"what could run at once is worth less than the waits between streams, {problem.sync} ns each"


def _memory(program: StreamProgram, emitted: fx.GraphModule) -> Memory:
    held = capture(emitted)  # the emitted graph may hold buffers that the given one lacks
    return peak_memory(program, held.storages, returned=returned_storages(held))


def _verdict(model: CostModel, code: str, reason: str, numbers: Mapping[str, Any] | None = None) -> Verdict:
    return Verdict(accepted=code == "accepted", code=code, reason=reason, chip=model.machine.name, **(numbers or {}))


def _side_streams(graph: OpGraph, schedule: Schedule) -> frozenset[str]:
    """Return the labels the schedule opens beside the default streams and the user's own."""
    own = {op.stream for op in graph}
    return frozenset(p.stream for p in schedule.placements) - {MAIN, HCCL} - own
