"""The error bands: the rule that makes them, and the ones in the chip files against the public measurements behind them."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autostream.cost import RooflineModel, chip_names, load_chip
from autostream.cost.analytic.roofline import stated_class
from autostream.cost.calibration.heldout import BAND, SPREAD, covering, covering_next_group, errors, off, priced, rows_of
from autostream.cost.chips.factors import Group, load_factors
from autostream.cost.model import Breakdown
from autostream.profiles import Core
from tests.benchmarks import bands
from tests.cost import evidence
from tests.cost.kernels import add, matmul
from tests.cost.rows import FILE, read_rows

public = pytest.mark.skipif(not FILE.is_file(), reason="the public measurements (../shared/data) are not on this machine")

_errors = st.lists(st.floats(0, 10), min_size=1, max_size=40)


def test_an_error_is_a_factor_that_does_not_know_which_side_it_is_on() -> None:
    assert off(2000, 1000) == off(1000, 2000) == 1.0
    assert off(1500, 1000) == pytest.approx(0.5)
    assert off(1000, 1000) == 0


def test_few_errors_cover_with_their_largest_and_fewer_say_nothing() -> None:
    assert covering([0.1, 0.4, 0.2], BAND) is None
    assert covering([0.1, 0.4, 0.2, 0.3], BAND) == 0.4
    assert covering([0.1] * 8, SPREAD) is None and covering([0.1] * 9, SPREAD) == 0.1
    # Of many it is the quantile itself.
    assert covering([place / 1000 for place in range(1000)], BAND) == pytest.approx(0.8, abs=0.002)


@given(_errors, st.sampled_from([Fraction(1, 2), BAND, SPREAD]))
def test_of_any_errors_each_is_covered_by_the_others_often_enough(values: list[float], share: Fraction) -> None:
    """What the rule promises, counted: leave each of n errors out in turn, and cover it by the others."""
    covered = 0
    for place, value in enumerate(values):
        found = covering([*values[:place], *values[place + 1 :]], share)
        covered += found is None or value <= found
    assert covered >= share * len(values)


@given(st.lists(_errors, min_size=1, max_size=8), st.sampled_from([Fraction(1, 2), BAND]))
def test_of_any_groups_each_is_covered_by_the_others_often_enough(groups: list[list[float]], share: Fraction) -> None:
    covered = Fraction(0)
    for place, group in enumerate(groups):
        found = covering_next_group([*groups[:place], *groups[place + 1 :]], share)
        covered += Fraction(sum(found is None or value <= found for value in group), len(group))
    assert covered >= share * len(groups)


def test_groups_count_alike_however_many_errors_they_have() -> None:
    well_known, others = [0.1] * 1000, [[2.0], [3.0], [4.0], [5.0]]
    assert covering_next_group([well_known, *others], Fraction(1, 2)) == 3.0
    assert covering_next_group(others, Fraction(9, 10)) is None


def test_the_same_shape_counts_once_and_the_ai_cpu_not_at_all() -> None:
    kernels = [add(8, 32 * place, 2000 * place, start=place) for place in range(1, 5)]
    again = [replace(kernels[0], start=9 + place) for place in range(20)]
    elsewhere = replace(add(8, 999, 10**9), core=Core.AI_CPU)
    found = errors(priced(RooflineModel(load_chip("910B2")), rows_of([*kernels, *again, elsewhere])))["elementwise"]
    assert (found.rows, found.signatures) == (24, 4)
    once = [off(RooflineModel(load_chip("910B2")).estimate(row.op).duration, row.kernel.duration) for row in rows_of(kernels)]
    assert found.band == pytest.approx(max(once), abs=1e-6) and found.spread is None


def test_the_class_of_a_kernel_is_that_of_its_group_only_where_like_ones_were_measured() -> None:
    group = Group(band="vector", kernels=4, bound=("launch", "hbm"))
    assert stated_class(group, Breakdown(launch=9, vector=5)) == "vector"
    assert stated_class(group, Breakdown(launch=1, vector=5, hbm=5)) == "vector"
    assert stated_class(group, Breakdown(launch=1, vector=5, hbm=4)) == "unknown"
    assert stated_class(group.model_copy(update={"kernels": 3}), Breakdown(launch=9)) == "unknown"
    assert stated_class(Group(band="vector"), Breakdown(launch=9)) == "unknown"


@pytest.mark.parametrize("name", chip_names())
def test_classes_with_less_behind_them_are_wider(name: str) -> None:
    stated = load_chip(name).relative_error
    assert stated.matmul.value < stated.conv.value < stated.unknown.value
    assert stated.elementwise.value < stated.vector.value < stated.unknown.value
    assert stated.attention.value < stated.unknown.value and stated.comm.value <= stated.unknown.value
    for _, band in stated:
        assert band.p90 is None or band.median is None or band.median.value < band.value < band.p90.value


@public
def test_the_kernels_and_terms_of_each_group_are_those_that_were_measured() -> None:
    rows = read_rows()
    models = {name: RooflineModel(chip) for name, chip in rows.chips.items()}
    found: dict[str, list[set[str]]] = {}
    for one in evidence.kernels(rows):
        parts = models[one.sample.chip].estimate(one.sample.op).breakdown
        terms = {term: getattr(parts, term) for term in ("launch", "cube", "vector", "hbm", "l2")}
        found.setdefault(one.group, []).append({term for term, time in terms.items() if time == max(terms.values())})
    for name, group in load_factors().file.groups.items():
        measured = found.get("matmul" if name == "matmul_with_bias" else name, [])
        if len(measured) < 4:
            assert (group.kernels, group.bound) == (0, ()), name
        else:
            assert group.kernels == len(measured) and set(group.bound) == set().union(*measured), name


@public
def test_the_bands_of_what_was_measured_are_those_of_kernels_left_out() -> None:
    rows = read_rows()
    collectives = [*evidence.all_reduces(load_chip("910B2")), *evidence.published(load_chip("910_9391"))]
    found = bands.bands(rows, evidence.kernels(rows), collectives)
    assert set(found) == {"matmul", "conv", "attention", "elementwise", "vector", "comm"}
    for band, one in found.items():
        stated = getattr(load_chip("910B2").relative_error, band)
        assert stated.value == pytest.approx(one.band, abs=0.006), band
        assert stated.median.value == pytest.approx(one.median, abs=0.006), band
        assert (stated.p90 is None) == (one.p90 is None), band
        assert one.p90 is None or stated.p90.value == pytest.approx(one.p90, abs=0.006), band
        assert stated.note.startswith(str(one.kernels)) or band == "comm", band


@public
@pytest.mark.slow
def test_the_band_of_what_was_never_measured_is_that_of_groups_left_out() -> None:
    rows = read_rows()
    by_group = bands.without_their_group(rows, evidence.kernels(rows))
    stated = load_chip("910B2").relative_error.unknown
    found = bands.never_measured(by_group)
    assert stated.value == pytest.approx(found.band, abs=0.006) and stated.median.value == pytest.approx(found.median, abs=0.006)
    assert stated.note.startswith(f"{found.groups} groups")


@public
def test_an_operator_of_the_ai_cpu_costs_what_casts_there_cost() -> None:
    cpu = evidence.ai_cpu()
    assert len(cpu) == 9
    for name in chip_names():
        assert load_chip(name).launch.host_us.value == pytest.approx(cpu[4] / 1000, abs=0.5)


def test_a_collective_is_read_from_its_packets(tmp_path: Path) -> None:
    links = {"Transit Size(MB)": 28.0, "Size Distribution": {"2.0": [14, 1.0]}}
    one = {"Communication Time Info": {"Transit Time(ms)": 0.4}, "Communication Bandwidth Info": {"HCCS": links}}
    file = tmp_path / "communication.json"
    file.write_text(json.dumps({"step1": {"collective": {"hcom_allReduce__1": one, "hcom_broadcast__2": one}}}), encoding="utf-8")
    (found,) = evidence.all_reduces(load_chip("910B2"), file)
    # Eight ranks send seven others a part of 2 MB twice.
    assert (found.ranks, found.nbytes, found.measured) == (8, pytest.approx(16e6), pytest.approx(400_000))
    assert found.predicted == pytest.approx(16_000 + 16e6 * 0.25 / 19.8)


def test_published_rates_are_priced_without_themselves() -> None:
    found = {(one.what, one.ranks): off(one.predicted, one.measured) for one in evidence.published(load_chip("910_9391"))}
    assert set(found) == {("reduce_scatter", 16), ("dispatch", 8), ("dispatch", 16), ("combine", 8), ("combine", 16)}
    assert found["reduce_scatter", 16] == pytest.approx(208 / 172 - 1, abs=0.01)
    assert found["dispatch", 8] > 1


def test_the_products_of_a_profile_are_in_the_group_of_products() -> None:
    (row,) = rows_of([matmul(8, 32, 64, 500)])
    assert evidence.group_of(row.op) == "matmul"
