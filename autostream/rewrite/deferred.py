"""A graph module whose code is made when it is needed: most graphs that are written are only looked at."""

from __future__ import annotations

from typing import Any

from torch import fx, nn
from torch.fx.graph import CodeGen, _PyTreeCodeGen

#: What makes code without fail. One of a user's own is tried at once, long before the graph is swapped in.
_RELIABLE = frozenset({CodeGen, _PyTreeCodeGen})
#: What `fx.GraphModule.recompile` leaves behind beside `forward`.
_MADE = frozenset({"_code", "_lineno_map", "_prologue_start", "_in_spec", "_out_spec"})


class DeferredModule(fx.GraphModule):
    """An `fx.GraphModule` that makes its code when it is run or read for the first time, or recompiled.

    Making the code of a deep graph takes longer than writing the graph, and a pass hands on the graph alone. Until then its
    `forward` has no signature that could be traced: call `recompile` before a module goes to others.
    """

    def __init__(self, root: nn.Module, graph: fx.Graph, class_name: str) -> None:
        self.__dict__["_deferred"] = type(graph._codegen) in _RELIABLE
        super().__init__(root, graph, class_name)

    def recompile(self) -> Any:
        """Make the code; the one call from the constructor is passed over."""
        return None if self.__dict__.pop("_deferred", False) else super().recompile()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Make the code, which puts its own `forward` in the place of this one, and run it."""
        self.recompile()
        return type(self).forward(self, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in _MADE and "_code" not in self.__dict__:
            self.recompile()
            if name in self.__dict__:
                return self.__dict__[name]
        return super().__getattr__(name)

    def __reduce__(self) -> tuple[Any, ...]:
        _ = self.code
        return super().__reduce__()
