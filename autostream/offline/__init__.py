"""The real torch_npu and TorchAir on a machine without CANN: schemas, meta kernels and the conversion to Ascend IR.

Only GE's own compilation and the execution on an NPU are absent. Importing this package imports neither torch nor torch_npu.
"""

from __future__ import annotations

from autostream.offline.backend import npu_backend
from autostream.offline.conversion import Converted, convert
from autostream.offline.detect import has_cann, prepare_environment, torch_npu_version, why_unavailable
from autostream.offline.host import activate
from autostream.offline.standins import cache_root

__all__ = [
    "Converted",
    "activate",
    "cache_root",
    "convert",
    "has_cann",
    "npu_backend",
    "prepare_environment",
    "torch_npu_version",
    "why_unavailable",
]
