"""HEFT list scheduling (Topcuoglu, Hariri, Wu, 2002): the task with the longest tail first, where it finishes first."""

from __future__ import annotations

from autostream.scheduling.baselines.dag import Assignment, Dag
from autostream.scheduling.machine.profile import Profile
from autostream.scheduling.machine.resources import Packing


def heft(dag: Dag) -> Assignment:
    """Rank tasks by their tail with the mean cost of a sync on every edge; place each on the stream where it ends first.

    The original knows no shared cores; here a task also waits for its own, which only helps the rule.
    """
    mean_sync = dag.sync * (len(dag.streams) - 1) // len(dag.streams)
    tail = dag.tails(lag=mean_sync)
    order = sorted(range(len(dag)), key=lambda task: (-tail[task], task))
    packing = Packing(dag.capacity)
    profile = Profile(packing)
    idle: dict[str, int] = {}
    end = [0] * len(dag)
    home: dict[int, str] = {}
    chosen = [0] * len(dag)
    placed: dict[int, str] = {}
    for task in order:
        leader = dag.leader[task]
        own = dag.fixed[task] or home.get(leader)
        best: tuple[int, int, str] | None = None
        for number, stream in enumerate((own,) if own else dag.streams):
            ready = max((end[b] + (dag.sync if placed[b] != stream else 0) for b in dag.before[task]), default=0)
            start = profile.earliest(max(ready, idle.get(stream, 0)), dag.duration[task], packing.pack(dag.demand[task]))
            candidate = start + dag.duration[task], number, stream
            best = min(best, candidate) if best else candidate
        assert best is not None, "there is at least one stream"
        end[task], _, stream = best
        profile.hold(end[task] - dag.duration[task], end[task], packing.pack(dag.demand[task]))
        idle[stream], placed[task] = end[task], stream
        if stream in dag.streams:
            home.setdefault(leader, stream)
            chosen[leader] = dag.streams.index(stream)
    return Assignment(stream=chosen, order=order)
