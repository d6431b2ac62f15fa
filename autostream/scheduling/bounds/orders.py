"""What no run of some tasks beats whatever else runs beside them: a search over the orders of those that exclude each other.

Two tasks that need more than half of the same cores each never run at once, so in every run one of them comes first. Whichever it
is, paths get longer and fewer tasks may run at once, which makes the bounds of `bounds` and `rest` better. The search decides one
pair after another, the least bound first; what a better plan rules out is not tried.

Unlike the exact search (`exact.depth_first`) this asks nothing of the rule by which cores are granted. That rule has anomalies: a
task from elsewhere that holds cores for a while may let a better plan of a region run. So only this holds for the regions of a
program beside which other tasks run, and so does only this without the syncs that a choice of streams avoids.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

from autostream.scheduling.bounds.lower import best_bound
from autostream.scheduling.bounds.rest import Rest
from autostream.scheduling.machine.division import part, reach
from autostream.scheduling.machine.granting import PS
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.paths import topological

#: The resources of which tasks hold whole units: cube cores, vector cores, the communication engine.
_EXCLUSIVE = (0, 1, 3)
_Pair = tuple[int, int]


class _Node(NamedTuple):
    """Some orders that are decided: what no run with them beats, ps, and what is open."""

    least: int
    links: tuple[_Pair, ...]
    open: tuple[_Pair, ...]


def ordered_bound(instance: Instance, limit: int, nodes: int) -> int:
    """Return what no run beats, ps, and `limit` if it is at least that; nothing is found for instances too large for `Rest`.

    Args:
        instance: the tasks; others, which are not among them, may run beside them.
        limit: what need not be exceeded, ps.
        nodes: most sets of orders that are looked at.
    """
    if not len(instance) or Rest.of(instance) is None:
        return 0
    orders = _Orders(instance, limit)
    root = orders.node(())
    heap = [] if root is None else [(root.least, 0, root)]
    left = nodes - 1
    while heap:
        least, _, node = heap[0]
        if left <= 0 or not node.open:
            return least
        heapq.heappop(heap)
        for pair in orders.both(node):
            left -= 1
            child = orders.node((*node.links, pair))
            if child is not None and max(child.least, least) < limit:
                heapq.heappush(heap, (max(child.least, least), left, child))
    return limit


class _Orders:
    def __init__(self, instance: Instance, limit: int) -> None:
        self._instance, self._limit = instance, limit
        count = len(instance)
        self._time = [instance.shortest(task) for task in range(count)]
        excluding = [self._excluding(task) for task in range(count)]
        # An order is no precedence: it asks for no sync. As it is treated like one, those are left out that could not avoid it.
        self._pairs = [
            (one, other)
            for other in range(count)
            for one in range(other)
            if excluding[one] & excluding[other] and self._time[one] and self._time[other] and not instance.sure_lag(one, other)
        ]
        #: By precedence: the sync that no choice of streams avoids.
        self._lag = {edge: instance.sure_lag(*edge) for edge in instance.edges()}

    def _excluding(self, task: int) -> int:
        """The resources, and the only stream, of which a task leaves nothing to others of its kind; as bits."""
        instance = self._instance
        held = [min(mode.demand[kind] for mode in instance.modes[task]) for kind in range(len(instance.capacity))]
        found = sum(1 << kind for kind in _EXCLUSIVE if 2 * held[kind] > instance.capacity[kind])
        allowed = instance.allowed[instance.unit[task]]
        return found | (1 << len(held) + allowed[0] if len(allowed) == 1 else 0)

    def both(self, node: _Node) -> tuple[_Pair, _Pair]:
        """The two orders of the pair that is decided next: that of the longest tasks."""
        one, other = max(node.open, key=lambda pair: sorted(self._time[task] for task in pair))
        return (one, other), (other, one)

    def node(self, links: Sequence[_Pair]) -> _Node | None:
        """What follows from some orders, and all that these decide; None if no run before the limit has them."""
        instance, time = self._instance, self._time
        decided = list(links)
        while True:
            before, after = [list(row) for row in instance.before], [list(row) for row in instance.after]
            for one, other in decided:
                before[other].append(one)
                after[one].append(other)
            order = topological(before, after, range(len(instance)))
            if len(order) < len(instance):
                return None
            head, tail = self._along(order, before), self._along(order[::-1], after)
            reached = reach(after, reversed(order))
            undecided, more = [], []
            for one, other in self._pairs:
                if (reached[one] >> other | reached[other] >> one) & 1:
                    continue
                both = time[one] + time[other]
                late = (head[one] + both + tail[other]) * PS >= self._limit, (head[other] + both + tail[one]) * PS >= self._limit
                if all(late):
                    return None
                if any(late):
                    more.append((other, one) if late[0] else (one, other))
                else:
                    undecided.append((one, other))
            if not more:
                break
            decided += more
        return _Node(self._least(order, decided), tuple(decided), tuple(undecided))

    def _along(self, order: Sequence[int], neighbours: Sequence[Sequence[int]]) -> list[int]:
        """The longest ways to each task, without it, that come from its neighbours; those of all come earlier in the order."""
        found = [0] * len(order)
        for task in order:
            for one in neighbours[task]:
                lag = self._lag.get((one, task), self._lag.get((task, one), 0))
                found[task] = max(found[task], found[one] + self._time[one] + lag)
        return found

    def _least(self, order: Sequence[int], links: Sequence[_Pair]) -> int:
        """The bound of the tasks with some orders decided, ps."""
        linked = part(self._instance, order, links=links)
        rest = Rest.of(linked)
        least = best_bound(linked, weighed=False).time * PS
        return least if rest is None else max(least, rest.whole())
