"""The benchmark of the zoo: what a row holds, and that one bad model does not end the run."""

from __future__ import annotations

import json

import pytest
from torch import Tensor, nn

from autostream.options import Options
from tests.benchmarks import zoo
from tests.models.zoo import ZOO, Entry


def _broken() -> tuple[nn.Module, tuple[Tensor, ...]]:
    raise ValueError("no such layer")


def _run(*entries: Entry) -> dict[str, object]:
    return zoo.run(entries, ["910B2"], Options(side_streams=3, strict=True))


def test_a_control_gains_nothing_and_needs_no_wait() -> None:
    (row,) = _run(ZOO["control/chain"])["rows"]
    assert row["autostream"]["time_ns"] == row["baselines"]["serial"]["time_ns"] == row["lower_bound_ns"]
    assert row["autostream"]["sync_edges"] == 0 and not row["accepted"]
    assert row["gap"] == 0 and row["at_least_as_good"]


def test_no_strategy_is_faster_than_the_bound_and_a_pattern_is_simulated_beside_ours(npu_host: None) -> None:
    result = _run(ZOO["npu/mla-parts"])
    (row,) = result["rows"]
    times = [row["autostream"]["time_ns"], *(baseline["time_ns"] for baseline in row["baselines"].values())]
    assert min(times) >= row["lower_bound_ns"]
    (pattern,) = result["patterns"]
    assert pattern["pattern"] == "mla-prolog" and pattern["by_hand_ns"] >= row["lower_bound_ns"]
    assert pattern["by_hand_sync_edges"] > 0


def test_with_no_more_waits_than_the_best_rule_ours_is_as_good_and_as_few_as_are_needed_are_told(npu_host: None) -> None:
    result = _run(ZOO["npu/moe-bf16-ep16-b256"])
    (row,) = result["rows"]
    rival, within = row["baselines"][row["best_baseline"]], row["within_edges"]
    assert row["autostream"]["sync_edges"] > rival["sync_edges"] == within["edges_allowed"] >= within["sync_edges"]
    assert rival["time_ns"] >= within["time_ns"] > row["autostream"]["time_ns"]
    assert within["code"] == "accepted" and within["emitted"]["cross_edges"] <= within["edges_allowed"]
    assert within["fewest_edges_as_good"] == rival["sync_edges"] and within["fewer_is_proved_impossible"]
    times = list(within["time_ns_by_edges"].values())
    assert times == sorted(times, reverse=True)
    summary = result["summary"]
    assert summary["worse_within_the_edges_of_the_best_baseline"] == []
    assert summary["proved_that_no_plan_with_fewer_edges_is_as_good"] == ["npu/moe-bf16-ep16-b256 on 910B2"]


def test_a_model_that_fails_is_reported_and_the_next_one_runs() -> None:
    broken = Entry(name="control/broken", family="control", build=_broken, expected="control")
    result = _run(broken, ZOO["control/chain"])
    assert result["failed"] == [{"model": "control/broken", "error": "ValueError: no such layer"}]
    assert [row["model"] for row in result["rows"]] == ["control/chain"]


def test_what_cannot_be_built_here_is_skipped_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = _run(ZOO["llm/bert-base"])
    assert result["skipped"] == {"llm/bert-base": "the package transformers is not installed (pip install autostream[zoo])"}
    assert result["rows"] == [] and result["failed"] == []


def test_the_script_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert zoo.main(["--models", "control/chain", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["summary"]["controls_touched"] == []
    assert "control/chain" in printed.err


@pytest.mark.parametrize(
    "arguments", [["--models", "no/such"], ["--chips", "910B9"], ["--side-streams", "99"], ["--solver-budget", "0"]]
)
def test_bad_arguments_end_with_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        zoo.main(arguments)
    assert ended.value.code == 2
    assert "Traceback" not in capsys.readouterr().err
