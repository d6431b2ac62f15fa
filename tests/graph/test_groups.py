"""How many ranks a collective has, as far as the graph tells."""

from __future__ import annotations

import pytest
import torch
import torch.distributed._functional_collectives  # registers the operators
from torch import fx

from autostream.demo import moe_decode_layer
from autostream.graph.capture import capture
from autostream.graph.programs import to_aten

C10D = torch.ops._c10d_functional


def sizes(build: list[tuple[object, tuple[object, ...]]]) -> list[int | None]:
    """Return the group sizes of collectives on one tensor, in graph order."""
    graph = fx.Graph()
    tensor = graph.placeholder("x")
    tensor.meta["val"] = torch.empty(16, 16, device="meta")
    results = []
    for target, arguments in build:
        node = graph.call_function(target, (tensor, *arguments))
        node.meta["val"] = torch.empty(16, 16, device="meta")
        results.append(node)
    graph.output(tuple(results))
    captured = capture(fx.GraphModule(torch.nn.Module(), graph))
    return [op.group_size for op in captured]


def test_an_argument_tells_the_size() -> None:
    gather, scatter = C10D.all_gather_into_tensor.default, C10D.reduce_scatter_tensor.default
    assert sizes([(gather, (4, "tp")), (scatter, ("sum", 32, "ep"))]) == [4, 32]


def test_a_list_with_an_entry_per_rank_tells_it_too() -> None:
    assert sizes([(C10D.all_to_all_single.default, ([8, 8], [8, 8], "ep"))]) == [2]


def test_a_collective_that_does_not_say_takes_the_size_of_its_group() -> None:
    reduce, gather = C10D.all_reduce.default, C10D.all_gather_into_tensor.default
    assert sizes([(reduce, ("sum", "tp")), (gather, (8, "tp")), (reduce, ("sum", "dp"))]) == [8, 8, None]


def test_what_is_no_collective_has_no_size() -> None:
    assert sizes([(torch.ops.aten.relu.default, ())]) == [None]


@pytest.mark.usefixtures("npu_host")
def test_the_ranks_of_an_expert_exchange_are_read() -> None:
    layer, inputs = moe_decode_layer(npu=True, batch=16, hidden=2048, ep_world_size=8)
    graph = capture(to_aten(layer, inputs).graph_module)
    exchanges = [op.group_size for op in graph if "moe_distribute" in op.target]
    assert exchanges == [8, 8]


@pytest.mark.usefixtures("npu_host")
def test_a_quantisation_group_is_no_group_of_ranks() -> None:
    from autostream.graph.calls import look
    from autostream.graph.groups import group_size

    graph = fx.Graph()
    node = graph.call_function(torch.ops.npu.npu_quant_gmm_alltoallv.default, (), {"ep_world_size": 4, "group_size": 128})
    assert group_size(look(node)) == 4
