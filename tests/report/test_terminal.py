from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from autostream.program.model import Severity
from autostream.report.document import Document, build
from autostream.report.html import page
from autostream.report.schema import RegionRow, WhatIfRow
from autostream.report.svg import timeline_svg
from autostream.report.terminal import render, render_findings
from autostream.report.wording import change, duration, operator, percent, verdict_line
from tests.report import samples


def shown(document: Document, width: int = 80) -> str:
    console = Console(record=True, width=width, file=io.StringIO())
    render(document, console)
    return console.export_text()


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_verdict_comes_first() -> None:
    text = words(shown(samples.document()))
    assert text.startswith(
        "ACCEPTED: 400.0 us -> 220.0 us simulated (-45.0 %, between -30.0 % and -50.0 % within the model's error), "
        "lower bound 210.0 us (gap 4.8 %), on 910B2"
    )


def test_declined_says_why_first() -> None:
    document = samples.document(verdict=samples.declined(), after=None, program=None)
    text = words(shown(document))
    assert text.startswith("DECLINED: every operator waits for the one before it, on 910B2 (400.0 us simulated as it is)")
    assert "graph as it is (simulated)" in text
    assert "Price" not in text and "beside" not in text


def test_a_refused_plan_is_told_apart_from_an_accepted_one() -> None:
    verdict = samples.accepted(
        accepted=False, code="within-error", reason="the gain lies within the model's error", gain_low=-0.02
    )
    text = words(shown(samples.document(verdict=verdict)))
    assert text.startswith(
        "DECLINED: the gain lies within the model's error, on 910B2 (400.0 us -> 220.0 us simulated (-45.0 %, between +2.0 %"
    )
    assert "plan that was refused (simulated)" in text


def test_streams_overlap_price_confidence_and_notes() -> None:
    text = words(shown(samples.document()))
    assert "cube 91 %, vector 9 %" in text
    assert "aten.exp" in text and "130.0 us" in text
    assert "Overlap: at least two streams busy for 190.0 us simulated (cube + vector 190.0 us)" in text
    assert "Price: 1 side stream, 1 cross-stream edge, 0 control edges, operators 10.0 us longer in all" in text
    assert "Confidence: of the predicted operator time: 0 % measured, 50 % scaled, 45 % analytic, 5 % unknown" in text
    assert (
        "nothing here was measured on an NPU; autostream 0.1.0, torch 2.13.0, torch_npu absent; cost model roofline-1/0123"
        in text
    )
    assert "- operator my.op is not known" in text


@pytest.mark.parametrize("width", [40, 80, 160])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(len(line) for line in shown(samples.document(), width).splitlines()) <= width


def test_a_wide_terminal_shows_more() -> None:
    narrow, wide = shown(samples.document(), 80), shown(samples.document(), 160)
    assert "Longest pair" in wide and "exp | mm_1" in wide and "190.5 us" in wide
    assert "Longest pair" not in narrow


def test_plain_text_has_no_escape_codes_and_brackets_are_kept() -> None:
    file = io.StringIO()
    note = "operator blocks[0].mm [red]x[/red] is not known"
    render(
        samples.document(notes=(note,), findings=(samples.finding(explanation="[bold]a[/bold]"),)), Console(file=file, width=80)
    )
    assert "\x1b" not in file.getvalue()
    assert note in words(file.getvalue()) and "[bold]a[/bold]" in file.getvalue()


def test_long_lists_are_cut_with_a_count() -> None:
    text = shown(samples.document(notes=tuple(f"note {number}" for number in range(20))))
    assert "and 13 more in the report file" in words(text)


def test_nothing_but_a_verdict() -> None:
    verdict = samples.declined(reason="dynamic shapes", serial_ns=0, scheduled_ns=0)
    text = words(shown(build(name="x", verdict=verdict, provenance=samples.provenance())))
    assert text.startswith("DECLINED: dynamic shapes, on 910B2 Basis:")


def test_findings_worst_first_with_remedy() -> None:
    console = Console(record=True, width=80, file=io.StringIO())
    render_findings((samples.finding(Severity.NOTE, kind="hint"), samples.finding()), console)
    lines = console.export_text().splitlines()
    assert lines[0] == "ERROR race: add_ writes what mul reads"
    assert lines[1] == "  at: mul, add_ (on default, autostream_1)"
    assert lines[2] == "  fix: let add_ wait for mul"
    assert lines[3].startswith("NOTE hint: ")


def test_wording() -> None:
    times = [duration(ns) for ns in (0, 412_345, 12_340_000, 12_345_000_000)]
    assert times == ["0.0 us", "412.3 us", "12.34 ms", "12.35 s"]
    assert [percent(0.0), percent(0.001), percent(0.456), percent(1.0)] == ["0 %", "<1 %", "46 %", "100 %"]
    assert [change(0.1), change(-0.012), change(0.0), change(0.0001)] == ["-10.0 %", "+1.2 %", "0.0 %", "0.0 %"]
    assert [operator("npu.npu_swiglu.default"), operator("aten.add.Tensor")] == ["npu_swiglu", "aten.add.Tensor"]
    assert "\n" not in verdict_line(samples.document())


def test_what_if_and_regions_are_shown_where_there_are_any() -> None:
    row = WhatIfRow(
        label="1 side stream", changed={"side_streams": 1}, accepted=False, code="no-gain", serial_ns=400_000,
        scheduled_ns=390_000, gain=0.025, gain_low=-0.01, side_streams=1, cross_edges=3,
    )  # fmt: skip
    region = RegionRow(
        number=0, name="mm to add", ops=5, serial_ns=400_000, scheduled_ns=220_000, lower_bound_ns=210_000,
        status="optimal", side_streams=1, cross_edges=1, reason="scheduled",
    )  # fmt: skip
    document = samples.document().model_copy(update={"what_if": (row,), "regions": (region,)})
    text = words(shown(document))
    assert "1 side stream" in text and "-2.5 %" in text and "no-gain" in text
    assert "1 region, 1 with overlap, 1 solved to optimality" in text and "Not overlapped" not in text
    alone = region.model_copy(update={"cross_edges": 0, "reason": "a chain"})
    told = words(shown(samples.document().model_copy(update={"regions": (region, alone, alone)})))
    assert "3 regions, 1 with overlap" in told and "Not overlapped: 2 regions: a chain" in told
    page_text = page(document)
    assert "What if (simulated)" in page_text and "declined (no-gain)" in page_text and "<h2>Regions</h2>" in page_text


#: A percentage without the space that ours have.
_TIGHT = re.compile(r"\d%")


def test_percentages_are_written_one_way_on_a_page_and_in_a_terminal() -> None:
    for text in (shown(samples.document()), timeline_svg(samples.document())):
        assert " %" in re.sub(r'style="[^"]*"', "", text)
        assert not _TIGHT.search(re.sub(r'style="[^"]*"', "", text))
    read = re.sub(r"<(style|script)\b.*?</\1>|<[^>]*>", "", page(samples.document()), flags=re.DOTALL)
    assert " %" in read and not _TIGHT.search(read)
