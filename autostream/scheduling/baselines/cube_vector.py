"""Cube work on one stream, vector work on another, as GE's ``cv`` mode splits a graph."""

from __future__ import annotations

from autostream.scheduling.baselines.dag import Assignment, Dag


def cube_vector(dag: Dag) -> Assignment:
    """Put what needs cube cores on the main stream and the rest on one side stream, in program order."""
    cube = {dag.leader[task] for task in range(len(dag)) if dag.demand[task][0]}
    return Assignment(stream=[0 if dag.leader[task] in cube else 1 for task in range(len(dag))], order=range(len(dag)))
