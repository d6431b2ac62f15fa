"""From a schedule to the program a dump would be with it: streams, order of the nodes, and the control edges they need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autostream.graph.model import OpGraph, Unit
from autostream.program.model import Edge, EdgeKind, Step, StreamProgram
from autostream.rewrite.order import emission_order
from autostream.rewrite.sync import forced_orders
from autostream.scheduling.problem import HCCL, MAIN, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What is to be written into a dump. Names are those of its nodes."""

    program: StreamProgram
    #: Labels to set, by node; a node that stays on its default stream or keeps its own label is not in it.
    labels: Mapping[str, str]
    #: Control edges to add: node -> nodes it waits for.
    waits: Mapping[str, tuple[str, ...]]


def planned(given: StreamProgram, graph: OpGraph, schedule: Schedule) -> Planned:
    """Return the program of a dump under a schedule, its nodes in the order of the plan.

    Raises:
        RewriteError: the schedule contradicts the orders of the graph.
    """
    order = _order(given, graph, emission_order(graph, schedule))
    stream = _streams(given, graph, schedule)
    steps = {step.name: step for step in given.steps}
    known = {(edge.before, edge.after) for edge in given.edges}
    waits: dict[str, list[str]] = {}
    for forced in forced_orders(graph):
        if (forced.before, forced.after) not in known:
            waits.setdefault(forced.after, []).append(forced.before)
    added = tuple(Edge(before=before, after=after, kind=EdgeKind.CONTROL) for after, names in waits.items() for before in names)
    # The names of the nodes are what the orders of the graph are told in.
    program = replace(
        given,
        steps=tuple(_step(steps[name], stream.get(name)) for name in order),
        edges=(*given.edges, *added),
        in_order=True,
        lost=(),  # waits of the dump that order nothing now order nothing later; those of the plan are between tasks
    )
    own = {step.name: step.stream for step in given.steps}
    moved = ((name, stream[name]) for name in order if name in stream and stream[name] != own[name])
    return Planned(
        program=program,
        labels={name: where for name, where in moved if where not in (MAIN, HCCL)},
        waits={name: tuple(names) for name, names in waits.items()},
    )


def _step(step: Step, stream: str | None) -> Step:
    return step._replace(stream=stream, source=step.name)


def _streams(given: StreamProgram, graph: OpGraph, schedule: Schedule) -> dict[str, str]:
    """Return the stream of every node with a task; what takes no time goes where its first reader is."""
    stream = {placement.task: placement.stream for placement in schedule.placements}
    for step in reversed(given.steps):
        if step.stream is not None and step.name not in stream:
            readers = (stream[name] for name in graph.dag.successors(step.name) if name in stream)
            stream[step.name] = next(readers, step.stream) if step.name in graph.ops else step.stream
    return stream


def _order(given: StreamProgram, graph: OpGraph, tasks: tuple[str, ...]) -> tuple[str, ...]:
    """Return all nodes: each task behind what takes no time of its own and has to come before it; the rest last."""
    position = {step.name: number for number, step in enumerate(given.steps)}
    order: dict[str, None] = {}
    for task in tasks:
        missing, stack = {task}, [task]
        while stack:
            for before in graph.dag.predecessors(stack.pop()):
                if before not in order and before not in missing and graph.ops[before].unit is Unit.FREE:
                    missing.add(before)
                    stack.append(before)
        order |= dict.fromkeys(sorted(missing - {task}, key=position.__getitem__))
        order[task] = None
    order |= dict.fromkeys(step.name for step in given.steps if step.name not in order)
    return tuple(order)
