"""The command line in this process: exit codes, what goes to stdout and what to stderr, bad input."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autostream import api
from autostream.cli import main
from autostream.cli.session import Session
from autostream.cost import chip_names, load_chip
from autostream.errors import InputError, OfflineError
from autostream.program.model import Finding, Semantics, Severity, Step, StreamProgram
from tests.report import samples

MODELS = """
import torch

class Pair(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.left = torch.nn.Parameter(torch.eye(8))
        self.right = torch.nn.Parameter(torch.eye(8))

    def forward(self, x):
        return x @ self.left + x @ self.right

def pair():
    print("a factory may print")
    return Pair(), (torch.ones(8, 8),)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Run in a folder of its own, and leave the module table and the log as they were."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "models.py").write_text(MODELS)
    logger = logging.getLogger("autostream")
    handlers, level = list(logger.handlers), logger.level
    yield tmp_path
    logger.handlers, logger.level = handlers, level
    sys.modules.pop("models", None)


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    text = capsys.readouterr().out
    for command in ("demo", "schedule", "check", "lower", "chips"):
        assert f"  {command} " in text
    assert main(["schedule", "--help"]) == 0
    assert "--option" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("autostream")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shedule"], "No such command 'shedule'.*'schedule'"),
        (["schedule"], "Missing argument 'TARGET'"),
        (["schedule", "models:pair", "--chpi", "910B2"], "No such option: --chpi.*--chip"),
        (["schedule", "models:pair", "--chip", "910B9"], "unknown chip '910B9'.*910B"),
        (["schedule", "models:pair", "--option", "side_streams"], "write it as KEY=VALUE; keys: .*label_prefix"),
        (["schedule", "models:pair", "--option", "side_stream=1"], "unknown option 'side_stream' .did you mean 'side_streams'"),
        (["schedule", "models:pair", "--option", "side_streams=two"], "option 'side_streams' = 'two': .*valid integer"),
        (["schedule", "models:pair", "--option", "side_streams=99"], "option 'side_streams' = '99': .*less than or equal to 8"),
        (["schedule", "models:pair", "--option", "strict=perhaps"], "option 'strict' = 'perhaps': .*boolean"),
        (["schedule", "models:pair", "--option", "strategy=best"], "option 'strategy' = 'best': .*'greedy'"),
        (["schedule", "models:pair", "--option", "strict=1", "--option", "strict=0"], "'strict' is given twice"),
        (["schedule", "models:pairs"], "has no 'pairs' .did you mean 'pair'"),
        (["schedule", "gone.pt2"], "'gone.pt2': no such file"),
        (["schedule", "dump.pbtxt"], "can only be checked"),
        (["schedule", "broken.pt2"], "broken.pt2"),
        (["check", "broken.pbtxt"], "broken.pbtxt"),
        (["check", "gone.py"], "'gone.py': no such file"),
        (["check", "models.py:pairs"], "has no 'pairs' .did you mean 'pair'"),
        (["check", "models:pair", "--chip", "910B9"], "unknown chip '910B9'"),
        (["check", "models:pair", "--semantics", "cuda"], "unknown semantics 'cuda'; allowed: auto, ge, capture"),
        (["check", "models:pair", "--suppress", "gone.yaml"], "cannot read the suppressions 'gone.yaml'"),
        (["check", "models:pair", "--suppress", "bad.yaml"], r"bad.yaml:2: entry 1: unknown key 'why'"),
        (["check", "models:pair", "--write-suppressions", "bad.yaml"], "the file is there; name a new one"),
        (["check", "models:pair", "--write-suppressions", "models.py/x.yaml"], "cannot write"),
        (["lower", "models"], "not a target"),
        (["demo", "--batch", "0"], "Invalid value for '--batch'"),
        (["demo", "--chip", "nvidia"], "unknown chip 'nvidia'"),
        (["chips", "910B22"], "unknown chip '910B22'.*910B2"),
        (["schedule", "models:pair", "--out", "models.py"], "cannot write into models.py: a file stands where the folder"),
        (["schedule", "--ge-graph", "gone.pbtxt", "--out", "models.py/x"], "cannot write into models.py/x: a file stands"),
        (["demo", "--out", "models.py"], "cannot write into models.py"),
        (["lower", "models:pair", "--out", "."], "cannot write .: . is a folder"),
        (["diff", "models.py"], "Missing argument 'REPORT.PROFILE'.*see 'autostream diff --help'"),
        (["schedule", "null.py"], "SyntaxError: source code string cannot contain null bytes$"),
    ],
)
def test_bad_input(arguments: list[str], message: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "broken.pt2").write_text("not a zip archive")
    (folder / "broken.pbtxt").write_text("op { name: ")
    (folder / "null.py").write_bytes(b"\0")
    (folder / "bad.yaml").write_text("- kind: race\n  why: because\n")
    assert main(arguments) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert "Traceback" not in err
    (line,) = [line for line in err.splitlines() if line.startswith("autostream: error: ")]
    assert re.search(message, line), line


