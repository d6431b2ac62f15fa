"""Accept or decline: is the simulated gain larger than what the cost model could be wrong by?

Costs of one unit tend to be wrong in the same direction, so the gain is recomputed at corners where all costs of one unit
sit at one end of their error band while the others stay, and where every unit sits at the same end. The sync cost is taken
at its dear end for the worst gain and at its cheap end for the best.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from autostream.cost.model import Cost, Machine
from autostream.graph.model import OpGraph, Unit
from autostream.program import StreamProgram, simulate


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Simulated times (ns) and the gain (share of the serial time) with its worst and best corner."""

    serial: int
    scheduled: int
    low: float
    high: float

    @property
    def nominal(self) -> float:
        """Gain at the predicted costs."""
        return _gain(self.serial, self.scheduled)


def gain(before: StreamProgram, after: StreamProgram, graph: OpGraph, costs: Mapping[str, Cost], machine: Machine) -> Gain:
    """Simulate both programs at the predicted costs and at every corner."""
    dear = replace(machine, sync=round(machine.sync * (1 + machine.sync_error)))
    cheap = replace(machine, sync=round(machine.sync * (1 - machine.sync_error)))
    gains = []
    for corner in _corners(graph, costs):
        gains += [_gain(simulate(before, corner, at).makespan, simulate(after, corner, at).makespan) for at in (dear, cheap)]
    return Gain(
        serial=simulate(before, costs, machine).makespan,
        scheduled=simulate(after, costs, machine).makespan,
        low=min(gains),
        high=max(gains),
    )


def _corners(graph: OpGraph, costs: Mapping[str, Cost]) -> Iterator[Mapping[str, Cost]]:
    units_of = {op.name: op.unit for op in graph}
    units = sorted(set(units_of.values()) - {Unit.FREE})
    groups = [frozenset({unit}) for unit in units]
    if len(units) > 1:
        groups.append(frozenset(units))
    for group in groups:
        for sign in (-1, 1):
            yield {name: _scaled(cost, sign) if units_of.get(name) in group else cost for name, cost in costs.items()}


def _scaled(cost: Cost, sign: int) -> Cost:
    return replace(cost, duration=max(0, round(cost.duration * (1 + sign * cost.error))))


def _gain(serial: int, scheduled: int) -> float:
    return 1.0 - scheduled / serial if serial else 0.0


def refusal(gain: Gain, min_gain: float) -> tuple[str, str] | None:
    """Return (code, reason) if the gain is not worth a rewrite, else None."""
    if gain.nominal < min_gain:
        return "no-gain", f"the simulated gain of {gain.nominal:.1%} is below min_gain ({min_gain:.1%})"
    if gain.low <= 0:
        text = f"the simulated gain of {gain.nominal:.1%} is within the cost model's error (worst corner {gain.low:.1%})"
        return "within-error", text
    return None
