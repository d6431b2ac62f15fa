"""The product: capture, estimate, solve, emit, read back, verify, simulate, accept or decline."""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from torch import fx

from autostream import hints
from autostream.affordable import afford, enter
from autostream.budget import Ledger, Limits
from autostream.core_split import split_cores
from autostream.cost.model import FREE, CostModel
from autostream.decisions import verdict_of, why_already_scheduled
from autostream.errors import AutostreamError, VerificationError
from autostream.graph import OpGraph
from autostream.graph.capture import capture
from autostream.graph.routing import expected_load
from autostream.offline import Converted
from autostream.options import Options
from autostream.outcome import Outcome
from autostream.pricing import price
from autostream.program import simulate
from autostream.program.fx import read_fx
from autostream.proof import Convert
from autostream.rewrite.dialect import Dialect
from autostream.scheduling import build_problem, strategy
from autostream.scheduling.plans import Kept, code_digest
from autostream.scheduling.problem import Strategy
from autostream.trial import Trial

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def _collector(*, running: bool) -> Iterator[None]:
    """Have Python search for cyclic garbage or not: among the objects of a deep graph that takes a quarter of the time."""
    before = gc.isenabled()
    (gc.enable if running else gc.disable)()
    try:
        yield
    finally:
        (gc.enable if before else gc.disable)()


def _collected(convert: Convert, *, running: bool) -> Convert:
    """Return `convert` with the collector as it is for everybody else: TorchAir leaves much garbage, which must not pile up."""

    def converted(graph_module: fx.GraphModule) -> Converted:
        with _collector(running=running):
            return convert(graph_module)

    return converted


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
        Exception: the graph cannot be captured; any later failure only with ``options.strict``, else it is a declined verdict.
    """
    if convert is not None:
        convert = _collected(convert, running=gc.isenabled())
    with _collector(running=False):
        graph = capture(graph_module)
        outcome = _judged(
            lambda: _trial(graph_module, graph, model=model, options=options, dialect=dialect, convert=convert),
            graph,
            solver=solver or _solver(options, plans),
            ledger=ledger or Ledger(),
            model=model,
            options=options,
        )
        told = hints.tell(options.wanted, graph, outcome.after, outcome.verdict)
        told += hints.tell_collectives(graph, outcome.verdict)
        return replace(outcome, notes=(*notes, *told, *outcome.notes))


def _judged(
    trial: Callable[[], Trial], graph: OpGraph, *, solver: Strategy, ledger: Ledger, model: CostModel, options: Options
) -> Outcome:
    """Return the outcome of a graph; that of a failure is a declined verdict."""
    try:
        return _refused(graph, model, options) or _solved(trial(), solver, ledger)
    except AutostreamError as error:
        if options.strict:
            raise
        code = "unverified" if isinstance(error, VerificationError) else "error"
        logger.warning("autostream left the graph as it was: %s", error)
        return Outcome(verdict=verdict_of(model, code, str(error)), graph=graph)
    except Exception as error:
        if options.strict:
            raise
        logger.warning("autostream left the graph as it was", exc_info=True)
        reason = f"unexpected {type(error).__name__}: {error}"
        return Outcome(verdict=verdict_of(model, "error", reason), graph=graph)


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
    graph: OpGraph,
    *,
    model: CostModel,
    options: Options,
    dialect: Dialect,
    convert: Convert | None,
) -> Trial:
    """Price the graph as it was given and make the problem of it."""
    serial = read_fx(graph_module, semantics=dialect.semantics, graph=graph)
    tasks = {step.name for step in serial.steps if step.stream is not None}
    load = expected_load(graph)
    costs = {name: price(op, model, options) if name in tasks else FREE for name, op in load.ops.items()}
    return Trial(
        graph_module=graph_module,
        graph=graph,
        model=model,
        options=options,
        dialect=dialect,
        convert=convert,
        serial=serial,
        before=simulate(serial, costs, model.machine),
        costs=costs,
        problem=build_problem(graph, costs, model.machine, options),
        notes=load.notes,
    )


def _solved(trial: Trial, solver: Strategy, ledger: Ledger) -> Outcome:
    """Solve, try the answer, and enter it into the ledger if it is accepted."""
    limits = Limits.of(trial.machine, trial.options)
    schedule = solver.solve(trial.problem)
    if trial.options.core_limits:
        ops = expected_load(trial.graph).ops
        split = split_cores(trial.problem, schedule, ops, model=trial.model, solver=solver, judge=trial.judge)
        if split is not None:
            return enter(trial.run(schedule, split), ledger, limits)
    return afford(trial.run(schedule), trial.problem, ledger, limits, trial.run)


def _solver(options: Options, plans: Path | None) -> Strategy:
    solver = strategy(options)
    return solver if plans is None else Kept(solver, plans, identity=f"{options.fingerprint()} {code_digest()}")
