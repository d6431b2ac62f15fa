"""Trace a module the way torch.compile does: for what torch.export refuses, hand-written stream scopes above all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch._dynamo.backends.common import aot_autograd

from autostream.errors import CaptureError
from autostream.graph.exported import cpu_only_decompositions


class _CapturedError(Exception):
    """Raised from inside the compilation once the graph is there: nothing has to be run."""


def trace(module: nn.Module, inputs: tuple[Any, ...], kwargs: Mapping[str, Any]) -> fx.GraphModule:
    """Return the ATen graph that AOTAutograd hands to a backend: every parameter and buffer a placeholder, mutations copied back.

    Raises:
        CaptureError: the module is not one graph.
        Exception: whatever the module's forward raises.
    """
    graphs: list[fx.GraphModule] = []

    def keep(graph_module: fx.GraphModule, _example_inputs: Sequence[Any]) -> Any:
        graphs.append(graph_module)
        raise _CapturedError

    backend = aot_autograd(
        fw_compiler=keep,
        inference_compiler=keep,
        keep_inference_input_mutations=True,
        decompositions=cpu_only_decompositions(),
    )
    compiled = torch.compile(module, backend=backend, fullgraph=True, dynamic=False)
    try:
        with torch.no_grad():
            compiled(*inputs, **kwargs)
    except Exception:
        if not graphs:
            raise
    if not graphs:
        raise CaptureError(f"{type(module).__name__} calls no operator, so there is no graph to schedule")
    return graphs[0]
