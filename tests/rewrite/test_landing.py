from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, fx
from torch.testing._internal.distributed.fake_pg import FakeStore

from autostream.rewrite.air import Air
from autostream.rewrite.dialect import Landing
from autostream.rewrite.landing import _lone, _ordered, anchored_input
from tests.rewrite.graphs_fx import traced

pytestmark = pytest.mark.usefixtures("npu_host")


def _node(module: fx.GraphModule, name: str) -> fx.Node:
    return next(node for node in module.graph.nodes if node.name == name)


def test_a_wait_in_front_of_a_plain_operator_lands_on_it() -> None:
    node = _node(traced(torch.relu, (8, 8)), "relu")
    assert Air().landing(node, "side") is Landing.DIRECT
    assert Air().landing(node, None) is Landing.DIRECT


def test_a_wait_in_front_of_a_const_needs_an_anchor() -> None:
    # TorchAir converts add(x, 1) to Const, Add: the wait would land on the Const and be lost.
    node = _node(traced(lambda x: torch.add(x, 1), (8, 8)), "add")
    assert Air().landing(node, "side") is Landing.ANCHOR


def test_a_copy_into_an_input_cannot_be_ordered() -> None:
    # TorchAir replaces the Assign by an output that shares the input's memory, and its edges go with it.
    def copies(cache: Tensor, new: Tensor) -> None:
        cache.copy_(new)

    assert Air().landing(_node(traced(copies, (8, 8), (8, 8)), "copy_"), None) is Landing.LOST


def test_the_anchor_never_goes_on_a_written_input() -> None:
    def updates(cache: Tensor, new: Tensor, slot: Tensor) -> None:
        torch.ops.npu.scatter_update_(cache, slot.long(), new, -2)

    node = _node(traced(updates, (1, 1, 8, 8), (1, 1, 2, 8), (1,)), "scatter_update_")
    source = anchored_input(node)
    assert source is not None and source.name != "cache_1"


def test_no_wait_lands_on_a_call_that_has_no_converter() -> None:
    graph = fx.Graph()
    value = graph.placeholder("x")
    call = graph.call_module("layer", (value,))
    for node in (value, call):
        node.meta["val"] = torch.empty(8, device="meta")
    assert Air().landing(call, None) is Landing.LOST


def _collective(name: str, group: str) -> fx.Node:
    arguments: dict[str, tuple[Any, ...]] = {
        "all_reduce": ("sum", group),
        "all_gather_into_tensor": (2, group),
        "reduce_scatter_tensor": ("sum", 2, group),
        "broadcast": (0, group),
    }
    graph = fx.Graph()
    value = graph.placeholder("x")
    overload = getattr(torch.ops._c10d_functional, name).default
    node = graph.create_node("call_function", overload, (value, *arguments[name]), name=name)
    sizes = {"all_gather_into_tensor": 16, "reduce_scatter_tensor": 4}
    value.meta["val"], node.meta["val"] = torch.empty(8, device="meta"), torch.empty(sizes.get(name, 8), device="meta")
    return node


@pytest.mark.parametrize("name", ["all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast"])
def test_a_wait_lands_on_a_collective_whose_process_group_is_not_there(name: str) -> None:
    assert Air().landing(_collective(name, "tp"), "side") is Landing.DIRECT
    # Where there is a group, the real converter shows the same.
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        node = _collective(name, dist.group.WORLD.group_name)  # type: ignore[union-attr]
        assert _ordered(_lone(node, "side", Air(), anchored=None), name)
    finally:
        dist.destroy_process_group()
