"""A report against a profile: durations, bands, overlap, and what found no partner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autostream.cli import BAD_INPUT, main
from autostream.errors import InputError
from autostream.graph.model import Unit
from autostream.profiles import Profile, read_profile
from autostream.report import Document, save
from autostream.report.measured import Comparison, compare
from autostream.report.schema import Overlap, OverlapRow
from tests.profiles import files
from tests.report import samples

#: Of the operators of the sample report: a product and an addition, as the profiles of `files` have them.
_SHAPES = {
    "mm": (("bfloat16[128,64]", "bfloat16[64,256]"), ("bfloat16[128,256]",)),
    "mm_1": (("bfloat16[8,8]", "bfloat16[8,8]"), ("bfloat16[8,8]",)),
    "add": (("bfloat16[128,256]", "bfloat16[128,256]"), ("bfloat16[128,256]",)),
}


def report(**changes: Any) -> Document:
    """The sample report with shapes, predicted 100 us for the products and 20 us for the addition, band 20 %."""
    document = samples.document()
    rows = tuple(
        row.model_copy(update={"inputs": _SHAPES[row.name][0], "outputs": _SHAPES[row.name][1]}) if row.name in _SHAPES else row
        for row in document.ops
    )
    return document.model_copy(update={"ops": rows, **changes})


def profile(tmp_path: Path, *rows: files.Row) -> Profile:
    path = tmp_path / "kernel_details.csv"
    path.write_text(files.table(rows))
    return read_profile(path)


def one_stream(tmp_path: Path) -> Profile:
    """Three products of 90, 110 and 115 us, an addition of 30 us and a stranger, one after the other on one stream."""
    rows = [files.at(files.MATMUL, str(1000 + 200 * place), took) for place, took in enumerate(("90", "110", "115"))]
    rows.append(files.at(files.ADD, "2000", "30", Stream_ID="2"))
    rows.append(files.at(files.ADD, "3000", "7", Stream_ID="2", Type="MyOwnKernel", Name="mine"))
    return profile(tmp_path, *rows)


def test_durations_bands_and_classes(tmp_path: Path) -> None:
    found = compare(report(), one_stream(tmp_path))
    assert [(row.name, row.predicted_ns, row.measured_ns, row.kernels, row.within) for row in found.rows] == [
        ("add", 20_000, 30_000, 1, False),  # furthest off first
        ("mm", 100_000, 110_000, 3, True),
    ]
    assert found.rows[0].ratio == 1.5
    assert found.within == pytest.approx(110 / 140, abs=1e-6)
    assert [(row.unit, row.operators, row.within) for row in found.classes] == [("cube", 1, 1.0), ("vector", 1, 0.0)]
    assert found.matched_share == pytest.approx((90 + 110 + 115 + 30) / 352, abs=1e-6)


def test_what_found_no_partner_is_listed(tmp_path: Path) -> None:
    found = compare(report(), one_stream(tmp_path))
    assert {lost.name for lost in found.unmatched_ops} >= {"mm_1"}
    assert [(lost.name, lost.count) for lost in found.unmatched_kernels] == [("MyOwnKernel", 1)]
    assert "not in the table" in found.unmatched_kernels[0].reason


def test_overlap_that_is_not_there_gets_advice(tmp_path: Path) -> None:
    document = report()
    assert document.overlap.total_ns / document.verdict.scheduled_ns > 0.1
    found = compare(document, one_stream(tmp_path))
    assert (found.overlap.found_streams, found.overlap.found_overlap_ns) == (1, 0)
    assert found.overlap.predicted_overlap_ns == document.overlap.total_ns
    assert "no overlap to speak of" in found.advice[0]
    assert "all kernels ran on one stream" in found.advice[1]
    pair = document.overlap.rows[0].example
    assert any(f"{pair[0]!r} beside {pair[1]!r}" in line for line in found.advice)


def test_two_streams_one_after_the_other_get_other_advice(tmp_path: Path) -> None:
    rows = files.at(files.MATMUL, "1000", "100"), files.at(files.ADD, "1200", "30", Stream_ID="5")
    found = compare(report(), profile(tmp_path, *rows))
    assert found.overlap.found_streams == 2
    assert any("StableRDFS" in line for line in found.advice)
    assert any("Block Num" in line for line in found.advice)
    assert not any("one stream" in line for line in found.advice)


def test_overlap_as_predicted_needs_no_advice(tmp_path: Path) -> None:
    rows = files.at(files.MATMUL, "1000", "100"), files.at(files.ADD, "1010", "60", Stream_ID="5")
    found = compare(report(), profile(tmp_path, *rows))
    assert (found.overlap.found_overlap_ns, found.overlap.found_busy_ns) == (60_000, 100_000)
    assert found.advice == ()


def test_parallel_on_paper_only_is_flagged(tmp_path: Path) -> None:
    little = Overlap(
        total_ns=1_000,
        units={"cube + vector": 1_000},
        rows=(
            OverlapRow(
                targets=("a", "b"), units=("cube", "vector"), streams=("default", "s"), example=("mm", "mul"), times=1, ns=1_000
            ),
        ),
    )
    found = compare(report(overlap=little), one_stream(tmp_path))
    assert found.overlap.predicted_share < 0.05
    assert len(found.advice) == 1 and "parallel on paper" in found.advice[0]


def test_a_profile_of_another_model_and_a_report_without_shapes_are_refused(tmp_path: Path) -> None:
    stranger = profile(tmp_path, files.at(files.MATMUL, "1", "2", Input_Shapes='"3,3;3,3"', Output_Shapes='"3,3"'))
    with pytest.raises(InputError, match=r"none of its 1 kernels belongs to an operator of the report; it holds MatMulV3"):
        compare(report(), stranger)
    with pytest.raises(InputError, match="no shapes"):
        compare(samples.document(), stranger)


def test_the_report_tells_the_tensors_of_its_operators(tmp_path: Path) -> None:
    document = report()
    again = Document.from_json(document.to_json())
    assert next(row for row in again.ops if row.name == "mm").inputs == ("bfloat16[128,64]", "bfloat16[64,256]")
    assert {row.unit for row in again.ops} <= {*Unit}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(report(), tmp_path / "run", graph_before="", graph_after="")
    return tmp_path / "run"


def test_the_command(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one_stream(tmp_path)
    path = tmp_path / "kernel_details.csv"
    assert main(["diff", str(folder), str(path)]) == 0
    out = capfd.readouterr().out
    assert "2 operators of" in out and "MyOwnKernel" in out and "1.50" in out
    assert main(["diff", str(folder), str(path), "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert Comparison.model_validate(data) == compare(report(), read_profile(path), where=str(folder))


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00\xff\xfe", b"Name,Type\n", b"a,b\n1,2\n", b'Name,Type,Duration(us),Start Time(us)\nx,y,"nan",inf\n'],
)
def test_a_file_that_is_no_profile(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], content: bytes) -> None:
    path = tmp_path / "kernel_details.csv"
    path.write_bytes(content)
    assert main(["diff", str(folder), str(path)]) == BAD_INPUT
    told = capfd.readouterr()
    assert told.out == "" and told.err.startswith("autostream: error: ") and "Traceback" not in told.err


def test_a_folder_without_report_or_profile(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["diff", str(folder), str(tmp_path / "empty")]) == BAD_INPUT
    assert main(["diff", str(tmp_path / "empty"), str(folder)]) == BAD_INPUT
    assert main(["diff", str(folder), str(tmp_path / "missing")]) == BAD_INPUT
    assert "Traceback" not in capfd.readouterr().err
