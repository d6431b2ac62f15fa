"""Fitting a chip file to profiles: splits, what the file says, how far it carries; and the public profiles as the yardstick."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from autostream.chips import cost_model
from autostream.cost import RooflineModel, Tier, load_chip
from autostream.cost.calibration.calibrate import calibrate
from autostream.cost.calibration.heldout import errors, priced, quantile, rows_of, split_by_signature, split_rows
from autostream.cost.chips.chipfile import to_yaml
from autostream.cost.chips.identify import candidates, describe
from autostream.errors import InputError
from autostream.graph.model import Unit
from autostream.profiles import Kernel, Profile, read_profile
from autostream.profiles.clock import Clock, recover_clock
from tests.benchmarks.calibration import PROFILES, predict_other_half
from tests.cost.build import make, mm, spec
from tests.cost.kernels import add, matmul, profile


def clock(mhz: float, aic: int = 24, aiv: int = 48) -> Clock:
    return Clock(mhz=mhz, aic=aic, aiv=aiv, agreeing=9, asked=9)


def counted(kernel: Kernel, mhz: float) -> Kernel:
    """Return a kernel with cube counters of a chip at a clock, long enough to be asked."""
    return replace(kernel, aic_time=50_000, aic_cycles=round(kernel.blocks * 50 * mhz))


def synthetic(factor: float = 1.0, mhz: float = 1800) -> Profile:
    """Return a profile in which everything takes `factor` times what the shipped file says."""
    base = RooflineModel(load_chip("910B2"))
    kernels: list[Kernel] = []
    for place in range(1, 17):
        m = 64 * place
        op = mm(m, 2048, 1024)
        kernels.append(counted(matmul(m, 2048, 1024, round(factor * base.estimate(op).duration), start=2 * place), mhz))
        plus = make("aten.add.Tensor", Unit.VECTOR, (spec(m, 1024), spec(m, 1024)), (spec(m, 1024),))
        vector = replace(add(m, 1024, round(factor * base.estimate(plus).duration), start=2 * place + 1), blocks=48)
        kernels.append(replace(vector, aiv_time=50_000, aiv_cycles=round(48 * 50 * mhz)))
    return profile(*kernels)


def test_which_chip() -> None:
    assert [one.name for one in candidates(clock(1800)) if one.exact] == ["910B2", "910_9381"]
    assert next(one.name for one in candidates(clock(1850)) if one.exact) == "910B1"
    best = candidates(clock(1650, 20, 40))[0]
    assert (best.name, best.exact) == ("910B4", True)
    far = candidates(clock(1000))
    assert far and not any(one.exact for one in far) and all("MHz" in one.remark for one in far)
    assert candidates(clock(1800, 7, 11)) == candidates(clock(0, 0, 0)) == ()
    assert "9 of 9" in describe(clock(1800)) and "no cycle counters" in describe(clock(0, 0, 0))


def test_no_shape_is_on_both_sides_and_the_split_depends_on_shapes_alone() -> None:
    rows = rows_of(matmul(8 * place, 32, 64, 5, start=start) for place in range(1, 30) for start in range(3))
    first, second = split_by_signature(rows)
    assert len(first) + len(second) == len(rows) and min(len(first), len(second)) > 0
    sides = [{row.signature for row in half} for half in (first, second)]
    assert not sides[0] & sides[1]
    again = split_by_signature(rows[::-1])
    assert [{row.signature for row in half} for half in again] == sides


def test_a_random_half_is_always_the_same() -> None:
    rows = rows_of(matmul(8, 32, 64, duration, start=duration) for duration in range(1, 12))
    first, second = split_rows(rows)
    assert (len(first), len(second)) == (5, 6)
    assert sorted(row.kernel.start for row in (*first, *second)) == list(range(1, 12))
    assert split_rows(rows) == (first, second)
    assert split_rows(rows, seed=1) != (first, second)


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.5, 2), (0.75, 3), (0.9, 4), (1.0, 4)])
def test_quantiles(share: float, value: int) -> None:
    assert quantile([4, 1, 3, 2], share) == value


def test_errors_by_class() -> None:
    base = RooflineModel(load_chip("910B2"))
    exact = errors(priced(base, rows_of(synthetic().kernels)))
    assert set(exact) == {"matmul", "elementwise"}
    assert max(one.p90 for one in exact.values()) < 0.001
    slower = errors(priced(base, rows_of(synthetic(2.0).kernels)))
    assert all(one.median == pytest.approx(0.5, abs=0.001) and one.signatures == 16 for one in slower.values())


def test_a_chip_that_is_slower_than_its_file_is_found_out() -> None:
    found = calibrate([synthetic(1.5)], "910B2")
    assert found.used == found.rows == 32
    for kind in ("matmul", "elementwise"):
        assert found.before[kind].median == pytest.approx(1 / 3, abs=0.01)
        assert found.after[kind].median < 0.12, kind
    assert found.chip.relative_error.matmul.value < load_chip("910B2").relative_error.matmul.value


def test_what_needs_no_change_gets_none() -> None:
    found = calibrate([synthetic()], "910B2")
    before, after = load_chip("910B2"), found.chip
    assert after.clock_mhz.value == before.clock_mhz.value
    assert after.cube.fp16.efficiency.value == pytest.approx(before.cube.fp16.efficiency.value, rel=0.02)
    assert all(one.factor.value == pytest.approx(1, abs=0.02) for one in after.calibration.values())


def test_the_file_can_be_read_back_and_names_the_profile(tmp_path: Path) -> None:
    found = calibrate([synthetic(1.5, mhz=1700)], "910B2")
    path = tmp_path / "mine.yaml"
    path.write_text(to_yaml(found.chip, "mine"), encoding="utf-8")
    chip = load_chip(path)
    assert chip.model_dump() == found.chip.model_dump()
    assert chip.name == "910B2-calibrated"
    assert chip.clock_mhz.value == 1700
    assert "0123456789abcdef" in chip.clock_mhz.source and "1800 before" in str(chip.clock_mhz.note)
    assert any("0123456789abcdef" in source for source in chip.sources)
    assert any("1700" in note and "1800" in note for note in found.notes)  # is it of this chip?
    # What was not fitted keeps its source.
    assert chip.hbm.size_gib == load_chip("910B2").hbm.size_gib
    data = yaml.safe_load(path.read_text())
    assert set(data["calibration"]) == {"aten.add", "aten.mm"}


def test_the_file_prices_as_it_was_told(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(to_yaml(calibrate([synthetic(1.5)], "910B2").chip, "mine"), encoding="utf-8")
    model = cost_model(str(path))
    assert model.estimate(mm(640, 2048, 1024)).tier is Tier.SCALED
    shipped = cost_model("910B2")
    ratio = model.estimate(mm(640, 2048, 1024)).duration / shipped.estimate(mm(640, 2048, 1024)).duration
    assert ratio == pytest.approx(1.5, rel=0.12)
    assert model.fingerprint() != shipped.fingerprint()
    # The profile's own shapes go before the file's factors.
    measured = cost_model(str(path), synthetic(1.5))
    assert measured.estimate(mm(640, 2048, 1024)).tier is Tier.MEASURED
    assert measured.fingerprint().endswith(model.fingerprint())


def test_the_chip_is_told_by_the_profile() -> None:
    assert calibrate([synthetic()]).base.name == "910B2"
    assert cost_model(None, synthetic()).machine.name == "910B2"
    assert cost_model("910B1", synthetic()).machine.name == "910B1"


def test_profiles_together() -> None:
    first, second = synthetic(), replace(synthetic(1.1), digest="fedcba9876543210")
    found = calibrate([first, second], "910B2")
    assert found.rows == 64
    assert "0123456789abcdef" in found.chip.sources[-1] and "fedcba9876543210" in found.chip.sources[-1]
    # The same profile twice is one profile.
    assert calibrate([first, first], "910B2").used == 32


@pytest.mark.parametrize(
    ("profiles", "chip", "message"),
    [
        ([], None, "at least one profile"),
        ([profile()], None, "cannot be told .no cycle counters.*--chip"),
        ([profile()], "910B2", "no kernel with shapes"),
        ([synthetic()], "910B4", "has 20 cube and 40 vector cores, but the profile shows at least 24 .*chips that fit: 910B2"),
        ([synthetic(), synthetic(mhz=1650)], None, "different chips: .*1800 MHz.*1650 MHz"),
        ([synthetic()], "910B9", "unknown chip"),
    ],
)
def test_what_cannot_be_calibrated(profiles: list[Profile], chip: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        calibrate(profiles, chip)


def test_a_profile_of_a_larger_chip_is_refused() -> None:
    with pytest.raises(InputError, match=r"not a profile of chip '910B4'.*at least 24 cube.*910B2"):
        cost_model("910B4", synthetic())


def test_one_shape_leaves_nothing_to_keep_aside() -> None:
    found = calibrate([profile(matmul(64, 2048, 1024, 50_000))], "910B2")
    assert found.after == {} and any("nothing could be kept aside" in note for note in found.notes)


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_half_of_the_rows_predict_the_other_half(name: str, shared: Path) -> None:
    outcome = predict_other_half(shared / "data" / "profiles" / name, PROFILES[name])
    units = outcome["units"]
    # All rows but collectives, random masks, clearing of memory, casts on the AI CPU and backward kernels without an operator.
    assert outcome["rows_without_operator"] == {"gpt_training_910b1": 117, "megatron_pp2dp2_910b4": 127}[name]
    assert units["cube"]["chain_median"] <= 0.07
    assert units["vector"]["chain_median"] <= 0.15
    assert units["vector"]["chain_median"] < 0.6 * units["vector"]["analytic_median"]


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_a_public_profile_calibrates_without_naming_its_chip(name: str, shared: Path) -> None:
    found = calibrate([read_profile(shared / "data" / "profiles" / name)])
    assert found.base.name == PROFILES[name]
    assert found.chip.clock_mhz.value == recover_clock(read_profile(shared / "data" / "profiles" / name).kernels).mhz
    # Products carry over to shapes that were not seen.
    assert found.after["matmul"].median <= 0.10
    assert set(found.before) == set(found.after)
