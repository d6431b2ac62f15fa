"""What orders operators although no data edge does: hidden workspaces, random state, the host, sub-graphs, disguised writers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import networkx as nx
import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import FakeTensorMode

from autostream.graph import OpGraph, Unit, Why
from autostream.graph.capture import capture
from tests.graph.orders import aten
from tests.graph.sketch import Sketch, empty, ordered


def _traced(function: Callable[..., Any], *inputs: Tensor) -> OpGraph:
    """Capture what Dynamo and AOTAutograd make of a function: the form in which a pass gets it."""
    return capture(_module(function, *inputs))


def _module(function: Callable[..., Any], *inputs: Tensor) -> fx.GraphModule:
    graphs: list[fx.GraphModule] = []

    def keep(module: fx.GraphModule, _: Any) -> Any:
        graphs.append(module)
        return make_boxed_func(module.forward)

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(function, backend=aot_autograd(fw_compiler=keep, keep_inference_input_mutations=True), fullgraph=True)(
            *inputs
        )
    return graphs[0]


def _named(graph: OpGraph, target: str) -> list[str]:
    return [op.name for op in graph if op.target.startswith(target)]


def _before(graph: OpGraph, one: str, two: str) -> bool:
    return bool(nx.has_path(graph.dag, one, two))


def test_operators_that_share_a_hidden_workspace_take_turns(npu_host: None) -> None:
    atb = torch.ops.atb
    sketch = Sketch()
    key, value, slots = sketch.input("key"), sketch.input("value"), sketch.input("slots", empty(4, dtype=torch.int32))
    caches = [sketch.input(name, empty(16, 8)) for name in ("k0", "v0", "k1", "v1")]
    first = sketch.call(atb._npu_reshape_and_cache.default, key, value, caches[0], caches[1], slots)
    beside = sketch.call(aten.relu.default, key)
    other = sketch.call(atb._npu_reshape_and_cache.default, value, key, caches[2], caches[3], slots)
    for node in (first, other):
        node.meta["val"] = None
    graph = sketch.capture(beside)
    assert graph.why(first.name, other.name) == {Why.RAW, Why.WAW}
    assert not ordered(graph, first, beside) and not ordered(graph, beside, other)
    assert graph.storages["<workspace atb>"].kind == "state"
    assert graph.ops[first.name].writes == ("k0", "v0", "<workspace atb>")
    assert graph.ops[first.name].unit is Unit.VECTOR and graph.ops[first.name].known


def test_a_cache_that_a_schema_does_not_mark_is_written(npu_host: None) -> None:
    schema = torch.ops.atb.npu_mla_preprocess.default._schema
    assert not any(item.alias_info for item in schema.arguments if item.name == "kv_cache")
    sketch = Sketch()
    given = {item.name: sketch.input(item.name) for item in schema.arguments if str(item.type) == "Tensor"}
    read = sketch.call(aten.relu.default, given["kv_cache"])
    write = sketch.call(torch.ops.atb.npu_mla_preprocess.default, *given.values(), value=(empty(4, 8),) * 4)
    again = sketch.call(aten.neg.default, given["kv_cache_rope"])
    graph = sketch.capture(read, again)
    assert graph.why(read.name, write.name) == {Why.WAR} and graph.why(write.name, again.name) == {Why.RAW}


def test_an_explicit_workspace_is_written(npu_host: None) -> None:
    sketch = Sketch()
    x, table, lengths, out, scratch = (sketch.input(name) for name in ("x", "table", "lengths", "out", "scratch"))
    attention = torch.ops.atb._npu_paged_attention.default
    call = sketch.call(attention, x, x, x, 1, 1, 1.0, table, lengths, out, workspace=scratch)
    call.meta["val"] = None
    reader = sketch.call(aten.relu.default, scratch)
    assert sketch.capture(reader).why(call.name, reader.name) == {Why.RAW}


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: torch.rand(4, 4),
        lambda x: torch.nn.functional.dropout(x, 0.5, training=True),
        lambda x: torch.bernoulli(x.sigmoid()),
        torch.randn_like,
        lambda x: torch.randperm(16).view(4, 4),
    ],
)
def test_random_numbers_are_drawn_one_after_the_other(draw: Callable[[Tensor], Tensor]) -> None:
    graph = _traced(lambda x, y: (draw(x) + x, draw(y) + y), torch.ones(4, 4), torch.ones(4, 4))
    random = [op.name for op in graph if "<rng>" in op.writes]
    assert len(random) == 2 and _before(graph, *random)


def test_generators_and_explicit_seeds_are_covered() -> None:
    sketch = Sketch()
    x = sketch.input("x")
    first = sketch.call(aten.bernoulli_.float, x, 0.5, generator=None)
    second = sketch.call(aten.rand.generator, [4, 8], generator=None)
    philox = sketch.call(torch.ops.rngprims.philox_rand.default, [4], x, x, None, x.meta["val"].device, torch.float32)
    graph = sketch.capture(second, philox)
    assert ordered(graph, first, second) and ordered(graph, first, philox)


def test_copies_to_the_host_keep_their_order() -> None:
    with FakeTensorMode():
        device = torch.empty(4, 8, device="cuda")  # stands for the NPU: all that counts is that it is not the host
    sketch = Sketch()
    x = sketch.input("x", device)
    fetched = sketch.call(aten._to_copy.default, x, device=torch.device("cpu"), value=torch.empty(4, 8))
    sketch.graph.call_function(aten._assert_async.msg, (x, "no")).meta["val"] = None
    number = sketch.call(aten._local_scalar_dense.default, x, value=1.0)
    graph = sketch.capture(fetched, number)
    assert ordered(graph, fetched, number)
    assert graph.ops[number.name].unit is Unit.HOST


def test_a_sub_graph_is_a_barrier() -> None:
    def branches(x: Tensor, y: Tensor) -> Tensor:
        before, other = x + 1, y * 2
        chosen = torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (before,))
        return chosen, other, y - 3

    def loop(x: Tensor, y: Tensor) -> Tensor:
        other = y * 2
        count, value = torch._higher_order_ops.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a + 1), (torch.tensor(0), x))
        return count, value, other, y - 3

    for function, name in ((branches, "cond"), (loop, "while_loop")):
        graph = _traced(function, torch.ones(4, 4), torch.ones(4, 4))
        (stop,) = _named(graph, name)
        (earlier,), (later,) = _named(graph, "aten.mul"), _named(graph, "aten.sub")
        assert _before(graph, earlier, stop) and _before(graph, stop, later), name
        assert Why.EFFECT in graph.why(stop, later)


def test_a_checkpointed_block_and_a_nested_region_lose_no_operator() -> None:
    @torch.compiler.nested_compile_region
    def region(x: Tensor) -> Tensor:
        return x.sin()

    def step(x: Tensor, y: Tensor) -> Tensor:
        return region(x) + region(y) + torch.utils.checkpoint.checkpoint(torch.cos, x, use_reentrant=False)

    graph = _traced(step, torch.ones(4, 4), torch.ones(4, 4))
    assert _named(graph, "aten.cos")
    calls = _named(graph, "invoke_subgraph")
    assert len(calls) + len(_named(graph, "aten.sin")) == 2
    assert all(_before(graph, one, two) for one, two in pairwise(calls))


@torch.library.custom_op("hidden_state::fill_part", mutates_args={"part"})
def _fill_part(part: Tensor, x: Tensor) -> None:
    part.copy_(x)


def test_a_functionalised_writer_of_views_is_ordered_with_every_use_of_the_base() -> None:
    def step(cache: Tensor, x: Tensor) -> Tensor:
        before = cache[1] + 1
        _fill_part(cache[0], x)
        return before, cache[1] * 2

    module = _module(step, torch.zeros(2, 4), torch.ones(4))
    graph = capture(module)
    (write,) = _named(graph, "hidden_state.fill_part")
    node = next(node for node in module.graph.nodes if node.name == write)
    assert str(node.target) == "auto_functionalized_v2" and "_part_base_index" in node.kwargs
    (earlier,), (later,) = _named(graph, "aten.add"), _named(graph, "aten.mul")
    assert _before(graph, earlier, write) and _before(graph, write, later)
    copies = _named(graph, "aten.copy_")
    assert len(copies) == 1 and _before(graph, write, copies[0])


def test_plain_python_in_a_graph_is_a_barrier() -> None:
    def noisy(x: Tensor) -> Tensor:
        return x

    sketch = Sketch()
    x = sketch.input("x")
    earlier = sketch.call(aten.relu.default, x)
    call = sketch.call(noisy, x)
    later = sketch.call(aten.neg.default, x)
    graph = sketch.capture(earlier, call, later)
    assert ordered(graph, earlier, call) and ordered(graph, call, later)


def test_tied_weights_share_a_storage() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4, 4), requires_grad=False)
            self.part = self.weight[:2]

    graph = fx.Graph()
    weight, part = graph.get_attr("weight"), graph.get_attr("part")
    read = graph.call_function(aten.relu.default, (part,))
    write = graph.call_function(aten.add_.Tensor, (weight, 1.0))
    read.meta["val"], write.meta["val"] = torch.empty(2, 4), torch.empty(4, 4)
    graph.output((read, write))
    captured = capture(fx.GraphModule(Tied(), graph))
    assert captured.why(read.name, write.name) == {Why.WAR}
