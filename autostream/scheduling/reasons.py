"""Why an operator is on its stream, where the scheduler was not free to choose."""

from __future__ import annotations

from collections import Counter

from autostream.graph.model import Op, OpGraph, Unit
from autostream.scheduling.problem import HCCL, Problem, Task


def placed(graph: OpGraph, problem: Problem) -> dict[str, str]:
    """Return one phrase for every task that is bound to a stream or to others; free ones are left out."""
    sizes = Counter(task.cluster for task in problem.tasks if task.cluster is not None)
    told = {}
    for task in problem.tasks:
        phrase = _phrase(task, graph.ops[task.name], sizes)
        if phrase:
            told[task.name] = phrase
    return told


def _phrase(task: Task, op: Op, sizes: Counter[str]) -> str:
    if op.stream is not None:
        return "the label is your own"
    if task.stream == HCCL:
        return "collectives stay on the engine's own stream, in one order"
    if op.scope:
        return "it is inside a scope of your own"
    if task.stream is not None:
        if op.unit is Unit.HOST:
            return "what runs on the host stays on the default stream"
        return "it feeds an operator of the host, or shares written storage with operators that must stay on the default stream"
    others = sizes[task.cluster] - 1 if task.cluster is not None else 0
    if not others:
        return ""
    return f"moves together with {others} other{'s' if others > 1 else ''}: a chain that may be fused, or storage that is written"
