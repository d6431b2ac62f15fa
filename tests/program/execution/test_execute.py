from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, fx

from autostream.errors import InputError, VerificationError
from autostream.graph import OpGraph
from autostream.graph.capture import capture
from autostream.program import Edge, EdgeKind, Semantics, Severity, StreamProgram, happens_before, verify
from autostream.program.execution.execute import differs, execute, serial
from autostream.program.execution.interleave import interleaving
from autostream.program.execution.runner import ExecutionError
from autostream.program.order import order_of
from autostream.program.reading.fx import read_fx
from autostream.rewrite.air import Air
from autostream.rewrite.dialect import Landing
from autostream.rewrite.emit import emit
from autostream.rewrite.sync import task_orders
from tests.graph.orders import Builder
from tests.program.programs import Graph, aten, program, step
from tests.rewrite.graphs_fx import at_random, real_inputs, traced

pytestmark = pytest.mark.usefixtures("npu_host")


class Everywhere(Air):
    """TorchAir's vocabulary, were a wait to land in front of every operator: the CPU has no converters."""

    def landing(self, node: fx.Node, label: str | None) -> Landing:
        return Landing.DIRECT


BOTH = (None, *range(12))


def values(count: int, shape: tuple[int, ...] = (8, 8)) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator) for _ in range(count)]


def every_seed(graph_module: fx.GraphModule, semantics: Semantics = Semantics.GE) -> range:
    """Seeds that bring any two unordered steps in both orders."""
    return range(2 * len(read_fx(graph_module, semantics=semantics).steps))


def read_then_write(*, wait: bool = True, semantics: Semantics = Semantics.GE) -> fx.GraphModule:
    """A side stream reads an input that the default stream then overwrites."""
    g = Graph("x", "y")
    if semantics is Semantics.CAPTURE:
        start = g.call("start", aten.neg.default, g.inputs[1])
        fork = g.record("fork")
    g.enter("side")
    if semantics is Semantics.CAPTURE:
        g.wait(fork, name="forked")
    old = g.call("old", aten.relu.default, g.inputs[0])
    done = g.record("done") if semantics is Semantics.CAPTURE else old
    g.exit()
    if wait:
        g.wait(done, name="join")
    new = g.call("new", aten.add_.Tensor, g.inputs[0], g.inputs[1])
    return g.done(old, new, *([start] if semantics is Semantics.CAPTURE else []))


# -- right programs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", BOTH)
def test_a_synchronised_program_gives_the_bits_of_the_plain_graph(seed: int | None) -> None:
    inputs = values(2)
    x, y = (value.clone() for value in inputs)
    expected = (x.relu(), x.add_(y))
    result = execute(read_then_write(), inputs, seed=seed)
    assert all(torch.equal(one, two) for one, two in zip(result.outputs, expected, strict=True))
    assert torch.equal(result.inputs[0], x) and torch.equal(result.inputs[1], y)
    assert all(torch.equal(one, two) for one, two in zip(inputs, values(2), strict=True))  # the caller's are left alone


def test_serial_is_what_the_graph_module_does() -> None:
    module = traced(lambda a, b: (torch.mm(a, b).softmax(0), a.add_(b).t().relu()), (8, 8), (8, 8))
    inputs = real_inputs(module)
    reference = serial(module, inputs)
    copies = [value.clone() for value in inputs]
    assert all(torch.equal(one, two) for one, two in zip(reference.outputs, module(*copies), strict=True))
    assert all(torch.equal(one, two) for one, two in zip(reference.inputs, copies, strict=True))


@pytest.mark.parametrize("assignment", range(3))
def test_an_emitted_program_gives_the_same_bits_in_both_modes(assignment: int) -> None:
    def model(a: Tensor, b: Tensor, cache: Tensor) -> tuple[Tensor, ...]:
        left, right = torch.mm(a, b), torch.mm(b, a).t()
        parts = torch.split(left, 4)
        total = torch.cat([parts[1], parts[0]]) + right
        return torch.nn.functional.layer_norm(total, [8]), left.sigmoid() * right, total.view(-1)[:8]

    module = traced(model, (8, 8), (8, 8), (8, 8))
    inputs = real_inputs(module)
    reference = serial(module, inputs)
    graph = capture(module)
    emitted = emit(module, graph, at_random(graph, assignment), Air()).graph_module
    assert len(read_fx(emitted).streams()) > 1
    assert execute(emitted, inputs).same_bits(reference)
    assert differs(emitted, inputs, reference, every_seed(emitted)) is None


