"""How a plan's fate is put: the verdict with its numbers, and why."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from autostream import acceptance
from autostream.cost.model import CostModel
from autostream.errors import AutostreamError, VerificationError, percentage, plural
from autostream.graph.model import OpGraph
from autostream.options import Options
from autostream.outcome import UNKNOWN_CHIP, Outcome
from autostream.program import Memory, StreamProgram, peak_memory, returned_storages
from autostream.scheduling import Problem, Schedule, critical_path, explained_bound
from autostream.scheduling.problem import HCCL, MAIN
from autostream.verdict import Verdict

logger = logging.getLogger(__name__)

#: Why branches cannot run at once, by what `explained_bound` says they share.
_SAME_CORES = "its branches need the same cores, and kernels of one kind are not credited with running at once"
_SHARED = {
    "cube cores": _SAME_CORES,
    "vector cores": _SAME_CORES,
    "hbm": "its branches need all of the memory bandwidth, so beside each other they take as long",
    "comm": "its branches need the communication engine, which runs one collective at a time",
    "streams": "what could run at once has to stay on one stream",
    "everything together": "what could run at once shares cores or slows each other down by as much as it would save",
}


def verdict_of(model: CostModel | None, code: str, reason: str, numbers: Mapping[str, Any] | None = None) -> Verdict:
    """Return the verdict of this code; accepted only if the code says so. None for `model`: no chip could be told."""
    chip = UNKNOWN_CHIP if model is None else model.machine.name
    return Verdict(accepted=code == "accepted", code=code, reason=reason, chip=chip, **(numbers or {}))


def failed(error: Exception, graph: OpGraph | None, model: CostModel | None, options: Options) -> Outcome:
    """Warn of a step that failed and return the declined outcome; with ``strict``, raise the error again."""
    if options.strict:
        raise error
    ours = isinstance(error, AutostreamError)
    reason = str(error) if ours else f"unexpected {type(error).__name__}: {error}"
    logger.warning("autostream left the graph as it was: %s", reason, exc_info=None if ours else error)
    code = "unverified" if isinstance(error, VerificationError) else "error"
    return Outcome(verdict=verdict_of(model, code, reason), graph=graph)


def gain_numbers(gain: acceptance.Gain) -> dict[str, float]:
    """Return what a verdict tells of a gain, in the names of its fields."""
    names = ("low", "high", "p10", "p50", "p90")
    return {f"gain_{name}": getattr(gain, name) for name in names}


def why_accepted(gain: acceptance.Gain) -> str:
    """Return the reason of an accepted plan."""
    return f"simulated gain {percentage(gain.nominal)}, at least {percentage(gain.low)} within the cost model's error"


def why_nothing_overlaps(problem: Problem, serial: int, options: Options) -> str:
    """Return why a schedule opens no side stream; `serial` is the time of the graph as given, ns."""
    if options.strategy == "serial" or not options.side_streams:
        return f"the options open no side stream (strategy={options.strategy!r}, side_streams={options.side_streams})"
    if not serial:
        return "no operator of the graph takes any time"
    duration = {task.name: min(mode.duration for mode in task.modes) for task in problem.tasks}
    if sum(duration[name] for name in critical_path(problem)) >= serial:
        return "every operator waits for the one before it, so no two can run at once"
    found = explained_bound(problem)
    if found.time >= serial and found.by in _SHARED:
        return _SHARED[found.by]
    return f"what could run at once is worth less than the waits between streams, {problem.sync} ns each"


def why_already_scheduled(graph: OpGraph, options: Options, what: str) -> str | None:
    """Return the reason if a graph carries a schedule of ours, else None; `what` the graph is, for people."""
    ours = [op.name for op in graph if op.stream is not None and op.stream.startswith(options.label_prefix)]
    if not ours:
        return None
    return f"the {what} already carries a schedule of autostream ({ours[0]!r} and {plural(len(ours) - 1, 'more operator')})"


def memory_refusal_of(memory: Memory, serial: StreamProgram, graph: OpGraph, options: Options) -> tuple[str, str] | None:
    """Return (code, reason) if a plan takes more memory beyond the program as given than the user allows, else None."""
    if options.max_extra_bytes is None:
        return None
    as_given = peak_memory(serial, graph.storages, returned=returned_storages(graph))
    return acceptance.memory_refusal(memory.peak - as_given.peak, options.max_extra_bytes)


def saves_by_order(problem: Problem, schedule: Schedule, serial: int) -> bool:
    """True if a schedule is shorter than the `serial` time (ns) because it runs a stream in another order than the program.

    That is how computation gets between a collective, which has the engine's own stream, and what waits for it.
    """
    position = {task.name: number for number, task in enumerate(problem.tasks)}
    lanes = ([position[p.task] for p in lane] for lane in schedule.streams().values())
    return schedule.makespan < serial and any(lane != sorted(lane) for lane in lanes)


def side_streams_of(graph: OpGraph, schedule: Schedule) -> frozenset[str]:
    """Return the labels the schedule opens beside the default streams and the user's own."""
    own = {op.stream for op in graph}
    return frozenset(p.stream for p in schedule.placements) - {MAIN, HCCL} - own
