"""Where a run can be, and what can follow: the steps of a search through time (`exact.best_first`).

At each moment some tasks start, on streams that are idle, and time passes until others can. Every run of every plan is such a
walk, for no other moment lets a task start. Who was ready first is not looked at, so some walks are no run of any plan: they may
only make a bound smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from autostream.scheduling.machine.bitsets import bits, members
from autostream.scheduling.machine.granting import PS
from autostream.scheduling.machine.instance import Instance

#: The tasks of a walk in order of start with their streams, the last one first.
Trail = tuple["Trail", int, int] | None


class Moment(NamedTuple):
    """Where a walk is. Sets of tasks are bits; times are ps."""

    now: int
    done: int
    started: int
    #: Cores left, packed.
    free: int
    #: What runs, and how much of its work is left.
    running: tuple[tuple[int, int], ...]
    #: Tasks that have ended and that others wait for, and when a sync will have passed since.
    syncs: tuple[tuple[int, int], ...]
    #: By stream: what runs, -1 for nothing; the tasks on it that matter to others; and those that cannot be next on it.
    busy: tuple[int, ...]
    on: tuple[int, ...]
    barred: tuple[int, ...]
    trail: Trail


#: By idle stream: when the tasks that wait for no other are ready on it.
_Ready = dict[int, dict[int, int]]
#: Tasks that start at the same time, and their streams.
_Chosen = tuple[tuple[int, int], ...]


class Steps:
    """What can follow a moment of an instance whose tasks have one mode each."""

    def __init__(self, instance: Instance) -> None:
        count = len(instance)
        self.instance = instance
        self.everything = (1 << count) - 1
        self._claims = [row[0] for row in instance.claims]
        self._allowed = [instance.allowed[unit] for unit in instance.unit]
        self._before, self._after = [bits(row) for row in instance.before], [bits(row) for row in instance.after]
        self._cluster = [bits(instance.members[unit]) for unit in instance.unit]
        self._several = bits([task for task, claim in enumerate(self._claims) if claim.kinds & (claim.kinds - 1)])
        self._sync, self._guards = instance.sync * PS, instance.rules.packing.guards
        self._bound = [row[0] if len(row) == 1 else -1 for row in self._allowed]
        choices = [tuple(stream in row for row in instance.allowed) for stream in range(len(instance.streams))]
        #: Streams of one class are allowed to the same tasks.
        self._class = [choices.index(row) for row in choices]

    def first(self) -> Moment:
        """Where every walk begins."""
        none = (0,) * len(self._class)
        return Moment(0, 0, 0, self.instance.rules.packing.free, (), (), (-1,) * len(none), none, none, None)

    def lanes(self, at: Moment) -> list[int]:
        """The stream of each task that has one and matters to others, or is bound to be on it; else -1."""
        lane = list(self._bound)
        for stream, there in enumerate(at.on):
            for task in members(there):
                for other in members(self._cluster[task]):
                    lane[other] = stream
        return lane

    def key(self, at: Moment) -> tuple[object, tuple[int, ...]]:
        """All that the rest of a walk depends on, relative to now; and what is barred by stream, of which less is better."""
        streams = sorted(zip(self._class, at.busy, at.on, at.barred, strict=True))
        syncs = tuple([(task, over - at.now) for task, over in at.syncs])
        same = at.done, tuple(sorted(at.running)), syncs, tuple([one[:3] for one in streams])
        return same, tuple([one[3] for one in streams])

    def after(self, at: Moment) -> Iterator[Moment]:
        """Every moment that can follow: with all that can start together started, or some of it, or nothing."""
        ready = self._ready(at)
        alike: dict[tuple[int, int, int], list[int]] = {}
        for stream in ready:
            alike.setdefault((self._class[stream], at.on[stream], at.barred[stream]), []).append(stream)
        groups = list(alike.values())
        options = sorted(
            (task, number)
            for number, group in enumerate(groups)
            for task, time in ready[group[0]].items()
            if time <= at.now and not at.barred[group[0]] >> task & 1 and self._fits(task, at.free)
        )
        for chosen in self._together(options, groups, at.free):
            moment = self._started(at, chosen, ready)
            if moment is not None:
                yield moment

    def _fits(self, task: int, free: int) -> bool:
        return (free - self._claims[task].demand) & self._guards == self._guards

    def _ready(self, at: Moment) -> _Ready:
        """By idle stream, when the tasks that wait for no other would be ready on it."""
        found: _Ready = {stream: {} for stream, busy in enumerate(at.busy) if busy < 0}
        over = dict(at.syncs)
        for task in members(self.everything & ~at.started):
            if self._before[task] & ~at.done:
                continue
            row, cluster = self._allowed[task], self._cluster[task]
            if cluster & at.started:
                row = tuple([stream for stream, there in enumerate(at.on) if there & cluster])
            late = [before for before in self.instance.before[task] if before in over]
            for stream in row:
                if stream in found:
                    here = at.on[stream]
                    found[stream][task] = max([at.now, *(over[before] for before in late if not here >> before & 1)])
        return found

    def _together(self, options: list[tuple[int, int]], groups: list[list[int]], free: int) -> Iterator[_Chosen]:
        """Every set of tasks that can start at once, as (task, stream); streams that are alike are taken in their order."""

        def grown(first: int, chosen: _Chosen, free: int, used: list[int]) -> Iterator[_Chosen]:
            for place in range(first, len(options)):
                task, number = options[place]
                taken = self._cluster[task]
                if used[number] == len(groups[number]) or not self._fits(task, free):
                    continue
                if any(taken >> other & 1 for other, _ in chosen):
                    continue
                stream = groups[number][used[number]]
                used[number] += 1
                yield from grown(place + 1, (*chosen, (task, stream)), free - self._claims[task].demand, used)
                used[number] -= 1
            yield chosen

        return grown(0, (), free, [0] * len(groups))

    def _started(self, at: Moment, chosen: _Chosen, ready: _Ready) -> Moment | None:
        """Where a walk is next when these tasks start now and no others; None if nothing can ever start again."""
        claims, started, trail, free = self._claims, at.started, at.trail, at.free
        busy, on, barred, running = list(at.busy), list(at.on), list(at.barred), list(at.running)
        over = [task for task, _ in chosen if not claims[task].work]
        for task, stream in chosen:
            started |= 1 << task
            on[stream] |= 1 << task
            barred[stream], trail = 0, (trail, task, stream)
            if claims[task].work:
                busy[stream] = task
                running.append((task, claims[task].work))
                free -= claims[task].demand
        if over:  # what follows it may start at the same time
            return self._moment(at.now, at, bits(over), started, free, running, busy, on, barred, trail)
        waiting = {stream: row for stream, row in ready.items() if busy[stream] < 0}
        upcoming = [
            time
            for row in waiting.values()
            for task, time in row.items()
            if time > at.now and not started >> task & 1 and self._fits(task, free)
        ]
        if not running and not upcoming:
            return None
        self._bar(at, started, running, waiting, barred)
        now, ended = min(upcoming, default=-1), 0
        if running:
            stretches = self.instance.rules.stretches([claims[task] for task, _ in running])
            soonest = min([at.now - -left * stretch // 1000 for (_, left), stretch in zip(running, stretches, strict=True)])
            now = soonest if now < 0 else min(now, soonest)
            passed = (now - at.now) * 1000
            rest = [(task, left - passed // stretch) for (task, left), stretch in zip(running, stretches, strict=True)]
            running = [(task, left) for task, left in rest if left > 0]
            for task, left in rest:
                if left <= 0:
                    ended |= 1 << task
                    busy[busy.index(task)] = -1
                    free += claims[task].demand
        return self._moment(now, at, ended, started, free, running, busy, on, barred, trail)

    def _bar(self, at: Moment, started: int, running: list[tuple[int, int]], waiting: _Ready, barred: list[int]) -> None:
        """Bar from each stream the tasks that would have started by now if they were next on it."""
        # Cores that are held, or claimed by a task that may wait for held ones too.
        held, claims = 0, self._claims
        for task, _ in running:
            held |= claims[task].kinds
        several = [task for task in members(self._several & ~started) if not self._before[task] & ~at.done]
        for _ in several:
            for task in several:
                if claims[task].kinds & held:
                    held |= claims[task].kinds
        for stream, row in waiting.items():
            barred[stream] |= bits([task for task, time in row.items() if time <= at.now and not claims[task].kinds & held])

    def _moment(
        self,
        now: int,
        at: Moment,
        ended: int,
        started: int,
        free: int,
        running: list[tuple[int, int]],
        busy: list[int],
        on: list[int],
        barred: list[int],
        trail: Trail,
    ) -> Moment:
        """A moment at which some tasks have ended; what draws no others to its stream is forgotten."""
        waiting = self.everything & ~started
        syncs = [(task, over) for task, over in at.syncs if over > now and self._after[task] & waiting]
        syncs += [(task, now + self._sync) for task in members(ended) if self._sync and self._after[task] & waiting]
        kept = bits([task for task, _ in syncs]) | bits([task for task, _ in running])
        for stream, there in enumerate(on):
            for task in members(there & ~kept):
                if not self._cluster[task] & waiting:
                    on[stream] &= ~(1 << task)
        return Moment(
            now=now,
            done=at.done | ended,
            started=started,
            free=free,
            running=tuple(running),
            syncs=tuple(syncs),
            busy=tuple(busy),
            on=tuple(on),
            barred=tuple([row & waiting for row in barred]),
            trail=trail,
        )