def test_verbose_shows_the_traceback_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "gone.pt2", "--verbose"]) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("autostream: error: target 'gone.pt2'")


def test_other_errors_of_ours_and_defects(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*args: object, **kwargs: object) -> None:
        raise OfflineError("torch_npu is\nnot installed")

    monkeypatch.setattr(api, "schedule", unavailable)
    assert main(["lower", "models:pair"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "autostream: error: torch_npu is not installed"

    def defect(*args: object, **kwargs: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(api, "schedule", defect)
    assert main(["lower", "models:pair"]) == 3
    assert "defect in autostream, please report it: KeyError: 'x'" in capsys.readouterr().err

    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "schedule", interrupt)
    assert main(["lower", "models:pair"]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "autostream: error: interrupted"


@pytest.mark.parametrize(
    "command", [["schedule", "models:pair", "--out"], ["schedule", "--ge-graph", "d", "--out"], ["lower", "models:pair", "--out"]]
)
def test_where_results_go_is_checked_before_the_work(
    command: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(api, "schedule", lambda *_, **__: pytest.fail("planned before the folder was looked at"))
    monkeypatch.setattr("autostream.dumps.schedule_dump", lambda *_, **__: pytest.fail("planned before the folder was looked at"))
    assert main([*command, "models.py/deep/out"]) == 2
    assert "a file stands where the folder" in capsys.readouterr().err
    monkeypatch.setattr("os.access", lambda *_: False)
    assert main([*command, "new/out"]) == 2
    assert re.search("no permission to write in .", capsys.readouterr().err)
    assert not (folder / "new").exists()


def test_a_warning_is_one_line_without_a_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("autostream")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", False)

    def stumbles(*args: object, **kwargs: object) -> None:
        try:
            raise KeyError("x")
        except KeyError:
            logger.getChild("somewhere").warning("left\nas it was", exc_info=True)
        raise InputError("no more")

    monkeypatch.setattr(api, "schedule", stumbles)
    assert main(["lower", "models:pair"]) == 2
    assert capsys.readouterr().err.splitlines()[-2:] == ["autostream: warning: left as it was", "autostream: error: no more"]


def inspection(*findings: Finding) -> object:
    step = Step(name="MatMul_1", kind="MatMul", stream="default")
    program = StreamProgram(semantics=Semantics.GE, steps=(step,), edges=(), in_order=True)
    return api.Inspection(programs={"ascend_ir": program}, findings=findings)


def test_check_fails_on_errors_alone(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "inspect", lambda *_, **__: inspection(samples.finding(Severity.WARNING)))
    assert main(["check", "models:pair"]) == 0
    assert capsys.readouterr().out.startswith("OK: 0 errors, 1 other finding in models:pair")

    monkeypatch.setattr(api, "inspect", lambda *_, **__: inspection(samples.finding()))
    assert main(["check", "models:pair"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("FAILED: 1 error, 0 other findings in models:pair")
    assert "ERROR race: add_ writes what mul reads" in out and "Ascend IR" in out and "default (1)" in out

    assert main(["check", "models:pair", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["schema"], data["ok"], data["errors"], data["warnings"]) == ("autostream.check/1", False, 1, 0)
    assert data["findings"][0]["kind"] == "race" and data["findings"][0]["severity"] == "error"
    assert data["levels"] == {"ascend_ir": {"streams": {"default": 1}, "cross_edges": 0, "control_edges": 0}}


def test_chips(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chips"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in chip_names())
    assert main(["chips", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [chip["name"] for chip in data] == list(chip_names())
    assert all(sum(chip["confidence"].values()) > 20 for chip in data)


def test_one_chip_shows_every_number_with_its_source(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    chip = load_chip("910B2")
    assert main(["chips", "ascend910b2"]) == 0
    text = capsys.readouterr().out
    assert chip.digest in text
    assert f"{chip.hbm.spec_gb_per_s.value:g}" in text and "comm.all_reduce.alpha_us" in text
    assert chip.hbm.spec_gb_per_s.source in text
    assert main(["chips", "910B2", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["clock_mhz"] == json.loads(chip.model_dump_json())["clock_mhz"]
    assert data["digest"] == chip.digest


def test_progress_only_where_somebody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with Session().working("Thinking"):
        pass
    assert capsys.readouterr().err == ""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    watched = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "xterm")
        patch.setattr(sys, "stderr", watched)
        with Session().working("Thinking"):
            sys.stdout.write("from a library\n")
    assert "Thinking" in watched.getvalue()
    assert "from a library" in watched.getvalue()
    assert capsys.readouterr().out == ""


def test_stdout_is_given_back_after_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with Session().working("Thinking"):
            sys.stdout.write("from a library\n")
            raise InputError("x")

    with pytest.raises(InputError):
        fail()
    sys.stdout.write("result\n")
    assert tuple(capsys.readouterr()) == ("result\n", "from a library\n")
