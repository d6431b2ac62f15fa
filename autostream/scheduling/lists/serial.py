"""The baseline: everything the scheduler may move stays on the main stream, in program order."""

from __future__ import annotations

import time

from autostream.scheduling.bounds.lower import lower_bound
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan, replay
from autostream.scheduling.problem import Problem, Schedule


class Serial:
    """One stream, but for the tasks that are fixed to another."""

    def solve(self, problem: Problem) -> Schedule:
        """Return the schedule of the program as it is."""
        began = time.perf_counter()
        instance = Instance.of(problem)
        plan = serial(instance)
        return plan.schedule(instance, strategy="serial", bound=lower_bound(problem), seconds=time.perf_counter() - began)


def serial(instance: Instance) -> Plan:
    """The plan behind `Serial`: first allowed stream, fastest mode, program order."""
    stream = [instance.allowed[unit][0] for unit in instance.unit]
    mode = [fastest(instance, task) for task in range(len(instance))]
    return replay(instance, stream, range(len(instance)), mode)


def fastest(instance: Instance, task: int) -> int:
    """The mode in which a task is fastest, the first of equals."""
    modes = instance.modes[task]
    return min(range(len(modes)), key=lambda number: modes[number].duration)
