"""What a cost model answers: how long an operator takes, on what, and how sure that is. All times are integer nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from autostream.graph.model import Op


class Tier(StrEnum):
    """Where a prediction comes from, most trusted first."""

    MEASURED = "measured"
    SCALED = "scaled"
    ANALYTIC = "analytic"
    #: The operator table does not know the operator: a conservative guess from its bytes.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """The terms of the roofline, ns each. Duration = launch + the largest of the others."""

    launch: int = 0
    cube: int = 0
    vector: int = 0
    hbm: int = 0
    l2: int = 0
    comm: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What an operator holds while it runs."""

    #: Cube cores and vector cores, held exclusively.
    aic: int = 0
    aiv: int = 0
    #: Share of the HBM bandwidth in thousandths (1000 = all of it); divisible among co-runners.
    hbm: int = 0
    #: 1 if it occupies the communication engine.
    comm: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """A prediction for one operator."""

    duration: int
    breakdown: Breakdown
    resources: Resources
    tier: Tier
    #: Half-width of the error band, as a factor less one: the true time is taken to lie in duration / (1 + error) ..
    #: duration * (1 + error). A prediction is as likely to be half of the truth as twice as much.
    error: float
    #: Error, of the same form, that nine of ten single operators of the class stay within; 0 where nothing scatters.
    spread: float = 0.0


#: What an operator without a task costs.
FREE = Cost(duration=0, breakdown=Breakdown(), resources=Resources(), tier=Tier.MEASURED, error=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the scheduler and the simulator need to know of a chip."""

    name: str
    aic: int
    aiv: int
    #: Cost of one cross-stream dependency, ns.
    sync: int
    #: Relative half-width of the error of `sync`.
    sync_error: float
    #: What operators that run at the same time cost each other, in thousandths (1000 = nothing): what the memory rate of several
    #: users is divided by, the time of a kernel beside another one on other cores, and of a kernel and a collective side by side.
    hbm_contention: int = 1000
    cube_vector_slowdown: int = 1000
    compute_comm_slowdown: int = 1000
    #: Relative half-width of the error that the three share; a slowdown never falls below 1000.
    interference_error: float = 0.0
    #: Whether a ReLU right behind a convolution is no kernel of its own.
    fuses_relu: bool = False
    #: Streams and events that one process may take, over all its graphs; None = not known.
    max_streams: int | None = None
    max_events: int | None = None
    #: Bytes that may be prefetched into the cache and not yet used; None = not known.
    max_prefetch_bytes: int | None = None


class CostModel(Protocol):
    """Anything that can price operators."""

    @property
    def machine(self) -> Machine:
        """The chip the prices are for."""
        ...

    def estimate(self, op: Op) -> Cost:
        """Return the cost of one operator; never raises for an operator it does not know (tier UNKNOWN)."""
        ...

    def fingerprint(self) -> str:
        """Return a stable text that changes whenever a price could change."""
        ...


@runtime_checkable
class CoreLimited(CostModel, Protocol):
    """A cost model that also knows what operators cost on a part of the chip."""

    def limited(self, op: Op, *, aic: int, aiv: int) -> Cost:
        """Return the cost of an operator that may use at most so many cube and vector cores.

        An operator whose kernel would not keep the limit answers with its cost on the whole chip: the resources tell.
        """
        ...
