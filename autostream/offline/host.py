"""Bring up the real torch_npu and TorchAir: plainly where CANN is, on stand-ins where it is not."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import io
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from autostream.errors import OfflineError
from autostream.offline import detect, ge_core, standins

logger = logging.getLogger(__name__)

_lock = threading.RLock()
_active = False

#: What torch_npu prints at import, always, on a machine without CANN.
_KNOWN_NOISE = "Warning: ASCEND_HOME_PATH environment variable is not set."
_CORE = "torchair.core._torchair"
#: The device that TorchAir is told it converts for. Its converters tell two architectures apart, this one and that of the 950;
#: where they ask for the version of CANN, there is none, and they emit what every version understands.
_DEVICE_NAME = "Ascend910B2"
#: Modules whose users may have no NPU in mind, and in which torch_npu replaces functions and methods.
_CPU_MODULES = ("torch.optim.optimizer", "torch.utils.data.dataloader", "torch.utils.checkpoint")
#: The number of that device in torch_npu's enumeration of chips, which some shape functions compare with that of the 950 (260).
_SOC_VERSION = 221


def activate() -> None:
    """Make `torch_npu`, `torch.ops.npu`, `torchair` and `torch.ops.air` usable in this process. Idempotent and thread-safe.

    Where CANN is present they are simply imported. Elsewhere stand-in libraries for CANN are built (once per wheel, about a
    second) and loaded first; operator schemas, meta kernels and TorchAir's conversion are then the real ones, while nothing
    can run on an NPU.

    Raises:
        OfflineError: what is missing, and what to do about it.
    """
    global _active
    with _lock:
        if _active:
            return
        detect.prepare_environment()
        reason = detect.why_unavailable()
        if reason:
            raise OfflineError(reason)
        try:
            if detect.has_cann():
                import torch_npu  # noqa: F401 (importing it registers the backend)
            else:
                _import_on_standins()
            import torchair.scope._wait_tensor  # noqa: F401 (and the whole of TorchAir; this one TorchAir leaves for later)
        except OfflineError:
            raise
        except Exception as error:  # whatever torch_npu's import runs into; the process is not usable for it any more
            raise OfflineError(_explain(error)) from error
        _active = True


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Hold the host for one conversion: TorchAir keeps process-wide state. The same thread may enter again."""
    with _lock:
        yield


def _import_on_standins() -> None:
    import torch  # noqa: F401 (what torch provides is not stood in for)

    package = detect.package_folder()
    with _process_hooks_kept(), _torch_kept():
        if package is not None and "torch_npu" not in sys.modules:
            standins.preload(standins.build(package))
            with _quiet_import():
                import torch_npu  # noqa: F401
        # Must be there before TorchAir's own modules import their native core.
        native = sys.modules.setdefault(_CORE, ge_core.make_module())
        from torchair import core
        from torchair.core import _backend
    vars(core).setdefault("_torchair", native)
    # TorchAir asks the device for its index and its name, and there is none; nor is there an engine to finalise at exit.
    _backend._cached_device_id = 0
    sys.modules["torch_npu"].npu.get_device_name = lambda *_, **__: _DEVICE_NAME
    _tell_soc_version()
    atexit.unregister(_backend.finalize_graph_engine)


def _tell_soc_version() -> None:
    """Answer torch_npu's own question for the chip, wherever its modules have imported the function: it would ask the device."""
    asking = sys.modules["torch_npu.npu._backends"].get_soc_version
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "torch_npu" and getattr(module, "get_soc_version", None) is asking:
            vars(module)["get_soc_version"] = lambda: _SOC_VERSION


@contextlib.contextmanager
def _torch_kept() -> Iterator[None]:
    """Put back what torch_npu replaces where models on the CPU meet it: replacements ask the device, or start it.

    Without an NPU optimisers, data loaders with workers and checkpoints would fail from here on, and torch's profiler where it is
    not told what to record. What is replaced differs with the version, so the modules as a whole are compared.
    """
    before = [(owner, dict(vars(owner))) for name in _CPU_MODULES for owner in _owners(name)]
    autograd: Any = importlib.import_module("torch.autograd")
    activities = getattr(autograd, "_supported_activities", None)
    recorded = activities() if activities is not None else None
    try:
        yield
    finally:
        for owner, attributes in before:
            for name, value in attributes.items():
                if vars(owner).get(name) is not value:
                    logger.debug("put back %s.%s, which torch_npu replaced", owner.__name__, name)
                    setattr(owner, name, value)
        if recorded is not None:
            autograd._supported_activities = lambda: set(recorded)


def _owners(name: str) -> list[Any]:
    """Return a module and the classes that are defined in it; nothing, and say so, where this torch has no such module."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError:
        logger.warning("this torch has no module %s: what torch_npu replaces instead of it is not put back", name)
        return []
    return [module, *(value for value in vars(module).values() if isinstance(value, type) and value.__module__ == name)]


@contextlib.contextmanager
def _process_hooks_kept() -> Iterator[None]:
    """Put back what the imports replace in the process: the handlers of SIGINT and SIGTERM, and the exception hook.

    TorchAir's signal handler finalises the graph engine, then ignores the signal and sends it again: with no engine there is
    nothing to finalise, and Ctrl-C would neither raise KeyboardInterrupt nor end the process. torch_npu's exception hook makes
    the process print an NPU error at its end after any uncaught exception.
    """
    main = threading.current_thread() is threading.main_thread()  # only there are handlers set, by TorchAir and by us
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    exception_hook = sys.excepthook
    try:
        yield
    finally:
        sys.excepthook = exception_hook
        for number, handler in handlers.items() if main else ():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


@contextlib.contextmanager
def _quiet_import() -> Iterator[None]:
    """Drop what torch_npu says at import for want of CANN, and in notebooks of the task queue; pass on anything else.

    An ASCEND_HOME_PATH that names no folder is hidden meanwhile: torch_npu would refuse to be imported.
    """
    printed = io.StringIO()
    home = os.environ.pop("ASCEND_HOME_PATH", None)
    try:
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="On the interactive interface", category=UserWarning)
            yield
    finally:
        if home is not None:
            os.environ["ASCEND_HOME_PATH"] = home
        sys.stdout.write("".join(line for line in printed.getvalue().splitlines(keepends=True) if line.strip() != _KNOWN_NOISE))


def _explain(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith(("torch_npu", "torchair")):
        return (
            f"torch_npu {detect.torch_npu_version()} needs the package {error.name!r}, which is not installed: "
            f"pip install {error.name}, then start a new process"
        )
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return (
        f"torch_npu {detect.torch_npu_version()} could not be imported ({type(error).__name__}: {first_line}). "
        f"If an earlier import of torch_npu failed in this process, start a new one with TORCH_DEVICE_BACKEND_AUTOLOAD=0 in its "
        f"environment; else this pair of torch and torch_npu is not supported by the offline host."
    )
