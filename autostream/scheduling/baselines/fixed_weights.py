"""Streams by fixed weights instead of times, in the manner of TensorRT-LLM's automatic multi-stream pass."""

from __future__ import annotations

from autostream.scheduling.baselines.dag import Assignment, Dag

#: A kernel that uses both kinds of core (attention, experts) counts as two matrix products, a product as ten vector operators.
_FUSED, _PRODUCT, _OTHER = 20, 10, 1


def fixed_weights(dag: Dag) -> Assignment:
    """List scheduling in units of weight: longest weighted tail first, on the stream that is free first, blind to cores."""
    weight = [_FUSED if aic and aiv else _PRODUCT if aic else _OTHER for aic, aiv, _, _ in dag.demand]
    tail = dag.tails(weight)
    order = sorted(range(len(dag)), key=lambda task: (-tail[task], task))
    idle = [0] * len(dag.streams)
    end, stream = [0] * len(dag), [0] * len(dag)
    seen: set[int] = set()
    for task in order:
        ready = max((end[before] for before in dag.before[task]), default=0)
        leader = dag.leader[task]
        if leader in seen:
            lane = stream[leader]
        else:
            last = max(dag.before[task], key=lambda before: (end[before], before), default=None)
            favourite = stream[last] if last is not None else 0
            lane = min(range(len(idle)), key=lambda number: (max(ready, idle[number]), number != favourite, number))
            seen.add(leader)
        stream[leader] = stream[task] = lane
        end[task] = idle[lane] = max(ready, idle[lane]) + weight[task]
    return Assignment(stream=stream, order=order)
