from __future__ import annotations

import pytest

import autostream
from autostream import trial
from autostream.chips import cost_model
from autostream.options import Options
from autostream.rewrite.air import Air
from autostream.whatif import batches, variants, what_if
from tests import models


def test_every_variant_is_planned_and_the_graph_is_left_alone() -> None:
    module, inputs = models.mixture(8)
    given = autostream.schedule(module, inputs).original
    code = given.code
    told: list[str] = []
    rows = what_if(given, model=cost_model("910B2"), options=Options(), dialect=Air(), tell=told.append)
    assert told == [row.label for row in rows] == [label for label, _ in variants(Options())]
    assert given.code == code
    by_streams = {row.changed["side_streams"]: row for row in rows if "side_streams" in row.changed}
    assert list(by_streams) == [1, 2, 3, 4]
    assert all(row.side_streams <= count for count, row in by_streams.items())
    assert len({row.serial_ns for row in by_streams.values()}) == 1


def test_a_switch_that_is_on_is_tried_off() -> None:
    changes = dict(variants(Options(same_unit_overlap=True)))
    assert changes["without kernels of one kind at once"] == {"same_unit_overlap": False}


def test_the_report_holds_them_when_asked() -> None:
    module, inputs = models.mixture(8)
    assert autostream.schedule(module, inputs).report.what_if == ()
    report = autostream.schedule(module, inputs, what_if=True).report
    default = next(row for row in report.what_if if row.changed == {"side_streams": Options().side_streams})
    assert (default.accepted, default.scheduled_ns) == (report.verdict.accepted, report.verdict.scheduled_ns)


def test_a_variant_that_fails_is_a_row_also_with_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    given = autostream.schedule(*models.mixture(8)).original

    def broken(*_args: object, **_kwargs: object) -> object:
        raise KeyError("defect")

    monkeypatch.setattr(trial, "emit", broken)
    rows = what_if(given, model=cost_model("910B2"), options=Options(strict=True), dialect=Air())
    assert {row.code for row in rows} == {"error"} and not any(row.accepted for row in rows)


def test_batches() -> None:
    module, inputs = models.mixture(8)
    graph = autostream.schedule(module, inputs).original
    rows = batches(lambda size: graph, (1, 2), model=cost_model("910B2"), options=Options(), dialect=Air())
    assert [row.label for row in rows] == ["batch 1", "batch 2"] and rows[0].scheduled_ns == rows[1].scheduled_ns
