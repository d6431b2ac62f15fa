"""Automatic multi-stream scheduling for PyTorch graphs on Ascend NPUs.

``autostream.compile(model)``, ``config.post_grad_custom_post_pass = autostream.pass_`` (or the pre slot), and offline
``autostream.schedule / check / lower``. Names are loaded on first use, so importing the package does not import torch.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

from autostream.offline.detect import prepare_environment

if TYPE_CHECKING:
    from autostream.api import (
        ScheduleResult,
        check,
        compile,
        inspect,
        lower,
        reports,
        schedule,
    )
    from autostream.dumps import DumpPlan, schedule_dump
    from autostream.errors import AutostreamError
    from autostream.inspection import Inspection
    from autostream.options import Options
    from autostream.stream_pass import StreamPass, pass_
    from autostream.verdict import Verdict

# With torch_npu installed and no CANN, `import torch` fails unless its autoload is switched off first.
prepare_environment()

_HOME = {
    "AutostreamError": "errors",
    "DumpPlan": "dumps",
    "Inspection": "inspection",
    "Options": "options",
    "ScheduleResult": "api",
    "StreamPass": "stream_pass",
    "Verdict": "verdict",
    "check": "api",
    "compile": "api",
    "inspect": "api",
    "lower": "api",
    "pass_": "stream_pass",
    "reports": "api",
    "schedule": "api",
    "schedule_dump": "dumps",
}

__all__ = [
    "AutostreamError",
    "DumpPlan",
    "Inspection",
    "Options",
    "ScheduleResult",
    "StreamPass",
    "Verdict",
    "check",
    "compile",
    "inspect",
    "lower",
    "pass_",
    "reports",
    "schedule",
    "schedule_dump",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.metadata.version(__name__)
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
