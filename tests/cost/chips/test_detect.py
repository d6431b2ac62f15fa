"""Finding the chip of this process without importing anything."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from autostream import chips
from autostream.cost import RooflineModel, detect_chip, load_chip
from tests.cost.kernels import add, profile


def pretend(monkeypatch: pytest.MonkeyPatch, **npu: Any) -> None:
    """Put a torch with an npu namespace where the loaded one would be."""
    torch = ModuleType("torch")
    torch.npu = SimpleNamespace(**npu)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch_npu", ModuleType("torch_npu"))


def fail(*_: Any) -> Any:
    raise RuntimeError("driver says no")


def test_the_device_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, device_count=lambda: 8, get_device_name=lambda index: f"Ascend910B{index + 2}")
    assert detect_chip() == "Ascend910B2"


def test_without_torch_npu_there_is_none_and_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, device_count=lambda: 8, get_device_name=lambda index: "Ascend910B2")
    monkeypatch.delitem(sys.modules, "torch_npu")
    before = set(sys.modules)
    assert detect_chip() is None
    assert set(sys.modules) == before


def test_without_a_device_its_name_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    pretend(monkeypatch, device_count=lambda: 0, get_device_name=asked.append)
    assert detect_chip() is None
    assert asked == []


def test_a_failing_driver_is_no_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, device_count=fail, get_device_name=fail)
    assert detect_chip() is None
    pretend(monkeypatch, device_count=lambda: 1, get_device_name=fail)
    assert detect_chip() is None


@pytest.mark.parametrize(
    ("device", "chip"),
    [
        ("Ascend910B2C", "910B2"),
        ("Ascend910B4-1", "910B4-1"),
        ("Ascend910_9391", "910_9391"),
        ("Ascend910_9392", "910_9391"),
        ("Ascend910_9362", "910_9362"),
        ("Ascend310P3", "310P3"),
        ("Ascend950PR_9589", "950PR_9589"),
    ],
)
def test_graphs_are_scheduled_for_the_device_at_hand(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, device: str, chip: str
) -> None:
    pretend(monkeypatch, device_count=lambda: 1, get_device_name=lambda index: device)
    assert chips.cost_model(None).fingerprint() == RooflineModel(load_chip(chip)).fingerprint()
    assert not caplog.records


def test_a_profile_that_prices_nothing_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="autostream"):
        chips.cost_model("910B2", profile(add(8, 32, 2000)))
        assert not caplog.records
        chips.cost_model("910B2", profile(replace(add(8, 32, 2000), inputs=(), outputs=())))
    (record,) = caplog.records
    assert "prices no operator" in record.getMessage() and "level1" in record.getMessage()


def test_an_unknown_device_is_told_once_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pretend(monkeypatch, device_count=lambda: 1, get_device_name=lambda index: "Ascend910_9399")
    with caplog.at_level(logging.WARNING, logger="autostream"):
        models = [chips.cost_model(None) for _ in range(2)]
    assert all(model.machine.name == chips.DEFAULT_CHIP for model in models)
    (record,) = caplog.records
    text = record.getMessage()
    assert "'Ascend910_9399'" in text and "--chip" in text and "--from-ini" in text and "did you mean" in text
    assert chips.cost_model("910_9391").machine.name == "910_9391"
