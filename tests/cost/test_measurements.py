"""The analytic model against public kernel measurements.

The bounds guard against a step back. The factors were fitted on these very rows, so the errors here say nothing about a chip or
an operator that was not measured; the leave-one-chip-out error is what the chip files carry as `relative_error`.
"""

from __future__ import annotations

import statistics

import pytest

from autostream.cost import RooflineModel, load_chip
from autostream.cost.factors import load_factors
from tests.cost.rows import FILE, Row, read_rows

pytestmark = pytest.mark.skipif(not FILE.is_file(), reason="the public measurements are not on this machine")


@pytest.fixture(scope="module")
def errors() -> dict[str, list[float]]:
    """Return the relative errors by class, sorted by size."""
    models: dict[str, RooflineModel] = {}
    found: dict[str, list[float]] = {}
    for row in read_rows():
        model = models.setdefault(row.chip, RooflineModel(load_chip(row.chip)))
        group = load_factors().find(row.op.target)
        assert group is not None, row.kernel
        found.setdefault(group.band, []).append(abs(model.estimate(row.op).duration / 1000 / row.microseconds - 1))
    return {band: sorted(values) for band, values in found.items()}


@pytest.mark.parametrize(
    ("band", "rows", "median", "p90"),
    [
        ("matmul", 50, 0.10, 0.40),
        ("elementwise", 212, 0.20, 0.80),
        ("vector", 103, 0.25, 0.70),
        ("attention", 5, 0.15, 0.20),
    ],
)
def test_errors_stay_where_they_are(errors: dict[str, list[float]], band: str, rows: int, median: float, p90: float) -> None:
    values = errors[band]
    # All comparable rows are in: leaving out the bad ones would be the easy way to a good median.
    assert len(values) == rows
    assert statistics.median(values) < median
    assert values[int(0.9 * len(values))] < p90


def test_blocks_of_small_vector_kernels_are_those_the_profiler_saw() -> None:
    models: dict[str, RooflineModel] = {}

    def predicted(row: Row) -> int:
        return models.setdefault(row.chip, RooflineModel(load_chip(row.chip))).estimate(row.op).resources.aiv

    factors = load_factors().file.groups
    small = [
        row
        for row in read_rows()
        if 0 < row.blocks <= 12 and load_factors().find(row.op.target) in (factors["elementwise"], factors["move"])
    ]
    assert len(small) > 50
    exact = sum(predicted(row) == row.blocks for row in small)
    assert exact / len(small) > 0.8
