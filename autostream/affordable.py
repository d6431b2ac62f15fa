"""Keep a plan within the waits that the user allows it, and within what the process has left of streams and events.

What does not fit is planned again: on fewer streams if streams are short, and then as the shortest plan that is found with so
few waits (`autostream.scheduling.capped`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from autostream.budget import Ledger, Limits, Need, need_of
from autostream.outcome import Outcome
from autostream.report.wording import change, duration, plural
from autostream.scheduling import MAIN, Problem, Schedule, crossings

#: What is emitted may wait more often than planned: then the plan has to get by with fewer waits still, so many times at most.
_TRIES = 3
#: The codes of plans that take more than they may.
_SHORT = ("over-wait-cap", "over-budget")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How a graph is planned and tried."""

    #: Solves a problem from scratch.
    solve: Callable[[Problem], Schedule]
    #: Makes of a schedule the best one that keeps to the problem's `max_waits`.
    shorten: Callable[[Problem, Schedule], Schedule]
    #: Emits a schedule, proves it and judges it.
    run: Callable[[Schedule], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What plans may take: each graph of waits, and all graphs of one process together of streams and events."""

    ledger: Ledger
    limits: Limits
    max_waits: int | None = None

    def waits(self) -> int | None:
        """Most waits of the next graph; None if nothing limits them."""
        return min((limit for limit in (self.max_waits, self._left().events) if limit is not None), default=None)

    def streams(self) -> int | None:
        """Most streams of the next graph, the default ones included; None if nothing limits them."""
        return self._left().streams

    def allow(self, need: Need) -> bool:
        """Return True if a graph may take so much."""
        return not self.too_many_waits(need) and self._left().allow(need)

    def too_many_waits(self, need: Need) -> bool:
        """Return True if a graph has more waits than the user allows each."""
        return self.max_waits is not None and need.events > self.max_waits

    def why(self, need: Need) -> str:
        """Return what is short for a graph, in words."""
        if self.too_many_waits(need):
            return f"max_waits is {self.max_waits}"
        left = self._left()
        short = [
            f"{max(limit, 0)} {what}"
            for what, amount, limit in (("streams", need.streams, left.streams), ("events", need.events, left.events))
            if limit is not None and amount > limit
        ]
        return f"the process has {' and '.join(short)} left"

    def _left(self) -> Limits:
        return self.ledger.left(self.limits)


def enter(outcome: Outcome, means: Means) -> Outcome:
    """Enter an accepted plan into the ledger; if it takes more than it may, return it declined."""
    if not outcome.verdict.accepted or outcome.program is None:
        return outcome
    need = need_of(outcome.program)
    if means.too_many_waits(need):
        return outcome.declined("over-wait-cap", f"the scheduled graph has {_waits(need.events)}, and {means.why(need)}")
    reason = means.ledger.reserve(need, means.limits)
    return outcome if reason is None else outcome.declined("over-budget", reason)


def leave(outcome: Outcome, ledger: Ledger) -> None:
    """Take a plan out of the ledger that was entered and is not used after all; nothing for one that was declined."""
    if outcome.verdict.accepted and outcome.program is not None:
        ledger.release(need_of(outcome.program))


def afford(schedule: Schedule, problem: Problem, means: Means, ways: Ways) -> Outcome:
    """Try a schedule, or the best one that keeps within the means, and enter it into the ledger if it is accepted."""
    outcome: Outcome | None = None
    if means.allow(_planned(problem, schedule)):
        outcome = ways.run(schedule)
        if outcome.program is None or not outcome.verdict.accepted or means.allow(need_of(outcome.program)):
            return enter(outcome, means)
    found = _within(schedule, problem, means, ways)
    if found is None:
        return enter(outcome or ways.run(schedule), means)
    smaller, kept = found
    if smaller.verdict.accepted:
        return enter(replace(smaller, notes=(*smaller.notes, _note(problem, schedule, kept, means))), means)
    plain = enter(outcome or ways.run(schedule), means)
    if plain.verdict.code not in _SHORT:
        return plain
    nothing = smaller.verdict.code == "nothing-to-overlap"
    within = "no plan within that saves time" if nothing else f"the best plan within that: {smaller.verdict.reason}"
    return replace(plain, verdict=replace(plain.verdict, reason=f"{plain.verdict.reason}; {within}"))


def _within(schedule: Schedule, problem: Problem, means: Means, ways: Ways) -> tuple[Outcome, Schedule] | None:
    """Return the best schedule within the means and what becomes of it; None if there is none."""
    problem, full = _on_few_streams(schedule, problem, means, ways)
    most = allowed = means.waits()
    for _ in range(_TRIES):
        found = full if most is None else ways.shorten(replace(problem, max_waits=max(most, 0)), full)
        if most is not None and crossings(problem, found) > most:
            return None
        outcome = ways.run(found)
        if outcome.program is None or not outcome.verdict.accepted:
            return outcome, found
        need = need_of(outcome.program)
        if means.allow(need):
            return outcome, found
        if most is None or allowed is None or need.events <= allowed:
            return None
        most = crossings(problem, found) - (need.events - allowed)
    return None


def _on_few_streams(schedule: Schedule, problem: Problem, means: Means, ways: Ways) -> tuple[Problem, Schedule]:
    """Return the problem with as few side streams as the process has left, and its solution: the schedule, if it fits."""
    most = means.streams()
    if most is None:
        return problem, schedule
    used = {placement.stream for placement in schedule.placements}
    side = [stream for stream in problem.open_streams if stream != MAIN]
    closed = side[max(0, most - len(used.difference(side))) :]
    fewer = replace(problem, streams=tuple(stream for stream in problem.streams if stream not in closed))
    return fewer, schedule if used.isdisjoint(closed) else ways.solve(fewer)


def _note(problem: Problem, full: Schedule, kept: Schedule, means: Means) -> str:
    """What the limit costs, for people."""
    before, after = _planned(problem, full), _planned(problem, kept)
    costs = change(1 - kept.makespan / full.makespan) if kept.makespan > full.makespan else "nothing"
    proved = ", and no plan with so few waits is shorter" if kept.status == "optimal" else ""
    return (
        f"{means.why(before)}: the plan without that limit has {_waits(before.events)} on {plural(before.streams, 'stream')} and "
        f"takes {duration(full.makespan)}, this one has {after.events} on {after.streams} and takes {duration(kept.makespan)}; "
        f"the limit costs {costs}{proved}"
    )


def _planned(problem: Problem, schedule: Schedule) -> Need:
    """What a schedule takes, before it is emitted."""
    return Need(streams=len({placement.stream for placement in schedule.placements}), events=crossings(problem, schedule))


def _waits(count: int) -> str:
    return f"{plural(count, 'wait')} between streams"
