from __future__ import annotations

import io
import json

from rich.console import Console

from autostream.options import Options
from autostream.report.diff import Difference, diff, render
from tests.report import samples


def shown(difference: Difference, width: int = 100) -> str:
    out = io.StringIO()
    render(difference, Console(file=out, width=width), first="old", second="new")
    return out.getvalue()


def test_a_report_and_itself() -> None:
    found = diff(samples.document(), samples.document())
    assert found.same
    assert shown(found) == "old and new say the same.\n"


def test_decision_and_times() -> None:
    old = samples.document(verdict=samples.declined(), after=None, program=None)
    found = diff(old, samples.document())
    totals = {pair.name: (pair.first, pair.second) for pair in found.totals}
    assert totals["accepted"] == (False, True)
    assert totals["scheduled_ns"] == (400_000, 220_000)
    assert [(row.name, row.first_stream, row.second_stream) for row in found.moved] == [
        ("mul", "default", samples.SIDE),
        ("exp", "default", samples.SIDE),
    ]
    text = shown(found)
    assert text.startswith("declined -> accepted, 400.0 us -> 220.0 us simulated, -45.0 %")
    assert "default -> autostream_1" in text


def test_prices_and_operators() -> None:
    costs = samples.costs() | {"exp": samples.cost(90_000), "mul": samples.cost(61_000)}
    found = diff(samples.document(), samples.document(costs=costs))
    assert [(row.name, row.first_ns, row.second_ns) for row in found.repriced] == [
        ("exp", 120_000, 90_000),
        ("mul", 60_000, 61_000),
    ]
    assert "120.0 us -> 90.0 us" in shown(found)
    other = samples.document()
    other = other.model_copy(update={"ops": other.ops[1:]})
    found = diff(samples.document(), other)
    assert (found.only_first, found.only_second) == (("mm",), ())
    assert "Only in old: 1 operator" in shown(found)


def test_what_the_numbers_rest_on() -> None:
    options = Options(side_streams=1)
    made = samples.provenance().model_copy(update={"options": options.model_dump(mode="json"), "chip": "910B1"})
    found = diff(samples.document(), samples.document(provenance=made))
    assert [(pair.name, pair.first, pair.second) for pair in found.provenance] == [
        ("chip", "910B2", "910B1"),
        ("option side_streams", 2, 1),
    ]


def test_findings_that_came_and_went() -> None:
    found = diff(samples.document(findings=(samples.finding(),)), samples.document())
    assert found.findings_gone == ("error race: add_ writes what mul reads",) and found.findings_new == ()


def test_json_is_stable() -> None:
    found = diff(samples.document(), samples.document(costs={}))
    assert found.to_json() == diff(samples.document(), samples.document(costs={})).to_json()
    assert json.loads(found.to_json())["format"] == "autostream-diff"
