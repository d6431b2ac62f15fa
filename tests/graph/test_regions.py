"""Parts of a buffer: exact against a list of every byte, and told apart by the hazards and by the verifier."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from autostream.graph.aliases import Access
from autostream.graph.capture import capture
from autostream.graph.hazards import Edges, add_storage_hazards
from autostream.graph.regions import Region, in_blocks, neighbours, overlap, region
from autostream.program import verify
from autostream.program.reading.fx import read_fx
from autostream.rewrite.sync import task_orders
from tests.graph.orders import aten
from tests.graph.sketch import Sketch, empty, ordered


def _bytes(part: Region) -> set[int]:
    steps = itertools.product(*(range(size) for size in part.sizes))
    return {part.offset + sum(at * stride for at, stride in zip(step, part.strides, strict=True)) for step in steps}


_VIEWS = st.builds(
    lambda offset, dims, itemsize: region(
        offset=offset, sizes=[size for size, _ in dims], strides=[stride for _, stride in dims], itemsize=itemsize
    ),
    st.integers(0, 24),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 13)), max_size=3),
    st.sampled_from([1, 2, 4]),
)


@settings(max_examples=500)
@given(one=_VIEWS, two=_VIEWS)
def test_overlap_is_exact(one: Region, two: Region) -> None:
    assert overlap(one, two) == overlap(two, one) == bool(_bytes(one) & _bytes(two))
    assert one.end == max(_bytes(one)) + 1


@settings(max_examples=200)
@given(offset=st.integers(0, 9), dims=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 13)), max_size=3))
def test_a_region_holds_exactly_the_bytes_of_the_tensor(offset: int, dims: list[tuple[int, int]]) -> None:
    sizes, strides = [size for size, _ in dims], [stride for _, stride in dims]
    memory = torch.arange(200, dtype=torch.int16)
    elements = memory.as_strided(sizes, strides, offset).flatten().tolist()
    part = region(offset=offset, sizes=sizes, strides=strides, itemsize=2)
    assert (_bytes(part) if part else set()) == {byte for element in elements for byte in (2 * element, 2 * element + 1)}


@settings(max_examples=300)
@given(part=_VIEWS)
def test_blocks_hold_the_part_and_are_whole(part: Region) -> None:
    held = _bytes(in_blocks(part))
    blocks = {byte // 32 for byte in _bytes(part)}
    assert _bytes(part) <= held and {byte // 32 for byte in held} >= blocks
    assert all(32 * (byte // 32) + at in held for byte in held for at in range(32))
    if all(stride % 32 == 0 for stride in part.strides if stride != 1):
        assert {byte // 32 for byte in held} == blocks


def test_neighbours_in_one_block_are_not_told_apart() -> None:
    sketch = Sketch()
    pool = sketch.input("pool", empty(2, 4))  # rows of 16 bytes
    writes = [
        sketch.call(aten.relu_.default, sketch.call(aten.select.int, pool, 0, at, value=empty(4)), value=empty(4))
        for at in (0, 1)
    ]
    assert ordered(sketch.capture(*writes), *writes)


def test_equal_parts_written_differently_are_equal() -> None:
    assert region(offset=8, sizes=[2, 4], strides=[4, 1], itemsize=4) == region(offset=8, sizes=[8], strides=[1], itemsize=4)
    assert region(offset=0, sizes=[4, 2], strides=[1, 4], itemsize=4) == region(offset=0, sizes=[8], strides=[1], itemsize=4)


def test_a_test_that_takes_too_long_says_overlap() -> None:
    primes = [101, 103, 107, 109, 113, 127, 131, 137]
    many = Region(offset=0, sizes=(60,) * 8, strides=tuple(2 * prime for prime in primes))
    other = Region(offset=1, sizes=(60,) * 8, strides=tuple(2 * prime + 2 for prime in primes))
    assert not overlap(many, other)  # what divides all strides tells
    assert overlap(many, Region(offset=4999, sizes=(2,), strides=(997,)))


def test_many_parts_are_one() -> None:
    parts = [Region(offset=at, sizes=(1,), strides=(1,)) for at in range(65)]
    assert neighbours(parts) == {None: frozenset({None})}
    assert neighbours(parts[:64])[parts[3]] == {parts[3]}


def _halves(view: Any) -> tuple[Sketch, fx.Node, fx.Node]:
    """Write the two halves of one buffer; `view` makes a half."""
    sketch = Sketch()
    pool, rows = sketch.input("pool", empty(2, 4, 8)), sketch.input("rows", empty(4, 8))
    writes = []
    for half in (0, 1):
        part = view(sketch, pool, half)
        source = sketch.call(aten.relu.default, rows)
        writes.append(sketch.call(aten.copy_.default, part, source))
    return sketch, writes[0], writes[1]


def _select(sketch: Sketch, pool: fx.Node, half: int) -> fx.Node:
    return sketch.call(aten.select.int, pool, 0, half)


def _narrow(sketch: Sketch, pool: fx.Node, half: int) -> fx.Node:
    return sketch.call(aten.squeeze.dim, sketch.call(aten.slice.Tensor, pool, 0, half, half + 1, value=empty(1, 4, 8)), 0)


def _split(sketch: Sketch, pool: fx.Node, half: int) -> fx.Node:
    parts = sketch.call(aten.split.Tensor, pool, 1, value=[empty(1, 4, 8)] * 2)
    return sketch.call(aten.view.default, sketch.element(parts, half), [4, 8])


def _unbind(sketch: Sketch, pool: fx.Node, half: int) -> fx.Node:
    return sketch.element(sketch.call(aten.unbind.int, pool, value=[empty(4, 8)] * 2), half)


def _as_strided(sketch: Sketch, pool: fx.Node, half: int) -> fx.Node:
    return sketch.call(aten.as_strided.default, pool, [4, 8], [8, 1], 32 * half)


@pytest.mark.parametrize("view", [_select, _narrow, _split, _unbind, _as_strided])
def test_halves_of_one_buffer_are_told_apart(view: Any) -> None:
    sketch, first, second = _halves(view)
    module = sketch.module(first, second)
    graph = capture(module)
    parts_read_whole = view in (_split, _unbind)  # the second of these copies both halves
    assert ordered(graph, first, second) is parts_read_whole
    apart, again = graph.ops[first.name], graph.ops[second.name]
    assert not overlap(dict(apart.write_regions)["pool"], dict(again.write_regions)["pool"])


def test_overlapping_parts_and_unknown_parts_are_ordered() -> None:
    def shifted(sketch: Sketch, pool: fx.Node, half: int) -> fx.Node:
        return sketch.call(aten.as_strided.default, pool, [4, 8], [8, 1], 31 * half)

    def turned(sketch: Sketch, pool: fx.Node, half: int) -> fx.Node:
        whole = sketch.call(aten.permute.default, pool, [0, 2, 1], value=empty(2, 8, 4))
        part = sketch.call(aten.select.int, whole, 0, half, value=empty(8, 4))
        return sketch.call(aten.t.default, part)  # GE makes a Transpose of the whole pool

    for view in (shifted, turned):
        sketch, first, second = _halves(view)
        assert ordered(sketch.capture(first, second), first, second), view


def test_graph_inputs_that_share_memory_are_never_told_apart() -> None:
    pool = torch.empty(8, 8, device="meta")
    sketch = Sketch()
    upper, lower = sketch.input("upper", pool[:4]), sketch.input("lower", pool[4:])
    read = sketch.call(aten.relu.default, sketch.call(aten.select.int, lower, 0, 0, value=empty(8)), value=empty(8))
    write = sketch.call(aten.add_.Tensor, upper, upper)
    assert ordered(sketch.capture(read, write), read, write)


def test_a_custom_operator_and_one_that_reaches_outside_its_argument_touch_everything() -> None:
    sketch = Sketch()
    pool = sketch.input("pool", empty(2, 4, 8))
    first = sketch.call(aten.select.int, pool, 0, 0)
    reaching = sketch.call(aten.as_strided.default, first, [4, 8], [8, 1], 32)  # the other half, through the first one
    write = sketch.call(aten.add_.Tensor, sketch.call(aten.select.int, pool, 0, 1), 1.0)
    graph = sketch.capture(reaching, write)
    assert "pool" not in dict(graph.ops[reaching.name].read_regions)
    assert ordered(graph, reaching, write)


def test_traced_slices_of_a_cache_are_told_apart() -> None:
    def step(cache: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        cache[0].copy_(x.relu())
        cache[1].copy_(x.neg())
        return cache[0] + 1

    module = make_fx(step, tracing_mode="fake")(torch.zeros(2, 8), torch.ones(8))
    graph = capture(module)
    copies = [op.name for op in graph if op.target == "aten.copy_.default"]
    final = next(op.name for op in graph if op.target == "aten.add.Tensor")
    assert not nx.has_path(graph.dag, copies[0], copies[1])
    assert nx.has_path(graph.dag, copies[0], final) and not nx.has_path(graph.dag, copies[1], final)


def test_the_verifier_finds_a_race_between_parts_exactly_where_they_overlap() -> None:
    for view, racy in ((_select, False), (_as_strided, False), (lambda s, pool, half: _as_strided(s, pool, 0), True)):
        sketch, first, second = _halves(view)
        program = read_fx(sketch.module(first, second))
        aside = {second.name, *(node.name for node in second.all_input_nodes)}
        steps = tuple(step._replace(stream="side") if step.name in aside else step for step in program.steps)
        findings = verify(replace(program, steps=steps))
        assert any(finding.kind == "race" for finding in findings) is racy, view


_PART = st.one_of(st.none(), _VIEWS)


@settings(max_examples=200)
@given(accesses=st.lists(st.tuples(st.sampled_from("rwb"), _PART, _PART), min_size=2, max_size=10))
def test_every_conflict_between_parts_is_ordered_and_nothing_else(accesses: list[tuple[str, Any, Any]]) -> None:
    names = [f"op{at}" for at in range(len(accesses))]

    def parts(part: Any) -> Any:
        return () if part is None else (("s", part),)

    told = {
        name: Access(
            reads=("s",) if kind in "rb" else (),
            mutates=("s",) if kind in "wb" else (),
            read_regions=parts(one) if kind in "rb" else (),
            mutated_regions=parts(two) if kind in "wb" else (),
        )
        for name, (kind, one, two) in zip(names, accesses, strict=True)
    }
    edges = Edges(names)
    add_storage_hazards(edges, told, [set()] * len(names))
    dag = nx.DiGraph([(names[a], names[b]) for a, b in edges.pairs()])
    dag.add_nodes_from(names)

    def touched(at: int, kinds: str, which: int) -> set[int] | None:
        kind, *both = accesses[at]
        if kind not in kinds:
            return set()
        return None if both[which] is None else _bytes(both[which])

    def meet(one: set[int] | None, two: set[int] | None) -> bool:
        return one != set() and two != set() and (one is None or two is None or bool(one & two))

    conflicts = nx.DiGraph()
    conflicts.add_nodes_from(names)
    for a, b in itertools.combinations(range(len(names)), 2):
        reads, writes = (touched(a, "rb", 0), touched(b, "rb", 0)), (touched(a, "wb", 1), touched(b, "wb", 1))
        if meet(writes[0], writes[1]) or meet(writes[0], reads[1]) or meet(reads[0], writes[1]):
            conflicts.add_edge(names[a], names[b])
    assert set(nx.transitive_closure(dag).edges) == set(nx.transitive_closure(conflicts).edges)


def test_a_copy_into_a_view_of_an_input_is_a_task_whose_orders_are_proved() -> None:
    sketch = Sketch()
    pool = sketch.input("pool", empty(2, 8))
    halves = [sketch.call(aten.select.int, pool, 0, at, value=empty(8)) for at in (0, 1)]
    changed = sketch.call(aten.relu_.default, halves[0], value=empty(8))
    copied = sketch.call(aten.copy_.default, halves[1], halves[0], value=empty(8))
    back = sketch.call(aten.copy_.default, pool, sketch.call(aten.neg.default, pool, value=empty(2, 8)), value=empty(2, 8))
    graph = sketch.capture(copied)
    assert [graph.ops[node.name].into_input for node in (copied, back)] == [False, True]
    assert (changed.name, copied.name) in {(before, after) for before, after, _ in task_orders(graph)}
