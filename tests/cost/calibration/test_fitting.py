"""The fit: it finds what made the rows, keeps what few rows say close to what was given, and stays within bounds."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from autostream.cost import Chip, RooflineModel, load_chip
from autostream.cost.calibration.fitting import Sample, _with, fit, relative_errors, spread
from autostream.cost.calibration.knobs import CHIP_KNOBS
from autostream.cost.chips.factors import load_factors
from autostream.graph.model import Op
from tests.cost.build import make, mm, spec, vector

FACTORS = load_factors()
B2 = load_chip("910B2")


def samples(chip: Chip, ops: list[Op], noise: float = 0.0) -> list[Sample]:
    """Return what a chip would measure, in a fixed pseudo-random scatter."""
    model, dice = RooflineModel(chip, FACTORS), random.Random(0)
    scatter = [1 + noise * (2 * dice.random() - 1) for _ in ops]
    return [
        Sample(chip="c", op=op, duration=max(1, round(model.estimate(op).duration * factor)))
        for op, factor in zip(ops, scatter, strict=True)
    ]


def products() -> list[Op]:
    return [mm(m, n, 4096) for m in (16, 128, 1024, 4096) for n in (768, 2048, 3072, 6144)]


def vectors() -> list[Op]:
    return [
        vector(target, rows, 4096) for target in ("aten.add.Tensor", "aten.clone.default") for rows in (1, 4, 16, 64, 256, 1024)
    ]


def test_what_fits_does_not_move() -> None:
    found = fit(samples(B2, products() + vectors()), {"c": B2}, FACTORS)
    assert found.chips["c"] == B2
    assert found.factors.by_target == FACTORS.by_target
    assert found.errors["matmul"].median == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("path", ["launch.aic.base_us", "launch.aiv.base_us", "launch.aiv.full_chip_us", "cube.fp16.efficiency"])
def test_a_changed_number_is_found_under_noise(path: str) -> None:
    given = next(knob for knob in CHIP_KNOBS if knob.path == path)
    value = 0.6 if "efficiency" in path else 3.5
    truth = _with(B2, path, value)
    rows = samples(truth, (products() + vectors()) * 3, noise=0.05)
    before = spread(abs(e) for e in relative_errors(rows, {"c": B2}, FACTORS))
    found = fit(rows, {"c": B2}, FACTORS, groups=False)
    assert given.low <= value <= given.high
    assert found.factors.by_target == FACTORS.by_target
    after = spread(abs(e) for e in relative_errors(rows, found.chips, found.factors))
    assert after.median < 0.06 and after.median < before.median


def test_one_row_does_not_turn_a_group_and_many_do() -> None:
    slow = [replace(row, duration=8 * row.duration) for row in samples(B2, [vector("npu.npu_dynamic_quant.default", 4096, 4096)])]
    one = fit(slow, {"c": B2}, FACTORS)
    many = fit(slow * 30, {"c": B2}, FACTORS)
    assert relative_errors(slow, one.chips, one.factors)[0] < -0.5
    assert abs(relative_errors(slow, many.chips, many.factors)[0]) < 0.1


def test_absurd_rows_leave_every_number_in_bounds() -> None:
    rows = [replace(row, duration=row.duration * 1000) for row in samples(B2, products() + vectors())]
    found = fit(rows, {"c": B2}, FACTORS, anew=True)
    again = Chip.model_validate(found.chips["c"].model_dump())
    assert again.launch.aic.base_us.value <= 12
    assert 0 < again.cube.fp16.efficiency.value <= 1


def test_the_old_numbers_do_not_shine_through_a_fit_from_nothing() -> None:
    rows = samples(B2, products() + vectors(), noise=0.05)
    other = B2
    for knob in CHIP_KNOBS:
        other = _with(other, knob.path, (knob.low + knob.high) / 2)
    first, second = fit(rows, {"c": B2}, FACTORS, anew=True), fit(rows, {"c": other}, FACTORS, anew=True)
    for knob in CHIP_KNOBS:
        assert _with(first.chips["c"], knob.path, 1) == _with(second.chips["c"], knob.path, 1)
    assert relative_errors(rows, first.chips, first.factors) == relative_errors(rows, second.chips, second.factors)


def test_what_no_group_names_is_priced_by_the_common_factors_of_the_fit() -> None:
    rows = [replace(row, duration=4 * row.duration) for row in samples(B2, [vector("aten.amax.default", 4096, 4096)] * 30)]
    given = FACTORS.file.default_vector
    number = given.launch_factor.model_copy(update={"value": 9.0})
    told = replace(
        FACTORS, file=FACTORS.file.model_copy(update={"default_vector": given.model_copy(update={"launch_factor": number})})
    )
    op = vector("npu.npu_iou.default", 64, 4096)
    assert FACTORS.find(op.target) is None
    first, second = (fit(rows, {"c": B2}, factors, anew=True) for factors in (FACTORS, told))
    prices = [RooflineModel(found.chips["c"], found.factors).estimate(op).duration for found in (first, second)]
    assert prices[0] == prices[1], "a number that is not fitted anew would tell of rows that were left out"


def test_rows_no_group_prices_and_no_rows_at_all() -> None:
    strange = Sample(chip="c", op=make("mylib.x.default", vectors()[0].unit, (spec(8),), (spec(8),)), duration=1000)
    assert fit([strange], {"c": B2}, FACTORS).chips["c"] == B2
    assert fit([], {"c": B2}, FACTORS).errors == {}


def test_spread_of_few_rows() -> None:
    assert (spread([0.5]).median, spread([0.5]).p90) == (0.5, 0.5)
    found = spread(i / 100 for i in range(100))
    assert (found.rows, found.median, found.p75, found.p90) == (100, 0.495, 0.75, 0.9)
