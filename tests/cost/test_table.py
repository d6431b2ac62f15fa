"""Prices from a table."""

from __future__ import annotations

from typing import Any

import pytest

from autostream.cost import FREE, Breakdown, Cost, Machine, Resources, RooflineModel, TableModel, Tier, load_chip
from autostream.errors import InputError
from autostream.graph.model import Unit
from tests.cost.build import collective, make, mm, spec, vector

MACHINE = Machine(name="toy", aic=4, aiv=8, sync=100, sync_error=0.5)
EXACT = Cost(duration=7, breakdown=Breakdown(launch=7), resources=Resources(aiv=2), tier=Tier.SCALED, error=0.1)


def test_names_win_over_targets_and_targets_over_base_names() -> None:
    prices: dict[str, Cost | float] = {"op": 1, "aten.mm.default": 2, "aten.mm": 3}
    for expected, key in ((1000, "op"), (2000, "aten.mm.default"), (3000, "aten.mm")):
        assert TableModel(MACHINE, prices).estimate(mm(8, 8, 8)).duration == expected
        del prices[key]


def test_a_cost_is_returned_as_it_is() -> None:
    assert TableModel(MACHINE, {"op": EXACT}).estimate(mm(8, 8, 8)) is EXACT


@pytest.mark.parametrize(
    ("op", "term", "held"),
    [
        (mm(8, 8, 8), "cube", Resources(aic=4)),
        (vector("aten.add.Tensor", 8), "vector", Resources(aiv=8)),
        (make("a.b", Unit.MIXED, (), ()), "cube", Resources(aic=4, aiv=8)),
        (collective("c.d", (spec(1),), ()), "comm", Resources(comm=1)),
        (make("e.f", Unit.HOST, (), ()), "launch", Resources()),
    ],
)
def test_microseconds_hold_the_whole_unit(op: Any, term: str, held: Resources) -> None:
    cost = TableModel(MACHINE, {"op": 2.5}).estimate(op)
    assert (cost.duration, cost.resources, cost.tier, cost.error) == (2500, held, Tier.MEASURED, 0.0)
    assert cost.breakdown == Breakdown(**{term: 2500})


def test_a_fallback_says_what_is_held_and_prices_the_rest() -> None:
    roofline = RooflineModel(load_chip("910B2"))
    model = TableModel(roofline.machine, {"aten.add": 5}, fallback=roofline)
    small = vector("aten.add.Tensor", 8192)
    assert model.estimate(small).duration == 5000
    assert model.estimate(small).resources == roofline.estimate(small).resources
    assert model.estimate(mm(8, 8, 8)) == roofline.estimate(mm(8, 8, 8))


def test_without_a_fallback_the_rest_is_unknown_and_long() -> None:
    cost = TableModel(MACHINE, {"a": 3, "b": EXACT}).estimate(mm(8, 8, 8))
    assert (cost.tier, cost.duration, cost.resources) == (Tier.UNKNOWN, 3000, Resources(aic=4, aiv=8))
    assert TableModel(MACHINE, {}).estimate(mm(8, 8, 8)).duration >= 1


def test_views_stay_free() -> None:
    assert TableModel(MACHINE, {"op": 3}).estimate(make("aten.view.default", Unit.FREE, (), ())) == FREE


def test_a_tiny_price_is_still_a_task() -> None:
    assert TableModel(MACHINE, {"op": 1e-9}).estimate(mm(8, 8, 8)).duration == 1


@pytest.mark.parametrize("price", [0, -1, float("nan"), float("inf"), True, "3", None])
def test_a_price_that_is_no_time_is_refused(price: Any) -> None:
    with pytest.raises(InputError, match="price of 'op' = .* microseconds above zero"):
        TableModel(MACHINE, {"op": price})


def test_the_fingerprint_follows_the_prices_not_their_order() -> None:
    first = TableModel(MACHINE, {"a": 1, "b": 2}).fingerprint()
    assert first == TableModel(MACHINE, {"b": 2, "a": 1}).fingerprint()
    assert first != TableModel(MACHINE, {"a": 1, "b": 3}).fingerprint()
    assert first != TableModel(MACHINE, {"a": 1, "b": 2}, RooflineModel(load_chip("910B2"))).fingerprint()
