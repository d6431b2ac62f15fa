from __future__ import annotations

import json
import sys
from pathlib import Path

import networkx as nx
import pytest

from autostream.cost.model import Tier
from autostream.errors import InputError
from autostream.graph.model import OpGraph, Unit
from autostream.options import Options
from autostream.program.model import Edge, EdgeKind, Semantics, Severity, Step, StreamProgram
from autostream.report.document import Document, Provenance, build, short_source
from tests.report import samples


def test_a_row_per_operator_that_emits_work() -> None:
    document = samples.document()
    assert [row.name for row in document.ops] == ["mm", "mm_1", "mul", "exp", "add"]
    exp = document.ops[3]
    assert (exp.target, exp.unit, exp.stream) == ("aten.exp.default", Unit.VECTOR, samples.SIDE)
    assert (exp.start_ns, exp.end_ns, exp.before_start_ns, exp.before_end_ns) == (60_500, 190_500, 260_000, 380_000)
    assert exp.duration_ns == 120_000
    assert (exp.breakdown.launch, exp.breakdown.vector, exp.tier, exp.error) == (1_000, 119_000, Tier.ANALYTIC, 0.2)
    assert exp.module_path == "layers.0.exp"


def test_summaries() -> None:
    document = samples.document()
    assert document.shows == "scheduled"
    assert document.gain == 0.45
    default, side = document.streams
    assert (default.name, default.ops, default.busy_ns, default.units) == (
        "default",
        3,
        220_000,
        {"cube": 200_000, "vector": 20_000},
    )
    assert (side.ops, side.start_ns, side.end_ns, side.share) == (2, 500, 190_500, round(190_000 / 220_000, 6))
    assert document.contention_ns == 10_000
    assert document.confidence == {Tier.MEASURED: 0.0, Tier.SCALED: 0.5, Tier.ANALYTIC: 0.45, Tier.UNKNOWN: 0.05}
    assert [(edge.before, edge.after, edge.from_stream, edge.to_stream) for edge in document.edges] == [
        ("exp", "add", samples.SIDE, "default")
    ]
    assert document.notes == ("operator my.op is not known",)


def test_declined_document_describes_the_graph_as_it_is() -> None:
    document = samples.document(verdict=samples.declined(), after=None, program=None)
    assert document.shows == "unscheduled"
    assert [row.name for row in document.streams] == ["default"]
    assert document.ops[0].start_ns == 0
    assert document.overlap.total_ns == 0 and document.edges == () and document.contention_ns == 0


def test_refused_plan_is_shown_as_refused() -> None:
    assert samples.document(verdict=samples.declined()).shows == "refused"


def test_document_of_a_graph_that_was_never_captured() -> None:
    verdict = samples.declined(code="dynamic-shape", reason="the graph has dynamic shapes", serial_ns=0, scheduled_ns=0)
    document = build(name="x", verdict=verdict, provenance=samples.provenance(), notes=("see the log",))
    assert document.shows == "nothing"
    assert document.ops == () and document.streams == ()
    assert set(document.confidence.values()) == {0.0}
    assert document.notes == ("see the log",)


def test_notes_of_a_graph_without_operators_are_kept() -> None:
    empty = OpGraph(dag=nx.DiGraph(), ops={}, storages={}, outputs=(), notes=("nothing to do",))
    verdict = samples.declined(code="nothing-to-overlap", reason="no operators", serial_ns=0, scheduled_ns=0)
    assert build(name="x", verdict=verdict, provenance=samples.provenance(), graph=empty).notes == ("nothing to do",)


def test_a_note_that_repeats_the_reason_is_left_out() -> None:
    verdict = samples.declined(code="no-gain", reason="too small")
    document = samples.document(verdict=verdict, notes=("too small", "no-gain: too small", "other", "other"))
    assert document.notes == ("operator my.op is not known", "other")


