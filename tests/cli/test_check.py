"""``autostream check`` on a hand-written model: what it tells, and how findings are accepted."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from autostream.cli import main

pytestmark = pytest.mark.usefixtures("npu_host")

MODEL = """
import torch
import torchair

class Layer(torch.nn.Module):
    def forward(self, x, cache):
        with torchair.scope.npu_stream_switch("1", 3):
            old = torch.relu(cache)
        cache.copy_(torch.exp(x))
        return old

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = Layer()

    def forward(self, x, cache):
        return self.layer(x, cache)

def racing():
    print("a factory may print")
    return Net(), {"x": torch.ones(8, 8), "cache": torch.ones(8, 8)}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "racing_model.py").write_text(MODEL)
    yield tmp_path
    sys.modules.pop("autostream_target_racing_model", None)


def test_a_file_is_checked_and_its_findings_are_accepted(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "racing_model.py", "--write-suppressions", "accepted.yaml"]) == 1
    out, err = capfd.readouterr()
    assert out.startswith("FAILED: 1 error, 0 other findings in racing_model.py\n")
    assert "Streams as max-autotune runs them" in out
    assert "Errors (1)\nERROR race: write after read" in out
    assert f"  at: relu (aten.relu) on stream 1, layer ({here}/racing_model.py:8)" in out
    assert f"  at: exp (aten.exp) on stream default, layer ({here}/racing_model.py:9)" in out
    assert "  fix: add a control edge from 'relu' to 'exp'" in out
    assert "suppressions written to accepted.yaml" in err and "a factory may print" in err

    written = yaml.safe_load((here / "accepted.yaml").read_text())
    assert [(entry["kind"], entry["steps"], entry["reason"]) for entry in written] == [("race", ["relu", "exp"], "TODO")]
    (here / "accepted.yaml").write_text((here / "accepted.yaml").read_text().replace("TODO", "rows differ"))

    assert main(["check", "racing_model.py:racing", "--suppress", "accepted.yaml", "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert (data["ok"], data["errors"], data["findings"]) == (True, 0, [])
    (entry,) = data["suppressed"]
    assert (entry["kind"], entry["reason"], entry["levels"]) == ("race", "rows differ", ["fx", "ascend_ir"])
    assert entry["places"][0] == {
        "step": "relu",
        "operator": "aten.relu.default",
        "stream": "1",
        "where": f"layer ({here}/racing_model.py:8)",
    }
    assert (data["semantics"], data["chip"]) == ("ge", "910B2")

    assert main(["check", "racing_model.py", "--suppress", "accepted.yaml"]) == 0
    out = capfd.readouterr().out
    assert out.startswith("OK: 0 errors, 0 other findings in racing_model.py; 1 suppressed\n")
    assert "  accepted: rows differ" in out


def test_a_stale_entry_is_a_warning(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (here / "accepted.yaml").write_text("- {kind: deadlock, reason: was mended}\n- {kind: race, reason: rows differ}\n")
    assert main(["check", "racing_model.py", "--suppress", "accepted.yaml"]) == 0
    out = capfd.readouterr().out
    assert "Warnings (1)" in out and "stale-suppression: suppression 1, deadlock, means no finding" in out


def test_the_mode_can_be_chosen(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "racing_model.py", "--semantics", "capture", "--json"]) == 1
    data = json.loads(capfd.readouterr().out)
    assert data["semantics"] == "capture" and list(data["levels"]) == ["fx"]
    assert "unjoined-stream" in [finding["kind"] for finding in data["findings"]]


def test_a_file_is_scheduled_and_lowered_with_keyword_inputs(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (here / "plain.py").write_text("import torch\ndef f():\n    return torch.nn.Linear(4, 4), {'input': torch.ones(2, 4)}\n")
    assert main(["schedule", "plain.py", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["verdict"]["code"] == "nothing-to-overlap"
    assert main(["lower", "plain.py:f"]) == 0
    assert "op {" in capfd.readouterr().out


@pytest.mark.parametrize("name", ["x.pbtxt", "x.pb", "x.txt", "x.pt2", "x.py", "x.onnx"])
@pytest.mark.parametrize(
    "content", [b"", b"\x00\xff\xfe", b"op {", b"node { name: 'a' op: 'b' attr { key: '[o]y' value { s: 'zz{' } } }"]
)
def test_no_bad_file_gives_a_traceback(here: Path, capfd: pytest.CaptureFixture[str], name: str, content: bytes) -> None:
    (here / name).write_bytes(content)
    assert main(["check", name]) == 2
    out, err = capfd.readouterr()
    assert out == "" and "Traceback" not in err and err.splitlines()[-1].startswith("autostream: error: ")