def test_views_without_a_task_share_memory_with_what_they_are_taken_of() -> None:
    g = Graph("x")
    flat = g.call("flat", aten.view.default, g.inputs[0], [-1])
    rows = g.call("rows", aten.split.Tensor, g.inputs[0], 4)
    g.enter("side")
    turned = g.call("turned", aten.t.default, g.inputs[0])
    before = g.call("before", aten.relu.default, turned)
    g.exit()
    g.wait(before)
    g.call("write", aten.add_.Tensor, g.item("row", rows, 1), g.item("first", rows, 0))
    after = g.call("after", aten.relu.default, flat)
    module, inputs = g.done(before, after, g.item("again", rows, 1)), values(1)
    written = torch.cat([inputs[0][:4], inputs[0][4:] + inputs[0][:4]])
    for seed in BOTH:
        result = execute(module, inputs, seed=seed)
        assert torch.equal(result.outputs[0], inputs[0].t().relu())
        assert torch.equal(result.outputs[1], written.view(-1).relu())
        assert torch.equal(result.outputs[2], written[4:]) and torch.equal(result.inputs[0], written)


def test_a_view_with_a_task_copies_where_eager_mode_cannot_tell() -> None:
    def module(*, wait: bool, write_later: bool = False) -> fx.GraphModule:
        g = Graph("x", "y")
        new = g.call("new", aten.add_.Tensor, *g.inputs)
        g.enter("side")
        if wait:
            g.wait(new)
        rows = g.call("rows", aten.split.Tensor, g.inputs[0], 4)
        g.exit()
        first = g.item("first", rows, 0)
        g.wait(first, name="join")
        last = g.call("last", aten.mul_.Tensor if write_later else aten.mul.Tensor, *g.inputs)
        return g.done(first, last)

    inputs = values(2)
    for write_later in (False, True):
        right = module(wait=True, write_later=write_later)
        reference = serial(right, inputs)
        assert differs(right, inputs, reference, every_seed(right)) is None
    wrong = module(wait=False)
    assert differs(wrong, inputs, serial(wrong, inputs), every_seed(wrong)) is not None


def test_an_anchor_hands_its_first_argument_on_and_waits_for_the_second() -> None:
    def module(*, anchored: bool) -> fx.GraphModule:
        g = Graph("x", "y")
        g.enter("side")
        old = g.call("old", aten.relu.default, g.inputs[0])
        g.exit()
        value = g.call("anchor", torch.ops.air.wait_tensor.default, g.inputs[1], old) if anchored else g.inputs[1]
        return g.done(old, g.call("new", aten.add_.Tensor, g.inputs[0], value))

    inputs = values(2)
    reference = serial(module(anchored=False), inputs)
    assert serial(module(anchored=True), inputs).same_bits(reference)
    assert execute(module(anchored=True), inputs).same_bits(reference)
    assert differs(module(anchored=True), inputs, reference, every_seed(module(anchored=True))) is None
    assert differs(module(anchored=False), inputs, reference, every_seed(module(anchored=False))) is not None


def test_inputs_that_share_memory_still_do_and_the_modules_own_tensors_are_copied() -> None:
    graph = fx.Graph()
    whole, part = graph.placeholder("whole"), graph.placeholder("part")
    table = graph.get_attr("table")
    graph.call_function(aten.add_.Tensor, (part, table))
    graph.call_function(aten.mul_.Tensor, (table, 2.0))
    graph.output((graph.call_function(aten.relu.default, (whole,)),))
    root = torch.nn.Module()
    root.register_buffer("table", torch.ones(4))
    module, whole_value = fx.GraphModule(root, graph), torch.zeros(2, 4)
    for node in module.graph.nodes:
        node.meta["val"] = torch.empty((2, 4) if node.name in ("whole", "relu_default") else (4,), device="meta")
    result = execute(module, [whole_value, whole_value[1]])
    assert result.outputs[0].tolist() == [[0.0] * 4, [1.0] * 4]
    assert result.attributes[0].tolist() == [2.0] * 4
    assert whole_value.sum() == 0 and module.table.tolist() == [1.0] * 4


