"""The rule of torchsched: the longest path on stream 0, everything else in turn on the other streams."""

from __future__ import annotations

from autostream.scheduling.baselines.dag import Assignment, Dag


def torchsched(dag: Dag) -> Assignment:
    """Put the tasks of a longest path on the main stream, the others round robin on the rest, in program order."""
    tail = dag.tails()
    path: set[int] = set()
    candidates = [task for task in range(len(dag)) if not dag.before[task]]
    while candidates:
        longest = max(candidates, key=lambda task: (tail[task], -task))
        path.add(longest)
        candidates = list(dag.after[longest])
    side = max(1, len(dag.streams) - 1)
    stream, turn = [0] * len(dag), 0
    for task in range(len(dag)):
        if task not in path and dag.leader[task] == task and dag.fixed[task] is None:
            stream[task] = (1 + turn % side) if len(dag.streams) > 1 else 0
            turn += 1
    return Assignment(stream=stream, order=range(len(dag)))
