"""``autostream chips``: tables, one chip, files made from an ini, the schema, and that none of it waits for torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from autostream.cli import main
from autostream.cost import chip_names, json_schema, load_chip
from tests.cost.chips.test_platform_ini import INI


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "chip.ini").write_text(INI, encoding="utf-8")
    return tmp_path


_TORCH_FREE = """
import sys
import autostream.cost, autostream.cost.chips.platform_ini, autostream.cost.chips.communication
from autostream.cli import main
codes = [main(["chips"]), main(["chips", "910B2", "--json"]), main(["chips", "--from-ini", "chip.ini"])]
heavy = sorted({"torch", "torch_npu"} & set(sys.modules))
sys.exit(f"codes {codes}, imported {heavy}" if heavy or any(codes) else 0)
"""


def test_costs_and_the_chip_table_start_without_torch() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", _TORCH_FREE], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in chip_names())


def test_one_chip_is_shown_with_value_unit_source_and_confidence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chips", "910_9392"]) == 0
    text = capsys.readouterr().out
    (line,) = [line for line in text.splitlines() if "comm.dispatch.gb_per_s_by_ranks.16" in line]
    assert [cell.strip() for cell in line.strip("│").split("│")][1:4] == ["87", "GB/s", "L"]
    for key, unit in (
        ("clock_mhz", "MHz"),
        ("buffers.ub_kib", "KiB"),
        ("comm.all_reduce.alpha_us", "us"),
        ("comm.default_ranks", "ranks"),
    ):
        (line,) = [line for line in text.splitlines() if f" {key} " in line]
        assert f" {unit} " in line
    assert "interference.hbm_contention" in text and "Also for: 910_9392" in text


def test_a_users_own_file_is_shown_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chips", "--from-ini", "chip.ini", "-o", "sub/mine.yaml"]) == 0
    out, err = capsys.readouterr()
    assert out == "" and "910B9" in err and "910B4" in err and "--chip sub/mine.yaml" in err
    assert main(["chips", "sub/mine.yaml", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["name"] == "910B9" and data["digest"] == load_chip("sub/mine.yaml").digest
    assert [path.name for path in (folder / "sub").iterdir()] == ["mine.yaml"]
    Path("sub/mine.yaml").write_text("by hand", encoding="utf-8")
    again = ["chips", "--from-ini", "chip.ini", "-o", "sub/mine.yaml"]
    assert main(again) == 2 and "exists; give another name, or overwrite it with --force" in capsys.readouterr().err
    assert Path("sub/mine.yaml").read_text(encoding="utf-8") == "by hand"
    assert main([*again, "--force"]) == 0 and load_chip("sub/mine.yaml").name == "910B9"


def test_an_ini_becomes_a_file_on_stdout(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chips", "--from-ini", "chip.ini"]) == 0
    text = capsys.readouterr().out
    (folder / "by_hand.yaml").write_text(text, encoding="utf-8")
    assert load_chip("by_hand.yaml").name == yaml.safe_load(text)["name"] == "910B9"
    assert main(["chips", "--from-ini", "chip.ini", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["base"], data["file"], data["chip"]["aic_cores"]["value"]) == ("910B4", None, 12)


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chips", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["910B22"], "unknown chip '910B22' (did you mean '910B2'?)"),
        (["mien.yaml"], "mien.yaml: cannot be read"),
        (["910B2", "--schema"], "NAME and --schema do not go together"),
        (["910B2", "--from-ini", "chip.ini"], "NAME and --from-ini do not go together"),
        (["-o", "x.yaml"], "--out names the file that --from-ini makes"),
        (["--from-ini", "chip.ini", "-o", "x.txt"], "the name of a chip file ends with .yaml or .yml"),
        (["--from-ini", "gone.ini"], "gone.ini: cannot be read"),
    ],
)
def test_bad_input_is_told_in_one_line(arguments: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chips", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err and len(err.splitlines()) == 1
    assert [path.name for path in folder.iterdir()] == ["chip.ini"]
