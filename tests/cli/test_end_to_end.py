"""The command line as its users run it, with the real pipeline behind it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from autostream import offline
from autostream.cli import main
from autostream.report import Document

MODELS = """
import os
import torch

class Pair(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.left = torch.nn.Parameter(torch.ones(64, 64))
        self.right = torch.nn.Parameter(torch.ones(64, 64))

    def forward(self, x):
        return torch.relu(x @ self.left) + torch.exp(x @ self.right)

def pair():
    print("a factory may print")
    os.write(1, b"native code may print\\n")
    return Pair(), (torch.ones(64, 64),)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "models.py").write_text(MODELS)
    return tmp_path


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Run in that folder, in this process."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("COLUMNS", "80")
    yield folder
    sys.modules.pop("models", None)


def autostream(folder: Path, *arguments: str, seed: str = "0") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [sys.executable, "-m", "autostream", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_schedule_prints_one_json_document_and_nothing_else(folder: Path) -> None:
    run = autostream(folder, "schedule", "models:pair", "--json", "--out", "run", "--option", "side_streams=1")
    assert run.returncode == 0, run.stderr
    document = Document.from_json(run.stdout)
    assert document.provenance.options["side_streams"] == 1
    assert "a factory may print" in run.stderr and "native code may print" in run.stderr
    assert (folder / "run" / "report.json").read_text(encoding="utf-8") == run.stdout
    assert "relu" in (folder / "run" / "graph_before.txt").read_text()
    assert {row.target for row in document.ops} >= {"aten.mm.default", "aten.relu.default"}
    assert str(folder) not in run.stdout

    again = autostream(folder, "schedule", "models:pair", "--json", "--option", "side_streams=1", seed="7")
    assert again.stdout == run.stdout


def test_schedule_prints_the_verdict_first(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "models:pair", "--out", "run"]) == 0
    out = capfd.readouterr().out
    assert out.startswith(("ACCEPTED: ", "DECLINED: "))
    assert "simulated" in out and "\x1b" not in out
    assert out.splitlines()[-1].strip().startswith("run")
    assert max(map(len, out.splitlines())) <= 80


def test_an_exported_program(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    torch.export.save(torch.export.export(torch.nn.Linear(4, 4), (torch.ones(2, 4),)), here / "linear.pt2")
    assert main(["schedule", "linear.pt2", "--json"]) == 0
    assert Document.from_json(capfd.readouterr().out).ops
    assert main(["check", "linear.pt2", "--json"]) == 0
    assert "fx" in json.loads(capfd.readouterr().out)["levels"]


@pytest.mark.usefixtures("npu_host")
def test_what_lower_writes_can_be_checked(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["lower", "models:pair", "--out", "ir/pair.pbtxt"]) == 0
    assert capfd.readouterr().out == ""
    assert "MatMul" in (here / "ir" / "pair.pbtxt").read_text()
    assert main(["check", "ir/pair.pbtxt", "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert data["errors"] == 0 and list(data["levels"]) == ["ascend_ir"]
    assert main(["lower", "models:pair"]) == 0
    assert capfd.readouterr().out == (here / "ir" / "pair.pbtxt").read_text()


@pytest.mark.usefixtures("npu_host")
def test_demo(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--batch", "16"]) == 0
    out = capfd.readouterr().out
    assert out.startswith(("ACCEPTED: ", "DECLINED: ")) and "Streams of the" in out
    assert re.search(r"\d %", out) and not re.search(r"\d%", out)  # percentages are written one way
    document = Document.from_json((here / "autostream-demo" / "report.json").read_text(encoding="utf-8"))
    assert any(row.target.startswith("npu.") for row in document.ops)
    assert "autostream-demo/ascend_ir.pbtxt" in out and (here / "autostream-demo" / "ascend_ir.pbtxt").exists()


def test_demo_without_torch_npu(here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "why_unavailable", lambda: "torch_npu is not installed; install it with: pip install x")
    assert main(["demo", "--batch", "16", "--out", "demo", "--json"]) == 0
    out, err = capfd.readouterr()
    document = Document.from_json(out)
    assert all(row.target.startswith("aten.") for row in document.ops)
    assert "no Ascend IR is made: torch_npu is not installed; install it with: pip install x" in err
    assert sorted(path.name for path in (here / "demo").iterdir()) == [
        "graph_after.txt", "graph_before.txt", "ops.csv", "report.html", "report.json", "trace_view.json",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "absent"),
    [
        ("['--help']", "{'torch', 'torch_npu', 'ortools', 'pandas', 'networkx'}"),
        ("['--version']", "{'torch', 'torch_npu', 'ortools', 'pandas', 'networkx'}"),
        ("['chips']", "{'torch_npu', 'ortools', 'pandas'}"),
    ],
)
def test_light_commands_import_nothing_heavy(folder: Path, command: str, absent: str) -> None:
    script = (
        f"import sys; from autostream.cli import main; assert main({command}) == 0\n"
        f"loaded = {absent} & set(sys.modules); assert not loaded, loaded"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr


def test_a_reader_that_goes_away_is_no_defect(folder: Path) -> None:
    command = f"{sys.executable} -m autostream chips 910B2 | head -n 1"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    run = subprocess.run(
        command, cwd=folder, env=environment, shell=True, capture_output=True, text=True, timeout=120, check=False
    )
    assert "910B2" in run.stdout
    assert run.stderr == ""
