"""Finding the chip of this process without importing anything."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from autostream.cost import detect_chip


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
