"""Where a search begins: the streams that simple rules give, each in several orders. Which rule suits a program is not known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autostream.scheduling.baselines.cube_vector import cube_vector
from autostream.scheduling.baselines.dag import Assignment, Dag
from autostream.scheduling.baselines.fixed_weights import fixed_weights
from autostream.scheduling.baselines.heft import heft
from autostream.scheduling.baselines.ios import ios
from autostream.scheduling.baselines.opara import opara
from autostream.scheduling.baselines.path_cover import path_cover
from autostream.scheduling.baselines.torchsched import torchsched
from autostream.scheduling.lists.greedy import by_rank
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan, replay

_QUICK = (fixed_weights, opara, path_cover, heft, cube_vector, torchsched)
_RULES = (*_QUICK, ios)
#: Above so many tasks the search for stages takes too long.
_LARGE = 200


def ruled(instance: Instance) -> Iterator[Plan]:
    """Yield the plan of each published rule, and what its streams give in the order of longest tails."""
    dag = Dag.numbered(instance)
    mode = list(dag.mode)
    rank = by_rank(instance)
    for rule in (continued, *(_RULES if len(instance) <= _LARGE else _QUICK)):
        chosen = rule(dag)
        stream = _streams(instance, dag, chosen)
        for order in dict.fromkeys((tuple(chosen.order), tuple(rank))):
            yield replay(instance, stream, order, mode)


def continued(dag: Dag) -> Assignment:
    """Opara's rule on few streams: a task continues its first free producer, else the stream that is idle first.

    Times are those of a machine on which everything may run at once.
    """
    stream, end = [0] * len(dag), [0] * len(dag)
    idle = [0] * len(dag.streams)
    taken: set[int] = set()
    for task in range(len(dag)):
        ready = max((end[before] for before in dag.before[task]), default=0)
        if dag.leader[task] != task:
            lane = stream[dag.leader[task]]
        else:
            producer = next((b for b in dag.before[task] if b not in taken and dag.fixed[b] is None), None)
            if producer is None:
                lane = min(range(len(idle)), key=lambda number: (max(idle[number], ready), number))
            else:
                taken.add(producer)
                lane = stream[producer]
        stream[task] = lane
        if dag.fixed[task] is None:
            end[task] = idle[lane] = max(ready, idle[lane]) + dag.duration[task]
        else:
            end[task] = ready + dag.duration[task]
    return Assignment(stream=stream, order=range(len(dag)))


def _streams(instance: Instance, dag: Dag, chosen: Assignment) -> Sequence[int]:
    """The stream of each task; numbers beyond the open streams wrap around."""
    streams = []
    for task, unit in enumerate(instance.unit):
        allowed = instance.allowed[unit]
        number = chosen.stream[dag.leader[task]] % len(dag.streams)
        streams.append(allowed[0] if len(allowed) == 1 else instance.open[number])
    return streams
