"""The product: capture, estimate, solve, emit, read back, verify, simulate, accept or decline."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from torch import fx

from autostream import hints
from autostream.affordable import Means, Ways, afford, enter, leave
from autostream.budget import Ledger, Limits, need_of
from autostream.core_split import split_cores
from autostream.cost.model import CostModel
from autostream.decisions import failed, verdict_of, why_already_scheduled
from autostream.graph import OpGraph
from autostream.graph.capture import Captured
from autostream.graph.routing import expected_load
from autostream.options import Options
from autostream.outcome import Outcome
from autostream.pricing import price_graph
from autostream.program.reading.fx import read_fx
from autostream.program.simulation.simulate import Simulator
from autostream.proof import Convert
from autostream.rewrite.dialect import Dialect
from autostream.scheduling import Capped, Problem, Schedule, build_problem, strategy
from autostream.scheduling.plans import Kept, code_digest
from autostream.scheduling.problem import Strategy
from autostream.trial import Trial


@contextlib.contextmanager
def _collector_off() -> Iterator[None]:
    """Keep Python from searching for cyclic garbage: among the objects of a deep graph that takes a quarter of the time.

    That of one conversion is little, as TorchAir is spared most of what it leaves behind: see `autostream.offline.bare`. What was
    made meanwhile is searched once, at the end: else the garbage of every graph that is compiled would stay in the process.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
            gc.collect(1)


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
        Exception: whatever fails, only with ``options.strict``; else it is a declined verdict that says what failed.
    """
    with _collector_off():
        try:
            captured = Captured(graph_module)
        except Exception as error:
            return replace(failed(error, None, model, options), notes=notes)
        graph, ledger = captured.graph, ledger or Ledger()
        outcome = _judged(
            lambda: _trial(graph_module, captured, model=model, options=options, dialect=dialect, convert=convert),
            graph,
            solver=solver or _kept(strategy(options), options, plans),
            plans=None if solver else plans,
            ledger=ledger,
            model=model,
            options=options,
        )
        outcome = _told(outcome, graph, ledger=ledger, model=model, options=options)
        return replace(outcome, notes=(*notes, *outcome.notes))


def _judged(
    trial: Callable[[], Trial],
    graph: OpGraph,
    *,
    solver: Strategy,
    plans: Path | None,
    ledger: Ledger,
    model: CostModel,
    options: Options,
) -> Outcome:
    """Return the outcome of a graph; that of a failure is a declined verdict."""
    try:
        return _refused(graph, model, options) or _solved(trial(), solver, plans, ledger)
    except Exception as error:
        return failed(error, graph, model, options)


def _told(outcome: Outcome, graph: OpGraph, *, ledger: Ledger, model: CostModel, options: Options) -> Outcome:
    """Return the outcome with what is told of wishes; if that fails it is a declined one, and out of the ledger again."""
    try:
        told = hints.tell(options.wanted, graph, outcome.after, outcome.verdict)
        told += hints.tell_collectives(graph, outcome.verdict)
        return replace(outcome, notes=(*told, *outcome.notes))
    except BaseException as error:
        leave(outcome, ledger)
        if not isinstance(error, Exception):
            raise
        return failed(error, graph, model, options)


def _refused(graph: OpGraph, model: CostModel, options: Options) -> Outcome | None:
    """Return the outcome of a graph that must not be scheduled; None if it may be."""
    reason = why_already_scheduled(graph, options, "graph")  # its own waits are not hand-written ones
    if reason is not None:
        return Outcome(verdict=verdict_of(model, "already-scheduled", reason), graph=graph)
    if graph.refusals:
        code, _, reason = graph.refusals[0].partition(": ")
        return Outcome(verdict=verdict_of(model, code, reason), graph=graph)
    if options.strict:
        hints.refuse_missing(options.wanted, graph)
    return None


def _trial(
    graph_module: fx.GraphModule,
    captured: Captured,
    *,
    model: CostModel,
    options: Options,
    dialect: Dialect,
    convert: Convert | None,
) -> Trial:
    """Price the graph as it was given and make the problem of it."""
    graph = captured.graph
    serial = read_fx(graph_module, semantics=dialect.semantics, graph=graph)
    load = expected_load(graph)
    costs = price_graph(serial, graph, load.ops, model, options)
    simulated = Simulator(serial, costs, model.machine)
    return Trial(
        graph_module=graph_module,
        captured=captured,
        model=model,
        options=options,
        dialect=dialect,
        convert=convert,
        serial=serial,
        simulated=simulated,
        before=simulated.timeline(),
        costs=costs,
        problem=build_problem(graph, costs, model.machine, options),
        notes=load.notes,
    )


def _solved(trial: Trial, solver: Strategy, plans: Path | None, ledger: Ledger) -> Outcome:
    """Solve, try the answer, and enter it into the ledger if it is accepted."""
    options = trial.options
    means = Means(ledger=ledger, limits=Limits.of(trial.machine, options), max_waits=options.max_waits)
    schedule = solver.solve(trial.problem)

    def shorten(problem: Problem, schedule: Schedule) -> Schedule:
        return _kept(Capped(schedule, options.solver_budget), options, plans).solve(problem)

    if options.core_limits:
        ops = expected_load(trial.graph).ops
        split = split_cores(trial.problem, schedule, ops, model=trial.model, solver=solver, judge=trial.judge)
        if split is not None:
            outcome = trial.run(schedule, split)
            if outcome.program is None or means.allow(need_of(outcome.program)):
                return enter(outcome, means)
    return afford(schedule, trial.problem, means, Ways(solve=solver.solve, shorten=shorten, run=trial.run))


def _kept(solver: Strategy, options: Options, plans: Path | None) -> Strategy:
    """Return a solver whose answers are kept in a folder, if there is one."""
    return solver if plans is None else Kept(solver, plans, identity=f"{options.fingerprint()} {code_digest()}")
