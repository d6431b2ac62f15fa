"""Plan from production artefacts: an Ascend IR dump and the profile of a run, without the model's code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from autostream import acceptance, hints
from autostream.affordable import Means, Ways, afford
from autostream.budget import Ledger, Limits
from autostream.chips import cost_model
from autostream.cost.model import FREE, CostModel, Tier
from autostream.decisions import (
    failed,
    gain_numbers,
    memory_refusal_of,
    saves_by_order,
    side_streams_of,
    verdict_of,
    why_accepted,
    why_already_scheduled,
    why_nothing_overlaps,
)
from autostream.dumps.graph import DumpGraph, graph_of
from autostream.dumps.matching import NodeMatch, NodePrices, match_nodes, refuse_foreign
from autostream.dumps.plan import DumpPlan, Tiers, nodes_of
from autostream.dumps.rewriting import rewritten
from autostream.dumps.streams import Planned, planned
from autostream.errors import AutostreamError, InputError, RewriteError
from autostream.graph.model import Unit
from autostream.graph.routing import expected_load
from autostream.options import Options
from autostream.outcome import Outcome
from autostream.pricing import price, unmeasured
from autostream.profiles import Profile, read_profile
from autostream.program import cross_edges, growth_findings, peak_memory, read_ascend_ir, returned_storages, simulate
from autostream.program.model import StreamProgram
from autostream.program.reading.ascend_ir import program_of
from autostream.program.reading.ge_dump import load_ops
from autostream.proof import Prices, prove
from autostream.report.wording import percent, percentage, plural
from autostream.scheduling import Capped, Problem, Schedule, build_problem, strategy
from autostream.scheduling.reasons import placed

#: A profile that leaves more of its time than this unmatched is probably of another graph, or of more than this one.
_TOO_FEW = 0.5
#: Nodes without a price, and kinds of kernel without a node, that a report names; the plan names all.
_LISTED = 8


def schedule_dump(
    path: str | Path,
    *,
    profile: Profile | str | Path | None = None,
    chip: str | None = None,
    options: Options | Mapping[str, Any] | None = None,
) -> DumpPlan:
    """Plan the streams of a graph from its Ascend IR dump alone. Nothing is run, no model code and no NPU is needed.

    Args:
        path: GraphDef (binary or text), the same inside a ModelDef (GE's own ``ge_proto`` text), or TorchAir's graph dump.
        profile: file or folder of a profile of a run of this graph. Nodes cost what their kernels took; others of their kind are
            scaled by it; the rest is analytic, from the shapes in the dump. None: everything is analytic.
        chip: chip name or path of a chip file; None = the device's own, else the profile's, else 910B2.
        options: Options or a mapping.

    Raises:
        InputError: unreadable or foreign file, unknown chip or option, or a profile of which nothing belongs to the dump.
    """
    chosen = Options.of(options)
    read = profile if profile is None or isinstance(profile, Profile) else read_profile(profile)
    base = cost_model(chip, read)
    source = _read(path)
    ops = load_ops(Path(path))
    given = program_of(ops)
    dump = graph_of(ops, given)
    match = match_nodes(dump, read) if read is not None else NodeMatch()
    if read is not None:
        refuse_foreign(match, dump, profile=read.name, where=str(path))
    model = NodePrices(base, dump, match)
    outcome, plan = _judged(dump, given, model, chosen)
    tiers = _tiers(dump, match, outcome)
    notes = [*_wishes(dump, outcome, chosen), *_notes(dump, match, tiers, read), *_not_applied(given, chosen)]
    text: bytes | None = None
    if plan is not None:
        try:
            text = _rewritten(source, plan)
        except AutostreamError as error:
            notes.append(f"no rewritten dump, only the plan: {error}")
    report = replace(outcome, notes=tuple(notes)).document(name=Path(path).name, options=chosen, model=model)
    return DumpPlan(
        verdict=outcome.verdict,
        graph=dump.graph,
        costs=outcome.costs,
        schedule=outcome.schedule,
        program=outcome.program,
        before=outcome.before,
        after=outcome.after,
        findings=outcome.findings,
        report=report,
        match=match,
        tiers=tiers,
        nodes=nodes_of(dump, outcome, plan),
        rewritten=text,
        source=Path(path).name,
    )


def _read(path: str | Path) -> bytes:
    if not isinstance(path, (str, Path)):
        raise InputError(f"a dump is given by its path (a str or a Path), not as {type(path).__name__}")
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the dump {str(path)!r}: {getattr(error, 'strerror', None) or error}") from error


def _judged(dump: DumpGraph, given: StreamProgram, model: CostModel, options: Options) -> tuple[Outcome, Planned | None]:
    """Return the outcome, and the plan if it was accepted; that of a failure is a declined verdict."""
    try:
        outcome = _outcome(dump, given, model, options)
        if not outcome.verdict.accepted or outcome.schedule is None:
            return outcome, None
        return outcome, planned(given, dump.graph, outcome.schedule)
    except Exception as error:
        return failed(error, dump.graph, model, options), None


def _outcome(dump: DumpGraph, given: StreamProgram, model: CostModel, options: Options) -> Outcome:
    graph, machine = dump.graph, model.machine
    reason = why_already_scheduled(graph, options, "dump")
    if reason is not None:
        return Outcome(verdict=verdict_of(model, "already-scheduled", reason), graph=graph)
    if graph.refusals:
        code, _, reason = graph.refusals[0].partition(": ")
        return Outcome(verdict=verdict_of(model, code, reason), graph=graph)
    load = expected_load(graph)
    costs = {name: FREE if op.unit is Unit.FREE else price(op, model, options) for name, op in load.ops.items()}
    problem = build_problem(graph, costs, machine, options)
    before = simulate(given, costs, machine)
    solver = strategy(options)

    def shorten(problem: Problem, schedule: Schedule) -> Schedule:
        return Capped(schedule, options.solver_budget).solve(problem)

    def run(schedule: Schedule) -> Outcome:
        known = {"costs": costs, "before": before, "notes": load.notes}
        return _tried(schedule, problem, dump, given, known, model, options)

    means = Means(ledger=Ledger(), limits=Limits.of(machine, options), max_waits=options.max_waits)
    return afford(solver.solve(problem), problem, means, Ways(solve=solver.solve, shorten=shorten, run=run))


def _tried(
    schedule: Schedule,
    problem: Problem,
    dump: DumpGraph,
    given: StreamProgram,
    priced: Mapping[str, Any],
    model: CostModel,
    options: Options,
) -> Outcome:
    """Return what becomes of a schedule; `priced` holds the costs, the program as given simulated, and what to tell of them."""
    graph, costs, before, machine = dump.graph, priced["costs"], priced["before"], model.machine
    known: dict[str, Any] = {"graph": graph, "costs": costs, "serial": given, "before": before, "schedule": schedule}
    known |= {"notes": priced["notes"], "placed": placed(graph, problem)}
    numbers: dict[str, Any] = {
        "serial_ns": before.makespan,
        "scheduled_ns": before.makespan,
        "lower_bound_ns": schedule.lower_bound,
        "unmeasured": unmeasured(costs),
        "strategy": schedule.strategy,
    }
    labels = side_streams_of(graph, schedule)
    if not labels and not saves_by_order(problem, schedule, before.makespan):
        reason = why_nothing_overlaps(problem, before.makespan, options)
        return Outcome(verdict=verdict_of(model, "nothing-to-overlap", reason, numbers), **known)
    plan = planned(given, graph, schedule)
    program = plan.program
    findings = prove(program, graph, Prices(costs=costs, machine=machine))
    memory = peak_memory(program, graph.storages, returned=returned_storages(graph))
    after = simulate(program, costs, machine)
    gain = acceptance.gain(given, program, graph, costs, machine)
    numbers |= {
        "scheduled_ns": after.makespan,
        **gain_numbers(gain),
        "side_streams": len(labels),
        "cross_edges": len(cross_edges(program)),
        "control_edges": sum(map(len, plan.waits.values())),
    }
    known |= {"after": after, "program": program, "memory": memory, "findings": (*findings, *growth_findings(memory))}
    refusal = acceptance.refusal(gain, options.min_gain) or memory_refusal_of(memory, given, graph, options)
    if refusal is not None:
        return Outcome(verdict=verdict_of(model, *refusal, numbers), **known)
    return Outcome(verdict=verdict_of(model, "accepted", why_accepted(gain), numbers), **known)


def _rewritten(source: bytes, plan: Planned) -> bytes:
    """Return the dump with the plan in it, read back and found to be the program that was proved.

    Raises:
        RewriteError: the dump cannot be written, or what was written is not the plan.
    """
    text = rewritten(source, labels=plan.labels, waits=plan.waits, order=[step.name for step in plan.program.steps])
    again = read_ascend_ir(text, in_order=True)
    streams = {step.name: step.stream for step in again.steps}
    wanted = {step.name: step.stream for step in plan.program.steps}
    edges = {(edge.before, edge.after, edge.kind) for edge in again.edges}
    if streams != wanted or edges != {(edge.before, edge.after, edge.kind) for edge in plan.program.edges}:
        raise RewriteError("what was written reads back as another program")
    lanes = {stream: tuple(step.name for step in steps) for stream, steps in again.streams().items()}
    if lanes != {stream: tuple(step.name for step in steps) for stream, steps in plan.program.streams().items()}:
        raise RewriteError("what was written reads back in another order")
    return text


def _tiers(dump: DumpGraph, match: NodeMatch, outcome: Outcome) -> Tiers:
    """Return where the price of every node with a task comes from."""
    found: dict[str, list[str]] = {name: [] for name in ("by_name", "by_order", "by_shape", "scaled", "analytic", "unknown")}
    for op in dump.graph:
        cost = outcome.costs.get(op.name)
        if op.unit is Unit.FREE or cost is None or cost == FREE:  # part of another's kernel
            continue
        if op.name in match.by_name:
            found["by_name"].append(op.name)
        elif op.name in match.by_order:
            found["by_order"].append(op.name)
        elif cost.tier is Tier.MEASURED:
            found["by_shape"].append(op.name)
        else:
            found[cost.tier.value].append(op.name)
    return Tiers(**{name: tuple(names) for name, names in found.items()})


def _wishes(dump: DumpGraph, outcome: Outcome, options: Options) -> Iterator[str]:
    yield from hints.tell(options.wanted, dump.graph, outcome.after, outcome.verdict)
    yield from hints.tell_collectives(dump.graph, outcome.verdict)
    yield from outcome.notes


def _not_applied(given: StreamProgram, options: Options) -> Iterator[str]:
    if options.core_limits:
        yield "core_limits was not applied: a plan from a dump moves nodes to streams, it does not limit their cores"
    if given.lost:
        waits = f"{plural(len(given.lost), 'wait')} of the dump without effect (see 'autostream check')"
        yield f"{waits}: {given.lost[0].explanation}"


def _notes(dump: DumpGraph, match: NodeMatch, tiers: Tiers, profile: Profile | None) -> Iterator[str]:
    if tiers.total:
        yield _planned_from(tiers)
    if not dump.graph.outputs:
        yield "the dump has no NetOutput, so it does not tell what the graph returns: is it complete?"
    if tiers.unknown:
        told = [
            f"{name} ({dump.types[name]}): {dump.unpriced.get(name, 'not in the tables')}" for name in tiers.unknown[:_LISTED]
        ]
        more = f"; and {len(tiers.unknown) - _LISTED} more" if tiers.unknown[_LISTED:] else ""
        yield f"unknown price, guessed from the bytes: {'; '.join(told)}{more}"
    if profile is not None:
        held = (
            f"{match.matched_kernels} of {match.kernels} kernels belong to the dump, {percent(match.matched_share)} of their time"
        )
        yield f"profile {profile.name}: {held}"
        alone = [*tiers.scaled, *tiers.analytic, *tiers.unknown]
        if alone:
            more = " ..." if alone[_LISTED:] else ""
            nodes = f"{plural(len(alone), 'node')} without a kernel: {', '.join(alone[:_LISTED])}{more}"
            yield f"{nodes}; GE may have fused them into others or folded them, and then their price is too high"
        for group in match.unmatched[:_LISTED]:
            share = f"{percentage(group.share)} of the time"
            yield f"kernels that belong to no node: {group.kernels} x {group.type}, {share}: {group.reason}"
        if match.matched_share < _TOO_FEW:
            yield "most of the profile's time belongs to no node: is it a profile of this graph?"
    if tiers.total:
        yield (
            "the plan holds where GE keeps the order of each stream (topology_sorting_strategy StableRDFS); a dump does not tell "
            "which results GE writes straight into the memory of inputs"
        )


def _planned_from(tiers: Tiers) -> str:
    return (
        f"planned from a dump: {tiers.total} nodes with a task, priced from kernels of the same name: {len(tiers.by_name)}, from "
        f"collectives in order: {len(tiers.by_order)}, from the same type and shapes: {len(tiers.by_shape)}, scaled: "
        f"{len(tiers.scaled)}, analytic: {len(tiers.analytic)}, unknown: {len(tiers.unknown)}"
    )
