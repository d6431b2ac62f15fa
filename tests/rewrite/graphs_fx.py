"""Schedules made by hand or at random, and graphs traced for the rewriter's tests."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from autostream.graph import OpGraph, Unit
from autostream.scheduling.problem import HCCL, MAIN, Placement, Schedule


def traced(function: Callable[..., object], *shapes: tuple[int, ...]) -> fx.GraphModule:
    """Trace a function of float32 tensors of the given shapes; placeholders carry their values' metadata."""
    return make_fx(function, tracing_mode="fake")(*(torch.empty(shape) for shape in shapes))


def on_streams(graph: OpGraph, streams: Mapping[str, str]) -> Schedule:
    """Schedule in program order with the named operators on the named streams, the others on the default ones."""
    tasks = [op for op in graph if op.unit is not Unit.FREE]
    default = {op.name: HCCL if op.unit is Unit.COMM else MAIN for op in tasks}
    return _schedule([(op.name, streams.get(op.name, default[op.name])) for op in tasks])


def at_random(graph: OpGraph, seed: int, labels: tuple[str, ...] = ("side_1", "side_2")) -> Schedule:
    """Schedule in program order with every operator on a random stream."""
    source = random.Random(seed)
    tasks = [op for op in graph if op.unit is not Unit.FREE]
    return _schedule([(op.name, HCCL if op.unit is Unit.COMM else source.choice((MAIN, *labels))) for op in tasks])


def _schedule(pairs: list[tuple[str, str]]) -> Schedule:
    rows = tuple(Placement(task=task, stream=stream, mode=0, start=at, end=at + 1) for at, (task, stream) in enumerate(pairs))
    return Schedule(placements=rows, strategy="test", status="feasible", makespan=len(rows), lower_bound=0)


def real_inputs(graph_module: fx.GraphModule, seed: int = 0) -> list[Tensor]:
    """Return random inputs of the placeholders' shapes and dtypes; integers stay small enough to be indices."""
    generator = torch.Generator().manual_seed(seed)
    inputs = []
    for node in graph_module.graph.find_nodes(op="placeholder"):
        value = node.meta["val"]
        if value.dtype.is_floating_point:
            inputs.append(torch.randn(value.shape, generator=generator).to(value.dtype))
        else:
            inputs.append(torch.arange(value.numel()).reshape(value.shape).to(value.dtype))
    return inputs


def run(graph_module: fx.GraphModule, inputs: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Run on copies of the inputs; return the results and the inputs as they are afterwards."""
    copies = [tensor.clone() for tensor in inputs]
    results = graph_module(*copies)
    flat = list(results) if isinstance(results, (tuple, list)) else [results]
    return flat, copies