def test_random_operators_start_from_one_state_and_leave_the_callers_alone() -> None:
    g = Graph("x")
    noise = g.call("noise", aten.rand_like.default, g.inputs[0])
    module, inputs = g.done(g.call("sum", aten.add.Tensor, noise, g.inputs[0])), values(1)
    state = torch.random.get_rng_state()
    reference = serial(module, inputs)
    torch.rand(3)
    assert differs(module, inputs, reference) is None and execute(module, inputs).same_bits(reference)
    torch.random.set_rng_state(state)
    expected = torch.rand(3)
    torch.random.set_rng_state(state)
    execute(module, inputs, seed=0)
    assert torch.equal(torch.rand(3), expected)


def test_a_stand_in_replaces_an_operator_without_a_cpu_kernel() -> None:
    g = Graph("cache", "rows")
    slots = g.call("slots", aten.arange.default, 1)
    new = g.call("new", torch.ops.npu.scatter_update_.default, g.inputs[0], slots, g.inputs[1], -2)
    g.graph.output((new,))
    module = fx.GraphModule(torch.nn.Module(), g.graph)
    for node in module.graph.nodes:
        node.meta["val"] = torch.empty((1,) if node.name == "slots" else (2, 2, 4, 4), device="meta")

    def write(cache: Tensor, slots: Tensor, rows: Tensor, axis: int) -> Tensor:
        return cache.copy_(rows)

    inputs = values(2, (2, 2, 4, 4))
    kernels = {"npu.scatter_update_.default": write}
    reference = serial(module, inputs, kernels=kernels)
    assert torch.equal(reference.inputs[0], inputs[1])
    assert execute(module, inputs, kernels=kernels).same_bits(reference)
    assert differs(module, inputs, reference, kernels=kernels) is None


def test_the_streams_run_at_the_same_time() -> None:
    g = Graph("x")
    g.enter("side")
    one = g.call("one", aten.relu.default, g.inputs[0])
    g.exit()
    two = g.call("two", aten.neg.default, g.inputs[0])
    meeting = threading.Barrier(2, timeout=60)  # each operator ends only once the other has started

    def meet(value: Tensor) -> Tensor:
        meeting.wait()
        return value.clone()

    kernels = {"aten.relu.default": meet, "aten.neg.default": meet}
    result = execute(g.done(one, two), values(1), kernels=kernels)
    assert torch.equal(result.outputs[0], result.outputs[1])


def test_a_stream_waits_for_what_it_is_told_to_and_for_nothing_else() -> None:
    written = threading.Event()

    def late(value: Tensor) -> Tensor:
        written.wait(timeout=0.5)
        return aten.relu(value)

    def write(value: Tensor, other: Tensor) -> Tensor:
        aten.add_(value, other)
        written.set()
        return value

    inputs, kernels = values(2), {"aten.relu.default": late, "aten.add_.Tensor": write}
    assert torch.equal(execute(read_then_write(), inputs, kernels=kernels).outputs[0], inputs[0].relu())
    written.clear()
    result = execute(read_then_write(wait=False), inputs, kernels=kernels)
    assert torch.equal(result.outputs[0], (inputs[0] + inputs[1]).relu())


# -- copies into graph inputs -----------------------------------------------------------------------------------------


def written_back(*, wait: bool) -> fx.GraphModule:
    """A side stream reads a state that the default stream computes anew and, as AOTAutograd writes it, copies back last."""
    g = Graph("state", "y")
    g.enter("side")
    old = g.call("old", aten.relu.default, g.inputs[0])
    g.exit()
    if wait:
        g.wait(old)
    new = g.call("new", aten.mm.default, g.inputs[0], g.inputs[1])
    both = g.call("both", aten.add.Tensor, new, old)
    g.call("back", aten.copy_.default, g.inputs[0], new)
    return g.done(both)


def test_the_producer_of_a_written_back_value_writes_the_input() -> None:
    inputs = values(2)
    module = written_back(wait=True)
    reference = serial(module, inputs)
    assert torch.equal(reference.inputs[0], inputs[0] @ inputs[1])
    assert execute(module, inputs).same_bits(reference)
    assert differs(module, inputs, reference, every_seed(module)) is None
    broken = written_back(wait=False)
    assert verify(read_fx(broken))
    assert differs(broken, inputs, reference, every_seed(broken)) is not None


