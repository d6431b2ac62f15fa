"""Streams by what tasks need: what is on one stream runs in the order of the stream, whoever is ready first."""

from __future__ import annotations

from collections.abc import Sequence

from autostream.scheduling.bounds.lower import bound_at_rest
from autostream.scheduling.local.evolve import evolve
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan, replay
from autostream.scheduling.solver.project import Project


def by_kind(instance: Instance) -> Sequence[int]:
    """The stream of each task: one for what needs cube cores, one for vector cores alone, one for the rest, where it may be."""
    streams = []
    for members, allowed in zip(instance.members, instance.allowed, strict=True):
        aic, aiv = instance.modes[members[0]][0].demand[:2]
        streams.append(allowed[(0 if aic else 1 if aiv else 2) % len(allowed)])
    return [streams[unit] for unit in instance.unit]


def evolved(instance: Instance, effort: int) -> Plan:
    """A plan on the streams of `by_kind`, in an order that a genetic search finds where nothing interferes."""
    times = evolve(Project.of(instance), bound_at_rest(instance), effort)
    order = sorted(range(len(instance)), key=lambda task: (times.start[task], times.end[task], task))
    return replay(instance, by_kind(instance), order, times.mode)
