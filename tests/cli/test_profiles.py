"""``autostream profile`` and ``autostream calibrate``, and ``--profile``, in this process."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from autostream import api
from autostream.cli import main
from autostream.cost import load_chip
from autostream.errors import InputError
from tests.profiles.files import ADD, HCOM, MATMUL, at, table


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in a folder that holds a profile."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    rows = [MATMUL, ADD, HCOM]
    for place in range(1, 9):
        shapes = {"Input Shapes": f'"{64 * place},64;64,256"', "Output Shapes": f'"{64 * place},256"', "Step Id": "2"}
        rows.append(at(MATMUL, f"17642468770792{place:02d}.200", f"{10 + place}") | shapes)
    text = table(rows) + "1,0,too short\n"
    (tmp_path / "kernel_details.csv").write_text(text)
    return tmp_path


def test_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "kernel_details.csv", "--top", "1"]) == 0
    out = capsys.readouterr().out
    assert "device 0: 11 kernels" in out
    assert "910B2 or 910_9381: at least 24 cube and 48 vector cores at 1800 MHz" in out
    assert "Steps: 1, 2" in out
    assert "12 rows read, 1 rejected" in out and "3 fields where the header has 26 (line 13)" in out
    for words in ("Computing", "Communication(Not Overlapped)", "Free", "Biggest kernels", "Streams", "Device time by unit"):
        assert words in out
    assert out.count("MatMulV3") + out.count("hcom_allReduce_") == 1  # --top


def test_profile_as_json_is_stable(capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for where in (".", "."):
        assert main(["profile", where, "--json", "--step", "2"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    data = json.loads(texts[0])
    assert (data["format"], data["version"], data["files"]) == ("autostream-profile", 1, ["kernel_details.csv"])
    assert data["rows"]["read"] == 12 and data["rows"]["kernels"] == 11
    assert data["rows"]["rejected"] == [{"file": "kernel_details.csv", "line": 13, "reason": "3 fields where the header has 26"}]
    assert data["reading"]["kernels"] == 8 and data["reading"]["steps"] == [2]
    assert data["reading"]["clock"]["mhz"] == 1800


def test_calibrate_writes_a_chip_that_chip_accepts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "kernel_details.csv", "-o", "mine.yaml"]) == 0
    out = capsys.readouterr().out
    assert "Wrote mine.yaml" in out and "before median" in out and "after p90" in out and "matmul" in out
    chip = load_chip("mine.yaml")
    assert chip.name == "910B2-calibrated"
    assert any("kernel_details.csv (sha256" in source for source in chip.sources)
    assert sorted(path.name for path in folder.iterdir()) == ["kernel_details.csv", "mine.yaml"]
    assert main(["chips", "mine.yaml"]) == 0
    assert "910B2-calibrated" in capsys.readouterr().out

    before = Path("mine.yaml").read_bytes()
    assert main(["calibrate", "kernel_details.csv", "-o", "mine.yaml"]) == 2
    assert "mine.yaml: exists; give another name, or overwrite it with --force" in capsys.readouterr().err
    assert main(["calibrate", "kernel_details.csv", "-o", "mine.yaml", "--force", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["file"], data["base"], data["rows"]) == ("mine.yaml", "910B2", 12)
    assert set(data["errors"]) == {"before", "after", "measured"}
    assert Path("mine.yaml").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["profile"], "Missing argument 'PATH'"),
        (["profile", "kernel_detail.csv"], "no such file or folder .did you mean 'kernel_details.csv'"),
        (["profile", "kernel_details.csv", "--step", "7"], "no step 7; steps: 1, 2"),
        (["profile", "kernel_details.csv", "--device", "7"], "no device '7'; it holds device 0"),
        (["profile", "kernel_details.csv", "--top", "-1"], "--top"),
        (["profile", "other.csv"], "not a kernel table: no column 'Name'"),
        (["profile", "empty"], "no profiler output in this folder or below"),
        (["calibrate", "kernel_details.csv"], "Missing option '--out'"),
        (["calibrate", "kernel_details.csv", "-o", "mine.txt"], "mine.txt: a chip file ends in .yaml"),
        (["calibrate", "kernel_details.csv", "-o", "empty"], "empty: a chip file ends in .yaml"),
        (["calibrate", "kernel_details.csv", "-o", "mine.yaml", "--chip", "910B4"], "has 20 cube .*chips that fit: 910B2"),
        (["calibrate", "other.csv", "-o", "mine.yaml"], "other.csv: not a kernel table"),
        (["calibrate", "kernel_details.csv", "-o", "other.csv/mine.yaml"], "cannot write other.csv"),
        (["demo", "--profile", "gone"], "gone: no such file or folder"),
        (["demo", "--profile", "kernel_details.csv", "--chip", "910B4"], "not a profile of chip '910B4'"),
    ],
)
def test_bad_input(arguments: list[str], message: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "other.csv").write_text("a,b\n1,2\n")
    (folder / "empty").mkdir()
    assert main(arguments) == 2
    out, err = capfd.readouterr()
    assert out == "" and "Traceback" not in err
    (line,) = [line for line in err.splitlines() if line.startswith("autostream: error: ")]
    assert re.search(message, line), line
    assert not (folder / "mine.yaml").exists()


def test_a_profile_prices_the_graph_and_the_report_says_so(folder: Path) -> None:
    import torch

    class Pair(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(64, 256, dtype=torch.bfloat16))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            seen = x @ self.weight
            return torch.exp(seen), seen + 1, y @ self.weight

    inputs = (torch.zeros(128, 64, dtype=torch.bfloat16), torch.zeros(32, 64, dtype=torch.bfloat16))
    module = Pair()
    plain = api.schedule(module, inputs)
    result = api.schedule(module, inputs, profile=folder)
    tiers = {name: cost.tier.value for name, cost in result.costs.items() if cost.duration}
    # The first product ran as it is, the second and the addition ran with other shapes, an exponential never ran.
    assert tiers == {"mm": "measured", "exp": "analytic", "add": "scaled", "mm_1": "scaled"}
    assert result.costs["mm"].duration == 12_000  # the middle one of two, the lower
    assert result.verdict.chip == "910B2"
    shares = {tier.value: share for tier, share in result.report.confidence.items()}
    assert shares["measured"] > 0 and shares["scaled"] > 0 and sum(shares.values()) == pytest.approx(1, abs=1e-5)
    assert "priced from a profile" in result.report.provenance.basis
    assert result.report.provenance.chip_digest.startswith("measured-")
    assert result.verdict.unmeasured < plain.verdict.unmeasured == 1.0
    assert "measured on an NPU" in plain.report.provenance.basis


def test_compile_and_the_pass_take_a_profile(folder: Path) -> None:
    import torch

    from autostream import StreamPass, telemetry

    telemetry.clear()
    compiled = api.compile(torch.nn.Linear(8, 8), profile="kernel_details.csv")
    with torch.no_grad():
        compiled(torch.zeros(2, 8))
    digest = telemetry.reports()[-1].provenance.chip_digest
    torch._dynamo.reset()
    assert digest.startswith("measured-")
    # Differently priced passes are different passes to a compile cache.
    assert digest in StreamPass(profile=folder).uuid() != StreamPass().uuid()
    with pytest.raises(InputError, match="no such file or folder"):
        StreamPass(profile=folder / "gone")
