"""Build the scenario graphs: functions of fake tensors, traced with the real operators' meta kernels."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import autostream
from autostream import StreamPass
from autostream.chips import cost_model
from autostream.cost import CostModel, TableModel
from autostream.cost.model import Breakdown, Cost, Resources, Tier
from autostream.options import Options
from autostream.outcome import Outcome
from autostream.pipeline import plan
from autostream.program import StreamProgram
from autostream.program.execution.execute import differs, serial
from autostream.program.reading.fx import read_fx
from autostream.report import Document
from autostream.rewrite.air import Air
from tests.rewrite.graphs_fx import real_inputs

Input = tuple[tuple[int, ...], torch.dtype]

#: A CPU-sized graph whose products and elementwise operators both take long enough to overlap on any chip.
PRICES: Mapping[str, float] = {
    "aten.mm": 100.0, "aten.bmm": 100.0, "aten.add": 60.0, "aten.mul": 60.0, "aten.sigmoid": 60.0, "aten.tanh": 60.0,
    "aten.relu": 60.0, "aten.clone": 20.0, "aten.copy_": 20.0, "aten.index_put_": 20.0, "aten.where": 20.0, "aten._to_copy": 20.0,
}  # fmt: skip


def bf16(*shape: int) -> Input:
    return shape, torch.bfloat16


def int8(*shape: int) -> Input:
    return shape, torch.int8


def fp32(*shape: int) -> Input:
    return shape, torch.float32


def int64(*shape: int) -> Input:
    return shape, torch.int64


def scenario(function: Callable[..., Any], *inputs: Input) -> fx.GraphModule:
    """Trace `function` on fake tensors of the given shapes and dtypes."""
    with FakeTensorMode():
        return make_fx(function)(*(torch.empty(shape, dtype=dtype) for shape, dtype in inputs))


def inputs_of(graph_module: fx.GraphModule) -> list[str]:
    """Return the names of the graph's inputs, which are those of their storages."""
    return [node.name for node in graph_module.graph.find_nodes(op="placeholder")]


def noisy(function: Callable[..., Any]) -> Callable[..., Any]:
    """Put unrelated operators before and behind `function`; the first input, (64,) of any float type, is theirs."""

    def wrapped(noise: Tensor, *inputs: Tensor) -> tuple[Any, Tensor]:
        before = torch.neg(torch.neg(noise))
        result = function(*inputs)
        return result, torch.abs(before)

    return wrapped


def planned(graph_module: fx.GraphModule, model: CostModel | None = None, **options: Any) -> Outcome:
    """Run the pipeline on a scenario; failures raise, unless `strict` says otherwise."""
    chosen = Options(**{"strict": True, **options})
    return plan(graph_module, model=model or cost_model("910B2"), options=chosen, dialect=Air())


def priced(**prices: Cost | float) -> TableModel:
    """A price list over the small graphs' one; dots in names of operators are written as double underscores."""
    listed = {name.replace("__", "."): price for name, price in prices.items()}
    return TableModel(cost_model("910B2").machine, {**PRICES, **listed}, cost_model("910B2"))


def gang(aiv: int, microseconds: float = 50.0) -> Cost:
    """A step that communicates on that many vector cores, all at once."""
    duration = round(microseconds * 1000)
    held = Resources(aiv=aiv, comm=1)
    return Cost(duration=duration, breakdown=Breakdown(comm=duration), resources=held, tier=Tier.MEASURED, error=0.0)


def passed(graph_module: fx.GraphModule, **arguments: Any) -> tuple[fx.GraphModule, Document]:
    """Run the pass on a copy of the graph, as a compiler would; return the copy and the report that it filed."""
    copied = fx.GraphModule(graph_module, copy.deepcopy(graph_module.graph))
    StreamPass(**{"chip": "910B2", **arguments} if "cost_model" not in arguments else arguments)(copied)
    return copied, autostream.reports()[-1]


def streams_of(outcome: Outcome) -> dict[str, str | None]:
    """Return the stream of every step of the emitted program."""
    assert outcome.program is not None, outcome.verdict.reason
    return {step.name: step.stream for step in outcome.program.steps}


def scopes_of(graph_module: fx.GraphModule) -> list[dict[str, str]]:
    """Return the attributes of every scope that a graph opens, keys in the order they are written."""
    enters = graph_module.graph.find_nodes(op="call_function", target=torch.ops.air.scope_enter.default)
    return [dict(zip(node.args[0], node.args[1], strict=True)) for node in enters]


def sync_nodes(graph_module: fx.GraphModule) -> list[str]:
    """Return the targets of the scopes, records and waits of a graph, in order."""
    return [str(node.target) for node in graph_module.graph.nodes if str(node.target).startswith(("air.", "npugraph_ex."))]


def program_of(outcome: Outcome) -> StreamProgram:
    """Return the program read back from an accepted graph."""
    assert outcome.verdict.accepted, outcome.verdict.reason
    assert outcome.program is not None
    return outcome.program


def same_bits_in_every_order(graph_module: fx.GraphModule, outcome: Outcome) -> None:
    """Check that the emitted graph gives the bits of the given one on the CPU, whichever of two unordered steps comes first."""
    assert outcome.graph_module is not None, outcome.verdict.reason
    inputs = real_inputs(graph_module)
    steps = sum(step.stream is not None for step in read_fx(outcome.graph_module).steps)
    reference = serial(graph_module, inputs)
    assert differs(outcome.graph_module, inputs, reference, seeds=range(2 * steps + 4)) is None
