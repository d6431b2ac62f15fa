"""Prices from a profile: tiers, error bands, resources, identity."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autostream.cost import FREE, Breakdown, Cost, Machine, MeasuredModel, Resources, RooflineModel, Tier, load_chip
from autostream.cost.measured.measured import family_factors
from autostream.cost.measured.scaled import FamilyFactor, ScaledModel, times
from autostream.cost.model import CoreLimited
from autostream.graph.model import Op, Unit
from autostream.profiles import Core, Kernel
from tests.cost.build import collective, make, mm, spec, vector
from tests.cost.kernels import add, kernel, matmul, profile, tensor


class Flat:
    """Every operator takes the same time, and twice that on half of the cores."""

    machine = Machine(name="flat", aic=24, aiv=48, sync=450, sync_error=1.0)

    def __init__(self, duration: int = 1000, tier: Tier = Tier.ANALYTIC) -> None:
        self.cost = Cost(
            duration=duration,
            breakdown=Breakdown(launch=duration // 10, vector=duration - duration // 10, hbm=duration // 2),
            resources=Resources(aic=20, aiv=30, hbm=500),
            tier=tier,
            error=0.3,
        )

    def estimate(self, op: Op) -> Cost:
        return FREE if op.unit is Unit.FREE else self.cost

    def fingerprint(self) -> str:
        return "flat"


class Limited(Flat):
    def limited(self, op: Op, *, aic: int, aiv: int) -> Cost:
        if aic >= 20 and aiv >= 30:
            return self.cost
        held = Resources(aic=min(20, aic), aiv=min(30, aiv), hbm=250)
        return replace(times(self.cost, 2.0), resources=held)


def addition(*shape: int) -> Op:
    return make("aten.add.Tensor", Unit.VECTOR, (spec(*shape), spec(*shape)), (spec(*shape),))


def consistent(cost: Cost) -> bool:
    parts = cost.breakdown
    terms = (parts.cube, parts.vector, parts.hbm, parts.l2, parts.comm)
    return cost.duration == parts.launch + max(terms) and min(parts.launch, *terms) >= 0


def test_three_tiers() -> None:
    model = MeasuredModel(Flat(), profile(*(add(8, 32, duration) for duration in (1900, 2000, 9000))))
    seen = model.estimate(addition(8, 32))
    assert (seen.duration, seen.tier) == (2000, Tier.MEASURED)
    other = model.estimate(addition(16, 64))
    # One signature in three says 2: a third of the way, in logarithms.
    assert (other.duration, other.tier) == (round(1000 * 2 ** (1 / 3)), Tier.SCALED)
    assert model.estimate(mm(8, 32, 64)) == Flat().cost
    assert all(consistent(cost) for cost in (seen, other))


def test_more_signatures_move_a_factor_further() -> None:
    def factor(count: int) -> float:
        kernels = [add(8, 32 * (place + 2), 2000) for place in range(count)]
        return family_factors(Flat(), kernels)["aten.add"].factor

    assert [factor(count) for count in (1, 2, 6)] == pytest.approx([2 ** (1 / 3), 2 ** (1 / 2), 2 ** (3 / 4)], rel=1e-4)


def test_repeats_of_one_shape_are_one_piece_of_evidence() -> None:
    once = family_factors(Flat(), [add(8, 32, 2000)])
    assert family_factors(Flat(), [add(8, 32, 2000, start=start) for start in range(40)]) == once


def test_one_outlier_does_not_move_a_factor() -> None:
    kernels = [add(8, 32 * place, 2000) for place in range(2, 9)]
    spoilt = [*kernels, add(8, 32, 2_000_000)]
    assert family_factors(Flat(), spoilt)["aten.add"].factor == pytest.approx(2 ** (8 / 10), rel=1e-4)


def test_sizes_that_share_no_factor_get_none_but_an_honest_error() -> None:
    kernels = [add(8, 32 * place, duration) for place, duration in enumerate((500, 2000, 500, 2000), start=2)]
    found = family_factors(Flat(), kernels)["aten.add"]
    assert found.factor == 1
    assert found.error >= 0.3


@pytest.mark.parametrize(
    ("durations", "error"),
    [
        ([2000], 0.17),
        ([1990, 2000, 2010], 0.17),
        ([1500, 2000, 3000], 0.5),
        ([1500, 2000, 2100], 1 / 3),
        ([100, 2000, 90_000], 1.0),
    ],
)
def test_errors_are_the_scatter_and_never_below_what_repeats(durations: list[int], error: float) -> None:
    model = MeasuredModel(Flat(), profile(*(add(8, 32, duration) for duration in durations)))
    found = model.estimate(addition(8, 32))
    assert found.error == found.spread == pytest.approx(error), "what was measured does not scatter as its class does"


def test_products_repeat_better_than_vector_kernels() -> None:
    model = MeasuredModel(Flat(), profile(matmul(8, 32, 64, 500)))
    assert model.estimate(mm(8, 32, 64)).error == 0.05


def test_cores_are_those_that_ran_it() -> None:
    model = MeasuredModel(Flat(), profile(matmul(8, 32, 64, 500, blocks=7), add(8, 32, 2000), add(4, 4, 100)))
    assert model.estimate(mm(8, 32, 64)).resources.aic == 7
    assert model.estimate(addition(8, 32)).resources.aiv == 40
    wide = MeasuredModel(Flat(), profile(replace(add(8, 32, 2000), blocks=256)))
    assert wide.estimate(addition(8, 32)).resources.aiv == 48  # more blocks than cores


def test_the_same_bytes_in_more_time_take_less_of_the_memory_rate() -> None:
    model = MeasuredModel(Flat(), profile(add(8, 32, 4000)))
    assert model.estimate(addition(8, 32)).resources.hbm == 125
    faster = MeasuredModel(Flat(), profile(add(8, 32, 100)))
    assert faster.estimate(addition(8, 32)).resources.hbm <= 1000


def test_plain_layouts_are_preferred_to_blocked_ones() -> None:
    blocked = kernel(
        "MatMulV3", (tensor(8, 64), tensor(2, 4, 16, 16, layout="FRACTAL_NZ")), (tensor(8, 32),), 400, core=Core.AI_CORE
    )
    assert MeasuredModel(Flat(), profile(blocked)).estimate(mm(8, 32, 64)).duration == 400
    assert MeasuredModel(Flat(), profile(blocked, matmul(8, 32, 64, 500))).estimate(mm(8, 32, 64)).duration == 500


def test_what_has_no_task_or_no_shapes_keeps_its_price() -> None:
    hcom = kernel("hcom_allReduce_", (), (), 9_000_000, core=Core.COMMUNICATION)
    model = MeasuredModel(Flat(), profile(hcom, add(8, 32, 0)))
    assert model.estimate(collective("_c10d_functional.all_reduce.default", (spec(8),), (spec(8),))) == Flat().cost
    assert model.estimate(make("aten.view.default", Unit.FREE, (spec(8),), (spec(8),))) == FREE
    assert model.estimate(addition(8, 32)).tier is Tier.ANALYTIC  # a kernel of no time says nothing


def test_unknown_operators_are_not_scaled() -> None:
    base = Flat(tier=Tier.UNKNOWN)
    model = ScaledModel(base, {"aten.add": FamilyFactor(factor=3.0, error=0.2)})
    assert model.estimate(addition(8, 32)) == base.cost


def test_core_limits_are_scaled_by_the_same_factor() -> None:
    model = MeasuredModel(Limited(), profile(add(8, 32, 3000)))
    limited = model.limited(addition(8, 32), aic=24, aiv=24)
    assert (limited.duration, limited.resources.aiv, limited.tier) == (6000, 24, Tier.SCALED)
    assert limited.error >= model.estimate(addition(8, 32)).error
    factor = 3 ** (1 / 3)
    assert model.limited(addition(4, 4), aic=24, aiv=24).duration == pytest.approx(2000 * factor, abs=2)
    assert model.limited(mm(8, 32, 64), aic=12, aiv=48).duration == 2000
    # A limit that leaves the operator what it wants changes nothing.
    for op in (addition(8, 32), addition(4, 4), mm(8, 32, 64)):
        assert model.limited(op, aic=24, aiv=48) == model.estimate(op)


def test_what_ran_on_few_blocks_costs_what_it_took_under_a_limit() -> None:
    small = kernel("Add", (tensor(8, 32), tensor(8, 32)), (tensor(8, 32),), 3000, blocks=6)
    base = Limited()
    base.cost = replace(base.cost, resources=Resources(aiv=30, hbm=500))
    model = MeasuredModel(base, profile(small))
    assert model.limited(addition(8, 32), aic=0, aiv=8) == model.estimate(addition(8, 32))
    assert model.limited(addition(8, 32), aic=0, aiv=4).duration == 6000


def test_a_base_model_without_limits_answers_for_the_whole_chip() -> None:
    model = MeasuredModel(Flat(), profile(add(8, 32, 3000)))
    for op in (addition(8, 32), addition(4, 4), mm(8, 32, 64)):
        assert model.limited(op, aic=1, aiv=1) == model.estimate(op)
    assert isinstance(model, CoreLimited)


def test_core_limits_of_the_real_base_model() -> None:
    base = RooflineModel(load_chip("910B2"))
    model = MeasuredModel(base, profile(matmul(2048, 4096, 4096, 300_000)))
    op = mm(2048, 4096, 4096)
    half, whole = model.limited(op, aic=12, aiv=24), model.estimate(op)
    growth = base.limited(op, aic=12, aiv=24).duration / base.estimate(op).duration
    assert half.resources.aic == 12 and whole.resources.aic == 24
    assert half.duration / whole.duration == pytest.approx(growth, rel=1e-3) and growth > 1.2
    assert consistent(half)


def test_fingerprints_tell_profiles_factors_and_base_models_apart() -> None:
    one, other = profile(add(8, 32, 1), digest="a"), profile(add(8, 32, 1), digest="b")
    texts = {MeasuredModel(Flat(), given).fingerprint() for given in (one, one, other)}
    assert len(texts) == 2 and all(text.endswith("/flat") for text in texts)
    factors = {"aten.add": FamilyFactor(factor=2.0, error=0.2)}
    more = factors | {"aten.mm": FamilyFactor(factor=1.0, error=0.2)}
    assert len({ScaledModel(Flat(), given).fingerprint() for given in ({}, factors, more)}) == 3
    assert ScaledModel(Flat(), dict(reversed(more.items()))).fingerprint() == ScaledModel(Flat(), more).fingerprint()


def test_a_real_base_model() -> None:
    base = RooflineModel(load_chip("910B2"))
    model = MeasuredModel(base, profile(matmul(64, 4096, 4096, 40_000), add(64, 4096, 5_000)))
    assert model.machine == base.machine
    for op, tier in (
        (mm(64, 4096, 4096), "measured"),
        (mm(64, 4096, 1024), "scaled"),
        (vector("aten.exp.default", 64, 64), "analytic"),
    ):
        cost = model.estimate(op)
        assert cost.tier == tier and consistent(cost)


@given(st.integers(1, 10**9), st.integers(0, 10**6), st.floats(1e-4, 1e4))
def test_scaling_keeps_what_a_breakdown_promises(duration: int, memory: int, factor: float) -> None:
    parts = Breakdown(launch=duration // 3, vector=duration - duration // 3, hbm=min(memory, duration - duration // 3))
    held = Resources(aiv=1, hbm=min(1000, math.ceil(1000 * parts.hbm / duration)))
    cost = Cost(duration=duration, breakdown=parts, resources=held, tier=Tier.ANALYTIC, error=0.1)
    scaled = times(cost, factor)
    assert consistent(scaled)
    assert scaled.duration == max(1, round(duration * factor))
    assert 0 <= scaled.resources.hbm <= 1000


_kernels = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 10**6)), min_size=1, max_size=12)


@given(_kernels, st.randoms(use_true_random=False))
def test_prices_do_not_depend_on_the_order_of_rows(rows: list[tuple[int, int]], random: object) -> None:
    kernels: list[Kernel] = [add(8, 32 * size, duration) for size, duration in rows]
    shuffled = list(kernels)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first, second = (MeasuredModel(Flat(), profile(*given)) for given in (kernels, shuffled))
    for size in range(1, 8):
        cost = first.estimate(addition(8, 32 * size))
        assert cost == second.estimate(addition(8, 32 * size))
        assert consistent(cost) and cost.error >= 0.17
