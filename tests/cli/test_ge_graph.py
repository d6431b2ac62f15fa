"""``autostream schedule --ge-graph``: a plan from files alone, and files that are not what they should be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autostream.cli import BAD_INPUT, main
from autostream.program import read_ascend_ir
from autostream.report import Document
from tests.dumps.handwritten import branches
from tests.dumps.profiles import profile_of


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "graph.txt"
    path.write_text(branches())
    return path


def test_a_plan_from_a_dump_and_a_profile(dump: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    times = {"MatMul": 400.0, "Add": 40.0} | {f"v{i}": 50.0 for i in range(6)}
    profile = profile_of(dump, tmp_path / "kernel_details.csv", times)
    out = tmp_path / "out"
    command = ["schedule", "--ge-graph", str(dump), "--profile", str(profile), "--chip", "910B2", "--out", str(out)]
    assert main(command) == 0
    told = capfd.readouterr()
    assert told.out.startswith("ACCEPTED: 740.0 us -> ") and str(out / "plan.json") in told.out.replace("\n", "")
    plan = json.loads((out / "plan.json").read_text())
    assert plan["serial_ns"] == 740_000 and plan["kernels"]["matched_share"] == 1.0
    written = read_ascend_ir(out / "scheduled_graph.txt")
    assert {step.stream for step in written.steps} == {None, "default", "autostream_1"}
    assert {entry["node"]: entry["stream"] for entry in plan["nodes"]} == {
        step.name: step.stream for step in written.steps if step.stream is not None
    }


def test_json_is_the_report(dump: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "--ge-graph", str(dump), "--chip", "910B2", "--json"]) == 0
    document = Document.from_json(capfd.readouterr().out)
    assert document.name == "graph.txt" and document.verdict.accepted
    assert any(note.startswith("planned from a dump: 8 nodes") for note in document.notes)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "give either TARGET, a program, or --ge-graph DUMP"),
        (["x:y", "--ge-graph", "graph.txt"], "give either TARGET"),
        (["--ge-graph", "missing.pbtxt"], "cannot read the dump 'missing.pbtxt': No such file"),
        (["--ge-graph", "."], "cannot read the dump '.': Is a directory"),
        (["--ge-graph", "graph.txt", "--chip", "910B9"], "910B9"),
        (["--ge-graph", "graph.txt", "--profile", "missing.csv"], "missing.csv"),
        (["--ge-graph", "graph.txt", "--option", "side_streams=99"], "side_streams"),
        (["--ge-graph", "graph.txt", "--out", "graph.txt"], "cannot write"),
        (["--ge-graph", "graph.txt", "--what-if"], "--what-if goes with TARGET"),
    ],
)
def test_wrong_arguments(
    dump: Path, arguments: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(dump.parent)
    assert main(["schedule", *arguments]) == BAD_INPUT
    shown = capfd.readouterr()
    assert shown.out == "" and told in shown.err and "Traceback" not in shown.err


_GOOD = branches().encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x01\x02",
        b"\xff" * 40,
        b"hello",
        b"op {",
        b"node { name: 'a' }",
        b"name: 'm' graph { } graph { }",
        b'op { name: "a" type: "Exp" input: "b:0" }',
        b'op { name: "a" type: "Exp" } op { name: "a" type: "Exp" }',
        b'ir_version: 6\ngraph { node { name: "a" op_type: "ge:Exp" } }',
        *(_GOOD[:end] for end in range(40, len(_GOOD) - 4, 200)),
    ],
)
def test_files_that_are_no_dump(tmp_path: Path, content: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "graph.pbtxt"
    path.write_bytes(content)
    assert main(["schedule", "--ge-graph", str(path), "--chip", "910B2", "--out", str(tmp_path / "out")]) == BAD_INPUT
    shown = capfd.readouterr()
    assert shown.err.startswith("autostream: error: ") and "Traceback" not in shown.err
    assert not (tmp_path / "out").exists()


def test_odd_but_valid_dumps_do_not_break_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Scalars, no tasks, huge and empty shapes, a wait for itself, an unknown data type, a collective nobody knows."""
    odd = {
        "no tasks": 'op { name: "a" type: "Data" output_desc { name: "y" } }',
        "scalar": 'op { name: "a" type: "Exp" output_desc { name: "y" dtype: DT_FLOAT shape { } } }',
        "huge": 'op { name: "a" type: "Exp" output_desc { shape { dim: 9223372036854775807 dim: 9 } } }',
        "empty": 'op { name: "a" type: "MatMul" output_desc { shape { dim: 0 dim: 4 } } }',
        "new type": 'op { name: "a" type: "Exp" output_desc { name: "y" dtype: DT_FLOAT3_NEW shape { dim: 4 } } }',
        "collective": 'op { name: "a" type: "HcomNew" output_desc { name: "y" shape { dim: 4 } } }',
        "self": 'op { name: "a" type: "Exp" input: "a:-1" output_desc { name: "y" shape { dim: 4 } } }',
        "strange names": 'op { name: "a\\"{}\\n" type: "Exp" output_desc { shape { dim: 4 } } }',
    }
    for name, text in odd.items():
        path = tmp_path / "graph.txt"
        path.write_text(text)
        code = main(["schedule", "--ge-graph", str(path), "--chip", "910B2"])
        shown = capfd.readouterr()
        assert code == 0 or (code == BAD_INPUT and name == "self"), (name, shown.err)
        assert "Traceback" not in shown.err
