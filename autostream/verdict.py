"""The decision about one graph, and the numbers it rests on. Every time is simulated, in integer nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Accepted or declined, and why."""

    accepted: bool
    #: Machine-readable reason: ``accepted``, ``no-gain``, ``within-error``, ``nothing-to-overlap``, ``dynamic-shape``,
    #: ``no-shapes``, ``hand-written-sync``, ``already-scheduled``, ``not-convertible``, ``single-stream``, ``unsupported``,
    #: ``over-memory-cap``, ``over-wait-cap``, ``over-budget``, ``ranks-disagree``, ``unverified``, ``error``;
    #: ``as-written`` where nobody asked for a plan.
    code: str
    #: The same for people, one sentence.
    reason: str
    chip: str
    strategy: str = ""
    #: Simulated time of the graph as the engine would run it unscheduled, and of the scheduled program.
    serial_ns: int = 0
    scheduled_ns: int = 0
    #: What no schedule can beat, computed outside the solver.
    lower_bound_ns: int = 0
    #: Gain (share of the serial time) at the worst and the best corner of the cost model's error bands.
    gain_low: float = 0.0
    gain_high: float = 0.0
    #: Gain that nine, five and one of ten random draws of the cost model's errors reach; see `autostream.acceptance`.
    gain_p10: float = 0.0
    gain_p50: float = 0.0
    gain_p90: float = 0.0
    side_streams: int = 0
    cross_edges: int = 0
    control_edges: int = 0
    #: Share of the serial time whose costs are analytic or unknown.
    unmeasured: float = 0.0

    @property
    def gain(self) -> float:
        """Simulated gain as a share of the serial time (0 if there is no time)."""
        return 1.0 - self.scheduled_ns / self.serial_ns if self.serial_ns else 0.0
