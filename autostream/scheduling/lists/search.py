"""Iterated list scheduling: shake the order of the tasks within a stretch of time, schedule again, keep what is no worse.

The order of a list schedule decides everything else, so a search over orders reaches far more good schedules per second than a
solver that reasons about each interval. Deterministic: integers only, a fixed seed, and an effort counted in placed tasks.
"""

from __future__ import annotations

import random

from autostream.scheduling.lists.greedy import drafted, there_and_back
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.paths import topological
from autostream.scheduling.machine.replay import Plan

_SEED = 0
#: How far a task may move, in mean durations, and how much of the program is shaken at once, in tenths.
_REACHES = (1, 2, 4, 8)
_STRETCHES = (1, 2, 3, 10)
#: Give up after so many attempts per task without progress.
_PATIENCE = 10
#: One in so many worse plans is accepted, to leave a dead end.
_RESTLESS = 100


def search(instance: Instance, plan: Plan, lower: int, effort: int) -> Plan:
    """Return a plan at least as good (by `Plan.rank`), having placed at most about `effort` tasks; stops at the lower bound."""
    dice = random.Random(_SEED)
    backwards = instance.reversed()
    best = current = plan
    progress = 0
    for attempt in range(effort // max(3 * len(instance), 1)):
        if best.makespan <= lower or attempt - progress > _PATIENCE * len(instance):
            break
        early = drafted(instance, _shaken(instance, current, dice))
        candidate = min((early.plan(), there_and_back(instance, backwards, early).plan()), key=lambda one: one.rank)
        if candidate.rank <= current.rank or dice.randrange(_RESTLESS) == 0:
            current = candidate
        if current.rank < best.rank:
            best, progress = current, attempt
    return best


def _shaken(instance: Instance, plan: Plan, dice: random.Random) -> list[int]:
    """A topological order by start, where the starts within a random stretch of time are moved at random."""
    reach = dice.choice(_REACHES) * sum(plan.end[task] - plan.start[task] for task in range(len(instance))) // len(instance)
    first = dice.randrange(plan.makespan + 1)
    last = first + plan.makespan * dice.choice(_STRETCHES) // 10
    key = [start + (dice.randint(-reach, reach) if first <= start <= last else 0) for start in plan.start]
    return topological(instance.before, instance.after, key)
