"""Trace a model the way a Dynamo backend such as TorchAir receives it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import make_fx


def aten_graph(module: nn.Module, inputs: tuple[Tensor, ...], *, functional: bool = False) -> fx.GraphModule:
    """Return the ATen graph of one call; its placeholders are the parameters, the buffers, then the inputs, and carry ``val``.

    Unlike torch.export it keeps hand-written stream scopes. With `functional`, mutations of inputs and buffers become ``copy_``
    nodes at the end of the graph, as AOTAutograd leaves them; otherwise in-place operators stay where the model has them.
    """
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}

    def call(*values: Tensor) -> Any:
        results = torch.func.functional_call(module, dict(zip(state, values[: len(state)], strict=True)), values[len(state) :])
        return results if isinstance(results, tuple) else (results,)

    function = torch.func.functionalize(call, remove="mutations") if functional else call
    with torch.no_grad():
        graph_module = make_fx(function, tracing_mode="fake")(*state.values(), *inputs)
    if functional:  # views taken again after a mutation are left behind unused
        graph_module.graph.eliminate_dead_code()
        graph_module.recompile()
    return graph_module
