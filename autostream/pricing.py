"""Put prices on a graph: what an operator costs and holds under the user's options, and what the emitted graph adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autostream.cost.analytic.fused import fused_activations
from autostream.cost.measured.scaled import limited
from autostream.cost.model import FREE, Cost, CostModel, Tier
from autostream.graph import Op, Operators, OpGraph, Unit
from autostream.options import Options
from autostream.program import Semantics, StreamProgram
from autostream.program.reading.limits import core_limit


def price(op: Op, model: CostModel, options: Options) -> Cost:
    """Return the cost of an operator; unless the user says otherwise it holds every core of the kinds it uses.

    With `options.core_limits`, one in a scope of the user's that limits its cores costs what it costs on those, if it is known to
    keep the limit; without, no limit is relied on.
    """
    own = core_limit(dict(op.scope)) if options.core_limits else None
    within = price_limited(op, model, *own) if own is not None else None
    if within is not None:
        return within
    cost = model.estimate(op)
    if options.same_unit_overlap:
        return cost
    held, machine = cost.resources, model.machine
    aic, aiv = machine.aic if held.aic else 0, machine.aiv if held.aiv else 0
    return cost if (aic, aiv) == (held.aic, held.aiv) else replace(cost, resources=replace(held, aic=aic, aiv=aiv))


def price_graph(
    program: StreamProgram, graph: OpGraph, ops: Mapping[str, Op], model: CostModel, options: Options
) -> dict[str, Cost]:
    """Return the cost of every operator of a graph as `program` runs it: free where it emits no task or is in another's kernel.

    `ops` are those of `graph`, as they are expected to be loaded. Only GE fuses; in the capture modes every kernel is launched.
    """
    tasks = {step.name for step in program.steps if step.stream is not None}
    inside = fused_activations(graph, model.machine) if program.semantics is Semantics.GE else {}
    return {name: price(op, model, options) if name in tasks and name not in inside else FREE for name, op in ops.items()}


def price_limited(op: Op, model: CostModel, aic: int, aiv: int) -> Cost | None:
    """Return the cost of an operator that is limited to so many cube and vector cores, all of which it holds.

    None where the limit changes nothing, would only be advice, or is more than the chip has: it is not relied on then.
    """
    whole, part = model.estimate(op), limited(model, op, aic=aic, aiv=aiv)
    held = part.resources
    if part == whole or held.comm or held.aic > aic or held.aiv > aiv:
        return None
    return replace(part, resources=replace(held, aic=aic if held.aic else 0, aiv=aiv if held.aiv else 0))


def price_added(
    program: StreamProgram, emitted: Operators, graph: OpGraph, model: CostModel, options: Options
) -> dict[str, Cost]:
    """Price the tasks that only the emitted graph has, anchors and second transposes: each may copy a tensor."""
    names = [step.name for step in program.steps if step.stream is not None and step.name not in graph.ops]
    ops = emitted.ops
    nbytes = {name: sum(spec.nbytes for spec in ops[name].outputs) for name in names}
    copies = [ops[name]._replace(unit=Unit.VECTOR, bytes_read=nbytes[name], bytes_written=nbytes[name]) for name in names]
    return {op.name: price(op, model, options) for op in copies}


def unmeasured(costs: Mapping[str, Cost]) -> float:
    """Return the share of the serial time whose costs no measurement backs."""
    total = sum(cost.duration for cost in costs.values())
    weak = sum(cost.duration for cost in costs.values() if cost.tier in (Tier.ANALYTIC, Tier.UNKNOWN))
    return weak / total if total else 0.0
