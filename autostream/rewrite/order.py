"""The order in which the operators of a schedule are written down.

Each stream's own order is the schedule's. Between streams any topological order means the same orders, so the one with the
fewest changes of stream is written: scopes stay long and the emitted graph stays readable. What no order settles is who goes
first of two that are ready at the same time: that is taken to be the stream written first, so the one that starts first is.
"""

from __future__ import annotations

from collections import deque

import networkx as nx

from autostream.errors import RewriteError
from autostream.graph.model import OpGraph, Unit
from autostream.graph.scopes import SUPER_KERNEL
from autostream.scheduling.problem import MAIN, Schedule


def emission_order(graph: OpGraph, schedule: Schedule) -> tuple[str, ...]:
    """Return the operators that emit tasks, in the order to write them.

    Stays on one stream as long as its next operator has everything it depends on already written; otherwise moves to the
    stream whose next operator starts first in the schedule. The operators of a super-kernel scope are written together, which
    may put them in front of others of their stream.

    Raises:
        RewriteError: the schedule contradicts the orders of the graph.
    """
    position = {placement.task: i for i, placement in enumerate(schedule.placements)}
    lanes = {name: deque(p.task for p in lane) for name, lane in schedule.streams().items()}
    missing = _missing(graph, position)
    waiting: dict[str, list[str]] = {}
    for name, producers in missing.items():
        for producer in producers:
            waiting.setdefault(producer, []).append(name)
    order: list[str] = []
    start = {placement.task: placement.start for placement in schedule.placements}
    current = min(lanes, key=lambda lane: (start[lanes[lane][0]], lane != MAIN, position[lanes[lane][0]]), default=MAIN)
    while len(order) < len(position):
        lane = lanes.get(current)
        if not lane or missing[lane[0]]:
            ready = [name for name, queue in lanes.items() if queue and not missing[queue[0]]]
            if not ready:
                heads = ", ".join(repr(queue[0]) for queue in lanes.values() if queue)
                raise RewriteError(f"the schedule contradicts the graph: {heads} would wait for each other")
            current = min(ready, key=lambda name: position[lanes[name][0]])
            continue
        task = _next_of_kernel(graph, lane, missing, order[-1]) if order else lane[0]
        lane.remove(task)
        order.append(task)
        for successor in waiting.get(task, ()):
            missing[successor].discard(task)
    return tuple(order)


def _next_of_kernel(graph: OpGraph, lane: deque[str], missing: dict[str, set[str]], last: str) -> str:
    """Return the next operator of the super-kernel scope that `last` is in, if it may be written now, else the next one."""
    kernel = dict(graph.ops[last].scope).get(SUPER_KERNEL)
    if not kernel:
        return lane[0]
    members = (task for task in lane if dict(graph.ops[task].scope).get(SUPER_KERNEL) == kernel)
    member = next(members, lane[0])
    return lane[0] if missing[member] else member


def _missing(graph: OpGraph, position: dict[str, int]) -> dict[str, set[str]]:
    """Return for each scheduled operator the scheduled operators it depends on, through the ones without a task."""
    behind: dict[str, set[str]] = {}
    dag: nx.DiGraph = graph.dag
    for name in graph.ops:
        producers: set[str] = set()
        for parent in dag.predecessors(name):
            if parent in position:
                producers.add(parent)
            elif graph.ops[parent].unit is Unit.FREE:
                producers |= behind[parent]
        behind[name] = producers
    return {name: behind[name] for name in position}
