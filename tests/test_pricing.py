"""Prices of a whole graph: what takes no time of its own, and what must stay together for that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from autostream.chips import cost_model
from autostream.cost.analytic.fused import fused_activations
from autostream.cost.model import FREE
from autostream.graph import OpGraph
from autostream.graph.capture import capture
from autostream.graph.programs import to_aten
from autostream.options import Options
from autostream.pipeline import plan
from autostream.pricing import price_graph
from autostream.program import Semantics
from autostream.program.reading.fx import read_fx
from autostream.rewrite.air import Air
from autostream.scheduling import build_problem

B2 = cost_model("910B2")


class Net(nn.Module):
    """A convolution and what the function makes of it."""

    def __init__(self, forward: Callable[[nn.Conv2d, Tensor], object]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 1)
        self.then = forward

    def forward(self, x: Tensor) -> object:
        return self.then(self.conv, x)


def graph_of(forward: Callable[[nn.Conv2d, Tensor], object]) -> OpGraph:
    """Return the operators of such a net."""
    return capture(to_aten(Net(forward).eval(), (torch.zeros(1, 8, 16, 16),)).graph_module)


def test_the_relu_of_a_convolution_is_in_its_kernel() -> None:
    graph = graph_of(lambda conv, x: functional.relu(conv(x)))
    assert list(fused_activations(graph, B2.machine).items()) == [("relu", "convolution")]


@pytest.mark.parametrize(
    "forward",
    [
        lambda conv, x: functional.relu(conv(x) + 1),
        lambda conv, x: functional.gelu(conv(x)),
        lambda conv, x: (value := conv(x)) + functional.relu(value),
        lambda conv, x: [value := conv(x), functional.relu(value)],
        lambda conv, x: functional.relu(functional.conv_transpose2d(x, conv.weight, stride=2)),
        lambda conv, x: functional.relu(functional.conv1d(x.flatten(2), conv.weight.flatten(2))),
        lambda conv, x: functional.relu(functional.relu(x)),
    ],
    ids=["something between", "another activation", "a second reader", "it is returned", "transposed", "1-D", "no convolution"],
)
def test_others_are_kernels_of_their_own(forward: Callable[[nn.Conv2d, Tensor], object]) -> None:
    assert fused_activations(graph_of(forward), B2.machine) == {}


def test_a_chip_that_cannot_and_scopes_that_differ_keep_them_apart() -> None:
    graph = graph_of(lambda conv, x: functional.relu(conv(x)))
    assert fused_activations(graph, cost_model("310P3").machine) == {}
    apart = graph.ops | {"relu": graph.ops["relu"]._replace(scope=(("_user_stream_label", "a"),))}
    assert fused_activations(replace(graph, ops=apart), B2.machine) == {}


def test_only_ge_fuses() -> None:
    graph_module = to_aten(Net(lambda conv, x: functional.relu(conv(x))).eval(), (torch.zeros(1, 8, 16, 16),)).graph_module
    graph, options = capture(graph_module), Options()
    for semantics, free in ((Semantics.GE, True), (Semantics.CAPTURE, False)):
        program = read_fx(graph_module, semantics=semantics, graph=graph)
        costs = price_graph(program, graph, graph.ops, B2, options)
        assert (costs["relu"] == FREE) is free and costs["convolution"].duration > 0
        tasks = {task.name: task for task in build_problem(graph, costs, B2.machine, options).tasks}
        assert (tasks["relu"].cluster == tasks["convolution"].cluster == "convolution") is free


def test_a_relu_in_the_kernel_of_its_convolution_leaves_nothing_to_overlap() -> None:
    """Two branches of convolution and ReLU: kernels of one unit, unlike where something else is between the two."""
    small = nn.Conv2d(8, 8, 1)

    def net(conv: nn.Conv2d, x: Tensor, between: Callable[[Tensor], Tensor]) -> Tensor:
        return functional.relu(between(conv(x))) + functional.relu(between(functional.conv2d(x, small.weight.detach())))

    def gain(between: Callable[[Tensor], Tensor]) -> float:
        program = to_aten(Net(lambda conv, x: net(conv, x, between)).eval(), (torch.zeros(8, 8, 128, 128),))
        return plan(program.graph_module, model=B2, options=Options(strict=True), dialect=Air()).verdict.gain

    assert gain(lambda value: value) == pytest.approx(0, abs=1e-3)
    assert gain(lambda value: value * 2) > 0.05
