"""Judge one model on one chip: what the product makes of it, beside the rules of other systems under the same simulator.

Strategies are compared on programs made of the scheduling problem itself: its tasks, the streams and order that a strategy
chose, and one wait for every precedence between two streams. `autostream.program.simulate` runs all of them. What the product
then emits, reads back and simulates is in the verdict.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from autostream.cost.model import Cost, CostModel
from autostream.graph.programs import AtenProgram
from autostream.options import Options
from autostream.outcome import Outcome
from autostream.pipeline import plan
from autostream.program import Edge, EdgeKind, Semantics, Step, StreamProgram, simulate
from autostream.rewrite.air import Air
from autostream.scheduling import HCCL, MAIN, Problem, Region, Schedule, build_problem, check
from autostream.scheduling.baselines import BASELINES, Baseline
from autostream.scheduling.baselines.dag import Assignment, Dag
from autostream.scheduling.capped import plan_of, searched_frontier
from autostream.scheduling.machine.division import divide
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.regions.describe import ASIDE
from autostream.scheduling.tolerance import tolerated
from autostream.verdict import Verdict
from tests.models.handwritten import Pattern

#: Streams a rule is given, as its authors use it; the others get as many as the product.
_STREAMS = {"torchsched": 8, "opara": 64, "cube-vector": 2, "serial": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One strategy: its simulated time, ns, what the problem alone predicts, and what it asks for."""

    time_ns: int
    #: The schedule's own makespan, by the same rules; they differ where tasks that take no time are reordered.
    planned_ns: int
    #: Precedences between two streams.
    sync_edges: int
    streams: int
    solve_seconds: float = 0.0


def judge(program: AtenProgram, model: CostModel, options: Options) -> tuple[dict[str, Any], Outcome]:
    """Return the row of one model (plain data) and the outcome it comes from; nothing is converted by TorchAir.

    Raises:
        AutostreamError: the pass failed (it runs strictly here).
        AssertionError: a baseline's schedule is not feasible.
    """
    began = time.perf_counter()
    outcome = plan(program.graph_module, model=model, options=options, dialect=Air())
    seconds = time.perf_counter() - began
    verdict = outcome.verdict
    row: dict[str, Any] = {
        "chip": verdict.chip,
        "nodes": sum(node.op == "call_function" for node in program.graph_module.graph.nodes),
        "accepted": verdict.accepted,
        "code": verdict.code,
        "reason": verdict.reason,
        "pass_seconds": round(seconds, 3),
        "emitted": _emitted(verdict),
        "memory": None if outcome.memory is None else {"peak": outcome.memory.peak, "serial_peak": outcome.memory.serial_peak},
    }
    if outcome.schedule is None or outcome.graph is None:
        return row, outcome
    problem = problem_of(outcome, model, options)
    ours = timed(problem, outcome.schedule, outcome.costs, model)
    bound = outcome.schedule.lower_bound
    regions = outcome.schedule.regions
    row |= {
        "tasks": len(problem.tasks),
        "width": round(_width(problem), 2),
        "lower_bound_ns": bound,
        "autostream": _plain(replace(ours, solve_seconds=outcome.schedule.seconds)),
        "status": outcome.schedule.status,
        "bound_by": outcome.schedule.bound_by,
        "regions": {
            "all": len(regions),
            "closed": sum(_closed(region, bound) for region in regions),
            "exactly": sum(region.makespan <= region.lower_bound for region in regions),
        },
        "gap": round(ours.time_ns / bound - 1, 4) if bound else 0.0,
        "baselines": {name: _plain(_baseline(name, problem, outcome, model)) for name in BASELINES},
    }
    row |= _comparison(row)
    if not row["fewer_sync_edges"]:
        row["within_edges"] = _within(row, problem, outcome, model, options)
        limited = options.model_copy(update={"max_waits": row["within_edges"]["edges_allowed"]})
        again = plan(program.graph_module, model=model, options=limited, dialect=Air()).verdict
        row["within_edges"] |= {"code": again.code, "emitted": _emitted(again)}
    return row, outcome


def _emitted(verdict: Verdict) -> dict[str, Any]:
    return {
        "serial_ns": verdict.serial_ns,
        "scheduled_ns": verdict.scheduled_ns,
        "gain": round(verdict.gain, 4),
        "gain_low": round(verdict.gain_low, 4),
        "side_streams": verdict.side_streams,
        "cross_edges": verdict.cross_edges,
    }


def problem_of(outcome: Outcome, model: CostModel, options: Options) -> Problem:
    """Return the problem that the pipeline solved."""
    assert outcome.graph is not None
    return build_problem(outcome.graph, outcome.costs, model.machine, options)


def timed(problem: Problem, schedule: Schedule, costs: Mapping[str, Cost], model: CostModel) -> Timed:
    """Simulate a schedule: its streams and, on each of them, its order; the times are the simulator's."""
    stream = {placement.task: placement.stream for placement in schedule.placements}
    program = StreamProgram(
        semantics=Semantics.GE,
        steps=tuple(Step(name=p.task, kind="task", stream=p.stream) for p in schedule.placements),
        edges=tuple(Edge(before=p.before, after=p.after, kind=EdgeKind.DATA) for p in problem.precedences),
        in_order=True,
    )
    return Timed(
        time_ns=simulate(program, costs, model.machine).makespan,
        planned_ns=schedule.makespan,
        sync_edges=sum(stream[p.before] != stream[p.after] for p in problem.precedences),
        streams=len({name for name in stream.values() if name != HCCL}),
        solve_seconds=schedule.seconds,
    )


