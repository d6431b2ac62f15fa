"""From a costed operator graph to a scheduling problem: which operators are tasks, what orders them, what must stay together."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum

import networkx as nx

from autostream.cost.analytic.fused import fused_activations
from autostream.cost.model import Cost, Machine
from autostream.errors import InputError
from autostream.graph.model import Op, OpGraph, Unit, Why
from autostream.options import Options
from autostream.scheduling.problem import HCCL, MAIN, Mode, Precedence, Problem, Task

#: Hand-written syncs: they steer, they are not work.
_SYNCS = ("air.record", "air.wait", "air.tagged_event_", "npugraph_ex.")
#: A group of operators that share mutated storage follows one of them to a side stream only while it is this small.
_LARGEST_GROUP = 8
_DATA = Why.DATA
_COMPUTE = frozenset({Unit.CUBE, Unit.VECTOR, Unit.MIXED})
_STORAGE = frozenset({Why.RAW, Why.WAR, Why.WAW})


class _Order(IntEnum):
    """Why one task precedes another, the reason that matters most first: a value flows, storage is mutated, anything else."""

    DATA = 0
    STORAGE = 1
    OTHER = 2


_FLOWS, _MUTATED, _OTHER = _Order


#: Orders between tasks by (before, after).
_Orders = Mapping[tuple[str, str], _Order]


def build_problem(graph: OpGraph, costs: Mapping[str, Cost], machine: Machine, options: Options) -> Problem:
    """Return the problem of placing the operators that emit tasks.

    - Operators without a task (views) disappear; what they connected stays ordered.
    - Collectives are fixed to HCCL, or to MAIN if they are kernels of the AI cores (unless `options.side_collectives`), host
      operators and what feeds them to MAIN, and operators inside a user's scope to the label of the scope, or to MAIN where it
      has none.
    - Operators ordered by mutated storage alone share a stream, so that the order needs no edge; so do chains that may fuse,
      and a convolution and the activation in its kernel.
    - A precedence that others imply is left out, unless a value flows: the engine synchronises that edge all the same.

    Raises:
        InputError: if an operator that emits a task has no cost.
    """
    tasks = {op.name: op for op in graph if op.unit is not Unit.FREE and not op.target.startswith(_SYNCS)}
    missing = [name for name in tasks if name not in costs]
    if missing:
        raise InputError(f"build_problem: {len(missing)} operators have no cost, the first is {missing[0]!r}")
    orders = _without_implied(list(tasks), _contracted(graph, tasks))
    fixed = {name: stream for name, op in tasks.items() if (stream := _fixed_stream(op, options)) is not None}
    fixed = _feeding_the_host(tasks, orders, fixed) | fixed
    # What costs nothing of its own is part of another kernel.
    inside = {after: before for after, before in fused_activations(graph, machine).items() if not costs[after].duration}
    streams, clusters = _together(tasks, orders, fixed, inside)
    own = tuple(dict.fromkeys(streams[name] for name in tasks if streams.get(name, MAIN) != MAIN))
    return Problem(
        tasks=tuple(
            Task(name=name, modes=(_mode(costs[name]),), stream=streams.get(name), cluster=clusters.get(name)) for name in tasks
        ),
        precedences=tuple(Precedence(before=before, after=after) for before, after in orders),
        streams=(MAIN, *_labels(options, own), *own),
        aic=machine.aic,
        aiv=machine.aiv,
        sync=machine.sync,
        fixed_streams=own,
        hbm_contention=machine.hbm_contention,
        cube_vector_slowdown=machine.cube_vector_slowdown,
        compute_comm_slowdown=machine.compute_comm_slowdown,
    )


def _feeding_the_host(tasks: Mapping[str, Op], orders: _Orders, fixed: Mapping[str, str]) -> dict[str, str]:
    """Keep on MAIN what an unlabelled operator of the host gets its values from.

    GE has no stream for it: it joins that of a producer without a label, and gets one that nobody planned if all have one.
    """
    return {
        before: MAIN
        for (before, after), order in orders.items()
        if tasks[after].unit is Unit.HOST and tasks[after].stream is None and order is _FLOWS and before not in fixed
    }


def _mode(cost: Cost) -> Mode:
    """Every task takes some time, so that the starts on a stream differ."""
    held = cost.resources
    return Mode(duration=max(cost.duration, 1), aic=held.aic, aiv=held.aiv, hbm=held.hbm, comm=held.comm)


def _fixed_stream(op: Op, options: Options) -> str | None:
    if op.stream is not None:
        return op.stream
    if op.unit is Unit.COMM or op.group is not None:
        if options.side_collectives and not op.scope:
            return None
        return HCCL if op.on_comm_stream else MAIN
    return MAIN if op.unit is Unit.HOST or op.scope else None


def _labels(options: Options, taken: Sequence[str]) -> tuple[str, ...]:
    """As many labels as there may be side streams, none of them the user's."""
    numbered = (f"{options.label_prefix}{number}" for number in itertools.count(1))
    return tuple(itertools.islice((label for label in numbered if label not in taken), options.side_streams))


