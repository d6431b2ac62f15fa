"""Keep a plan within what the process has left of streams and events: the regions that gain least go first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from autostream.budget import Ledger, Limits, Need, Region, need_of, within_budget
from autostream.outcome import Outcome
from autostream.scheduling import Problem, Schedule
from autostream.scheduling.undo import without

#: More than any driver has: stands for "no limit is known".
_PLENTY = 1 << 40


def enter(outcome: Outcome, ledger: Ledger, limits: Limits) -> Outcome:
    """Enter an accepted plan into the ledger; if the process has not enough left, return it declined."""
    if not outcome.verdict.accepted or outcome.program is None:
        return outcome
    reason = ledger.reserve(need_of(outcome.program), limits)
    if reason is None:
        return outcome
    verdict = replace(outcome.verdict, accepted=False, code="over-budget", reason=reason)
    return replace(outcome, verdict=verdict, graph_module=None, ascend_ir=None)


def afford(outcome: Outcome, problem: Problem, ledger: Ledger, limits: Limits, run: Callable[[Schedule], Outcome]) -> Outcome:
    """Enter an accepted plan into the ledger, with fewer regions if the process has not enough left for all of them.

    Args:
        outcome: of the whole schedule.
        problem: what was scheduled.
        ledger: what the process holds.
        limits: what it may hold.
        run: tries a schedule.
    """
    entered = enter(outcome, ledger, limits)
    schedule = outcome.schedule
    if entered.verdict.code != "over-budget" or schedule is None:
        return entered
    moved = [region for region in schedule.regions if region.crossings]
    parts = [Region(gain=r.gain, streams=frozenset(r.side_streams), events=r.crossings) for r in moved]
    kept = within_budget(parts, _left(ledger, limits, _beside(outcome, parts)))
    if not kept or len(kept) == len(moved):
        return entered
    dropped = [region.number for position, region in enumerate(moved) if position not in kept]
    fewer = enter(run(without(schedule, problem, dropped)), ledger, limits)
    if not fewer.verdict.accepted:
        return entered
    note = (
        f"{len(dropped)} of {len(moved)} regions with overlap, those that gain least, were left in order: the process has not "
        f"enough streams or events left ({entered.verdict.reason})"
    )
    return replace(fewer, notes=(*fewer.notes, note))


def _beside(outcome: Outcome, parts: Sequence[Region]) -> Need:
    """Return what a plan takes that belongs to no region: the default streams, and the waits at the cuts between regions."""
    assert outcome.program is not None
    need = need_of(outcome.program)
    streams = frozenset[str]().union(*(part.streams for part in parts))
    return Need(streams=max(1, need.streams - len(streams)), events=max(0, need.events - sum(part.events for part in parts)))


def _left(ledger: Ledger, limits: Limits, base: Need) -> Need:
    """Return what is left for the regions, beside `base`."""
    used = ledger.used
    return Need(
        streams=_PLENTY if limits.streams is None else max(0, limits.streams - used.streams - base.streams),
        events=_PLENTY if limits.events is None else max(0, limits.events - used.events - base.events),
    )