def test_readers_between_the_producer_and_the_copy_see_the_old_input() -> None:
    g = Graph("state", "other")
    new = g.call("new", aten.mm.default, *g.inputs)
    old = g.call("old", aten.relu.default, g.call("turned", aten.t.default, g.inputs[0]))
    more = g.call("more", aten.add_.Tensor, new, g.inputs[1])
    g.call("swap", aten.copy_.default, g.inputs[1], g.inputs[0])
    back = g.call("back", aten.copy_.default, g.inputs[0], new)
    module, inputs = g.done(old, more, back), values(2)
    reference = serial(module, inputs)
    product = inputs[0] @ inputs[1] + inputs[1]
    assert torch.equal(reference.outputs[0], inputs[0].t().relu())
    assert torch.equal(reference.inputs[0], product) and torch.equal(reference.inputs[1], inputs[0])
    assert execute(module, inputs).same_bits(reference)
    assert differs(module, inputs, reference, every_seed(module)) is None


def test_values_without_elements_are_no_steps_and_still_there() -> None:
    g = Graph("x", "y")
    one = g.call("one", aten.relu.default, g.inputs[0])
    two = g.call("two", aten.copy_.default, one, g.inputs[1])
    module, inputs = g.done(two, one, shape=(0, 8)), values(2, (0, 8))
    reference = serial(module, inputs)
    assert reference.outputs[0].shape == (0, 8)
    assert execute(module, inputs).same_bits(reference) and differs(module, inputs, reference) is None


# -- wrong programs ---------------------------------------------------------------------------------------------------


def test_a_missing_wait_shows_in_some_interleaving() -> None:
    inputs = values(2)
    reference = serial(read_then_write(), inputs)
    assert differs(read_then_write(), inputs, reference, every_seed(read_then_write())) is None
    broken = read_then_write(wait=False)
    seed = differs(broken, inputs, reference, every_seed(broken))
    assert seed is not None
    assert not execute(broken, inputs, seed=seed).same_bits(reference)


