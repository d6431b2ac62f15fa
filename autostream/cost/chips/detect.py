"""Which chip this process runs on."""

from __future__ import annotations

import logging
import sys

_log = logging.getLogger(__name__)


def detect_chip() -> str | None:
    """Return the name of the first NPU as its driver reports it (such as ``"Ascend910B2"``), or None.

    Looks only at modules that are already loaded: never imports, never raises. None without torch_npu or without a device.
    """
    if "torch_npu" not in sys.modules:
        return None
    npu = getattr(sys.modules.get("torch"), "npu", None)
    try:
        # Without a device the name must not even be asked for: the driver has no answer to give.
        if npu is None or not npu.device_count():
            return None
        return str(npu.get_device_name(0)) or None
    except Exception as error:  # Whatever the driver does wrong, there is no chip to name.
        _log.debug("no NPU could be identified: %s", error)
        return None
