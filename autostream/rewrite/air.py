"""The vocabulary of TorchAir's max-autotune mode: `torch.ops.air.*`.

In this mode GE synchronises every data edge between streams by itself. A scope gives its operators a stream label; `wait`
becomes a control edge onto the first GE op of the next operator.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from autostream import offline
from autostream.errors import OfflineError, RewriteError
from autostream.program.model import Semantics
from autostream.program.reading.limits import CORE_LIMITS
from autostream.rewrite.dialect import Landing
from autostream.rewrite.landing import find_landing

logger = logging.getLogger(__name__)


class Air:
    """Emits TorchAir's scopes, waits, records and anchors."""

    name = "air"
    semantics = Semantics.GE

    def __init__(self) -> None:
        ensure_operators()
        self._landings: dict[tuple[Any, ...], Landing] = {}

    def stream_scope(self, label: str) -> tuple[tuple[str, str], ...]:
        """Return the attributes of one stream; the label is first, inner parallelism is off so that one label is one stream."""
        return (("_user_stream_label", label), ("_user_stream_priority", "0"), ("_enable_inner_parallel", "False"))

    def core_scope(self, aic: int, aiv: int) -> tuple[tuple[str, str], ...]:
        """Return the attributes that limit cores: the ones of `torchair.scope.limit_core_num`."""
        return tuple(zip(CORE_LIMITS, (str(aic), str(aiv)), strict=True))

    def enter(self, graph: fx.Graph, scope: Sequence[tuple[str, str]]) -> fx.Node:
        """Open a scope with the given attributes."""
        keys, values = [key for key, _ in scope], [value for _, value in scope]
        return graph.call_function(torch.ops.air.scope_enter.default, (keys, values))

    def exit(self, graph: fx.Graph) -> fx.Node:
        """Close the scope."""
        return graph.call_function(torch.ops.air.scope_exit.default, ())

    def wait(self, graph: fx.Graph, values: Sequence[fx.Node]) -> fx.Node:
        """Write one wait for the producers of all `values`."""
        return graph.call_function(torch.ops.air.wait.default, (list(values),))

    def record(self, graph: fx.Graph) -> fx.Node:
        """Write a record; its value is an empty tensor that only a wait may read."""
        node = graph.call_function(torch.ops.air.record.default, ())
        node.meta["val"] = torch.empty(0, device="meta")
        return node

    def anchor(self, graph: fx.Graph, value: fx.Node, dependency: fx.Node) -> fx.Node:
        """Write an Identity of `value` with a control edge from the producer of `dependency`.

        Raises:
            RewriteError: TorchAir, which defines the operator, is not there.
        """
        if not hasattr(torch.ops.air, "wait_tensor"):
            raise RewriteError("an order needs air.wait_tensor, which only TorchAir defines")
        node = graph.call_function(torch.ops.air.wait_tensor.default, (value, dependency))
        node.meta["val"] = value.meta.get("val")
        return node

    def landing(self, node: fx.Node, label: str | None) -> Landing:
        """Find out by conversion where a wait in front of `node` lands; without TorchAir nothing can be proved (LOST)."""
        key = (str(node.target), label is None, _signature(node))
        if key not in self._landings:
            self._landings[key] = find_landing(node, label, self)
            logger.debug("a wait in front of %s lands: %s", node.name, self._landings[key])
        return self._landings[key]


def ensure_operators() -> None:
    """Register `torch.ops.air.*`: TorchAir's own where it can be brought up, else operators with the same schemas.

    Raises:
        OfflineError: torch_npu looked usable but could not be brought up.
    """
    if hasattr(torch.ops.air, "scope_enter") and hasattr(torch.ops.air, "wait"):
        return
    if offline.why_unavailable() is not None:
        _define_operators()
        return
    offline.activate()
    importlib.import_module("torchair.ops")
    importlib.import_module("torchair.scope._wait_tensor")
    if not hasattr(torch.ops.air, "scope_enter"):
        raise OfflineError("TorchAir was imported but did not register torch.ops.air.scope_enter")


_library: torch.library.Library | None = None


def _define_operators() -> None:
    """Define the scope operators as no-ops, so that a rewritten graph can be built, printed and run without TorchAir."""
    global _library
    library = torch.library.Library("air", "FRAGMENT")
    library.define("scope_enter(str[] keys, str[] values, bool need_execute=False) -> None")
    library.define("scope_exit(bool need_execute=False) -> None")
    library.define("record(*, Device? device=None) -> Tensor")
    library.define("wait(Tensor[] x) -> ()")
    for name in ("scope_enter", "scope_exit"):
        for key in ("BackendSelect", "Meta", "CPU"):
            library.impl(name, lambda *_args, **_kwargs: None, key)
    for key in ("BackendSelect", "Meta"):
        library.impl("record", lambda *, device=None: torch.empty(0, device=device), key)
        library.impl("wait", lambda _tensors: None, key)
    for name in ("scope_enter", "scope_exit", "wait"):
        fx.node.has_side_effect(getattr(torch.ops.air, name).default)
    _library = library


def _signature(node: fx.Node) -> str:
    """Return what decides the conversion of a node: its arguments with tensors as shapes and dtypes."""

    def describe(value: fx.Node) -> str:
        meta = value.meta.get("val")
        return f"{tuple(meta.shape)}{meta.dtype}" if isinstance(meta, torch.Tensor) else str(meta)

    return str(fx.map_arg((node.args, node.kwargs), describe))
