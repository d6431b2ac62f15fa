"""Prices of another cost model times a factor for each family of operators, as a user's profiles say."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from autostream.cost.measured.signature import family
from autostream.cost.model import Breakdown, CoreLimited, Cost, CostModel, Machine, Tier
from autostream.graph.model import Op, Unit

#: Two runs of one kernel differ by this much (3-5 % for products, 10-17 % for vector kernels in public profiles): no prediction
#: is surer, however alike the measurements it rests on. The wider end of each range.
_FLOOR = {Unit.CUBE: 0.05}
_FLOOR_OTHERS = 0.17


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyFactor:
    """Measured over predicted time of a family of operators, and the half-width of its scatter around that, a factor less one."""

    factor: float
    error: float


class ScaledModel:
    """Multiplies the base model's prices by the factor of the operator's family; what has no factor keeps its price."""

    def __init__(self, base: CostModel, factors: Mapping[str, FamilyFactor]) -> None:
        self._base = base
        self._factors = dict(sorted(factors.items()))

    @property
    def machine(self) -> Machine:
        """The chip the prices are for."""
        return self._base.machine

    def fingerprint(self) -> str:
        """Return a stable text that changes whenever a price could change."""
        if not self._factors:
            return self._base.fingerprint()
        text = repr([(name, one.factor, one.error) for name, one in self._factors.items()])
        return f"scaled-{hashlib.sha256(text.encode()).hexdigest()[:16]}/{self._base.fingerprint()}"

    def estimate(self, op: Op) -> Cost:
        """Return the base model's cost times the factor of the family (tier SCALED), or as it is."""
        return self._scale(op, self._base.estimate(op))

    def limited(self, op: Op, *, aic: int, aiv: int) -> Cost:
        """Return the cost on a part of the chip, scaled by the same factor; see `CoreLimited`."""
        return self._scale(op, limited(self._base, op, aic=aic, aiv=aiv))

    def _scale(self, op: Op, cost: Cost) -> Cost:
        found = self._factors.get(family(op.target))
        if found is None or not cost.duration or cost.tier is Tier.UNKNOWN:
            return cost
        scaled = times(cost, found.factor)
        return replace(scaled, tier=Tier.SCALED, error=max(found.error, floor(op)))


def limited(model: CostModel, op: Op, *, aic: int, aiv: int) -> Cost:
    """Return what a model says of an operator on a part of the chip; one that knows no limits answers for the whole chip."""
    return model.limited(op, aic=aic, aiv=aiv) if isinstance(model, CoreLimited) else model.estimate(op)


def floor(op: Op) -> float:
    """Return the relative error below which no prediction of this operator is."""
    return _FLOOR.get(op.unit, _FLOOR_OTHERS)


def times(cost: Cost, factor: float) -> Cost:
    """Return a cost whose time and terms are multiplied. The bytes stay: the share of the memory rate shrinks as time grows."""
    duration = max(1, round(cost.duration * factor))
    parts = cost.breakdown
    names = ("cube", "vector", "hbm", "l2", "comm")
    terms = {name: min(duration, round(getattr(parts, name) * factor)) for name in names}
    # Duration = launch + the largest of the others, whatever rounding does.
    breakdown = Breakdown(launch=duration - max(terms.values()), **terms)
    share = min(cost.resources.hbm, 1000) if factor <= 1 else min(1000, math.ceil(cost.resources.hbm / factor))
    return replace(cost, duration=duration, breakdown=breakdown, resources=replace(cost.resources, hbm=share))