@pytest.mark.parametrize("assignment", range(6))
def test_every_needed_wait_of_an_emitted_program_is_missed_when_it_is_gone(assignment: int) -> None:
    def model(cache: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        before = torch.relu(cache)
        cache.add_(a)
        between = torch.mm(cache, b)
        cache.mul_(b)
        return before, between, cache.neg()

    module = traced(model, (8, 8), (8, 8), (8, 8))
    inputs, graph = values(3), capture(module)
    reference = serial(module, inputs)
    emitted = emit(module, graph, at_random(graph, assignment), Everywhere()).graph_module
    complete = read_fx(emitted)
    assert differs(emitted, inputs, reference, every_seed(emitted), program=complete) is None
    for edge in complete.edges:
        if edge.kind is EdgeKind.CONTROL:
            broken = without(complete, edge)
            found = differs(emitted, inputs, reference, every_seed(emitted), program=broken)
            assert (found is None) == is_proved(broken, graph), edge


def test_data_edges_order_in_ge_and_not_in_capture_mode() -> None:
    g = Graph("x")
    one = g.call("one", aten.relu.default, g.inputs[0])
    g.enter("side")
    two = g.call("two", aten.neg.default, g.call("flat", aten.view.default, one, [-1]))
    g.exit()
    module, inputs = g.done(two, one), values(1)
    reference = serial(module, inputs)
    assert differs(module, inputs, reference, every_seed(module)) is None
    assert execute(module, inputs).same_bits(reference)
    seed = differs(module, inputs, reference, every_seed(module, Semantics.CAPTURE), semantics=Semantics.CAPTURE)
    with pytest.raises(ExecutionError, match=r"'one' on stream 'default' is read before it was written, by '(two|output)'"):
        execute(module, inputs, semantics=Semantics.CAPTURE, seed=seed)


def test_events_order_in_capture_mode() -> None:
    inputs = values(2)
    module = read_then_write(semantics=Semantics.CAPTURE)
    reference = serial(module, inputs)
    assert execute(module, inputs, semantics=Semantics.CAPTURE).same_bits(reference)
    assert differs(module, inputs, reference, every_seed(module, Semantics.CAPTURE), semantics=Semantics.CAPTURE) is None


def test_in_capture_mode_the_graph_may_end_before_a_stream_that_is_not_joined() -> None:
    def module(*, joined: bool) -> fx.GraphModule:
        g = Graph("x", "y")
        start = g.call("start", aten.neg.default, g.inputs[1])
        g.enter("side")
        g.wait(start)
        g.call("write", aten.add_.Tensor, g.inputs[0], start)
        done = g.record()
        g.exit()
        if joined:
            g.wait(done, name="join")
        return g.done(start)

    inputs, semantics = values(2), Semantics.CAPTURE
    reference = serial(module(joined=True), inputs)
    assert differs(module(joined=True), inputs, reference, range(20), semantics=semantics) is None
    assert differs(module(joined=False), inputs, reference, range(20), semantics=semantics) is not None


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_a_deadlock_is_an_error(seed: int | None) -> None:
    module, inputs = read_then_write(), values(2)
    given = read_fx(module)
    back = Edge(before="new", after="old", kind=EdgeKind.CONTROL)
    circular = replace(given, edges=(*given.edges, back))
    with pytest.raises(VerificationError, match="deadlocks.*old -> new -> old|deadlocks.*new -> old -> new"):
        execute(module, inputs, seed=seed, program=circular)
    with pytest.raises(VerificationError, match="deadlocks"):
        differs(module, inputs, serial(module, inputs), program=circular)


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_a_failing_operator_stops_every_stream_and_is_named(seed: int | None) -> None:
    g = Graph("x")
    g.enter("side_1")
    bad = g.call("bad", aten.relu.default, g.inputs[0])
    g.exit()
    g.enter("side_2")
    after = g.call("after", aten.neg.default, bad)
    g.exit()
    module, running = g.done(g.call("last", aten.abs.default, after)), threading.active_count()

    def fail(value: Tensor) -> Tensor:
        raise ZeroDivisionError("no such thing")

    with pytest.raises(ExecutionError, match=r"operator 'bad' \(aten.relu.default\) on stream 'side_1' failed: no such thing"):
        execute(module, values(1), seed=seed, kernels={"aten.relu.default": fail})
    assert threading.active_count() == running


def test_an_operator_that_fails_in_some_order_is_a_difference() -> None:
    g = Graph("x", "y")
    g.enter("side")
    g.call("write", aten.zero_.default, g.inputs[0])
    g.exit()
    read = g.call("read", aten.relu.default, g.inputs[0])
    module = g.done(read)

    def picky(value: Tensor) -> Tensor:
        assert not value.any(), "not zero"
        return value.clone()

    kernels = {"aten.relu.default": picky}
    reference = serial(module, values(2), kernels=kernels)
    assert differs(module, values(2), reference, every_seed(module), kernels=kernels) is not None


def test_what_cannot_be_executed_is_refused() -> None:
    module = read_then_write()
    with pytest.raises(InputError, match="has 2 inputs, 1 were given"):
        execute(module, values(1))
    with pytest.raises(InputError, match="'foreign' of the program is no node of the graph"):
        execute(module, values(2), program=program([step("foreign")]))
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(2)
    graph.output((graph.call_method("relu", (x,)),))
    with pytest.raises(InputError, match="'relu' is a call_method"):
        execute(fx.GraphModule(torch.nn.Module(), graph), values(1), program=program([]))


# -- interleavings ----------------------------------------------------------------------------------------------------


@st.composite
def programs(draw: st.DrawFn) -> Any:
    count = draw(st.integers(1, 12))
    steps = [step(f"s{i}", draw(st.sampled_from("abc"))) for i in range(count)]
    pairs = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=10))
    return program(steps, control=[f"s{min(pair)}>s{max(pair)}" for pair in pairs if pair[0] != pair[1]])


@settings(max_examples=60)
@given(drawn=programs())
def test_interleavings_are_legal_repeatable_and_reverse_whatever_is_not_ordered(drawn: Any) -> None:
    order, relation = order_of(drawn), happens_before(drawn)
    names = [one.name for one in drawn.steps]
    seen: set[tuple[str, str]] = set()
    for seed in range(2 * len(names)):
        sequence = interleaving(order, seed)
        assert sequence == interleaving(order, seed)
        assert sorted(sequence) == sorted(names)
        seen |= {(one, two) for index, one in enumerate(sequence) for two in sequence[index + 1 :]}
    for one in names:
        for two in names:
            assert one == two or ((one, two) in seen) == (not relation.before(two, one))


