"""Build the scenario graphs: functions of fake tensors, traced with the real operators' meta kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from autostream.chips import cost_model
from autostream.options import Options
from autostream.outcome import Outcome
from autostream.pipeline import plan
from autostream.rewrite.air import Air


def bf16(*shape: int) -> tuple[tuple[int, ...], torch.dtype]:
    return shape, torch.bfloat16


def int8(*shape: int) -> tuple[tuple[int, ...], torch.dtype]:
    return shape, torch.int8


def fp32(*shape: int) -> tuple[tuple[int, ...], torch.dtype]:
    return shape, torch.float32


def int64(*shape: int) -> tuple[tuple[int, ...], torch.dtype]:
    return shape, torch.int64


def scenario(function: Callable[..., Any], *inputs: tuple[tuple[int, ...], torch.dtype]) -> fx.GraphModule:
    """Trace `function` on fake tensors of the given shapes and dtypes."""
    with FakeTensorMode():
        return make_fx(function)(*(torch.empty(shape, dtype=dtype) for shape, dtype in inputs))


def planned(graph_module: fx.GraphModule, **options: Any) -> Outcome:
    """Run the pipeline on a scenario; failures raise."""
    return plan(graph_module, model=cost_model("910B2"), options=Options(strict=True, **options), dialect=Air())


def streams_of(outcome: Outcome) -> dict[str, str | None]:
    """Return the stream of every step of the emitted program."""
    assert outcome.program is not None, outcome.verdict.reason
    return {step.name: step.stream for step in outcome.program.steps}
