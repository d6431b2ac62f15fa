"""The rule of Opara (Chen et al., 2023): an operator inherits the stream of its first producer that nobody continues yet."""

from __future__ import annotations

import heapq

from autostream.scheduling.baselines.dag import Assignment, Dag


def opara(dag: Dag) -> Assignment:
    """Give every operator its first free producer's stream, else a new one.

    The rule asks for many streams; where the problem offers fewer, the numbers wrap around. Ready operators are issued in
    waves, the smallest demand for cores and bandwidth first.
    """
    stream = [0] * len(dag)
    continued: set[int] = set()
    opened = 0
    for task in range(len(dag)):
        if dag.leader[task] != task:
            stream[task] = stream[dag.leader[task]]
            continue
        producer = next((b for b in dag.before[task] if b not in continued and dag.fixed[b] is None), None)
        if producer is None:
            stream[task] = opened
            opened += 1
        else:
            continued.add(producer)
            stream[task] = stream[producer]
    return Assignment(stream=stream, order=_smallest_first(dag))


def _smallest_first(dag: Dag) -> list[int]:
    missing = [len(row) for row in dag.before]
    ready = [(dag.demand[task], task) for task, count in enumerate(missing) if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        wave = [heapq.heappop(ready)[1] for _ in range(len(ready))]
        order += wave
        for task in wave:
            for later in dag.after[task]:
                missing[later] -= 1
                if missing[later] == 0:
                    heapq.heappush(ready, (dag.demand[later], later))
    return order
