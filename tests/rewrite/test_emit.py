from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from autostream import offline
from autostream.errors import RewriteError
from autostream.graph import Unit
from autostream.graph.capture import capture
from autostream.graph.programs import to_aten
from autostream.program import EdgeKind, Severity, read_ascend_ir, verify
from autostream.program.reading.fx import read_fx
from autostream.program.reading.writeback import written_back
from autostream.rewrite.air import Air
from autostream.rewrite.emit import emit
from autostream.rewrite.sync import task_orders
from tests import models
from tests.rewrite.graphs_fx import at_random, on_streams, real_inputs, run, traced

pytestmark = pytest.mark.usefixtures("npu_host")


def _targets(graph_module: fx.GraphModule) -> list[str]:
    return [str(node.target) for node in graph_module.graph.nodes if node.op == "call_function"]


def test_one_scope_surrounds_a_branch() -> None:
    def two_branches(x: Tensor, y: Tensor) -> Tensor:
        return torch.add(torch.relu(torch.mm(x, y)), torch.sigmoid(x))

    module = traced(two_branches, (8, 8), (8, 8))
    graph = capture(module)
    emitted = emit(module, graph, on_streams(graph, {"sigmoid": "side"}), Air()).graph_module
    assert _targets(emitted) == [
        "aten.mm.default",
        "aten.relu.default",
        "air.scope_enter.default",
        "aten.sigmoid.default",
        "air.scope_exit.default",
        "aten.add.Tensor",
    ]
    enter = emitted.graph.find_nodes(op="call_function", target=torch.ops.air.scope_enter.default)[0]
    assert enter.args == (
        ["_user_stream_label", "_user_stream_priority", "_enable_inner_parallel"],
        ["side", "0", "False"],
    )


def test_the_completion_of_a_collective_is_written_in_the_scope_of_each_reader() -> None:
    """It becomes an Identity: on another stream than its reader's it would wait for what that stream has to do first."""

    def reduced(x: Tensor, y: Tensor) -> Tensor:
        functional = torch.ops._c10d_functional
        done = functional.wait_tensor(functional.all_reduce(torch.relu(x), "sum", "tp"))
        return torch.add(torch.mm(done, y), torch.sigmoid(done))

    module = traced(reduced, (8, 8), (8, 8))
    graph = capture(module)
    assert graph.ops["all_reduce"].unit is Unit.COMM and graph.ops["wait_tensor"].unit is Unit.FREE
    schedule = on_streams(graph, {"sigmoid": "side"})
    emitted = emit(module, graph, schedule, Air(), {"sigmoid": (8, 16)}).graph_module
    waits = emitted.graph.find_nodes(op="call_function", target=torch.ops._c10d_functional.wait_tensor.default)
    assert [[user.name for user in wait.users] for wait in waits] == [["mm"], ["sigmoid"]]
    program = read_fx(emitted)
    streams = {step.name: step.stream for step in program.steps}
    assert [streams[wait.name] for wait in waits] == [streams["mm"], streams["sigmoid"]] == ["default", "side"]
    cores = {step.name: step.cores for step in program.steps}
    assert cores["sigmoid"] == (8, 16) and [cores[wait.name] for wait in waits] == [None, None]
    assert not [f for f in verify(program, required=task_orders(graph)) if f.severity is Severity.ERROR]


def test_the_given_graph_is_left_alone_and_operators_keep_their_names() -> None:
    module, inputs = models.llama_layer()
    program = to_aten(module, inputs).graph_module
    before = str(program.graph)
    graph = capture(program)
    emitted = emit(program, graph, at_random(graph, 1), Air()).graph_module
    assert str(program.graph) == before
    assert set(graph.ops) <= {node.name for node in emitted.graph.nodes}


