"""Programs of several ranks together: they must issue the same collectives, in orders that do not contradict each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping

import networkx as nx

from autostream.program.checks.happens import keeps_stream_order
from autostream.program.kinds import is_collective
from autostream.program.model import Finding, Severity, StreamProgram
from autostream.program.order import order_of, predecessors


def verify_ranks(programs: Mapping[str, StreamProgram]) -> tuple[Finding, ...]:
    """Return what keeps ranks from meeting, in a fixed order; empty if they always meet.

    A collective ends on all ranks together, so it is one event of the union of all programs: that union must have no cycle.

    Args:
        programs: by rank, of one graph: collectives of the same FX node (of the same name, where there is none) belong
            together. `verify` says for each program alone whether the order is fixed at all.
    """
    meetings = {rank: _meetings(program) for rank, program in programs.items()}
    return (*_missing(meetings), *_contradiction(programs, meetings))


def _meetings(program: StreamProgram) -> dict[str, str]:
    """Return what every collective is called on all ranks, by step name."""
    seen: Counter[str] = Counter()
    names = {}
    for step in program.steps:
        if step.stream is not None and is_collective(step.kind):
            source = step.source or step.name
            seen[source] += 1
            names[step.name] = source if seen[source] == 1 else f"{source}#{seen[source]}"
    return names


def _missing(meetings: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    everywhere = dict.fromkeys(name for names in meetings.values() for name in names.values())
    for rank, names in meetings.items():
        missing = [name for name in everywhere if name not in set(names.values())]
        if missing:
            more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
            yield Finding(
                kind="rank-missing",
                severity=Severity.ERROR,
                steps=tuple(missing),
                streams=(),
                explanation=f"rank {rank} does not take part in {missing[0]!r}{more}: other ranks wait for it",
                remedy="run the same graph, with the same plan, on every rank",
            )


def _contradiction(programs: Mapping[str, StreamProgram], meetings: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    union: nx.DiGraph = nx.DiGraph()
    for rank, program in programs.items():
        order = order_of(program)
        # A meeting is one node for all ranks, everything else is the rank's own.
        nodes: list[Hashable] = [meetings[rank].get(name, (rank, name)) for name in order.names]
        for after, befores in enumerate(predecessors(order, stream_order=keeps_stream_order(program))):
            union.add_edges_from((nodes[before], nodes[after]) for before in befores)
    try:
        cycle = [before for before, _ in nx.find_cycle(union)]
    except nx.NetworkXNoCycle:
        return
    met = [node for node in cycle if isinstance(node, str)]
    yield Finding(
        kind="rank-order",
        severity=Severity.ERROR,
        steps=tuple(met),
        streams=(),
        explanation="ranks wait for each other in a circle: " + " -> ".join(map(_spell, (*cycle, cycle[0]))),
        remedy="issue the collectives in one order that is a function of the graph alone",
    )


def _spell(node: Hashable) -> str:
    return f"{node[1]} (rank {node[0]})" if isinstance(node, tuple) else str(node)