def test_steps_of_the_emitted_program_are_credited_to_their_operator() -> None:
    """GE splits add into a Cast and an Add and puts in a TransData that belongs to no operator."""
    program = StreamProgram(
        semantics=Semantics.GE,
        steps=(
            Step(name="Cast_7", kind="Cast", stream="default", source="add"),
            Step(name="Add_8", kind="Add", stream="default", source="add"),
            Step(name="TransData_9", kind="TransData", stream=samples.SIDE),
        ),
        edges=(Edge(before="TransData_9", after="Add_8", kind=EdgeKind.CONTROL),),
        in_order=True,
    )
    after = samples.timeline(
        ("Cast_7", "default", 0, 5_000), ("TransData_9", samples.SIDE, 0, 8_000), ("Add_8", "default", 8_000, 28_000)
    )
    document = samples.document(after=after, program=program)
    rows = {row.name: row for row in document.ops}
    assert (rows["add"].start_ns, rows["add"].end_ns) == (0, 28_000)
    extra = rows["TransData_9"]
    assert (extra.target, extra.unit, extra.tier, extra.duration_ns) == ("TransData", None, None, 8_000)
    assert [(edge.before, edge.after, edge.kind) for edge in document.edges] == [("TransData_9", "add", EdgeKind.CONTROL)]
    assert document.overlap.units == {"other + vector": 5_000}
    assert document.contention_ns == 5_000
    assert {row.name: row.units for row in document.streams} == {"default": {"vector": 25_000}, samples.SIDE: {"other": 8_000}}


def test_json_round_trip_and_stable_bytes() -> None:
    document = samples.document(findings=[samples.finding(Severity.WARNING)])
    text = document.to_json()
    assert Document.from_json(text) == document
    assert samples.document(findings=[samples.finding(Severity.WARNING)]).to_json() == text
    data = json.loads(text)
    assert (data["format"], data["schema_version"]) == ("autostream-report", 1)
    assert list(data) == sorted(data)
    assert data["verdict"]["serial_ns"] == 400_000
    assert data["ops"][0]["unit"] == "cube"
    assert "seconds" not in text


def test_documents_are_frozen() -> None:
    with pytest.raises(Exception, match="frozen"):
        samples.document().name = "other"


def test_fields_of_later_versions_are_ignored() -> None:
    data = json.loads(samples.document().to_json())
    data["added_later"] = 1
    data["verdict"]["added_later"] = 1
    assert Document.from_json(json.dumps(data)) == samples.document()


def damaged() -> str:
    data = json.loads(samples.document().to_json())
    data["streams"][1]["busy_ns"] = "long"
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a JSON file"),
        ("{", "not a JSON file"),
        ("[" * 100_000, "not a JSON file"),
        ("[]", "not an autostream report"),
        ('{"format": "other"}', "not an autostream report"),
        ('{"format": "autostream-report", "schema_version": 99}', "schema version 99; this version of autostream reads 1"),
        ('{"format": "autostream-report", "schema_version": 1}', "damaged report: name: Field required"),
        (damaged(), r"damaged report: streams.1.busy_ns: Input should be a valid integer"),
    ],
)
def test_foreign_and_damaged_reports_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Document.from_json(text, where="old/report.json")
    assert str(caught.value).startswith("old/report.json: ")


def test_provenance_names_versions_and_options() -> None:
    options = Options(side_streams=1)
    made = Provenance.of(chip="910B2", chip_digest="abc", options=options)
    assert made.options["side_streams"] == 1
    assert made.options_fingerprint == options.fingerprint() != Options().fingerprint()
    assert "measured on an NPU" in made.basis


def test_source_lines_do_not_depend_on_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "env" / "site-packages")])
    assert short_source(f"{tmp_path}/models/moe.py:12") == "models/moe.py:12"
    assert short_source(f"{tmp_path}/env/site-packages/pkg/a.py:3") == "pkg/a.py:3"
    assert short_source("/somewhere/my models/b.py:4") == "b.py:4"
    assert short_source("<eval_with_key>.1:9") == "<eval_with_key>.1:9"
    assert short_source("") == ""
    source = f"{tmp_path}/moe.py:5"
    graph = samples.graph()
    graph.ops["mm"] = samples.op("mm", "aten.mm.default", Unit.CUBE, 0, source)  # type: ignore[index]
    assert str(tmp_path) not in samples.document(graph=graph).to_json()
