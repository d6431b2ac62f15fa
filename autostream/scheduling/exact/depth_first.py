"""Exact search: every plan of a small instance under the machine's own rule, as far as a bound does not rule it out.

A plan is which stream each task runs on and in which order each stream runs its tasks; what that comes to is settled by
`machine.granting`. The search walks through time. At each moment it starts any of the tasks that may start, on any
stream that is idle, or lets time pass until a task ends or a sync is over. Every run of every plan is such a walk, for no other
moment lets a task start. Some walks are no run of any plan: they may only make the bound smaller, never the plan better, because
a walk that ends is run again as a plan.

Left out is what cannot be the run of a plan, or ends no earlier than one that is searched:

- a task left waiting though its stream was idle, it was ready, and nothing that holds or claims its cores stood in the way: it
  was not next on that stream, and another task must run there first;
- a task overtaken, on cores that both need, by one that was ready later: neither was it;
- streams on which the same tasks may still be continued, with what waits in the same order: the first stands for all;
- a moment that equals one searched before in all that the rest depends on, times relative to now, and comes no earlier. Nothing
  less than equality will do: the machine has anomalies, and a moment that looks better in every way may end later;
- what the bound on the rest (`bounds.rest`) says cannot be better than the best plan known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from autostream.scheduling.bounds.rest import Rest
from autostream.scheduling.machine.bitsets import bits, members
from autostream.scheduling.machine.granting import PS
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.paths import tails
from autostream.scheduling.machine.replay import Plan, replay

#: How much later than its run a walk may end, per task, ps: when a task has ended there may be one sync that the walk stops at
#: and the run does not, and each stop rounds down what has been done by less than one picosecond of work.
_ROUNDING = 2


class Found(NamedTuple):
    """What a search came to."""

    #: A plan better than what was known, if there is one.
    plan: Plan | None
    #: What no plan beats, ns; None if the search was cut short.
    proven: int | None


def searched(instance: Instance, makespan: int, moments: int, most: int | None = None) -> Found:
    """Search for plans that take less than `makespan`, ns, through at most so many `moments`; with `most`, of so many crossings.

    Nothing is found or proven for an instance that is too large, or in which a task has several modes.
    """
    rest = Rest.of(instance)
    if rest is None:
        return Found(None, None)
    walks = _Walks(instance, rest, makespan, moments, most)
    try:
        walks.go(_Moment(0, 0, 0, instance.rules.packing.free, (), (0,) * len(instance.streams), ()), -1)
    except _CutShortError:
        return Found(walks.plan, None)
    return Found(walks.plan, min(walks.best, walks.unreal))


class _CutShortError(Exception):
    """As many moments as allowed have been looked at."""


class _Moment(NamedTuple):
    """Where a walk is. Sets of tasks are bits; times are ps."""

    now: int
    done: int
    started: int
    #: Cores left, packed.
    free: int
    #: What runs, in order of start, and how much of its work is left.
    running: tuple[tuple[int, int], ...]
    #: By stream: the tasks that cannot be next on it.
    barred: tuple[int, ...]
    #: What has started at this time: the kinds of cores it needs, and when it was ready.
    begun: tuple[tuple[int, int], ...]


class _Walks:
    """The search, depth first; what is true of the current walk is undone on the way back."""

    def __init__(self, instance: Instance, rest: Rest, makespan: int, moments: int, most: int | None) -> None:
        count = len(instance)
        #: Crossings that a plan may have, and those of the walk so far.
        self._most, self._crossings = most, 0
        self._instance, self._rest, self._left = instance, rest, moments
        self._claims = [row[0] for row in instance.claims]
        self._allowed = [instance.allowed[unit] for unit in instance.unit]
        self._before = [bits(row) for row in instance.before]
        #: The tasks that may continue one without a sync, or must be on its stream.
        self._drawn = [bits(row) for row in instance.after]
        self._cluster = [bits(instance.members[unit]) for unit in instance.unit]
        self._everything = (1 << count) - 1
        self._several = bits([task for task, claim in enumerate(self._claims) if claim.kinds & (claim.kinds - 1)])
        choices = [tuple(stream in row for row in instance.allowed) for stream in range(len(instance.streams))]
        #: Streams of one class are allowed to the same tasks.
        self._class = [choices.index(row) for row in choices]
        #: The longest chains first.
        self._urgency = [-instance.shortest(task) - tail for task, tail in enumerate(tails(instance))]
        #: By what the rest depends on: when walks came there, and with how many crossings (all count as none without a limit).
        self._known: dict[object, list[tuple[int, int]]] = {}
        self._sync = instance.sync * PS
        self._end = [-1] * count
        self._lane = [row[0] if len(row) == 1 else -1 for row in self._allowed]
        self._order: list[int] = []
        #: By stream: the tasks that have run or run on it, when it became idle, and what runs.
        self._on = [0] * len(choices)
        self._idle = [0] * len(choices)
        self._busy = [-1] * len(choices)
        self.plan: Plan | None = None
        self.best = self.unreal = makespan
        self._rounding = _ROUNDING * count
        self._limit = self._limit_of(makespan)
        self._least = rest.whole()

    def _limit_of(self, makespan: int) -> int:
        """What takes so long, ps, is no better than `makespan`, ns, when it is rounded."""
        return makespan * PS - PS // 2 + self._rounding

    def go(self, at: _Moment, last: int) -> None:
        """Try everything that can follow; of what starts at one time, what has a number up to `last` has been tried."""
        if self._least >= self._limit:
            return
        if self._left == 0:
            raise _CutShortError
        self._left -= 1
        if at.done == self._everything:
            self._arrive()
            return
        if last < 0 and self._rest.reaches(self._limit, at.now, at.started, at.running, self._end, self._lane):
            return
        ready = self._ready(at)
        places = self._places(at, ready)
        if last < 0 and not at.begun:
            known = self._known.setdefault(self._key(at, places), [])
            for time, crossings in known:
                if time <= at.now and crossings <= self._crossings:
                    return
            known.append((at.now, self._crossings))
        chosen = {place: stream for stream, place in reversed(places.items()) if self._busy[stream] < 0}
        free, guards = at.free, self._instance.rules.packing.guards
        startable = [
            (self._urgency[task], time, task, stream)
            for stream in chosen.values()
            for task, time in ready[stream].items()
            if time <= at.now and not at.barred[stream] >> task & 1 and (free - self._claims[task].demand) & guards == guards
        ]
        startable.sort()
        for _, time, task, stream in startable:
            if task > last:
                self._start(at, task, stream, time)
        upcoming = [time for stream in chosen.values() for time in ready[stream].values() if time > at.now]
        self._wait(at, ready, min(upcoming, default=None))

    # -- what may start ---------------------------------------------------------------------------------------------

    def _ready(self, at: _Moment) -> dict[int, dict[int, int]]:
        """For each idle stream, when the tasks that wait for no other would be ready on it."""
        found: dict[int, dict[int, int]] = {stream: {} for stream, busy in enumerate(self._busy) if busy < 0}
        end, sync = self._end, self._sync
        for task in members(self._everything & ~at.started):
            if self._before[task] & ~at.done:
                continue
            home = self._lane[task]
            for stream in self._allowed[task] if home < 0 else (home,):
                if self._busy[stream] < 0:
                    time, here = self._idle[stream], self._on[stream]
                    for before in self._instance.before[task]:
                        time = max(time, end[before] if here >> before & 1 else end[before] + sync)
                    found[stream][task] = time
        return found

    def _places(self, at: _Moment, ready: dict[int, dict[int, int]]) -> dict[int, tuple[object, ...]]:
        """For each stream, what tells it from others: its class, what draws tasks to it, what is barred, and who waits."""
        ranks = _ranks([(time, task) for row in ready.values() for task, time in row.items() if time <= at.now])
        waiting, limited = self._everything & ~at.started, self._most is not None
        found: dict[int, tuple[object, ...]] = {}
        for stream in sorted(range(len(self._on)), key=lambda one: self._idle[one]):
            drawing = 0
            for task in members(self._on[stream]):
                late = self._drawn[task] & waiting and (limited or self._end[task] < 0 or self._end[task] + self._sync > at.now)
                if late or self._cluster[task] & waiting:
                    drawing |= 1 << task
            row = ready.get(stream, {})
            order = tuple((task, ranks[time, task]) for task, time in row.items() if time <= at.now)
            found[stream] = (self._class[stream], self._busy[stream], drawing, at.barred[stream] & waiting, order)
        return found

    def _key(self, at: _Moment, places: dict[int, tuple[object, ...]]) -> object:
        """All that the rest of a walk depends on, relative to now."""
        waiting = self._everything & ~at.started
        syncs = tuple(
            (task, self._end[task] + self._sync - at.now)
            for task in members(at.done)
            if self._drawn[task] & waiting and self._end[task] + self._sync > at.now
        )
        return at.done, at.running, syncs, tuple(sorted(places.values()))

    # -- steps ------------------------------------------------------------------------------------------------------

    def _start(self, at: _Moment, task: int, stream: int, ready: int) -> None:
        """Start a task now; one without work is over at once."""
        crossings = self._crossings
        if self._most is not None:
            self._crossings += sum([not self._on[stream] >> before & 1 for before in self._instance.before[task]])
            if self._crossings + self._due(at, task, stream) > self._most:
                self._crossings = crossings
                return
        claim, bit = self._claims[task], 1 << task
        barred = (*at.barred[:stream], 0, *at.barred[stream + 1 :])
        at = at._replace(started=at.started | bit, barred=barred, begun=(*at.begun, (claim.kinds, ready)))
        followers = [other for other in members(self._cluster[task]) if self._lane[other] < 0]
        for other in followers:
            self._lane[other] = stream
        self._on[stream] |= bit
        self._order.append(task)
        if claim.work:
            self._busy[stream] = task
            self.go(at._replace(free=at.free - claim.demand, running=(*at.running, (task, claim.work))), task)
            self._busy[stream] = -1
        else:
            idle, self._idle[stream], self._end[task] = self._idle[stream], at.now, at.now
            self.go(at._replace(done=at.done | bit), -1)
            self._idle[stream], self._end[task] = idle, -1
        self._order.pop()
        self._on[stream] &= ~bit
        for other in followers:
            self._lane[other] = -1
        self._crossings = crossings

    def _due(self, at: _Moment, starting: int, stream: int) -> int:
        """How many crossings are sure to follow when a task starts on a stream: not all that one waits for is on one stream."""
        lane, due = self._lane, 0
        for task in members(self._everything & ~at.started & ~(1 << starting)):
            row = (stream if before == starting else lane[before] for before in self._instance.before[task])
            there = [one for one in row if one >= 0]
            if lane[task] >= 0:
                due += len(there) - there.count(lane[task])
            elif len(there) > 1:
                due += len(there) - max([there.count(one) for one in there])
        return due

    def _wait(self, at: _Moment, ready: dict[int, dict[int, int]], upcoming: int | None) -> None:
        """Start nothing more now: go on when a task ends or becomes ready."""
        barred = self._barred(at, ready)
        if not at.running:
            if upcoming is not None:
                self.go(at._replace(now=upcoming, barred=barred, begun=()), -1)
            return
        stretches = self._instance.rules.stretches([self._claims[task] for task, _ in at.running])
        now = min([at.now - -left * stretch // 1000 for (_, left), stretch in zip(at.running, stretches, strict=True)])
        if upcoming is not None:
            now = min(now, upcoming)
        passed, done, free, running = now - at.now, at.done, at.free, []
        ended: list[tuple[int, int]] = []
        for (task, left), stretch in zip(at.running, stretches, strict=True):
            todo = left - passed * 1000 // stretch
            if todo > 0:
                running.append((task, todo))
                continue
            stream = self._lane[task]
            ended.append((task, self._idle[stream]))
            self._end[task] = self._idle[stream] = now
            self._busy[stream] = -1
            done |= 1 << task
            free += self._claims[task].demand
        self.go(_Moment(now, done, at.started, free, tuple(running), barred, ()), -1)
        for task, idle in ended:
            stream = self._lane[task]
            self._end[task], self._idle[stream], self._busy[stream] = -1, idle, task

    def _barred(self, at: _Moment, ready: dict[int, dict[int, int]]) -> tuple[int, ...]:
        """By stream, the tasks that would have started by now if they were next on it."""
        # Cores that are held, or claimed by a task that may wait for held ones too.
        held, claims = 0, self._claims
        for task, _ in at.running:
            held |= claims[task].kinds
        several = [task for task in members(self._several & ~at.started) if not self._before[task] & ~at.done]
        for _ in several:
            for task in several:
                if claims[task].kinds & held:
                    held |= claims[task].kinds
        barred = list(at.barred)
        for stream, row in ready.items():
            for task, time in row.items():
                kinds = claims[task].kinds
                if time > at.now:
                    continue
                if not kinds & held or any(kinds & other and time < since for other, since in at.begun):
                    barred[stream] |= 1 << task
        return tuple(barred)

    def _arrive(self) -> None:
        """A walk has ended: run it as a plan."""
        end = max(self._end)
        if end >= self._limit:
            return
        plan = replay(self._instance, self._lane, self._order, [0] * len(self._claims))
        if plan.makespan < self.best:
            self.best, self.plan, self._limit = plan.makespan, plan, self._limit_of(plan.makespan)
        if abs(plan.makespan * PS - end) > PS // 2 + self._rounding:
            self.unreal = min(self.unreal, (end + PS // 2) // PS)


def _ranks(pairs: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Numbers for pairs of time and task that tell which tasks wait longer than which others; what one waits by itself is one."""
    ranks: dict[tuple[int, int], int] = {}
    rank, previous = 0, (-1, -1)
    times: dict[int, set[int]] = {}
    for time, task in pairs:
        times.setdefault(time, set()).add(task)
    for time in sorted(times):
        tasks = times[time]
        alone = min(tasks) if len(tasks) == 1 else -1
        if alone < 0 or alone != previous[1]:
            rank += 1
        previous = (time, alone)
        for task in tasks:
            ranks[time, task] = rank
    return ranks
