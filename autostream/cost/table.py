"""A cost model from a table, for tests and for users who know better."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace

from autostream.cost.chips.factors import base_name
from autostream.cost.model import FREE, Breakdown, Cost, CostModel, Machine, Resources, Tier
from autostream.errors import InputError
from autostream.graph.model import Op, Unit

#: As wide as the `unknown` class of the shipped chip files.
_UNKNOWN_ERROR = 1.47


class TableModel:
    """Prices by operator name, target (``"aten.mm.default"``) or target without overload (``"aten.mm"``), in this order.

    A price is a `Cost`, or a duration in microseconds: it then holds what the fallback says this operator holds, without a
    fallback all cores of its unit. What the table does not name goes to the fallback; without one it is UNKNOWN, as long as
    the longest entry, on the whole chip.

    Raises:
        InputError: a price is neither a Cost nor a number of microseconds above zero.
    """

    def __init__(self, machine: Machine, prices: Mapping[str, Cost | float], fallback: CostModel | None = None) -> None:
        for name, price in prices.items():
            _check(name, price)
        self._machine = machine
        self._prices = dict(prices)
        self._fallback = fallback

    @property
    def machine(self) -> Machine:
        """The chip the prices are for."""
        return self._machine

    def fingerprint(self) -> str:
        """Return a stable text that changes whenever a price could change."""
        text = repr((self._machine, sorted(self._prices.items(), key=lambda item: item[0])))
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return f"table-{digest}/{self._fallback.fingerprint() if self._fallback else ''}"

    def estimate(self, op: Op) -> Cost:
        """Return the table's price, the fallback's, or a conservative guess; an operator without a task is free."""
        if op.unit is Unit.FREE:
            return FREE
        price = self._find(op)
        if isinstance(price, Cost):
            return price
        if price is not None:
            held = self._fallback.estimate(op).resources if self._fallback else self._whole_unit(op.unit)
            return _measured(op.unit, price, held)
        return self._fallback.estimate(op) if self._fallback else self._unknown(op)

    def _find(self, op: Op) -> Cost | float | None:
        keys = (op.name, op.target, base_name(op.target))
        return next((self._prices[key] for key in keys if key in self._prices), None)

    def _whole_unit(self, unit: Unit) -> Resources:
        aic = self._machine.aic if unit in (Unit.CUBE, Unit.MIXED) else 0
        aiv = self._machine.aiv if unit in (Unit.VECTOR, Unit.MIXED) else 0
        return Resources(aic=aic, aiv=aiv, comm=int(unit is Unit.COMM))

    def _unknown(self, op: Op) -> Cost:
        longest = max((_nanoseconds(price) for price in self._prices.values()), default=1000)
        held = Resources(aic=self._machine.aic, aiv=self._machine.aiv, comm=int(op.unit is Unit.COMM))
        return Cost(
            duration=longest, breakdown=Breakdown(launch=longest), resources=held, tier=Tier.UNKNOWN, error=_UNKNOWN_ERROR
        )


def _check(name: str, price: object) -> None:
    if isinstance(price, Cost):
        return
    is_number = isinstance(price, int | float) and not isinstance(price, bool)
    if not is_number or not math.isfinite(price) or price <= 0:  # type: ignore[operator, arg-type]
        raise InputError(f"price of {name!r} = {price!r}: a Cost, or a number of microseconds above zero, is allowed")


def _nanoseconds(price: Cost | float) -> int:
    return price.duration if isinstance(price, Cost) else max(1, round(price * 1000))


def _measured(unit: Unit, microseconds: float, held: Resources) -> Cost:
    """Return a cost whose time stands under the term of its unit."""
    duration = _nanoseconds(microseconds)
    term = {Unit.CUBE: "cube", Unit.MIXED: "cube", Unit.VECTOR: "vector", Unit.COMM: "comm"}.get(unit, "launch")
    breakdown = replace(Breakdown(), **{term: duration})
    return Cost(duration=duration, breakdown=breakdown, resources=held, tier=Tier.MEASURED, error=0.0)
