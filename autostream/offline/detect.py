"""What this machine offers, found out without importing torch: CANN, torch_npu, a compiler for the stand-ins."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import importlib.util
import os
import platform
import sys
from pathlib import Path

from autostream.errors import OfflineError
from autostream.offline import standins

_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
_RESTART = f"Start a new process with {_AUTOLOAD}=0 in its environment, or import autostream before torch."


def prepare_environment() -> None:
    """Make `import torch` possible where torch_npu is installed and CANN is not; call it before torch is first imported.

    torch loads torch_npu by itself when it is imported; without CANN that fails, and with it the whole import of torch.
    Does nothing where CANN is present, and never overrides a value that the user has set.

    Raises:
        OfflineError: an earlier import of torch has failed half-way, which only a new process can mend.
    """
    if package_folder() is None or has_cann():
        return
    os.environ.setdefault(_AUTOLOAD, "0")
    if "torch._C" in sys.modules and "torch" not in sys.modules:
        raise OfflineError(f"an earlier import of torch in this process failed half-way and cannot be repeated. {_RESTART}")


def has_cann() -> bool:
    """Return True if CANN is on this machine: its environment is set, or its runtime library can be loaded."""
    for variable in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
        folder = os.environ.get(variable)
        if folder and Path(folder).is_dir():
            return True
    return _runtime_loads()


def torch_npu_version() -> str | None:
    """Return the version of the installed torch_npu, or None."""
    return _version("torch_npu")


def why_unavailable() -> str | None:
    """Return None if `activate` can be expected to work, else one sentence that says what is missing. Cheap."""
    package = package_folder()
    if package is None:
        return 'torch_npu is not installed; install it with: pip install "autostream[npu]"'
    problem = _version_mismatch()
    if problem or has_cann():
        return problem
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return (
            f"the offline host needs Linux on x86_64 or aarch64 (torch_npu has wheels for no other platform); "
            f"this is {sys.platform} on {platform.machine()}"
        )
    if half_imported():
        return f"an earlier import of torch_npu in this process failed half-way and cannot be repeated. {_RESTART}"
    try:
        if standins.cached(package) is None:
            standins.compiler_command()
    except OfflineError as error:
        return str(error)
    return None


def package_folder() -> Path | None:
    """Return the folder of the installed torch_npu package (not imported), or None."""
    spec = importlib.util.find_spec("torch_npu")
    return Path(spec.origin).parent if spec and spec.origin else None


def half_imported() -> bool:
    """Return True if torch_npu's extension is loaded but its Python side is not: importing it again would register twice."""
    return "torch_npu._C" in sys.modules and "torch_npu" not in sys.modules


@functools.cache  # asked before the stand-ins are loaded, and never again: afterwards a stand-in would answer
def _runtime_loads() -> bool:
    try:
        ctypes.CDLL("libascendcl.so")
    except OSError:
        return False
    return True


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _version_mismatch() -> str | None:
    """Return a sentence if torch and torch_npu are of different releases: torch_npu links against one torch only."""
    torch, torch_npu = _version("torch"), _version("torch_npu")
    if torch is None or torch_npu is None or torch.split(".")[:2] == torch_npu.split(".")[:2]:
        return None
    release = ".".join(torch.split("+")[0].split(".")[:2])
    return (
        f"torch {torch} and torch_npu {torch_npu} are not of one release, and torch_npu links against its own alone; "
        f'install: pip install "torch_npu=={release}.*"'
    )
