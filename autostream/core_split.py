"""Let operators of one kind run at once on parts of the chip, by explicit limits on their cores.

Kernels take every core of their kind unless they are limited, so two of one kind take turns. Limited to two thirds and one third
of the cores, or to halves, both run, each slower than alone but by less than its cores were cut. A limit is offered only where
the cost model knows that the kernel keeps it, and only to operators that could run beside another one that can be limited too.

The solver plans with a fair share of everything: a limited operator gets its part of the memory rate and is always slowed down as
beside another one. Whether that was worth it is judged on the emitted programs, where neither rule counts.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from autostream.cost.model import CoreLimited, Cost, CostModel, Machine
from autostream.errors import RewriteError
from autostream.graph.model import Op
from autostream.pricing import price_limited
from autostream.scheduling import Problem, Schedule, lower_bound
from autostream.scheduling.problem import Mode, Strategy, Task

logger = logging.getLogger(__name__)

#: Shares of the cores, as (numerator, denominator): what was published, 16 + 8 of 24 cube cores, and halves.
_SHARES = ((2, 3), (1, 2), (1, 3))

#: Judges a schedule with the limits and limited costs of some operators: whether it is accepted, and its gain where it is poor.
Judge = Callable[[Schedule, Mapping[str, tuple[int, int]], Mapping[str, Cost]], tuple[bool, float]]
#: Limited costs of one task by its limit (cube cores, vector cores).
_Offers = Mapping[tuple[int, int], Cost]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A schedule with limits, and what the limited operators cost and hold, both by name; a lower bound for it, ns."""

    schedule: Schedule
    limits: Mapping[str, tuple[int, int]]
    costs: Mapping[str, Cost]
    lower_bound: int


def split_cores(
    problem: Problem,
    plain: Schedule,
    ops: Mapping[str, Op],
    *,
    model: CostModel,
    solver: Strategy,
    judge: Judge,
) -> Split | None:
    """Return a schedule with core limits that is better than `plain`, the solver's answer without them, or None.

    Args:
        problem: without limits.
        plain: its solution.
        ops: the operators behind the tasks, by name.
        model: prices operators; one that knows no core limits offers none.
        solver: solves the problem again with the limits as modes.
        judge: tells which of two schedules is better.
    """
    offers = _rivals(problem, _offers(problem, ops, model))
    if not offers:
        return None
    machine = model.machine
    fair = _with_modes(problem, {name: [_fair(cost, machine) for cost in row.values()] for name, row in offers.items()})
    schedule = solver.solve(fair)
    chosen = {p.task: list(offers[p.task].items())[p.mode - 1] for p in schedule.placements if p.mode}
    limits = {name: limit for name, (limit, _) in chosen.items()}
    limited = {name: cost for name, (_, cost) in chosen.items()}
    if not limits:
        return None
    try:
        without, within = judge(plain, {}, {}), judge(schedule, limits, limited)
    except RewriteError as error:  # what cannot be written without limits is told when it is written
        logger.debug("core limits are not tried: %s", error)
        return None
    logger.debug("core limits on %d operators: p10 of the gain %.4f instead of %.4f", len(limits), within[1], without[1])
    if within <= without:
        return None
    exact = _with_modes(problem, {name: [_mode(cost) for cost in row.values()] for name, row in offers.items()})
    return Split(
        schedule=schedule,
        limits=limits,
        costs=limited,
        lower_bound=lower_bound(exact),
    )


def _offers(problem: Problem, ops: Mapping[str, Op], model: CostModel) -> dict[str, _Offers]:
    """Return the limits that tasks may get; one on a fixed stream is in a scope of the user's or no kernel."""
    if not isinstance(model, CoreLimited):
        return {}
    machine = model.machine
    limits = [(machine.aic * part // whole, machine.aiv * part // whole) for part, whole in _SHARES]
    offers: dict[str, _Offers] = {}
    for task in problem.tasks:
        if task.stream is None:
            row = {limit: cost for limit in limits if (cost := price_limited(ops[task.name], model, *limit)) is not None}
            if row:
                offers[task.name] = row
    return offers


def _rivals(problem: Problem, offers: Mapping[str, _Offers]) -> dict[str, _Offers]:
    """Return the offers of tasks that could run beside another one with an offer that wants cores of the same kind."""
    position = {task.name: number for number, task in enumerate(problem.tasks)}
    after: list[list[int]] = [[] for _ in position]
    for precedence in problem.precedences:
        after[position[precedence.before]].append(position[precedence.after])
    ordered = [0] * len(after)  # as bit masks: everything behind each task, then everything before it too
    for task in reversed(range(len(after))):
        for other in after[task]:
            ordered[task] |= ordered[other] | 1 << other
    numbers = [position[name] for name in offers]
    kinds = {position[name]: _kinds(row) for name, row in offers.items()}

    def meet(one: int, other: int) -> bool:
        first, second = sorted((one, other))
        return one != other and not ordered[first] >> second & 1 and not kinds[one].isdisjoint(kinds[other])

    return {name: row for name, row in offers.items() if any(meet(position[name], other) for other in numbers)}


def _kinds(row: _Offers) -> set[str]:
    held = next(iter(row.values())).resources
    return {kind for kind in ("aic", "aiv") if getattr(held, kind)}


def _with_modes(problem: Problem, modes: Mapping[str, list[Mode]]) -> Problem:
    def offered(task: Task) -> Task:
        return replace(task, modes=(*task.modes, *modes.get(task.name, ())))

    return replace(problem, tasks=tuple(map(offered, problem.tasks)))


def _mode(cost: Cost) -> Mode:
    held = cost.resources
    return Mode(duration=max(cost.duration, 1), aic=held.aic, aiv=held.aiv, hbm=held.hbm, comm=held.comm)


def _fair(cost: Cost, machine: Machine) -> Mode:
    """Return the mode of a limited operator that gets as much of the memory rate as of the cores, beside another one."""
    held = cost.resources
    share = max(1, held.aic * 1000 // machine.aic if held.aic else held.aiv * 1000 // machine.aiv)
    stretch = max(held.hbm, share) / share * machine.cube_vector_slowdown / 1000
    return _mode(cost)._replace(duration=math.ceil(max(cost.duration, 1) * stretch), hbm=min(held.hbm, share))