# -- random graphs ----------------------------------------------------------------------------------------------------

Choice = tuple[str, int, int]
KINDS = ("relu", "neg", "add", "mul", "mm", "view", "t", "split", "cos_", "add_", "mul_", "copy_", "cat", "epilogue")


def sketch(choices: Sequence[Choice]) -> tuple[fx.GraphModule, Mapping[str, Tensor]]:
    """Build a graph of matrices, their views and operators that write them; copies into the inputs come last."""
    builder = Builder(dict(zip("xyz", values(3, (4, 4)), strict=True)))
    for kind, a, b in choices:
        tensors = builder.tensors()
        left = tensors[a % len(tensors)]
        shape = builder.values[left].shape
        right = (alike := [node for node in tensors if builder.values[node].shape == shape])[b % len(alike)]
        matrix = len(shape) == 2
        if kind in ("relu", "neg", "cos_"):
            builder.call(getattr(aten, kind).default, left)
        elif kind in ("add", "mul", "add_", "mul_"):
            builder.call(getattr(aten, kind).Tensor, left, right)
        elif kind == "copy_" and left.op != "placeholder":
            builder.call(aten.copy_.default, left, right)
        elif kind == "mm" and matrix and shape[0] == shape[1]:
            builder.call(aten.mm.default, left, right)
        elif kind == "view":
            builder.call(aten.view.default, left, [-1] if matrix else [2, -1])
        elif kind == "t" and matrix:
            builder.call(aten.t.default, left)
        elif kind == "split" and matrix and shape[0] > 1:
            builder.call(aten.split.Tensor, left, int(shape[0]) // 2)
        elif kind == "cat":
            builder.call(aten.cat.default, [left, right])
    for kind, a, b in choices:
        if kind == "epilogue":
            alike = [node for node in builder.tensors() if builder.values[node].shape == (4, 4) and node.op != "placeholder"]
            if alike:
                builder.call(aten.copy_.default, builder.tensors()[a % 3], alike[b % len(alike)])
    return builder.finish([node for node in builder.tensors() if node.op != "placeholder"]), builder.inputs


def is_proved(given_program: StreamProgram, graph: OpGraph) -> bool:
    return not [f for f in verify(given_program, required=task_orders(graph)) if f.severity is Severity.ERROR]


def without(given_program: StreamProgram, edge: Edge) -> StreamProgram:
    return replace(given_program, edges=tuple(other for other in given_program.edges if other != edge))


def test_random_graphs_with_operators_that_write_keep_every_bit() -> None:
    tally: Counter[str] = Counter()

    @settings(max_examples=80)
    @given(
        choices=st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 63), st.integers(0, 63)), min_size=3, max_size=12),
        assignment=st.integers(0, 2**32),
        seeds=st.lists(st.integers(0, 2**32), min_size=5, max_size=5, unique=True),
    )
    def holds(choices: list[Choice], assignment: int, seeds: list[int]) -> None:
        module, inputs = sketch(choices)
        graph, given_inputs = capture(module), list(inputs.values())
        reference = serial(module, given_inputs)
        emitted = emit(module, graph, at_random(graph, assignment), Everywhere()).graph_module
        complete = read_fx(emitted)
        tally["drawn"] += 1
        if not is_proved(complete, graph):
            return
        tally["proved"] += 1
        tally["several streams"] += len(complete.streams()) > 1
        assert execute(emitted, given_inputs).same_bits(reference)
        assert differs(emitted, given_inputs, reference, seeds) is None
        for edge in [edge for edge in complete.edges if edge.kind is EdgeKind.CONTROL][:3]:
            broken = without(complete, edge)
            found = differs(emitted, given_inputs, reference, every_seed(emitted), program=broken)
            needed = not is_proved(broken, graph)
            tally["edge needed"] += needed
            tally["and other bits"] += found is not None
            assert found is None or needed, edge

    holds()
    assert tally["proved"] >= 0.5 * tally["drawn"] and tally["several streams"] >= 0.4 * tally["drawn"], tally
    assert tally["and other bits"] >= 0.7 * tally["edge needed"] > 10, tally
