"""Try a schedule: emit it, read back what was emitted, prove it, simulate it, and judge it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import fx

from autostream import acceptance
from autostream.core_split import Split
from autostream.cost.model import Cost, CostModel, Machine
from autostream.decisions import (
    gain_numbers,
    memory_refusal_of,
    saves_by_order,
    side_streams_of,
    verdict_of,
    why_accepted,
    why_nothing_overlaps,
)
from autostream.errors import ConversionError, OfflineError, RewriteError
from autostream.graph import OpGraph
from autostream.graph.capture import Captured
from autostream.options import Options
from autostream.outcome import Outcome
from autostream.pricing import price_added, unmeasured
from autostream.program import (
    StreamProgram,
    Timeline,
    cross_edges,
    growth_findings,
    peak_memory,
    prefetch_findings,
)
from autostream.program.reading.fx import read_fx
from autostream.program.simulation.simulate import Simulator
from autostream.proof import Convert, Prices, limits_written, orders_of, prove, prove_ascend_ir
from autostream.rewrite.dialect import Dialect
from autostream.rewrite.emit import Emitted, emit
from autostream.scheduling import Problem, Schedule
from autostream.scheduling.reasons import placed


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One graph with its prices and its problem: what every schedule of it is tried on. Nothing here is ever changed."""

    graph_module: fx.GraphModule
    captured: Captured
    model: CostModel
    options: Options
    dialect: Dialect
    convert: Convert | None
    #: The graph as it was given, read back and simulated (its own costs are those of every schedule).
    serial: StreamProgram
    simulated: Simulator
    before: Timeline
    costs: Mapping[str, Cost]
    problem: Problem
    notes: tuple[str, ...]

    @property
    def graph(self) -> OpGraph:
        """The operators of the graph as it was given, and what orders them."""
        return self.captured.graph

    @property
    def machine(self) -> Machine:
        """The chip."""
        return self.model.machine

    def run(self, schedule: Schedule, split: Split | None = None) -> Outcome:
        """Return what becomes of a schedule, or of a split of the cores with its own schedule.

        Raises:
            RewriteError, VerificationError: it cannot be emitted, or what was emitted is not proved.
        """
        schedule = schedule if split is None else split.schedule
        labels = side_streams_of(self.graph, schedule)
        known, numbers = self._known(schedule), self._numbers(schedule, split)
        if not labels and not saves_by_order(self.problem, schedule, self.before.makespan):
            reason = why_nothing_overlaps(self.problem, self.before.makespan, self.options)
            return self._outcome("nothing-to-overlap", reason, numbers, known)
        try:
            emitted = emit(self.graph_module, self.graph, schedule, self.dialect, {} if split is None else split.limits)
        except RewriteError:
            # Where a wait lands is found by converting its operator: why that is not possible is the better reason.
            refused = _why_not_converted(self.graph_module, self.convert)
            if refused is None:
                raise
            return self._outcome(*refused, numbers, known)
        return self._judged(emitted, split, numbers | {"side_streams": len(labels)}, known)

    def judge(self, schedule: Schedule, limits: Mapping[str, tuple[int, int]], limited: Mapping[str, Cost]) -> tuple[bool, float]:
        """Return whether a schedule with these core limits is accepted, and what it gains in nine of ten draws."""
        written = emit(self.graph_module, self.graph, schedule, self.dialect, limits).graph_module
        program = read_fx(written, semantics=self.dialect.semantics, graph=self.captured.rewritten(written))
        gain = acceptance.gain(self.simulated, program, self.graph, self.costs, self.machine, limited)
        return acceptance.refusal(gain, self.options.min_gain) is None, gain.p10

    def _judged(self, emitted: Emitted, split: Split | None, numbers: dict[str, Any], known: dict[str, Any]) -> Outcome:
        limited = {} if split is None else split.costs
        rewritten = self.captured.rewritten(emitted.graph_module)
        program = read_fx(emitted.graph_module, semantics=self.dialect.semantics, graph=rewritten)
        priced = {**self.costs, **price_added(program, rewritten, self.graph, self.model, self.options)}
        ran = {**priced, **limited}
        prices = Prices(costs=ran, machine=self.machine)
        limits_written(program, {} if split is None else split.limits)
        orders = orders_of(program, self.graph)
        findings = prove(program, self.graph, prices, orders=orders)
        # The rewritten graph may hold buffers that the given one lacks.
        memory = peak_memory(program, rewritten.storages, returned=rewritten.returned)
        simulated = Simulator(program, ran, self.machine)
        after = simulated.timeline()
        gain = acceptance.gain(self.simulated, simulated, self.graph, priced, self.machine, limited)
        numbers |= {
            "scheduled_ns": after.makespan,
            **gain_numbers(gain),
            "cross_edges": len(cross_edges(program)),
            "control_edges": emitted.control_edges,
        }
        known |= {"after": after, "program": program, "memory": memory, "costs": {**self.costs, **limited}}
        known["findings"] = (*known["findings"], *findings, *growth_findings(memory))
        refusal = acceptance.refusal(gain, self.options.min_gain)
        refusal = refusal or memory_refusal_of(memory, self.serial, self.graph, self.options)
        if refusal is not None:
            return self._outcome(*refusal, numbers, known)
        try:
            ascend_ir, notes = prove_ascend_ir(
                emitted.graph_module, self.graph, self.convert, prices, emitted=program, orders=orders
            )
        except ConversionError as error:
            return self._outcome("not-convertible", _not_convertible(error), numbers, known)
        known |= {"notes": (*known["notes"], *notes), "graph_module": emitted.graph_module, "ascend_ir": ascend_ir}
        return self._outcome("accepted", why_accepted(gain), numbers, known)

    def _known(self, schedule: Schedule) -> dict[str, Any]:
        return {
            "graph": self.graph,
            "costs": self.costs,
            "serial": self.serial,
            "before": self.before,
            "schedule": schedule,
            "placed": placed(self.graph, self.problem),
            "notes": self.notes,
            "findings": tuple(prefetch_findings(self.graph, self.costs, self.machine)),
        }

    def _numbers(self, schedule: Schedule, split: Split | None) -> dict[str, Any]:
        return {
            "serial_ns": self.before.makespan,
            "scheduled_ns": self.before.makespan,
            "lower_bound_ns": schedule.lower_bound if split is None else split.lower_bound,
            "unmeasured": unmeasured(self.costs),
            "strategy": schedule.strategy,
        }

    def _outcome(self, code: str, reason: str, numbers: Mapping[str, Any], known: Mapping[str, Any]) -> Outcome:
        return Outcome(verdict=verdict_of(self.model, code, reason, numbers), **known)


def _why_not_converted(graph_module: fx.GraphModule, convert: Convert | None) -> tuple[str, str] | None:
    """Return (code, reason) if the graph as it was given cannot be converted; None if it can, or nobody tries."""
    try:
        if convert is not None:
            convert(graph_module)
    except ConversionError as error:
        return "not-convertible", _not_convertible(error)
    except OfflineError as error:
        return "unverified", f"where a wait of this plan would land cannot be found out here: {error}"
    return None


def _not_convertible(error: ConversionError) -> str:
    return f"TorchAir cannot compile this graph, scheduled or not: {error}"
