from __future__ import annotations

import os
from pathlib import Path

import pytest

from autostream.errors import InputError
from autostream.report.document import Document
from autostream.report.files import save, write
from tests.report import samples


def test_writes_report_and_graphs(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    paths = save(samples.document(), folder, graph_before="before\n", graph_after="after\n", ascend_ir='op { name: "x" }\n')
    assert [path.name for path in paths] == [
        "report.json",
        "report.html",
        "ops.csv",
        "trace_view.json",
        "graph_before.txt",
        "graph_after.txt",
        "ascend_ir.pbtxt",
    ]
    assert sorted(os.listdir(folder)) == sorted(path.name for path in paths)
    assert Document.from_json(paths[0].read_text(encoding="utf-8")) == samples.document()
    assert [path.read_text() for path in paths[4:]] == ["before\n", "after\n", 'op { name: "x" }\n']


def test_without_ascend_ir_there_is_no_file_for_it(tmp_path: Path) -> None:
    paths = save(samples.document(), tmp_path, graph_before="", graph_after="")
    assert "ascend_ir.pbtxt" not in [path.name for path in paths]


def test_the_ascend_ir_of_an_earlier_run_does_not_stay_beside_another_report(tmp_path: Path) -> None:
    save(samples.document(), tmp_path, graph_before="", graph_after="", ascend_ir="op {}\n")
    save(samples.document(), tmp_path, graph_before="", graph_after="")
    assert not (tmp_path / "ascend_ir.pbtxt").exists()


def test_a_file_of_that_name_in_a_folder_without_a_report_stays(tmp_path: Path) -> None:
    (tmp_path / "ascend_ir.pbtxt").write_text("mine")
    save(samples.document(), tmp_path, graph_before="", graph_after="")
    assert (tmp_path / "ascend_ir.pbtxt").read_text() == "mine"


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(InputError, match=r"out/report\.json: a file stands where its folder .*out should be"):
        save(samples.document(), tmp_path / "out", graph_before="", graph_after="")
    assert (tmp_path / "out").read_text() == "mine"


def test_overwrites_an_earlier_run(tmp_path: Path) -> None:
    save(samples.document(), tmp_path, graph_before="old", graph_after="")
    save(samples.document(), tmp_path, graph_before="new", graph_after="")
    assert (tmp_path / "graph_before.txt").read_text() == "new"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.txt", "old")

    def fail(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(InputError, match="cannot write .*a.txt: No space left on device"):
        write(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write .*file.*report.json"):
        save(samples.document(), tmp_path / "file", graph_before="", graph_after="")
    with pytest.raises(InputError, match="folder"):
        write(tmp_path, "text")
