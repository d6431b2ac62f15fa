"""Operators as captured: units, bytes, where they come from, the user's scopes; and graphs that must not be scheduled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from autostream.graph import TensorSpec, Unit, Why
from autostream.graph.capture import capture
from autostream.graph.programs import to_aten
from tests.graph.orders import aten
from tests.graph.sketch import Sketch, empty, ordered


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16, dtype=torch.bfloat16) for _ in range(2)])
        self.table = nn.Embedding(1000, 16, dtype=torch.bfloat16)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        for layer in self.layers:
            x = functional.silu(layer(x))
        return x


def test_operators_of_a_model() -> None:
    module = to_aten(Block(), torch.tensor([1, 2, 3, 4])).graph_module
    code = module.code
    graph = capture(module)
    assert module.code == code and all(
        op.name == name and op.position == index for index, (name, op) in enumerate(graph.ops.items())
    )
    assert [op.target for op in graph if op.unit is not Unit.FREE] == [
        "aten.embedding.default",
        "aten.addmm.default",
        "aten.silu.default",
        "aten.addmm.default",
        "aten.silu.default",
    ]
    linear = graph.ops["addmm_1"]
    assert linear.unit is Unit.CUBE and linear.flops == 2 * 4 * 16 * 16 and linear.known
    assert linear.outputs == (TensorSpec(shape=(4, 16), dtype="bfloat16", itemsize=2),)
    assert (linear.bytes_read, linear.bytes_written) == (2 * (16 + 4 * 16 + 16 * 16), 2 * 4 * 16)
    assert linear.module_path == "layers.1"
    assert graph.ops["silu"].source_line.startswith(__file__ + ":")
    assert (graph.outputs, graph.refusals, graph.notes) == (("silu_1",), (), ())
    kinds = {storage.name: storage.kind for storage in graph.storages.values()}
    assert kinds["p_table_weight"] == "input" and kinds["addmm"] == "intermediate"


def test_every_edge_goes_forward_and_has_a_reason() -> None:
    graph = capture(to_aten(Block(), torch.tensor([1, 2])).graph_module)
    for before, after, why in graph.dag.edges(data="why"):
        assert graph.ops[before].position < graph.ops[after].position and why


def test_a_gather_reads_what_it_returns() -> None:
    sketch = Sketch()
    table, rows = sketch.input("table", empty(100_000, 8)), sketch.input("rows", empty(4, dtype=torch.int64))
    sketch.call(aten.embedding.default, table, rows)
    cut = sketch.call(aten.slice.Tensor, table, 0, 0, 4)
    sketch.call(aten.slice.Tensor, table, 0, 0, 100_000, value=empty(100_000, 8))
    lookup, piece, whole = sketch.capture(cut)
    assert lookup.bytes_read == 4 * 8 * 4 + 4 * 8
    assert piece.bytes_read == piece.bytes_written == 4 * 8 * 4
    assert whole.unit is Unit.FREE, "TorchAir removes a slice of everything"


def test_an_update_in_place_touches_what_it_writes() -> None:
    sketch = Sketch()
    cache, rows, x = (
        sketch.input("cache", empty(10_000, 8)),
        sketch.input("rows", empty(2, dtype=torch.int64)),
        sketch.input("x", empty(2, 8)),
    )
    sketch.call(aten.index_put_.default, cache, [rows], x, value=empty(10_000, 8))
    sketch.call(aten.copy_.default, cache, cache, value=empty(10_000, 8))
    update, copy = sketch.capture()
    assert (update.bytes_read, update.bytes_written) == (2 * 8 + 2 * 8 * 4, 2 * 8 * 4)
    assert (copy.bytes_read, copy.bytes_written) == (10_000 * 32, 10_000 * 32)


@pytest.mark.parametrize("read_too", [False, True])
def test_a_functional_update_of_a_cache_touches_what_it_writes_unless_the_old_value_is_read_too(read_too: bool) -> None:
    sketch = Sketch()
    whole, two = empty(10_000, 8), empty(2, dtype=torch.int64)
    cache, rows, x = sketch.input("cache", whole), sketch.input("rows", two), sketch.input("x", empty(2, 8))
    new = sketch.call(aten.index_put.default, cache, [rows], x, value=whole)
    attended = sketch.call(aten.sum.default, new, value=empty())
    before = [sketch.call(aten.sum.default, cache, value=empty()) for _ in range(read_too)]
    sketch.call(aten.copy_.default, cache, new, value=whole)
    op = sketch.capture(attended, *before).ops[new.name]
    touched = (2 * 8 + 2 * 8 * 4, 2 * 8 * 4)
    assert (op.bytes_read, op.bytes_written) == (touched if not read_too else (touched[0] + 10_000 * 32, 10_000 * 32))


def test_a_reshape_of_a_fake_tensor_that_must_move_data_is_a_task() -> None:
    sketch = Sketch()
    with FakeTensorMode():
        given = torch.empty(2, 8, 4)
        turned = sketch.call(aten.transpose.int, sketch.input("x", given), 1, 2, value=given.transpose(1, 2))
        moved = sketch.call(aten.reshape.default, turned, [8, 8], value=given.transpose(1, 2).reshape(8, 8))
    assert sketch.capture(moved).ops[moved.name].unit is Unit.VECTOR


@pytest.mark.parametrize("returned", [False, True])
def test_a_copy_back_moves_nothing_unless_its_value_is_returned_too(returned: bool) -> None:
    sketch = Sketch()
    state, other = sketch.input("state"), sketch.input("other")
    new = sketch.call(aten.reshape.default, sketch.call(aten.relu.default, sketch.input("x")), [4, 8])
    back = sketch.call(aten.copy_.default, state, new)
    plain = sketch.call(aten.copy_.default, other, sketch.input("y"))
    ops = sketch.capture(*[new] * returned).ops
    whole = 4 * 8 * 4
    assert (ops[back.name].bytes_read, ops[back.name].bytes_written) == ((whole, whole) if returned else (0, 0))
    assert (ops[plain.name].bytes_read, ops[plain.name].bytes_written) == (whole, whole), "an input is no operator's value"


def test_a_sparse_attention_reads_the_tokens_it_picks(npu_host: None) -> None:
    sketch = Sketch()
    query, latent = sketch.input("query", empty(2, 1, 16, 64)), sketch.input("latent", empty(100, 128, 1, 64))
    picked, table = (
        sketch.input(name, empty(*shape, dtype=torch.int32)) for name, shape in (("p", (2, 1, 1, 32)), ("t", (2, 8)))
    )
    attend = sketch.call(
        torch.ops.npu.npu_sparse_flash_attention.default,
        *(query, latent, latent, picked, 0.1),
        block_table=table,
        layout_kv="PA_BSND",
        value=(empty(2, 1, 16, 64),),
    )
    op = sketch.capture(attend).ops[attend.name]
    assert op.flops == 4 * (2 * 16 * 64) * 32
    assert op.bytes_read == 4 * (2 * 16 * 64 + 2 * 32 * 64 + 2 * 32 + 2 * 8)


def test_a_layout_that_is_not_given_is_the_schemas_default(npu_host: None) -> None:
    sketch = Sketch()
    query, key = sketch.input("query", empty(2, 4, 8, 16)), sketch.input("key", empty(2, 96, 1, 16))
    found = sketch.call(torch.ops.npu.npu_lightning_indexer.default, query, key, sketch.input("weights", empty(2, 4, 8)))
    op = sketch.capture(found).ops[found.name]
    assert op.flops == 2 * (2 * 4 * 8 * 16) * 96


def test_a_prefetch_reads_what_it_may(npu_host: None) -> None:
    sketch = Sketch()
    sketch.call(torch.ops.npu.npu_prefetch.default, sketch.input("weight", empty(100, 8)), sketch.input("after", empty(1)), 64)
    (op,) = sketch.capture()
    assert op.bytes_read == 64 + 4


def test_shapes_follow_from_tuples() -> None:
    sketch = Sketch()
    x = sketch.input("x")
    pair = sketch.call(aten.max.dim, x, 1, value=(empty(4), empty(4, dtype=torch.int64)))
    first = sketch.element(pair, 0)
    first.meta.clear()
    graph = sketch.capture(first)
    assert not graph.refusals and graph.ops[first.name].outputs == (TensorSpec(shape=(4,), dtype="float32", itemsize=4),)


def test_missing_shapes_are_refused_by_name() -> None:
    sketch = Sketch()
    x = sketch.input("x")
    lost = sketch.call(aten.relu.default, x, name="lost")
    sketch.call(aten.relu.default, lost).meta.clear()
    lost.meta.clear()
    (refusal,) = sketch.capture(lost).refusals
    advice = "run it through autostream.schedule(model, inputs) or fake tensor propagation"
    assert refusal == f"no-shapes: node lost has no shape (and 1 more); {advice}"


def test_graphs_of_modules_and_functions_do_not_raise() -> None:
    class Wild(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor, n: int = 2) -> Tensor:
            return torch.relu(self.fc(x)).view(-1)[n:] + x.size(0) * n

    graph = capture(fx.symbolic_trace(Wild()))
    assert [text.partition(":")[0] for text in graph.refusals] == ["no-shapes"]
    assert len(graph.notes) >= 3


def test_operators_that_change_what_a_tensor_is_are_refused() -> None:
    sketch = Sketch()
    x, y = sketch.input("x"), sketch.input("y")
    swap = sketch.call(aten.set_.source_Tensor, x, y)
    (refusal,) = sketch.capture(sketch.call(aten.neg.default, x)).refusals
    assert refusal.startswith("unsupported: ") and swap.name in refusal and "aten.set_.source_Tensor" in refusal


def test_dynamic_shapes_are_refused() -> None:
    exported = torch.export.export(nn.ReLU(), (torch.randn(3, 8),), dynamic_shapes=({0: torch.export.Dim("n", min=2)},))
    (refusal,) = capture(to_aten(exported).graph_module).refusals
    assert refusal.startswith("dynamic-shape: node input_1 has a symbolic shape or value (and 1 more)")


def test_unknown_operators_hold_everything_and_are_noted() -> None:
    sketch = Sketch()
    sketch.call(aten._linalg_svd.default, sketch.input("x"), value=(empty(4, 4), empty(4), empty(4, 8)))
    graph = sketch.capture()
    (op,) = graph
    assert op.unit is Unit.MIXED and not op.known
    assert graph.notes == ("unknown operator aten._linalg_svd.default (1 x): taken to use every core",)


@pytest.fixture
def marks() -> Iterator[None]:
    """The scope operators, defined here where TorchAir has not defined them."""
    with torch.library._scoped_library("air", "FRAGMENT") as air, torch.library._scoped_library("npu", "FRAGMENT") as npu:
        for lib, name, schema in (
            (air, "scope_enter", "scope_enter(str[] keys, str[] values, bool need_execute=False) -> ()"),
            (air, "scope_exit", "scope_exit(bool need_execute=False) -> ()"),
            (air, "record", "record(*, Device? device=None) -> Tensor"),
            (air, "wait", "wait(Tensor[] x) -> ()"),
            (air, "wait_tensor", "wait_tensor(Tensor self, Tensor dependency) -> Tensor"),
            (npu, "super_kernel_scope_begin", "super_kernel_scope_begin(str? scope_name=None) -> ()"),
            (npu, "super_kernel_scope_end", "super_kernel_scope_end(str? scope_name=None) -> ()"),
        ):
            if not hasattr(getattr(torch.ops, lib.ns), name):
                lib.define(schema)
        yield


@pytest.mark.usefixtures("marks")
class TestScopes:
    def test_attributes_are_merged_and_marks_are_no_operators(self) -> None:
        air = torch.ops.air
        sketch = Sketch()
        x = sketch.input("x")
        outside = sketch.call(aten.neg.default, x)
        sketch.mark(air.scope_enter.default, ["_user_stream_label", "_op_aicore_num"], ["side", "8"])
        sketch.mark(air.scope_enter.default, ["_op_aicore_num"], ["4"])
        inner = sketch.call(aten.neg.default, x)
        sketch.mark(air.scope_exit.default)
        outer = sketch.call(aten.neg.default, x)
        sketch.mark(air.scope_exit.default)
        graph = sketch.capture(inner)
        assert list(graph.ops) == [outside.name, inner.name, outer.name]
        assert graph.ops[inner.name].scope == (("_user_stream_label", "side"), ("_op_aicore_num", "4"))
        assert graph.ops[outer.name].scope == (("_user_stream_label", "side"), ("_op_aicore_num", "8"))
        assert (graph.ops[inner.name].stream, graph.ops[outside.name].stream) == ("side", None)
        assert not graph.refusals and not graph.notes

    def test_nested_streams_are_noted(self) -> None:
        sketch = Sketch()
        for label in ("a", "b"):
            sketch.mark(torch.ops.air.scope_enter.default, ["_user_stream_label"], [label])
        node = sketch.call(aten.neg.default, sketch.input("x"))
        for _ in range(2):
            sketch.mark(torch.ops.air.scope_exit.default)
        graph = sketch.capture(node)
        assert graph.ops[node.name].stream == "b"
        assert graph.notes[0].startswith("stream scope 'b' is nested in stream scope 'a'") and len(graph.notes) == 1

    @pytest.mark.parametrize("close", [True, False])
    def test_unpaired_scopes_are_refused(self, close: bool) -> None:
        sketch = Sketch()
        if close:
            sketch.mark(torch.ops.air.scope_exit.default)
        else:
            sketch.mark(torch.ops.air.scope_enter.default, ["k"], ["v"])
        (refusal,) = sketch.capture(sketch.call(aten.neg.default, sketch.input("x"))).refusals
        assert refusal.startswith("unsupported: ") and ("never opened" if close else "never closed") in refusal

    def test_synchronisation_by_hand_is_refused(self) -> None:
        air = torch.ops.air
        sketch = Sketch()
        x, y = sketch.input("x"), sketch.input("y")
        event = sketch.call(air.record.default, value=empty(1))
        sketch.mark(air.wait.default, [event])
        tied = sketch.call(air.wait_tensor.default, x, y)
        write = sketch.call(aten.relu_.default, tied)
        graph = sketch.capture(write)
        assert [op.unit for op in graph] == [Unit.HOST, Unit.HOST, Unit.FREE, Unit.VECTOR]
        assert graph.ops[write.name].writes == ("x",)
        assert graph.refusals == (
            f"hand-written-sync: the graph already synchronises streams by hand ({event.name}, wait_default, {tied.name})",
        )

    @pytest.mark.parametrize("by_name", [True, False])
    def test_a_super_kernel_is_a_block(self, by_name: bool) -> None:
        sketch = Sketch()
        x, y = sketch.input("x"), sketch.input("y")
        before = [sketch.call(aten.neg.default, x), sketch.call(aten.abs.default, y)]
        if by_name:
            sketch.mark(torch.ops.npu.super_kernel_scope_begin.default, "sk")
        else:
            sketch.mark(torch.ops.air.scope_enter.default, ["_super_kernel_scope"], ["sk"])
        first = sketch.call(aten.relu.default, before[0])
        last = sketch.call(aten.relu.default, before[1])
        if by_name:
            sketch.mark(torch.ops.npu.super_kernel_scope_end.default, "sk")
        else:
            sketch.mark(torch.ops.air.scope_exit.default)
        after = sketch.call(aten.neg.default, first)
        free = sketch.call(aten.neg.default, x)
        graph = sketch.capture(after, last)
        assert not graph.refusals
        assert graph.ops[first.name].scope == (("_super_kernel_scope", "sk"),)
        assert graph.why(first.name, last.name) == {Why.USER}
        assert graph.why(before[1].name, first.name) == {Why.USER} and graph.why(last.name, after.name) == {Why.USER}
        assert not ordered(graph, free, first) and not ordered(graph, last, free)

    def test_an_interrupted_super_kernel_is_refused(self) -> None:
        sketch = Sketch()
        x = sketch.input("x")
        for name in ("sk", ""):
            sketch.mark(torch.ops.air.scope_enter.default, ["_super_kernel_scope"], [name])
        taken_out = sketch.call(aten.neg.default, x)
        sketch.mark(torch.ops.air.scope_exit.default)
        sketch.call(aten.neg.default, x)
        sketch.mark(torch.ops.air.scope_exit.default)
        graph = sketch.capture(taken_out)
        assert graph.ops[taken_out.name].scope == ()
        assert graph.refusals == ("unsupported: super-kernel scope 'sk' is interrupted by operators that are taken out of it",)