def by_hand(pattern: Pattern, outcome: Outcome, model: CostModel, options: Options) -> Timed:
    """Simulate a hand-written pattern: program order on two streams."""
    assert outcome.graph is not None
    side = pattern.side(outcome.graph)
    problem = problem_of(outcome, model, options)

    def rule(dag: Dag) -> Assignment:
        return Assignment(stream=[int(name in side) for name in dag.names], order=range(len(dag)))

    schedule = Baseline(name=pattern.name, rule=rule).solve(problem)
    return timed(problem, schedule, outcome.costs, model)


def _baseline(name: str, problem: Problem, outcome: Outcome, model: CostModel) -> Timed:
    offered = _offering(problem, _STREAMS.get(name, len(problem.open_streams)))
    schedule = BASELINES[name]().solve(offered)
    wrong = check(offered, schedule)
    assert not wrong, f"{name}: {wrong[0]}"
    return timed(problem, schedule, outcome.costs, model)


def _offering(problem: Problem, streams: int) -> Problem:
    """The same problem with another number of streams to choose from."""
    labels = tuple(f"baseline_{number}" for number in range(1, streams))
    kept = tuple(name for name in problem.streams if name == HCCL or name in problem.fixed_streams)
    return replace(problem, streams=(MAIN, *labels, *kept))


def _closed(region: Region, bound: int) -> bool:
    """Whether nothing better is left to find in a region: its plan is as good as proved, but for the price of fewer waits.

    What was set aside counts as what it adds to the whole, of which a thousandth more is tolerated; `bound` is that of the whole.
    """
    if region.name == ASIDE:
        return region.makespan - region.lower_bound <= tolerated(bound) - bound
    return region.makespan <= tolerated(region.lower_bound)


def _width(problem: Problem) -> float:
    """Tasks per level: how many could run at once on average if all took the same time."""
    level: dict[str, int] = {task.name: 1 for task in problem.tasks}
    before: dict[str, list[str]] = {}
    for precedence in problem.precedences:
        before.setdefault(precedence.after, []).append(precedence.before)
    for task in problem.tasks:
        level[task.name] = 1 + max((level[name] for name in before.get(task.name, ())), default=0)
    return len(level) / max(level.values(), default=1)


def _comparison(row: Mapping[str, Any]) -> dict[str, Any]:
    """Whether ours is at least as good as the best rule, and with fewer waits; on equal times the fewest waits count as best."""
    best = min(row["baselines"], key=lambda name: (row["baselines"][name]["time_ns"], row["baselines"][name]["sync_edges"]))
    rival, ours = row["baselines"][best], row["autostream"]
    more = ours["sync_edges"] - rival["sync_edges"]
    return {
        "best_baseline": best,
        "at_least_as_good": ours["time_ns"] <= rival["time_ns"],
        "fewer_sync_edges": more < 0 or ours["sync_edges"] == 0,
        "ns_saved_per_extra_edge": (rival["time_ns"] - ours["time_ns"]) // more if more > 0 else None,
    }


def _within(row: Mapping[str, Any], problem: Problem, outcome: Outcome, model: CostModel, options: Options) -> dict[str, Any]:
    """Ours with no more waits than the best rule has, and with how few it is still as good as that rule.

    The first as the other strategies are compared, on the scheduling problem; what the product emits with that limit is told
    beside it.
    """
    assert outcome.schedule is not None
    began = time.perf_counter()
    instance, rival = Instance.of(problem), row["baselines"][row["best_baseline"]]
    found = searched_frontier(instance, divide(instance), plan_of(instance, outcome.schedule), options.solver_budget)
    seconds = time.perf_counter() - began
    plan = found.within(rival["sync_edges"])
    assert plan is not None, "even the program in order has more waits than the rule"
    schedule = plan.renamed(instance).schedule(instance, strategy="capped", bound=0, seconds=seconds)
    assert not (wrong := check(replace(problem, max_waits=rival["sync_edges"]), schedule)), wrong[0]
    capped = timed(problem, schedule, outcome.costs, model)
    as_good = [point.crossings for point in found.points() if point.makespan <= rival["planned_ns"]]
    fewer = rival["sync_edges"] - 1
    return {
        "edges_allowed": rival["sync_edges"],
        **_plain(capped),
        "at_least_as_good": capped.time_ns <= rival["time_ns"],
        "fewest_edges_as_good": min(as_good, default=None),
        # Of all plans on as many streams as ours may use: a fact about the model, not about a search.
        "fewer_is_proved_impossible": fewer < 0 or found.proven.get(fewer, 0) > rival["planned_ns"],
        "time_ns_by_edges": {point.crossings: point.makespan for point in found.points()},
    }


def _plain(result: Timed) -> dict[str, Any]:
    return {
        "time_ns": result.time_ns,
        "planned_ns": result.planned_ns,
        "sync_edges": result.sync_edges,
        "streams": result.streams,
        "solve_seconds": round(result.solve_seconds, 3),
    }
