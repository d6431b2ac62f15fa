"""Exact search forward in time that remembers where it has been (see `exact.moments` for its steps).

What is reached is kept by how many tasks have started. The search goes on in turn from the best moment of all, which raises what
is proven, and from the best one of the next number of tasks (cyclic best-first search: Kao, Sewell and Jacobson, 2009), which
soon comes to an end and finds plans. Left out is

- a moment that equals one known in all that the rest depends on, times relative to now, comes no earlier and has no task barred
  less. Nothing less than equality will do: the machine has anomalies, and a moment that looks better in every way may end later;
- what the bound on the rest (`bounds.rest`) says cannot be better than the best plan known.

A walk that ends is run as a plan. Where cores went to somebody who was not ready first it takes longer: then other streams are
tried for the same order, because what is on one stream runs in the order of the stream.
"""

from __future__ import annotations

import heapq
import itertools

from autostream.scheduling.bounds.rest import Rest
from autostream.scheduling.exact.depth_first import Found
from autostream.scheduling.exact.moments import Moment, Steps
from autostream.scheduling.local.kinds import by_kind
from autostream.scheduling.machine.granting import PS
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan, replay

#: How much later than its run a walk may end, per task, ps: when a task has ended there may be one sync that the walk stops at
#: and the run does not, and each stop rounds down what has been done by less than one picosecond of work.
_ROUNDING = 2


class BestFirst:
    """The search, which goes on where it stopped."""

    def __init__(self, instance: Instance, rest: Rest) -> None:
        """Make ready to search an instance, whose bound on the rest is given."""
        self._instance, self._rest, self._steps = instance, rest, Steps(instance)
        self._plan: Plan | None = None
        self._best = self._unreal = self._limit = 1 << 80
        self._rounding = _ROUNDING * len(instance)
        #: By number of tasks started: (what it takes at least, now, a number, moment).
        self._rows: list[list[tuple[int, int, int, Moment]]] = [[] for _ in range(len(instance) + 1)]
        self._number = itertools.count()
        #: When moments with the same key were reached, and what was barred.
        self._known: dict[object, list[tuple[int, tuple[int, ...]]]] = {}
        self._reach(self._steps.first(), rest.whole())

    @property
    def open(self) -> int:
        """How many moments the search has still to go on from."""
        return sum(map(len, self._rows))

    def found(self, makespan: int, moments: int) -> Found:
        """Search for plans that take less than `makespan`, ns, until all are ruled out or so many moments have been reached.

        What follows one moment is reached as a whole, if it is no more than as many again. What is proven is never None.
        """
        if makespan < self._best:
            self._best, self._limit = makespan, self._limit_of(makespan)
        most = moments
        cycle = itertools.cycle(range(len(self._rows)))
        while moments > 0 and any(self._rows):
            for row in (self._least(), next(number for number in cycle if self._rows[number])):
                if not self._rows[row]:
                    continue
                entry = heapq.heappop(self._rows[row])
                least, _, _, moment = entry
                if least >= self._limit:
                    self._rows[row].clear()
                elif moment.done == self._steps.everything:
                    self._arrive(moment)
                else:
                    for after in self._steps.after(moment):
                        if moments <= -most:  # where very many tasks may start at once, one moment alone has no end
                            heapq.heappush(self._rows[row], entry)
                            break
                        moments -= 1
                        self._reach(after, least)
        row = self._least()
        proven = min(self._best, self._unreal)
        if self._rows[row]:
            proven = min(proven, (self._rows[row][0][0] - self._rounding + PS // 2) // PS)
        return Found(self._plan if self._plan and self._plan.makespan < makespan else None, proven)

    def _limit_of(self, makespan: int) -> int:
        """What takes so long, ps, is no better than `makespan`, ns, when it is rounded."""
        return makespan * PS - PS // 2 + self._rounding

    def _least(self) -> int:
        """The number of tasks started where what is left takes least."""
        return min((row[0][0], number) for number, row in enumerate(self._rows) if row)[1] if any(self._rows) else 0

    def _reach(self, moment: Moment, least: int) -> None:
        """Keep a moment from which better plans may follow; what led to it takes `least`."""
        key, barred = self._steps.key(moment)
        known = self._known.setdefault(key, [])
        for now, other in known:
            if now <= moment.now and not any(there & ~here for there, here in zip(other, barred, strict=True)):
                return
        if moment.done == self._steps.everything:
            least = moment.now
        else:
            ends = [-1] * len(self._instance)
            for task, over in moment.syncs:
                ends[task] = over - self._instance.sync * PS
            lanes = self._steps.lanes(moment)
            least = max(least, self._rest.least(self._limit, moment.now, moment.started, moment.running, ends, lanes))
        if least < self._limit:
            known.append((moment.now, barred))
            row = self._rows[moment.started.bit_count()]
            heapq.heappush(row, (least, moment.now, next(self._number), moment))

    def _arrive(self, moment: Moment) -> None:
        """A walk has ended: run it as a plan."""
        end = (moment.now + PS // 2) // PS
        order, lane, trail = [], [0] * len(self._instance), moment.trail
        while trail is not None:
            trail, task, stream = trail
            order.append(task)
            lane[task] = stream
        order.reverse()
        plan = replay(self._instance, lane, order, [0] * len(order))
        if end < self._unreal and abs(plan.makespan * PS - moment.now) > PS // 2 + self._rounding:
            self._unreal = end
            kinds = replay(self._instance, by_kind(self._instance), order, plan.mode)
            plan = min([self._moved(one, order, end) for one in (plan, kinds)], key=lambda one: one.rank)
        if plan.makespan < self._best:
            self._best, self._plan, self._limit = plan.makespan, plan, self._limit_of(plan.makespan)

    def _moved(self, plan: Plan, order: list[int], end: int) -> Plan:
        """A plan with the same order, with units on other streams one by one as long as that makes it shorter."""
        improving = True
        while improving:
            improving = False
            for unit, there in [(unit, there) for unit, row in enumerate(self._instance.allowed) for there in row]:
                if plan.makespan <= end:
                    return plan
                stream = list(plan.stream)
                for task in self._instance.members[unit]:
                    stream[task] = there
                other = replay(self._instance, stream, order, plan.mode)
                if other.makespan < plan.makespan:
                    plan, improving = other, True
        return plan
