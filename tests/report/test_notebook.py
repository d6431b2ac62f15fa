"""What notebooks show: the verdict with its picture, and findings."""

from __future__ import annotations

from autostream.program.model import Severity
from autostream.report.notebook import counted, findings_html
from autostream.report.wording import verdict_line
from tests.report import samples


def test_a_document_draws_itself() -> None:
    document = samples.document()
    shown = document._repr_html_()
    assert shown.startswith("<div><b>ACCEPTED: 400.0 us -&gt; 220.0 us simulated")
    assert "<svg" in shown and shown.count("<svg") == shown.count("</svg>") == 1


def test_what_nobody_asked_a_plan_for_is_not_called_declined() -> None:
    verdict = samples.declined(code="as-written", reason="simulated as it was written")
    document = samples.document(verdict=verdict, after=None, program=None)
    assert verdict_line(document) == "AS WRITTEN: 400.0 us simulated on 910B2"
    assert "As written: 400.0 us simulated" in document._repr_html_()


def test_findings_are_listed_worst_first_with_place_and_remedy() -> None:
    note = samples.finding(Severity.NOTE, kind="idle-wait", explanation="<b>never</b> waits", remedy="", steps=())
    error = samples.finding(where=("layers.0 (model.py:12)", ""))
    shown = findings_html((note, error))
    assert shown.startswith("<div><b>1 error, 1 note</b></div>")
    assert shown.index("race") < shown.index("idle-wait")
    assert "layers.0 (model.py:12)" in shown and "let add_ wait for mul" in shown
    assert "&lt;b&gt;never" in shown


def test_no_findings_and_accepted_ones() -> None:
    assert findings_html(()) == "<div><b>No findings</b></div>\n"
    shown = findings_html((), [(samples.finding(), "a < b & c")])
    assert "accepted: race (a &lt; b &amp; c)" in shown


def test_a_long_list_is_cut_and_counted() -> None:
    findings = [samples.finding(steps=(f"step_{number}",)) for number in range(50)]
    shown = findings_html(findings)
    assert shown.startswith("<div><b>50 errors</b></div>")
    assert shown.count("step_") == 20 and "and 30 more" in shown


def test_counts() -> None:
    findings = [samples.finding(Severity.WARNING), samples.finding(Severity.WARNING), samples.finding(Severity.NOTE)]
    assert counted(findings) == "2 warnings, 1 note"
    assert counted(()) == "no findings"
