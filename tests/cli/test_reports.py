from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autostream.cli import BAD_INPUT, main
from autostream.report import Document, save
from autostream.report.schema import RegionRow
from autostream.report.svg import timeline_svg
from tests.report import samples


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(samples.document(), tmp_path / "run", graph_before="", graph_after="")
    return tmp_path / "run"


def test_show_again(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(folder)]) == 0
    assert capfd.readouterr().out.startswith("ACCEPTED: 400.0 us -> 220.0 us simulated")
    assert main(["show", str(folder / "report.json"), "--json"]) == 0
    assert Document.from_json(capfd.readouterr().out) == samples.document()


def test_show_in_other_forms(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    forms = {name: tmp_path / f"a.{name}" for name in ("html", "csv", "svg", "trace")}
    arguments = [part for name, path in forms.items() for part in (f"--{name}", str(path))]
    assert main(["show", str(folder), *arguments]) == 0
    assert forms["html"].read_text() == (folder / "report.html").read_text()
    assert forms["csv"].read_text() == (folder / "ops.csv").read_text()
    assert forms["trace"].read_text() == (folder / "trace_view.json").read_text()
    assert forms["svg"].read_text() == timeline_svg(samples.document())
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("redirection", "code", "message"),
    [
        (">/dev/full", 2, "autostream: error: the results cannot be written: No space left on device\n"),
        (">&-", 0, ""),
        ("2>&-", 0, ""),
        ("extra 2>&-", 2, ""),
    ],
)
def test_results_that_cannot_be_written_are_no_defect(folder: Path, redirection: str, code: int, message: str) -> None:
    command = f'"{sys.executable}" -m autostream show "{folder}" {redirection}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, message)


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_reader_that_has_gone_is_no_failed_check(folder: Path, form: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "autostream", "show", str(folder), *form], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_diff(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    other = samples.document(verdict=samples.declined(), after=None, program=None)
    save(other, tmp_path / "other", graph_before="", graph_after="")
    assert main(["diff", str(tmp_path / "other"), str(folder)]) == 0
    assert "declined -> accepted" in capfd.readouterr().out
    assert main(["diff", str(folder), str(folder), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["moved"] == []


def test_explain(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(folder), "exp"]) == 0
    assert "stream 'autostream_1'" in capfd.readouterr().out
    assert main(["explain", str(folder), "exp", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["name"] == "exp"


def test_explain_without_an_operator_lists_the_regions(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(folder)]) == 0
    assert "No regions" in capfd.readouterr().out
    region = RegionRow(
        number=0, name="mm to add", ops=5, serial_ns=400_000, scheduled_ns=220_000, lower_bound_ns=210_000, status="optimal",
        side_streams=1, cross_edges=1, reason="no schedule is shorter",
    )  # fmt: skip
    save(samples.document().model_copy(update={"regions": (region,)}), folder, graph_before="", graph_after="")
    assert main(["explain", str(folder)]) == 0
    told = " ".join(capfd.readouterr().out.split())
    assert told.startswith("ACCEPTED") and "0: mm to add" in told and "220.0 us" in told and "optimal" in told
    assert main(["explain", str(folder), "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == [region.model_dump(mode="json")]


def test_a_profile_in_the_place_of_the_report_is_told(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    profile = tmp_path / "kernel_details.csv"
    profile.write_text("Name\n")
    assert main(["diff", str(profile), str(folder)]) == BAD_INPUT
    assert "give the report first, then the profile" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot read"),
        (b"\xff\xfe\x00", "not a text file"),
        (b"{", "not a JSON file"),
        (b"{}", "not an autostream report"),
        (b'{"format": "autostream-report", "schema_version": 99}', "schema version 99"),
    ],
)
def test_what_is_no_report(content: bytes | None, told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    if content is not None:
        path.write_bytes(content)
    for command in (["show"], ["explain"], ["diff"]):
        arguments = {"show": [str(path)], "explain": [str(path), "x"], "diff": [str(path), str(path)]}[command[0]]
        assert main([*command, *arguments]) == BAD_INPUT
        err = capfd.readouterr().err
        assert told in err and "Traceback" not in err


def test_reading_a_report_needs_no_torch(folder: Path) -> None:
    code = f"import sys; from autostream.cli import main; main(['show', {str(folder)!r}]); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0