@pytest.mark.parametrize("builder", [models.mixture, models.cnn_branches, models.llama_layer, models.tiny_vector])
@pytest.mark.parametrize("seed", range(3))
def test_any_assignment_keeps_every_bit_and_is_proved_on_both_levels(builder: object, seed: int) -> None:
    module, inputs = builder()  # type: ignore[operator]
    captured = to_aten(module, inputs)
    graph = capture(captured.graph_module)
    emitted = emit(captured.graph_module, graph, at_random(graph, seed), Air()).graph_module
    real = real_inputs(captured.graph_module)
    for expected, found in zip(run(captured.graph_module, real), run(emitted, real), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    orders = task_orders(graph)
    assert not [f for f in verify(read_fx(emitted), required=orders) if f.severity is Severity.ERROR]
    plain = read_ascend_ir(offline.convert(captured.graph_module).serialized, in_order=True)
    program = read_ascend_ir(offline.convert(emitted).serialized, in_order=True)
    assert not [f for f in verify(program, required=orders) if f.severity is Severity.ERROR]
    tasks, plain_tasks = (Counter(s.kind for s in p.steps if s.stream is not None) for p in (program, plain))
    assert tasks == plain_tasks


def test_emitting_survives_dead_code_elimination() -> None:
    def writes(cache: Tensor, new: Tensor, query: Tensor) -> Tensor:
        attended = torch.mm(query, cache)
        torch.ops.npu.scatter_update_(cache[None, None], torch.zeros(1, dtype=torch.int64), new[None, None], -2)
        return attended

    module = traced(writes, (8, 8), (2, 8), (4, 8))
    graph = capture(module)
    emitted = emit(module, graph, on_streams(graph, {"mm": "side"}), Air())
    assert emitted.control_edges == 1
    graph_module = emitted.graph_module
    before = _targets(graph_module)
    graph_module.graph.eliminate_dead_code()
    assert _targets(graph_module) == before


def test_a_hazard_between_streams_becomes_a_control_edge_on_a_task() -> None:
    def writes(cache: Tensor, new: Tensor, query: Tensor, slot: Tensor) -> Tensor:
        attended = torch.mm(query, cache)
        torch.ops.npu.scatter_update_(cache[None, None], slot.long(), new[None, None], -2)
        return attended

    module = traced(writes, (8, 8), (2, 8), (4, 8), (1,))
    graph = capture(module)
    emitted = emit(module, graph, on_streams(graph, {"mm": "side"}), Air())
    program = read_ascend_ir(offline.convert(emitted.graph_module).serialized, in_order=False)
    source = {step.name: step.source for step in program.steps}
    stream = {step.name: step.stream for step in program.steps}
    ours = [e for e in program.edges if e.kind is EdgeKind.CONTROL and source[e.before] == "mm"]
    assert [(source[e.after], stream[e.before], stream[e.after]) for e in ours] == [("scatter_update_", "side", "default")]
    assert not [f for f in verify(program, required=task_orders(graph)) if f.severity is Severity.ERROR]


def test_views_go_with_their_consumers_and_stay_out_of_the_way_otherwise() -> None:
    def views(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.relu(x.view(4, 16)), torch.sigmoid(y.view(4, 16))

    module = traced(views, (8, 8), (8, 8))
    graph = capture(module)
    emitted = emit(module, graph, on_streams(graph, {"sigmoid": "side"}), Air()).graph_module
    assert _targets(emitted) == [
        "aten.view.default",
        "aten.relu.default",
        "air.scope_enter.default",
        "aten.view.default",
        "aten.sigmoid.default",
        "air.scope_exit.default",
    ]


def test_a_view_read_on_two_streams_is_written_for_each() -> None:
    def shared(x: Tensor) -> tuple[Tensor, Tensor]:
        view = x.view(4, 16)
        return torch.relu(view), torch.sigmoid(view)

    module = traced(shared, (8, 8))
    graph = capture(module)
    emitted = emit(module, graph, on_streams(graph, {"sigmoid": "side"}), Air()).graph_module
    names = [n.name for n in emitted.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default)]
    assert names == ["view", "view_for_side"]


def test_a_transpose_read_on_two_streams_is_made_once() -> None:
    def shared(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        turned = x.t()
        return torch.mm(turned, y), torch.relu(turned)

    module = traced(shared, (8, 8), (8, 8))
    graph = capture(module)
    emitted = emit(module, graph, on_streams(graph, {"relu": "side"}), Air()).graph_module
    assert _targets(emitted).count("aten.t.default") == 1


def test_the_users_own_scope_is_kept() -> None:
    def scoped(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        torch.ops.air.scope_enter(["_op_aicore_num", "_op_vectorcore_num"], ["8", "16"])
        limited = torch.mm(x, y)
        torch.ops.air.scope_exit()
        return limited, torch.relu(x)

    module = traced(scoped, (8, 8), (8, 8))
    graph = capture(module)
    emitted = emit(module, graph, on_streams(graph, {"relu": "side"}), Air()).graph_module
    program = offline.convert(emitted)
    matmul = program.text[program.text.index('type: "MatMul"') :].split("op {")[0]
    assert "_op_aicore_num" in matmul and "_user_stream_label" not in matmul


def test_on_one_stream_an_order_is_pinned_where_that_costs_nothing_and_else_kept_by_emission() -> None:
    def writes(cache: Tensor, query: Tensor, increment: Tensor) -> Tensor:
        attended = torch.mm(query, cache)
        cache.copy_(torch.mul(cache, increment))
        return attended

    module = traced(writes, (8, 8), (4, 8), (8, 8))
    graph = capture(module)
    pinned = emit(module, graph, on_streams(graph, {}), Air())
    assert (pinned.control_edges, len(pinned.unpinned)) == (1, 0)  # mul waits for mm, and the copy for mul

    def increments(cache: Tensor, query: Tensor) -> Tensor:
        attended = torch.mm(query, cache)
        cache.copy_(torch.add(cache, 1))  # converts to Const, Add: a wait in front would land on the Const
        return attended

    module = traced(increments, (8, 8), (4, 8))
    graph = capture(module)
    kept = emit(module, graph, on_streams(graph, {}), Air())
    assert (kept.control_edges, len(kept.unpinned)) == (0, 1)
    apart = emit(module, graph, on_streams(graph, {"mm": "side"}), Air())
    assert apart.control_edges == 1 and "wait_tensor" in str(apart.graph_module.graph)
    program = read_ascend_ir(offline.convert(apart.graph_module).serialized, in_order=False)
    assert not [f for f in verify(program, required=task_orders(graph)) if f.severity is Severity.ERROR]


def test_an_order_that_cannot_be_expressed_is_refused() -> None:
    def copies(cache: Tensor, new: Tensor, query: Tensor) -> Tensor:
        attended = torch.mm(query, cache)
        cache.copy_(new)
        return attended

    module = traced(copies, (8, 8), (8, 8), (8, 8))
    graph = capture(module)
    with pytest.raises(RewriteError, match=r"'copy_' on stream 'default' must wait for 'mm' on stream 'side'"):
        emit(module, graph, on_streams(graph, {"mm": "side"}), Air())


def test_a_transpose_is_made_again_after_its_memory_was_written() -> None:
    # One copy for both would give the second reader the cache as it was before the update.
    def updates(cache: Tensor, new: Tensor, slot: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        keys = cache.transpose(0, 1)
        before = torch.mm(query, keys)
        torch.ops.npu.scatter_update_(cache[None, None], slot.long(), new[None, None], -2)
        return before, torch.mm(query, keys)

    module = traced(updates, (8, 8), (2, 8), (1,), (8, 8))
    graph = capture(module)
    emitted = emit(module, graph, on_streams(graph, dict.fromkeys(("mm", "scatter_update_", "mm_1"), "side")), Air()).graph_module
    program = read_ascend_ir(offline.convert(emitted).serialized, in_order=True)
    assert [step.kind for step in program.streams()["side"]] == ["Transpose", "MatMul", "Scatter", "Transpose", "MatMul"]
    assert not [f for f in verify(program, required=task_orders(graph)) if f.severity is Severity.ERROR]


def test_several_orders_share_one_anchor() -> None:
    def increments(cache: Tensor, query: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        read = torch.mm(query, cache), torch.mm(other, cache)
        cache.copy_(torch.add(cache, 1))  # converts to Const, Add: a wait in front would land on the Const
        return read

    module = traced(increments, (8, 8), (4, 8), (4, 8))
    graph = capture(module)
    emitted = emit(module, graph, on_streams(graph, {"mm": "one", "mm_1": "two"}), Air())
    assert emitted.control_edges == 2
    converted = offline.convert(emitted.graph_module).serialized
    program = read_ascend_ir(converted, in_order=False, written_back=written_back(emitted.graph_module))
    assert Counter(step.kind for step in program.steps)["Identity"] == 1
    assert not [f for f in verify(program, required=task_orders(graph)) if f.severity is Severity.ERROR]


def _by_hand(build: Callable[[fx.Graph, fx.Node], Any], root: nn.Module | None = None) -> fx.GraphModule:
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(8, 8, device="meta")
    graph.output(build(graph, x))
    return fx.GraphModule(root or nn.Module(), graph)


def _call(graph: fx.Graph, target: Any, *args: Any, name: str | None = None) -> fx.Node:
    node = graph.create_node("call_module" if isinstance(target, str) else "call_function", target, args, name=name)
    values = fx.node.map_arg(args, lambda argument: argument.meta["val"])
    node.meta["val"] = values[0] if isinstance(target, str) else target(*values)
    return node


def test_an_element_of_a_tensor_is_written_once() -> None:
    def build(graph: fx.Graph, x: fx.Node) -> fx.Node:
        return _call(graph, operator.getitem, _call(graph, torch.ops.aten.relu.default, x), 0)

    module = _by_hand(build)
    graph = capture(module)
    assert graph.ops["getitem"].unit is not Unit.FREE  # no access to a tuple, but an operator nothing is known of
    emitted = emit(module, graph, on_streams(graph, {}), Air()).graph_module
    assert [node.name for node in emitted.graph.nodes] == ["x", "relu_default", "getitem", "output"]


def test_elements_of_an_input_that_is_a_tuple_are_kept() -> None:
    graph = fx.Graph()
    pair = graph.placeholder("pair")
    pair.meta["val"] = (torch.empty(8, device="meta"), torch.empty(8, device="meta"))
    graph.output(_call(graph, torch.ops.aten.relu.default, _call(graph, operator.getitem, pair, 1)))
    module = fx.GraphModule(nn.Module(), graph)
    captured = capture(module)
    emitted = emit(module, captured, on_streams(captured, {"relu_default": "side"}), Air()).graph_module
    assert torch.equal(emitted((torch.ones(8), -torch.ones(8))), torch.zeros(8))


def test_what_crosses_a_barrier_on_another_stream_is_refused() -> None:
    # Only the view of relu's result is in front of the module call; the order is relu's all the same.
    def build(graph: fx.Graph, x: fx.Node) -> tuple[fx.Node, ...]:
        relu = _call(graph, torch.ops.aten.relu.default, x)
        return _call(graph, torch.ops.aten.view.default, relu, [64]), _call(graph, "layer", x)

    root = nn.Module()
    root.layer = nn.Identity()
    module = _by_hand(build, root)
    graph = capture(module)
    with pytest.raises(RewriteError, match="'layer' on stream 'default' must wait for 'relu_default' on stream 'side'"):
        emit(module, graph, on_streams(graph, {"relu_default": "side"}), Air())
    emitted = emit(module, graph, on_streams(graph, {}), Air()).graph_module
    assert [str(node.target) for node in emitted.graph.nodes][1:3] == ["aten.relu.default", "layer"]


def test_a_name_that_the_schedule_takes_is_an_error_and_no_mix_up() -> None:
    def build(graph: fx.Graph, x: fx.Node) -> tuple[fx.Node, ...]:
        first = _call(graph, torch.ops.aten.relu.default, x)
        return first, _call(graph, torch.ops.aten.neg.default, first, name="scope_enter_default")

    module = _by_hand(build)
    graph = capture(module)
    with pytest.raises(RewriteError, match="'scope_enter_default'"):
        emit(module, graph, on_streams(graph, {"relu_default": "side"}), Air())


def test_results_keep_their_structure() -> None:
    def build(graph: fx.Graph, x: fx.Node) -> Any:
        relu = _call(graph, torch.ops.aten.relu.default, x)
        view = _call(graph, torch.ops.aten.t.default, relu)
        return (relu, None, x, {"again": [relu, x], "view": view}, 3)

    module = _by_hand(build)
    graph = capture(module)
    emitted = emit(module, graph, on_streams(graph, {"relu_default": "side"}), Air()).graph_module
    assert str(emitted.graph.output_node().args) == str(module.graph.output_node().args)