def _contracted(graph: OpGraph, tasks: Mapping[str, Op]) -> _Orders:
    """The orders between tasks, through what emits none; a path is as weak as its weakest edge, and its best path counts."""
    orders: dict[tuple[str, str], _Order] = {}
    behind: dict[str, dict[str, _Order]] = {name: {} for name in graph.ops}
    following = dict(graph.dag.adjacency())
    for name in graph.ops:  # the orders onto an operator are known when all before it have passed theirs on
        sources = behind.pop(name)
        if name in tasks:
            orders.update({(source, name): order for source, order in sources.items()})
        for after, attributes in following[name].items():
            edge, found = _order(attributes["why"]), behind[after]
            if name in tasks:
                found[name] = min(edge, found.get(name, edge))
                continue
            for source, order in sources.items():
                reached = max(order, edge)
                found[source] = min(reached, found.get(source, reached))
    return orders


def _order(why: frozenset[Why]) -> _Order:
    if _DATA in why:
        return _FLOWS
    return _MUTATED if why & _STORAGE else _OTHER


def _without_implied(names: Sequence[str], orders: _Orders) -> _Orders:
    """Leave out what other orders imply, but for values that flow; sets of descendants are bit masks, which keeps this fast."""
    position = {name: number for number, name in enumerate(names)}
    after: list[list[int]] = [[] for _ in names]
    for first, second in orders:
        after[position[first]].append(position[second])
    reach = [0] * len(names)
    kept: dict[tuple[str, str], _Order] = {}
    for number in reversed(range(len(names))):
        seen = 0
        for successor in sorted(after[number]):
            edge = names[number], names[successor]
            if orders[edge] is _FLOWS or not seen >> successor & 1:
                kept[edge] = orders[edge]
            seen |= reach[successor] | 1 << successor
        reach[number] = seen
    return {edge: kept[edge] for edge in sorted(kept, key=lambda edge: (position[edge[1]], position[edge[0]]))}


def _together(
    tasks: Mapping[str, Op], orders: _Orders, fixed: Mapping[str, str], inside: Mapping[str, str]
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The streams of the tasks that are fixed, and the clusters of those that must share a stream but are not.

    A cluster bears the name of its first task. One with a fixed task is fixed as a whole. `inside` are the tasks that run in the
    kernel of another one, and that one.
    """
    shared = [edge for edge, order in orders.items() if order is _MUTATED and _movable(tasks, fixed, *edge)]
    groups = _groups(tasks, shared)
    streams = dict(fixed) | {name: MAIN for group in groups if len(group) > _LARGEST_GROUP for name in group}
    clusters: dict[str, str] = {}
    kernels = [(before, after) for after, before in inside.items() if _movable(tasks, fixed, before, after)]
    chains = [link for link in _fusable(tasks, orders, fixed) if link[0] not in inside]
    for group in _groups(tasks, [*shared, *kernels, *chains]):
        if any(name in streams for name in group):
            streams |= dict.fromkeys(group, MAIN)
        else:
            clusters |= dict.fromkeys(group, group[0])
    return streams, clusters


def _movable(tasks: Mapping[str, Op], fixed: Mapping[str, str], *names: str) -> bool:
    return all(name not in fixed and tasks[name].unit in _COMPUTE for name in names)


def _fusable(tasks: Mapping[str, Op], orders: _Orders, fixed: Mapping[str, str]) -> list[tuple[str, str]]:
    """Links of chains of vector operators: the only consumer, which has no other producer that the scheduler may move."""
    links = [edge for edge, order in orders.items() if order is _FLOWS]
    consumers = Counter(before for before, _ in links)
    producers = Counter(after for before, after in links if before not in fixed)
    return [
        (before, after)
        for before, after in links
        if consumers[before] == 1
        and producers[after] == 1
        and _movable(tasks, fixed, before, after)
        and tasks[before].unit is tasks[after].unit is Unit.VECTOR
    ]


def _groups(tasks: Mapping[str, Op], links: Sequence[tuple[str, str]]) -> list[list[str]]:
    """The connected groups of two tasks or more, in program order."""
    union = nx.utils.UnionFind(tasks)
    for link in links:
        union.union(*link)
    groups: dict[str, list[str]] = {}
    for name in tasks:
        groups.setdefault(union[name], []).append(name)
    return [group for group in groups.values() if len(group) > 1]
