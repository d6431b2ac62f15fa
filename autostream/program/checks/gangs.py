"""Gangs: steps that need all their cores at once and hold them while they wait, for other ranks or for their own blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import networkx as nx

from autostream.cost.model import Cost, Machine
from autostream.program.kinds import is_collective, kinds
from autostream.program.model import Step, StreamProgram

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """One step and the cores it takes at once."""

    step: Step
    aic: int
    aiv: int


def per_step(program: StreamProgram, values: Mapping[str, _Value]) -> dict[str, _Value]:
    """Return values given by step name or by FX node, by step name.

    Of several tasks of one node those that communicate get the node's value; if none does, the last one gets it.
    """
    tasks: dict[str, list[Step]] = {}
    for step in program.steps:
        if step.stream is not None:
            tasks.setdefault(step.source, []).append(step)
    found: dict[str, _Value] = {}
    for source, steps in tasks.items():
        meant = steps if len(steps) == 1 else [step for step in steps if is_collective(step.kind)] or steps[-1:]
        if source in values:
            for step in meant:
                found[step.name] = values[source]
        for step in steps:
            if step.name in values:
                found[step.name] = values[step.name]
    return found


def gang_of(step: Step, cost: Cost | None, machine: Machine) -> Gang | None:
    """Return the cores that a step takes at once, or None if its blocks may run one after another.

    A gang communicates on cores (by its kind, or because its cost holds the communication engine), or is compute that takes every
    vector core.
    """
    if step.kind in kinds().all_core:
        return Gang(step=step, aic=0, aiv=machine.aiv)
    if cost is None or not (cost.resources.comm or is_collective(step.kind)) or not (cost.resources.aic or cost.resources.aiv):
        return None
    aic, aiv = cost.resources.aic, cost.resources.aiv
    # A cube core of a kernel that communicates takes the vector cores beside it along: the kernel is a mixed one.
    beside = -(-aic * machine.aiv // max(1, machine.aic))
    return Gang(step=step, aic=aic, aiv=max(aiv, beside))


def heaviest_sets(weights: Sequence[int], concurrent: Iterable[tuple[int, int]], capacity: int) -> Iterator[tuple[int, ...]]:
    """Yield sets of items that may all run at once and together weigh more than `capacity`, by position, ascending.

    `concurrent` are the pairs that may run at once.
    Items that no chain of concurrent items connects are independent problems. Each gives at most one set: its heaviest, found
    exactly. In a program whose streams run in order this is the heaviest antichain of happens-before.
    """
    graph = nx.Graph()
    graph.add_nodes_from((position, {"weight": weight}) for position, weight in enumerate(weights) if weight)
    graph.add_edges_from((one, two) for one, two in concurrent if weights[one] and weights[two])
    for component in nx.connected_components(graph):
        if len(component) == 1:
            (alone,) = component
            if weights[alone] > capacity:
                yield (alone,)
            continue
        part = nx.Graph()
        part.add_nodes_from((position, graph.nodes[position]) for position in sorted(component))
        part.add_edges_from(graph.edges(part))
        heaviest, weight = nx.max_weight_clique(part)
        if weight > capacity:
            yield tuple(sorted(heaviest))
