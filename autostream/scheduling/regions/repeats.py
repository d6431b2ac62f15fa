"""Local search of a deep plan in windows, equal ones once: many layers cost little more than one."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

from autostream.scheduling.local.climb import climb
from autostream.scheduling.machine.division import part
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan, replay

#: Fewest tasks of a window; where no cut follows it ends at twice as many.
_FEWEST = 64
#: Steps of the search for each distinct window: fewer find nothing.
_STEPS = 200


def climb_repeats(instance: Instance, plan: Plan, cuts: Collection[int], effort: int) -> Plan:
    """Return a plan at least as good (by `Plan.rank`), having run at most about `effort` tasks.

    Windows that are equal are searched once and changed together, the most frequent ones first; what the whole makes of it is
    tried by running it. They lie side by side, so that what is done to one leaves the others as they are; in a second round
    they are shifted.

    Args:
        instance: what is planned.
        plan: where to begin.
        cuts: tasks at which windows may begin, so that they repeat where the program does.
        effort: tasks that may be run.
    """
    for shift in (0, _FEWEST // 2):
        order = plan.order()
        windows: dict[object, list[_Window]] = {}
        for first, last in itertools.pairwise(_borders(order, set(cuts), shift)):
            window = _Window(instance, plan, order, first, last)
            windows.setdefault(window.key, []).append(window)
        for equal in sorted(windows.values(), key=len, reverse=True):
            count = len(equal[0].tasks)
            steps = min(_STEPS, (effort - len(instance)) // count)
            if steps <= 0:
                return plan
            effort -= steps * count
            better = equal[0].climbed(steps)
            if better is not None:
                effort -= len(instance)
                changed, candidate = _with_windows(instance, plan, order, equal, better)
                if candidate.rank < plan.rank:
                    plan, order = candidate, changed
    return plan


def _borders(order: Sequence[int], cuts: Collection[int], shift: int) -> list[int]:
    """Where windows begin and end in the order: at cuts that are not too close to each other, and between those far apart."""
    borders = [0]
    for place, task in enumerate(order):
        gone = place - borders[-1]
        fewest = _FEWEST if len(borders) > 1 else _FEWEST - shift
        if gone == 2 * _FEWEST or (gone >= fewest and task in cuts):
            borders.append(place)
    return [*borders, len(order)]


class _Window:
    """The tasks of a plan from one place of its order to another, as an instance of their own."""

    def __init__(self, instance: Instance, plan: Plan, order: Sequence[int], first: int, last: int) -> None:
        self.first, self.last = first, last
        tasks = order[first:last]
        self.tasks = sorted(tasks)
        number = {task: at for at, task in enumerate(self.tasks)}
        outside = [task for task in tasks if any(one not in number for one in instance.members[instance.unit[task]])]
        self._alone = part(instance, self.tasks, pins={task: plan.stream[task] for task in outside})
        self._stream = tuple(plan.stream[task] for task in self.tasks)
        self._mode = tuple(plan.mode[task] for task in self.tasks)
        self._order = tuple(number[task] for task in tasks)
        #: Windows of one key have the same better plans.
        self.key = self._alone.form(), self._stream, self._mode, self._order

    def climbed(self, steps: int) -> Plan | None:
        """A better plan of the window, if the search finds one."""
        before = replay(self._alone, self._stream, self._order, self._mode)
        after = climb(self._alone, before, 0, steps * len(self.tasks))
        return after if after.rank < before.rank else None


def _with_windows(
    instance: Instance, plan: Plan, order: Sequence[int], windows: Sequence[_Window], better: Plan
) -> tuple[list[int], Plan]:
    """The order and the plan with the tasks of each of the windows as in a better plan of one."""
    stream, mode, changed = list(plan.stream), list(plan.mode), list(order)
    for window in windows:
        for number, task in enumerate(window.tasks):
            stream[task], mode[task] = better.stream[number], better.mode[number]
        changed[window.first : window.last] = [window.tasks[number] for number in better.order()]
    return changed, replay(instance, stream, changed, mode)
