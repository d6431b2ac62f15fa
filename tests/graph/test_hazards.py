"""Which orders each kind of operator brings, one small graph at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from autostream import lower
from autostream.graph import Unit, Why
from autostream.graph.capture import capture
from autostream.graph.programs import to_aten
from tests.graph.orders import Builder, aten, differences, draw_order, run
from tests.graph.sketch import Sketch, empty, ordered

c10d = torch.ops._c10d_functional


@pytest.fixture
def custom() -> Iterator[Any]:
    """Two custom operators: one that says nothing, one that says it writes."""
    with torch.library._scoped_library("graph_hazards", "FRAGMENT") as lib:
        lib.define("secret(Tensor x) -> Tensor")
        lib.define("update(Tensor(a!) cache, Tensor x) -> ()")
        yield torch.ops.graph_hazards


def test_reads_and_writes_of_one_storage() -> None:
    sketch = Sketch()
    x, y = sketch.input("x"), sketch.input("y")
    first = sketch.call(aten.relu.default, x)
    write = sketch.call(aten.add_.Tensor, x, y)
    readers = [sketch.call(aten.neg.default, x) for _ in range(3)]
    again = sketch.call(aten.copy_.default, x, y)
    last = sketch.call(aten.copy_.default, x, sketch.input("z"))
    free = sketch.call(aten.neg.default, y)
    graph = sketch.capture(*readers, free)
    assert graph.why(first.name, write.name) == {Why.WAR}
    for reader in readers:
        assert graph.why(write.name, reader.name) == {Why.RAW}
        assert graph.why(reader.name, again.name) == {Why.WAR}
    assert graph.why(again.name, last.name) == {Why.WAW}
    assert not graph.dag.in_edges(free.name) and not graph.dag.out_edges(free.name)
    assert graph.ops[write.name].writes == ("x",) and graph.ops[write.name].reads == ("x", "y")


def test_edges_grow_linearly() -> None:
    sketch = Sketch()
    x, y = sketch.input("x"), sketch.input("y")
    for _ in range(40):
        for _ in range(5):
            sketch.call(aten.relu.default, x)
        sketch.call(aten.add_.Tensor, x, y)
    graph = sketch.capture()
    assert graph.dag.number_of_edges() <= 2 * len(graph)


def test_a_view_passes_its_storage_on_and_accesses_nothing() -> None:
    sketch = Sketch()
    x, y = sketch.input("x"), sketch.input("y")
    view = sketch.call(aten.t.default, x, value=empty(8, 4))
    flat = sketch.call(aten.view.default, view, [32], value=empty(32))
    reader = sketch.call(aten.neg.default, flat, value=empty(32))
    write = sketch.call(aten.add_.Tensor, x, y)
    graph = sketch.capture(reader)
    assert graph.ops[view.name].unit is Unit.FREE and graph.ops[view.name].reads == ()
    assert graph.ops[reader.name].reads == ("x",)
    assert graph.why(view.name, write.name) == frozenset()
    assert graph.why(reader.name, write.name) == {Why.WAR}


@pytest.mark.parametrize(
    ("target", "arguments", "value"),
    [
        (aten.slice.Tensor, (0, 0, 2), empty(2, 8)),
        (aten.select.int, (0, 1), empty(8)),
        (aten.expand.default, ([2, -1, -1],), empty(2, 4, 8)),
        (aten.as_strided.default, ([2, 2], [1, 1]), empty(2, 2)),
        (aten.diagonal.default, (), empty(4)),
        (aten.clone.default, (), empty(4, 8)),
        (aten._to_copy.default, (), empty(4, 8)),
        (aten.view_copy.default, ([4, 8],), empty(4, 8)),
    ],
)
def test_what_may_copy_reads_here_and_may_still_alias(target: Any, arguments: tuple[Any, ...], value: torch.Tensor) -> None:
    sketch = Sketch()
    x, y = sketch.input("x"), sketch.input("y")
    copy = sketch.call(target, x, *arguments, value=value)
    reader = sketch.call(aten.neg.default, copy, value=value)
    write = sketch.call(aten.add_.Tensor, x, y)
    late = sketch.call(aten.abs.default, copy, value=value)
    graph = sketch.capture(reader)
    assert graph.ops[copy.name].unit is Unit.VECTOR
    assert graph.ops[copy.name].reads == ("x",) and graph.ops[copy.name].writes == (copy.name,)
    assert ordered(graph, copy, write) and ordered(graph, reader, write) and ordered(graph, write, late)


def test_a_cast_is_no_alias() -> None:
    sketch = Sketch()
    x, y = sketch.input("x"), sketch.input("y")
    cast = sketch.call(aten._to_copy.default, x, dtype=torch.float16, value=empty(4, 8, dtype=torch.float16))
    write = sketch.call(aten.add_.Tensor, x, y)
    late = sketch.call(aten.neg.default, cast, value=empty(4, 8, dtype=torch.float16))
    graph = sketch.capture(late)
    assert ordered(graph, cast, write) and not ordered(graph, write, late)


def test_a_reshape_that_must_move_data_is_a_task() -> None:
    builder = Builder({"x": torch.arange(6.0).reshape(2, 3), "y": torch.ones(2, 3)})
    x, y = builder.tensors()
    turned = builder.call(aten.t.default, x)
    moved, kept = builder.call(aten.reshape.default, turned, [6]), builder.call(aten.reshape.default, x, [6])
    write = builder.call(aten.add_.Tensor, x, y)
    assert moved is not None and kept is not None and write is not None
    module = builder.finish()
    graph = capture(module)
    assert (graph.ops[moved.name].unit, graph.ops[kept.name].unit) == (Unit.VECTOR, Unit.FREE)
    assert graph.why(moved.name, write.name) == {Why.WAR}
    expected = run(module.graph, builder.inputs, list(graph.ops))
    assert all(not differences(expected, run(module.graph, builder.inputs, draw_order(graph.dag, seed))) for seed in range(20))


def test_elements_of_a_tuple_have_their_own_storages() -> None:
    sketch = Sketch()
    x = sketch.input("x")
    pair = sketch.call(aten.max.dim, x, 1, value=(empty(4), empty(4, dtype=torch.int64)))
    values, indices = sketch.element(pair, 0), sketch.element(pair, 1)
    write = sketch.call(aten.relu_.default, values, value=empty(4))
    other = sketch.call(aten.neg.default, indices, value=empty(4, dtype=torch.int64))
    graph = sketch.capture(other)
    assert graph.ops[pair.name].writes == (f"{pair.name}.0", f"{pair.name}.1")
    assert not ordered(graph, write, other) and not ordered(graph, other, write)


def test_the_parts_of_a_split_are_one_storage() -> None:
    sketch = Sketch()
    x = sketch.input("x")
    parts = sketch.call(aten.split.Tensor, x, 2, value=[empty(2, 8), empty(2, 8)])
    first, second = sketch.element(parts, 0), sketch.element(parts, 1)
    beside = sketch.call(aten.neg.default, second, value=empty(2, 8))
    reader = sketch.call(aten.neg.default, first, value=empty(2, 8))
    write = sketch.call(aten.relu_.default, first, value=empty(2, 8))
    graph = sketch.capture(reader, beside)
    assert ordered(graph, reader, write) and "x" in graph.ops[write.name].writes
    assert not ordered(graph, beside, write)  # the other part


def test_lists_and_out_arguments_are_written() -> None:
    sketch = Sketch()
    x, y, z = sketch.input("x"), sketch.input("y"), sketch.input("z")
    sketch.call(aten._foreach_add_.Scalar, [x, y], 1.0, value=[])
    sketch.call(aten.add.out, x, y, out=z)
    graph = sketch.capture()
    foreach, out = graph
    assert foreach.writes == ("x", "y")
    assert (out.reads, out.writes) == (("x", "y"), ("z",))


def test_inputs_that_share_memory_are_one_storage() -> None:
    pool = empty(2, 4, 8)
    sketch = Sketch()
    first, second = sketch.input("first", pool[0]), sketch.input("second", pool[1])
    write = sketch.call(aten.relu_.default, first)
    reader = sketch.call(aten.neg.default, second)
    graph = sketch.capture(reader)
    assert graph.why(write.name, reader.name) == {Why.RAW}


def test_undeclared_writers_are_known() -> None:
    sketch = Sketch()
    x, mean, variance = sketch.input("x", empty(2, 4, 3, 3)), sketch.input("mean", empty(4)), sketch.input("variance", empty(4))
    norm = (empty(2, 4, 3, 3), empty(4), empty(4))
    before = sketch.call(aten.neg.default, mean, value=empty(4))
    write = sketch.call(aten.native_batch_norm.default, x, None, None, mean, variance, True, 0.1, 1e-5, value=norm)
    graph = sketch.capture(before)
    assert graph.why(before.name, write.name) == {Why.WAR}


def test_operators_between_a_buffer_and_its_copy_back_count_as_writers() -> None:
    sketch = Sketch()
    cache, rows, x = sketch.input("cache"), sketch.input("rows", empty(2, dtype=torch.int64)), sketch.input("x", empty(2, 8))
    before = sketch.call(aten.sum.default, cache, value=empty())
    first = sketch.call(aten.index_put.default, cache, [rows], x)
    between = sketch.call(aten.sum.default, first, value=empty())
    second = sketch.call(aten.index_put.default, first, [rows], x)
    unrelated = sketch.call(aten.neg.default, x, value=empty(2, 8))
    back = sketch.call(aten.copy_.default, cache, second)
    graph = sketch.capture(before, between, unrelated)
    assert "cache" in graph.ops[first.name].writes and "cache" in graph.ops[second.name].writes
    assert ordered(graph, before, first), "in place, the update would overtake a reader of the old cache"
    assert ordered(graph, between, second), "in place, the second update would overtake a reader of the first"
    assert ordered(graph, second, back) and not ordered(graph, unrelated, back)


def test_reinplaced_updates_give_the_same_bits_in_every_order() -> None:
    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cache: torch.Tensor
            self.register_buffer("cache", torch.zeros(4, 4))

        def forward(self, rows: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            before = self.cache.t() + 1
            self.cache.index_put_((rows,), x)
            middle = self.cache * 2
            self.cache.index_put_((rows,), x + 1)
            return before, middle, self.cache.sum()

    program = to_aten(Cache(), (torch.tensor([2, 0]), torch.randn(2, 4)))
    graph = capture(program.graph_module)
    # What a backend's re-inplacing makes of it: each update writes the cache where it stands.
    in_place = program.graph_module
    for node in in_place.graph.find_nodes(op="call_function", target=aten.index_put.default):
        node.target = aten.index_put_.default
    inputs = {"b_cache": torch.randn(4, 4), "rows": torch.tensor([2, 0]), "x": torch.randn(2, 4)}
    expected = run(in_place.graph, inputs, list(graph.ops))
    for seed in range(40):
        assert not differences(expected, run(in_place.graph, inputs, draw_order(graph.dag, seed)))


def test_functionalised_custom_operator_writes_its_bases(custom: Any) -> None:
    from torch._higher_order_ops.auto_functionalize import auto_functionalized_v2

    sketch = Sketch()
    cache, x = sketch.input("cache"), sketch.input("x")
    before = sketch.call(aten.neg.default, cache)
    update = sketch.call(
        auto_functionalized_v2, custom.update.default, x=x, _cache_base_index=0, _all_bases=[cache], value=(None, empty(4, 8))
    )
    new = sketch.element(update, 1)
    after = sketch.call(aten.abs.default, new)
    graph = sketch.capture(before, after)
    assert graph.ops[update.name].target == "graph_hazards.update.default"
    assert "cache" in graph.ops[update.name].writes and "cache" in graph.ops[after.name].reads
    assert graph.why(before.name, update.name) == {Why.WAR}


def test_custom_operators_read_and_write_everything_and_keep_their_order(custom: Any) -> None:
    sketch = Sketch()
    x, y = sketch.input("x"), sketch.input("y")
    before = sketch.call(aten.neg.default, x)
    first = sketch.call(custom.secret.default, x)
    after = sketch.call(aten.abs.default, x)
    second = sketch.call(custom.secret.default, y)
    graph = sketch.capture(before, after)
    assert graph.ops[first.name].writes == ("x", first.name) and not graph.ops[first.name].known
    assert graph.why(before.name, first.name) == {Why.WAR} and graph.why(first.name, after.name) == {Why.RAW}
    assert graph.why(first.name, second.name) == {Why.EFFECT}
    assert graph.notes == ("custom operator graph_hazards.secret.default (2 x): taken to read and write all its tensors",)


def test_a_custom_operator_may_communicate_inside(custom: Any) -> None:
    sketch = Sketch()
    before = sketch.call(c10d.all_reduce.default, sketch.input("x"), "sum", "0")
    secret = sketch.call(custom.secret.default, sketch.input("y"))
    after = sketch.call(c10d.all_reduce.default, sketch.input("z"), "sum", "0")
    other = sketch.call(aten.neg.default, sketch.input("w"))
    graph = sketch.capture(before, secret, after, other)
    assert graph.why(before.name, secret.name) == graph.why(secret.name, after.name) == {Why.EFFECT}
    assert not ordered(graph, other, after) and not ordered(graph, before, other)


def test_nothing_crosses_what_is_no_operator() -> None:
    sketch = Sketch()
    x, y = sketch.input("x"), sketch.input("y")
    chain = sketch.call(aten.neg.default, sketch.input("z"))
    before = [sketch.call(aten.relu.default, chain), sketch.call(aten.abs.default, y)]
    wall = sketch.call(torch.nn.functional.relu, x)
    after = [sketch.call(aten.neg.default, y), sketch.call(aten.neg.default, y)]
    second = sketch.call(torch.nn.functional.relu, y)
    end = sketch.call(aten.neg.default, before[0])
    graph = sketch.capture(end)
    assert all(ordered(graph, node, wall) for node in before) and all(ordered(graph, wall, node) for node in after)
    assert all(ordered(graph, node, second) for node in [*after, wall]) and ordered(graph, second, end)
    assert graph.why(before[0].name, wall.name) == {Why.EFFECT} and graph.why(chain.name, wall.name) == frozenset()


def test_random_numbers_are_drawn_in_graph_order() -> None:
    sketch = Sketch()
    x, y = sketch.input("x"), sketch.input("y")
    first = sketch.call(aten.rand_like.default, x)
    second = sketch.call(aten.native_dropout.default, y, 0.5, True, value=(empty(4, 8), empty(4, 8, dtype=torch.bool)))
    attention = aten._scaled_dot_product_flash_attention_for_cpu.default
    q = sketch.input("q", empty(1, 2, 4, 8))
    calm = sketch.call(attention, q, q, q, value=(empty(1, 2, 4, 8), empty(1, 2, 4)))
    wild = sketch.call(attention, q, q, q, 0.1, value=(empty(1, 2, 4, 8), empty(1, 2, 4)))
    graph = sketch.capture(first)
    assert graph.storages["<rng>"].kind == "state"
    assert graph.why(first.name, second.name) and graph.why(second.name, wild.name)
    assert "<rng>" not in graph.ops[calm.name].reads and not graph.dag.in_edges(calm.name)


def test_host_transfers_keep_their_order() -> None:
    sketch = Sketch()
    x, y = sketch.input("x", empty(1)), sketch.input("y", empty(1))
    first = sketch.call(aten._local_scalar_dense.default, x, value=1.0)
    second = sketch.mark(aten._assert_async.default, y)
    graph = sketch.capture()
    assert [op.unit for op in graph] == [Unit.HOST, Unit.HOST]
    assert graph.why(first.name, second.name) == {Why.EFFECT}


def test_collectives_of_all_groups_have_one_order() -> None:
    sketch = Sketch()
    x, y, z = sketch.input("x"), sketch.input("y"), sketch.input("z")
    tensor_parallel = sketch.call(c10d.all_reduce.default, x, "sum", "tp")
    waited = sketch.call(c10d.wait_tensor.default, tensor_parallel)
    expert_parallel = sketch.call(c10d.all_gather_into_tensor.default, y, 2, "ep", value=empty(8, 8))
    in_place = sketch.call(c10d.all_reduce_.default, z, "sum", "tp")
    reader = sketch.call(aten.neg.default, z)
    graph = sketch.capture(waited, reader)
    assert graph.why(tensor_parallel.name, expert_parallel.name) == {Why.COLLECTIVE}
    assert graph.why(expert_parallel.name, in_place.name) == {Why.COLLECTIVE}
    assert graph.why(in_place.name, reader.name) == {Why.RAW}
    assert [op.group for op in graph] == ["tp", None, "ep", "tp", None]
    assert graph.ops[waited.name].unit is Unit.FREE and graph.ops[tensor_parallel.name].unit is Unit.COMM


def test_a_data_path_through_views_needs_no_second_edge() -> None:
    sketch = Sketch()
    x, y = sketch.input("x"), sketch.input("y")
    write = sketch.call(aten.add_.Tensor, x, y)
    view = sketch.call(aten.t.default, write, value=empty(8, 4))
    through_view = sketch.call(aten.neg.default, view, value=empty(8, 4))
    direct = sketch.call(aten.neg.default, write)
    beside = sketch.call(aten.abs.default, x)
    graph = sketch.capture(through_view)
    assert graph.why(write.name, through_view.name) == frozenset() and ordered(graph, write, through_view)
    assert graph.why(write.name, direct.name) == {Why.DATA, Why.RAW}
    assert [edge[:2] for edge in graph.orders()] == [(write.name, beside.name)]


def test_caches_of_torch_npu_are_written_even_where_the_schema_is_silent(npu_host: None) -> None:
    npu = torch.ops.npu
    sketch = Sketch()
    kv, gamma, cos = (
        sketch.input("kv", empty(64, 1, 1, 576)),
        sketch.input("gamma", empty(512)),
        sketch.input("cos", empty(64, 1, 1, 64)),
    )
    index = sketch.input("index", empty(64, dtype=torch.int64))
    keys, latent = sketch.input("keys", empty(900, 128, 1, 64)), sketch.input("latent", empty(900, 128, 1, 512))
    query = sketch.input("query", empty(64, 1, 1, 64))
    results = (empty(900, 128, 1, 64), empty(900, 128, 1, 512), empty(64, 1, 1, 64), empty(64, 1, 1, 512))
    write = sketch.call(npu.npu_kv_rmsnorm_rope_cache.default, kv, gamma, cos, cos, index, keys, latent, value=results)
    attend = sketch.call(npu.npu_fused_infer_attention_score.default, query, keys, keys, value=(empty(64, 1, 1, 64), empty(1)))
    again = sketch.call(npu.npu_scatter_nd_update_.default, keys, index, query, value=empty(900, 128, 1, 64))
    graph = sketch.capture(attend)
    assert graph.why(write.name, attend.name) == {Why.RAW} and graph.why(attend.name, again.name) == {Why.WAR}
    # The first two results are the caches themselves: nothing of their size is made.
    assert graph.ops[write.name].writes == ("keys", "latent", f"{write.name}.2", f"{write.name}.3")
    assert graph.ops[write.name].bytes_written == 2 * 64 * 576 * 4


def test_operators_that_a_kernel_runs_in_place_are_writers(npu_host: None) -> None:
    npu = torch.ops.npu
    sketch = Sketch()
    query, key, cos = (sketch.input(name, empty(8, 1, heads, 64)) for name, heads in (("query", 4), ("key", 2), ("cos", 1)))
    before = sketch.call(aten.neg.default, query, value=empty(8, 1, 4, 64))
    rotate = sketch.call(npu.npu_apply_rotary_pos_emb.default, query, key, cos, cos, value=(query.meta["val"], key.meta["val"]))
    y, x, weight = sketch.input("y"), sketch.input("x"), sketch.input("weight", empty(1, 1, 8, 8))
    other = sketch.call(aten.neg.default, y)
    lora = sketch.call(npu.npu_batch_gather_matmul.default, y, x, weight, sketch.input("at", empty(4, dtype=torch.int32)))
    scatter = sketch.call(aten.as_strided_scatter.default, x, sketch.input("part", empty(2, 8)), [2, 8], [8, 1])
    graph = sketch.capture(before, other)
    assert (
        graph.why(before.name, rotate.name) == graph.why(other.name, lora.name) == graph.why(lora.name, scatter.name) == {Why.WAR}
    )
    assert graph.ops[rotate.name].bytes_written == 8 * 64 * (4 + 2) * 4


@pytest.mark.parametrize("readers", [0, 1])
def test_a_cache_update_that_is_copied_back_touches_its_rows_alone(npu_host: None, readers: int) -> None:
    """TorchAir drops the copy in front of the kernel, unless somebody else uses the old cache."""
    sketch = Sketch()
    cache, index, rows = (
        sketch.input("cache", empty(10_000, 8)),
        sketch.input("index", empty(2, 1, dtype=torch.int64)),
        sketch.input("rows", empty(2, 8)),
    )
    results = [sketch.call(aten.sum.default, cache, value=empty()) for _ in range(readers)]
    update = sketch.call(torch.ops.npu.npu_scatter_nd_update.default, cache, index, rows, value=empty(10_000, 8))
    sketch.call(aten.copy_.default, cache, src=update, value=empty(10_000, 8))
    op = sketch.capture(*results).ops[update.name]
    touched, whole = 2 * 8 * 4, 10_000 * 8 * 4
    assert (op.bytes_read, op.bytes_written) == ((touched + 16 + whole, whole) if readers else (touched + 16, touched))


def test_torchair_drops_the_copies_around_an_update(npu_host: None) -> None:
    """What the prices of cache updates and of copies back rest on."""

    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cache: torch.Tensor
            self.register_buffer("cache", torch.zeros(100, 8))

        def forward(self, index: Tensor, rows: Tensor) -> Tensor:
            torch.ops.npu.npu_scatter_nd_update_(self.cache, index, rows)
            return rows @ self.cache.t()

    program = to_aten(Cache(), (torch.zeros(2, 1, dtype=torch.int64), torch.zeros(2, 8)))
    update, *_, back = capture(program.graph_module)
    assert (update.target, back.target) == ("npu.npu_scatter_nd_update.default", "aten.copy_.default")
    assert update.bytes_written == 2 * 8 * 4 and back.bytes_written == 0
    emitted = lower(program.graph_module, chip="910B2")
    assert 'type: "ScatterNdUpdate"' in emitted and not any(f'type: "{name}"' in emitted for name in ("TensorMove", "Assign"))


def test_the_operator_whose_value_replaces_a_graph_input_counts_as_its_writer() -> None:
    def overwrite(cache: Tensor, new: Tensor, query: Tensor) -> Tensor:
        attended = torch.mm(query, cache)
        cache.copy_(torch.relu(new))
        return attended

    graph = capture(make_fx(overwrite, tracing_mode="fake")(*(torch.empty(4, 4) for _ in range(3))))
    assert "cache_1" in graph.ops["relu"].writes
    assert Why.WAR in graph.why("mm", "relu")


def test_a_copy_on_the_way_hands_the_write_on_to_the_operator_before_it() -> None:
    def overwrite(cache: Tensor, new: Tensor, query: Tensor) -> Tensor:
        attended = torch.mm(query, cache)
        cache.copy_(torch.ops.aten.copy.default(cache, torch.relu(new)))
        return attended

    graph = capture(make_fx(overwrite, tracing_mode="fake")(*(torch.empty(4, 4) for _ in range(3))))
    assert "cache_1" in graph.ops["relu"].writes
    assert Why.WAR in graph.why("mm", "relu")
