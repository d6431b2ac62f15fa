"""How many crossings a plan needs that is to overlap anything."""

from __future__ import annotations

from autostream.scheduling.machine.instance import Instance


def fewest_crossings(instance: Instance, makespan: int) -> int:
    """Return a number of crossings that no plan of at most `makespan`, ns, can do without.

    Between one first and one last task, with both of which all others are ordered, work leaves the stream of the first and comes
    back to that of the last. A single crossing has everything on its one side before everything on the other: nothing overlaps.
    """
    if makespan >= sum(instance.shortest(task) for task in range(len(instance))):
        return 0
    firsts, lasts = (sum(not row for row in rows) for rows in (instance.before, instance.after))
    return 2 if firsts == lasts == 1 else 0
