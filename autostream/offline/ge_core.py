"""A Python stand-in for `torchair.core._torchair`, TorchAir's binding to the graph engine.

TorchAir converts FX graphs to GE GraphDefs in Python; its native core is needed only to hand the result to GE for
compilation and execution, which no machine without CANN can do. The stand-in answers what conversion asks and refuses to run.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from autostream.errors import OfflineError

#: Functions whose effect is on the engine alone.
_NO_OPS = (
    "InitializeGraphEngine",
    "FinalizeGraphEngine",
    "InitDeviceStdoutChannel",
    "SetDebugLogPath",
    "AclopStartDumpArgs",
    "AclopStopDumpArgs",
    "AclmdlSetDump",
)


class GraphBase:
    """Stand-in for TorchNpuGraphBase: accepts a graph, never runs it."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def load(self, *_args: Any) -> None:
        """Accept a serialised GraphDef; there is no engine to hand it to."""

    def set_hint_shape(self, *_args: Any) -> None:
        """Accept input and output shapes."""

    def compile(self) -> None:
        """Compile nothing: GE is absent."""

    def run(self, *_args: Any) -> Any:
        """Refuse: a converted graph can only run where CANN and an NPU are."""
        raise OfflineError(f"graph {self.name!r} was converted offline; running it needs CANN and an Ascend NPU")


class _DataTypes:
    """Stand-in for the TorchDataType enumeration: every member is its own name. Nothing here reads the values."""

    def __getattr__(self, name: str) -> str:
        if name.startswith("_"):
            raise AttributeError(name)
        return name


def make_module() -> ModuleType:
    """Return the stand-in for `torchair.core._torchair`."""
    module = ModuleType("torchair.core._torchair", __doc__)
    members: dict[str, Any] = {
        "TorchNpuGraphBase": GraphBase,
        "TorchDataType": _DataTypes(),
        "GetSocName": lambda: "",
        "check_cann_compat": lambda *_: "",
        # (status, inputs, outputs, attributes) of an operator in GE's registry; "None" says that there is no registry.
        "get_registered_ir_def": lambda *_: ("None", [], [], []),
    }
    members.update(dict.fromkeys(_NO_OPS, lambda *_: None))
    vars(module).update(members, __file__=__file__)
    return module
