"""What is found out about a machine before anything is imported."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from pathlib import Path

import pytest

from autostream.errors import OfflineError
from autostream.offline import detect, standins
from tests.offline import processes


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """torch and torch_npu of one release, no CANN, an empty cache."""
    monkeypatch.setattr(detect, "package_folder", lambda: tmp_path)
    monkeypatch.setattr(detect, "_runtime_loads", lambda: False)
    monkeypatch.setattr(detect, "_version", {"torch": "2.13.0+cpu", "torch_npu": "2.13.0"}.get)
    monkeypatch.setattr(standins, "cached", lambda _package: None)
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    monkeypatch.delenv("ASCEND_TOOLKIT_HOME", raising=False)


@pytest.mark.usefixtures("bare_machine")
def test_nothing_is_missing_where_a_compiler_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", sys.executable)
    assert detect.why_unavailable() is None


@pytest.mark.usefixtures("bare_machine")
def test_missing_torch_npu_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "package_folder", lambda: None)
    assert 'pip install "autostream[npu]"' in str(detect.why_unavailable())


def test_package_folder_is_none_without_torch_npu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert detect.package_folder() is None


@pytest.mark.usefixtures("bare_machine")
def test_mismatched_releases_name_both_and_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "_version", {"torch": "2.12.1+cpu", "torch_npu": "2.13.0"}.get)
    reason = str(detect.why_unavailable())
    assert "torch 2.12.1+cpu and torch_npu 2.13.0" in reason
    assert 'pip install "torch_npu==2.12.*"' in reason


@pytest.mark.usefixtures("bare_machine")
@pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("win32", "AMD64"), ("linux", "riscv64")])
def test_unsupported_platform_is_named(monkeypatch: pytest.MonkeyPatch, system: str, machine: str) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert f"this is {system} on {machine}" in str(detect.why_unavailable())


@pytest.mark.usefixtures("bare_machine")
def test_a_compiler_is_needed_only_without_cached_standins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert "no C compiler found" in str(detect.why_unavailable())
    monkeypatch.setattr(standins, "cached", lambda _package: tmp_path)
    assert detect.why_unavailable() is None


@pytest.mark.usefixtures("bare_machine")
@pytest.mark.parametrize("variable", ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"])
def test_cann_is_seen_by_its_folder_and_rules_out_standins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    assert not detect.has_cann()
    monkeypatch.setenv(variable, str(tmp_path / "absent"))
    assert not detect.has_cann()
    monkeypatch.setenv(variable, str(tmp_path))
    assert detect.has_cann()
    monkeypatch.setenv("PATH", "")  # no compiler: not asked for
    assert detect.why_unavailable() is None


@pytest.mark.usefixtures("bare_machine")
def test_half_imported_torch_npu_asks_for_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch_npu", raising=False)
    monkeypatch.setitem(sys.modules, "torch_npu._C", sys)
    assert "new process with TORCH_DEVICE_BACKEND_AUTOLOAD=0" in str(detect.why_unavailable())


@pytest.mark.usefixtures("bare_machine")
def test_environment_is_prepared_but_never_overridden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)
    detect.prepare_environment()
    assert os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "0"
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "1")
    detect.prepare_environment()
    assert os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "1"


@pytest.mark.usefixtures("bare_machine")
@pytest.mark.parametrize("present", ["torch_npu missing", "CANN there"])
def test_environment_is_left_alone_where_torch_needs_no_help(
    monkeypatch: pytest.MonkeyPatch, present: str, tmp_path: Path
) -> None:
    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)
    if present == "CANN there":
        monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    else:
        monkeypatch.setattr(detect, "package_folder", lambda: None)
    detect.prepare_environment()
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD" not in os.environ


@pytest.mark.usefixtures("bare_machine")
def test_half_imported_torch_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._C", sys)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(OfflineError, match="import of torch in this process failed half-way.*new process"):
        detect.prepare_environment()


def test_offline_package_imports_no_torch_and_makes_torch_importable() -> None:
    output = processes.run(
        f"""
        import sys, types
        package = types.ModuleType("autostream")  # the top-level package alone may import torch
        package.__path__ = [{str(processes.REPOSITORY / "autostream")!r}]
        sys.modules["autostream"] = package
        from autostream import offline
        offline.prepare_environment()
        offline.why_unavailable()
        assert "torch" not in sys.modules and "torch_npu" not in sys.modules
        import torch
        print(torch.ones(2).sum().item())
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD=None,
    )
    assert output == "2.0\n"
