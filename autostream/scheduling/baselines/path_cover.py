"""A path cover, as GE's ``LoadBalance:N`` mode builds one: the fewest chains of data flow that hold every operator."""

from __future__ import annotations

import networkx as nx

from autostream.scheduling.baselines.dag import Assignment, Dag


def path_cover(dag: Dag) -> Assignment:
    """Find the fewest disjoint paths (a maximum matching); they go to the least loaded stream, longest first."""
    count = len(dag)
    web = nx.Graph()
    # A task is its own number where a path leaves it, and the number + count where one enters: the matching goes through sets, in
    # which numbers have the same order in every process.
    web.add_nodes_from(range(2 * count))
    web.add_edges_from((task, count + later) for task in range(count) for later in dag.after[task])
    matching = nx.bipartite.hopcroft_karp_matching(web, range(count))
    path = list(range(count))  # named after its first task; matched pairs run forwards, so one sweep is enough
    for task in range(count):
        before = matching.get(count + task)
        if before is not None:
            path[task] = path[before]
    work: dict[int, int] = {}
    for task, first in enumerate(path):
        work[first] = work.get(first, 0) + dag.duration[task]
    load = [0] * len(dag.streams)
    home: dict[int, int] = {}
    for first in sorted(work, key=lambda one: (-work[one], one)):
        home[first] = min(range(len(load)), key=lambda number: (load[number], number))
        load[home[first]] += work[first]
    return Assignment(stream=[home[first] for first in path], order=range(len(dag)))
