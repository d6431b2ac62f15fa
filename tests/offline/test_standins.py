"""The stand-in libraries: what goes into them, and the cache they live in."""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import sys
from pathlib import Path

import pytest

from autostream.errors import OfflineError
from autostream.offline import detect, standins
from tests.offline import processes

NEEDS = standins.LinkNeeds(symbols=("aclInit", "_ZN2ge10GEFinalizeEv"), sonames=("libascendcl.so", "libhccl.so"))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel of one library with known needs, and an empty cache."""
    folder = tmp_path / "torch_npu"
    folder.mkdir()
    (folder / "libwheel.so").write_bytes(b"wheel")
    monkeypatch.setenv("AUTOSTREAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(standins, "link_needs", lambda _package: NEEDS)
    versions = {"torch_npu": "2.13.0", "torch": "2.13.0"}
    monkeypatch.setattr(importlib.metadata, "version", versions.__getitem__)
    return folder


@pytest.fixture(scope="module")
def real_needs() -> dict[str, list[str]]:
    """What the installed wheel needs; read in a process of its own, because loaded stand-ins would answer as providers."""
    if detect.package_folder() is None or detect.has_cann():
        pytest.skip("needs torch_npu, and no CANN")
    output = processes.run("""
        import json
        from autostream import offline
        offline.prepare_environment()
        import torch
        from autostream.offline import detect, standins
        needs = standins.link_needs(detect.package_folder())
        print(json.dumps({"symbols": needs.symbols, "sonames": needs.sonames}))
    """)
    found: dict[str, list[str]] = json.loads(output)
    return found


def test_wheel_needs_the_runtime_the_engine_and_the_collectives(real_needs: dict[str, list[str]]) -> None:
    assert {"aclInit", "aclrtMalloc"} <= set(real_needs["symbols"])
    assert {"libascendcl.so", "libge_runner.so", "libhccl.so"} <= set(real_needs["sonames"])
    assert any(symbol.startswith("_ZN2ge") for symbol in real_needs["symbols"])


def test_nothing_that_python_torch_or_the_system_provides_is_replaced(real_needs: dict[str, list[str]]) -> None:
    symbols = set(real_needs["symbols"])
    assert not [symbol for symbol in symbols if symbol.startswith(("Py", "_Py"))]
    assert not [symbol for symbol in symbols if "3c10" in symbol or "N2at" in symbol]  # torch's namespaces, mangled
    assert not symbols & {"malloc", "memcpy", "pthread_create", "_ZdlPv", "__cxa_throw"}
    assert not [
        name for name in real_needs["sonames"] if name.startswith(("libtorch", "libc10", "libc.", "libstdc++", "libpython"))
    ]


def test_build_defines_every_symbol_and_every_library_name(package: Path) -> None:
    folder = standins.build(package)
    carrier = ctypes.CDLL(str(folder / standins.CARRIER))
    assert [carrier[name]() for name in NEEDS.symbols] == [0, 0]
    assert sorted(path.name for path in folder.glob("*.so")) == sorted([standins.CARRIER, *NEEDS.sonames])
    assert [path.name for path in folder.parent.iterdir() if path.name.startswith(".building")] == []


def test_second_build_compiles_nothing(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = standins.build(package)
    monkeypatch.setenv("CC", "false")
    assert standins.build(package) == folder == standins.cached(package)


@pytest.mark.parametrize("damage", ["empty carrier", "missing library", "no manifest", "broken manifest", "empty manifest"])
def test_damaged_entry_is_rebuilt(package: Path, damage: str) -> None:
    folder = standins.build(package)
    match damage:
        case "empty carrier":
            (folder / standins.CARRIER).write_bytes(b"")
        case "missing library":
            (folder / "libhccl.so").unlink()
        case "no manifest":
            (folder / standins.MANIFEST).unlink()
        case "broken manifest":
            (folder / standins.MANIFEST).write_text("{")
        case "empty manifest":
            (folder / standins.MANIFEST).write_text("{}")
    assert standins.cached(package) is None
    assert standins.build(package) == folder == standins.cached(package)
    assert (folder / standins.CARRIER).stat().st_size > 0


def test_killed_build_leaves_nothing_that_is_used(package: Path) -> None:
    leftover = standins.cache_root() / "offline" / ".building-killed"
    leftover.mkdir(parents=True)
    (leftover / standins.CARRIER).write_bytes(b"half")
    assert standins.build(package) != leftover


@pytest.mark.parametrize("change", ["torch_npu", "torch", "python", "wheel file"])
def test_entry_made_for_something_else_is_not_used(package: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    standins.build(package)
    match change:
        case "python":
            monkeypatch.setattr(sys, "version", "3.99.0")
        case "wheel file":
            (package / "libwheel.so").write_bytes(b"another wheel")
        case distribution:
            versions = {"torch_npu": "2.13.0", "torch": "2.13.0", distribution: "2.13.1"}
            monkeypatch.setattr(importlib.metadata, "version", versions.__getitem__)
    assert standins.cached(package) is None


def test_no_compiler_is_said_with_the_remedy(package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(OfflineError, match="no C compiler found.*CC"):
        standins.build(package)


def test_failing_compiler_is_quoted(package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = tmp_path / "failing-cc"
    compiler.write_text("#!/bin/sh\necho 'cannot find -lc' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    with pytest.raises(OfflineError, match=r"compiling the stand-in .* failed .*failing-cc.*cannot find -lc"):
        standins.build(package)
    assert standins.cached(package) is None


def test_cache_that_cannot_be_written_names_the_variable(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOSTREAM_CACHE", str(package / "libwheel.so" / "cache"))
    with pytest.raises(OfflineError, match="cannot write the cache folder .*AUTOSTREAM_CACHE"):
        standins.build(package)


def test_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AUTOSTREAM_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert standins.cache_root() == tmp_path / ".cache" / "autostream"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert standins.cache_root() == tmp_path / "xdg" / "autostream"
    monkeypatch.setenv("AUTOSTREAM_CACHE", str(tmp_path / "own"))
    assert standins.cache_root() == tmp_path / "own"
