"""Reading hand-written Ascend IR, and what the real TorchAir emits."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import pytest
import torch

from autostream import offline
from autostream.program import EdgeKind, Severity, StreamProgram, happens_before, read_ascend_ir, verify
from autostream.program.reading.fx import read_fx
from autostream.program.reading.writeback import written_back
from tests.program.programs import Graph, aten, found

#: name, type, inputs, and what else there is to say: label, in, out (port names), fx
Line = tuple[str, str, list[str], dict[str, Any]]


def text(*lines: Line) -> str:
    """Write a GraphDef in text form."""
    ops = []
    for index, (name, kind, inputs, more) in enumerate(lines):
        parts = [f'name: "{name}" type: "{kind}"', *(f'input: "{source}"' for source in inputs)]
        if kind == "Data":
            parts.append(f'attr {{ key: "index" value {{ i: {index} }} }}')
        if "label" in more:
            parts.append(f'attr {{ key: "_user_stream_label" value {{ s: "{more["label"]}" }} }}')
        parts += [f'input_desc {{ name: "{port}" }}' for port in more.get("in", [])]
        fx = f'attr {{ key: "_fx_tensor_name" value {{ s: "{more["fx"]}-target.OUTPUT.0" }} }}' if "fx" in more else ""
        parts += [f'output_desc {{ name: "{port}" {fx} }}' for port in more.get("out", ["y"])]
        ops.append("op { " + " ".join(parts) + " }")
    return "\n".join(ops)


def streams(program: StreamProgram) -> dict[str, str | None]:
    return {step.name: step.stream for step in program.steps}


def access(program: StreamProgram, name: str) -> tuple[set[str], set[str]]:
    step = next(step for step in program.steps if step.name == name)
    return set(step.reads), set(step.writes)


def test_streams_follow_labels_and_operator_types() -> None:
    program = read_ascend_ir(
        text(
            ("x", "Data", [], {}),
            ("c", "Const", [], {"label": "1"}),
            ("Add", "Add", ["x:0", "c:0"], {"label": "1"}),
            ("Relu", "Relu", ["Add:0"], {}),
            ("Reshape", "Reshape", ["Relu:0", "c:0"], {"label": "1"}),
            ("AllReduce", "HcomAllReduce", ["Reshape:0"], {}),
            ("Gather", "HcomAllGather", ["AllReduce:0"], {"label": "2"}),
            ("Dispatch", "MoeDistributeDispatchV2", ["Gather:0"], {}),
            ("out", "NetOutput", ["Dispatch:0"], {"out": []}),
        )
    )
    assert streams(program) == {
        "x": None,
        "c": None,
        "Add": "1",
        "Relu": "default",
        "Reshape": None,
        "AllReduce": "hccl",
        "Gather": "2",
        "Dispatch": "default",  # a kernel of the AI cores that communicates inside
        "out": None,
    }
    assert program.in_order is False
    assert happens_before(program).before("Relu", "AllReduce"), "data passes through the Reshape"


def test_intermediate_operators_belong_to_the_named_one_they_feed() -> None:
    program = read_ascend_ir(
        text(
            ("x", "Data", [], {}),
            ("c", "Const", [], {}),
            ("Print", "PrintV2", ["x:0"], {}),
            ("Pack", "Pack", ["c:0"], {}),
            ("Cast", "Cast", ["Pack:0"], {}),
            ("Split", "SplitV", ["x:0", "Cast:0"], {"fx": "split_1"}),
            ("Relu", "Relu", ["Split:0"], {"fx": "relu"}),
        )
    )
    assert {step.name: step.source for step in program.steps} == {
        "x": "",
        "c": "",
        "Print": "",
        "Pack": "split_1",
        "Cast": "split_1",
        "Split": "split_1",
        "Relu": "relu",
    }


def test_what_is_computed_from_constants_alone_emits_no_task() -> None:
    program = read_ascend_ir(
        text(
            ("x", "Data", [], {}),
            ("c", "Const", [], {"label": "1"}),
            ("A", "Relu", ["x:0"], {}),
            ("Cast", "Cast", ["c:0", "A:-1"], {"label": "1"}),
            ("Fill", "Fill", ["Cast:0", "c:0"], {"label": "1"}),
            ("Random", "StatelessRandomUniformV2", ["Fill:0"], {"label": "1"}),
            ("Live", "Cast", ["x:0"], {"label": "1"}),
            ("B", "GroupedMatmul", ["x:0", "Fill:0"], {"label": "1", "fx": "b"}),
        )
    )
    assert streams(program) == {
        "x": None,
        "c": None,
        "A": "default",
        "Cast": None,
        "Fill": None,
        "Random": "1",
        "Live": "1",
        "B": "1",
    }
    assert [(lost.kind, lost.step) for lost in program.lost] == [("wait-on-const", "Cast")]


def test_views_share_memory_and_in_place_outputs_are_their_inputs() -> None:
    program = read_ascend_ir(
        text(
            ("cache", "Data", [], {}),
            ("x", "Data", [], {}),
            ("View", "Reshape", ["cache:0"], {"in": ["x"]}),
            ("Write", "ScatterUpdate", ["View:0", "x:0"], {"in": ["var", "updates"], "out": ["var"]}),
            ("Read", "Relu", ["Write:0"], {"in": ["x"]}),
            ("Identity", "Identity", ["x:0"], {"in": ["x"]}),
            ("Use", "Relu", ["Identity:0"], {"in": ["x"]}),
            ("Assign", "Assign", ["cache:0", "x:0"], {"in": ["ref", "value"], "out": ["ref"]}),
            ("Cache", "KvRmsNormRopeCache", ["x:0", "cache:0"], {"in": ["kv", "k_cache"], "out": ["k_cache", "k_rope"]}),
        )
    )
    assert access(program, "View") == (set(), set())
    assert access(program, "Write") == ({"cache:0", "x:0"}, {"cache:0"})
    assert access(program, "Read") == ({"cache:0"}, {"Read:0"})
    assert access(program, "Identity") == ({"x:0"}, {"Identity:0"})
    assert access(program, "Use") == ({"Identity:0", "x:0"}, {"Use:0"})
    assert access(program, "Assign") == ({"x:0"}, {"cache:0"})
    assert access(program, "Cache") == ({"x:0", "cache:0"}, {"cache:0", "Cache:1"})


def test_an_output_in_the_memory_of_an_input_that_is_not_fed_has_its_own() -> None:
    program = read_ascend_ir(
        text(
            ("x", "Data", [], {}),
            ("state", "Stateful", ["x:0", ""], {"in": ["x", "state"], "out": ["y", "state"]}),
            ("write", "ScatterUpdate", ["state:1", "x:0"], {"in": ["var", "u"], "out": ["var"], "label": "s"}),
            ("read", "Relu", ["state:1"], {}),
            ("out", "NetOutput", ["read:0", "write:0"], {"out": []}),
        )
    )
    assert access(program, "state") == ({"x:0"}, {"state:0", "state:1"})
    assert access(program, "read") == ({"state:1"}, {"read:0"})
    assert "race" in [finding.kind for finding in verify(program)]


def test_operators_that_wait_for_themselves_name_each_storage_once() -> None:
    lines: list[Line] = [("a", "Identity", ["b:0"], {}), ("b", "Identity", ["a:0"], {}), ("c", "Relu", ["b:0"], {})]
    step = next(step for step in read_ascend_ir(text(*lines)).steps if step.name == "c")
    assert len(step.reads) == len(set(step.reads)) == 2


def test_a_cache_written_on_a_side_stream_races_with_its_reader() -> None:
    lines: list[Line] = [
        ("cache", "Data", [], {}),
        ("kv", "Data", [], {}),
        ("Write", "KvRmsNormRopeCache", ["kv:0", "cache:0"], {"in": ["kv", "k_cache"], "out": ["k_cache"], "label": "1"}),
        ("Attention", "FusedInferAttentionScore", ["kv:0", "cache:0"], {"in": ["query", "key"]}),
    ]
    errors = [finding for finding in verify(read_ascend_ir(text(*lines))) if finding.severity is Severity.ERROR]
    assert [(error.kind, error.steps, error.streams) for error in errors] == [("race", ("Write", "Attention"), ("1", "default"))]
    lines[3][2].append("Write:-1")
    assert verify(read_ascend_ir(text(*lines))) == ()


def test_control_edges_that_order_nothing_are_lost() -> None:
    program = read_ascend_ir(
        text(
            ("x", "Data", [], {}),
            ("A", "Relu", ["x:0"], {}),
            ("c", "Const", ["A:-1"], {"label": "1"}),
            ("View", "Reshape", ["A:0", "c:0", "A:-1"], {}),
            ("B", "Relu", ["x:0", "x:-1", "View:-1", "Gone:-1", "A:-1"], {"label": "1"}),
            ("out", "NetOutput", ["View:0", "B:-1"], {"out": []}),
        )
    )
    assert [(lost.kind, lost.step, lost.before) for lost in program.lost] == [
        ("wait-on-const", "c", "A"),
        ("wait-on-view", "View", "A"),
        ("wait-on-input", "B", "x"),
        ("record-after-view", "B", "View"),
        ("dangling-wait", "B", "Gone"),
    ]
    assert happens_before(program).before("A", "B")


def test_a_listing_out_of_order_is_sorted_and_a_cyclic_one_is_a_deadlock() -> None:
    program = read_ascend_ir(text(("B", "Relu", ["A:0"], {}), ("x", "Data", [], {}), ("A", "Relu", ["x:0"], {})), in_order=True)
    assert [step.name for step in program.steps] == ["x", "A", "B"]
    assert verify(program) == ()
    cyclic = read_ascend_ir(text(("A", "Relu", ["B:0"], {}), ("B", "Relu", ["A:0"], {})))
    assert found(verify(cyclic)) == ["deadlock"]


def test_an_output_in_the_memory_of_an_input_is_a_write_to_it() -> None:
    source = text(
        ("b", "Data", [], {}),
        ("Read", "Relu", ["b:0"], {"label": "1", "fx": "read"}),
        ("New", "Mul", ["b:0"], {"fx": "new"}),
        ("View", "Reshape", ["New:0"], {"fx": "view"}),
        ("out", "NetOutput", ["View:0", "Read:0"], {"out": []}),
    )
    assert verify(read_ascend_ir(source)) == ()
    program = read_ascend_ir(source, written_back={"view.0": ("b",)})
    assert access(program, "New") == ({"b:0"}, {"b:0"})
    assert found(verify(program), Severity.ERROR) == ["race"]
    assert read_ascend_ir(source, written_back={"dropped_as_no_op.0": ("b",)}) == read_ascend_ir(source)


def test_one_value_written_back_to_two_inputs_writes_both() -> None:
    g = Graph("x", "b", "c")
    new = g.call("new", aten.mm.default, g.inputs[0], g.inputs[0])
    for name, destination in (("to_b", g.inputs[1]), ("to_c", g.inputs[2])):
        g.call(name, aten.copy_.default, destination, new)
    places = written_back(g.done(new))
    assert places == {"new.0": ("b", "c")}
    lines: list[Line] = [
        ("x", "Data", [], {}),
        ("b", "Data", [], {}),
        ("c", "Data", [], {}),
        ("New", "MatMul", ["x:0", "x:0"], {"fx": "new"}),
        ("Read", "Relu", ["b:0"], {"label": "1"}),
    ]
    program = read_ascend_ir(text(*lines), written_back=places)
    assert access(program, "New") == ({"x:0"}, {"b:0", "c:0"})
    assert found(verify(program), Severity.ERROR) == ["race"]


def test_each_output_of_a_removable_operator_may_be_the_input_in_the_same_place() -> None:
    program = read_ascend_ir(
        text(
            ("x", "Data", [], {}),
            ("cache", "Data", [], {}),
            ("Both", "IdentityN", ["x:0", "cache:0"], {"in": ["x0", "x1"], "out": ["y0", "y1"]}),
            ("Read", "Relu", ["Both:1"], {"in": ["x"]}),
            ("Write", "ScatterUpdate", ["cache:0", "x:0", "Both:-1"], {"in": ["var", "u"], "out": ["var"], "label": "1"}),
        ),
        in_order=True,
    )
    assert access(program, "Both") == ({"x:0", "cache:0"}, {"Both:0", "Both:1"})
    assert access(program, "Read") == ({"Both:1", "cache:0"}, {"Read:0"})
    races = [finding.steps for finding in verify(program) if finding.kind == "race"]
    assert races == [("Read", "Write")]


def test_dropping_any_control_edge_of_a_correct_program_is_found() -> None:
    """Two writers and two readers of one input on three streams, ordered by waits alone."""
    lines: list[Line] = [
        ("cache", "Data", [], {}),
        ("x", "Data", [], {}),
        ("R1", "Relu", ["cache:0"], {"in": ["x"], "label": "1"}),
        ("W1", "ScatterUpdate", ["cache:0", "x:0", "R1:-1"], {"in": ["var", "updates"], "out": ["var"]}),
        ("R2", "Relu", ["cache:0", "W1:-1"], {"in": ["x"], "label": "2"}),
        ("W2", "ScatterUpdate", ["cache:0", "x:0", "R2:-1"], {"in": ["var", "updates"], "out": ["var"], "label": "1"}),
    ]
    whole = read_ascend_ir(text(*lines), in_order=True)
    assert verify(whole) == ()
    for edge in whole.edges:
        if edge.kind is EdgeKind.CONTROL:
            mutant = replace(whole, edges=tuple(e for e in whole.edges if e != edge))
            assert "race" in found(verify(mutant), Severity.ERROR), edge


# -- what TorchAir emits --------------------------------------------------------------------------------------------------


def _published() -> torch.fx.GraphModule:
    """The published hand-written model: add, mm on '1', mm, add on '2'."""
    g = Graph("a", "b", "c", "d")
    a, b, c, d = g.inputs
    added = g.call("added", aten.add.Tensor, a, b)
    g.enter("1", _user_stream_priority="3")
    held = g.call("held", torch.ops.air.wait_tensor.default, d, added)
    mm = g.call("mm", aten.mm.default, c, held)
    g.exit()
    mm1 = g.call("mm1", aten.mm.default, c, held)
    g.enter("2")
    held2 = g.call("held2", torch.ops.air.wait_tensor.default, held, mm1)
    add2 = g.call("add2", aten.add.Tensor, c, held2)
    g.exit()
    return g.done(added, mm, mm1, add2)


@pytest.mark.usefixtures("npu_host")
def test_the_three_forms_of_one_graph_are_one_program() -> None:
    converted = offline.convert(_published())
    program = read_ascend_ir(converted.serialized, in_order=True)
    assert program == read_ascend_ir(converted.text, in_order=True) == read_ascend_ir(converted.pbtxt, in_order=True)
    by_source = {step.source: step for step in program.steps if step.stream is not None}
    assert {name: step.stream for name, step in by_source.items()} == {
        "added": "default",
        "held": "1",
        "mm": "1",
        "mm1": "default",
        "held2": "2",
        "add2": "2",
    }
    controls = {(e.before, e.after) for e in program.edges if e.kind is EdgeKind.CONTROL}
    assert controls == {(by_source["added"].name, by_source["held"].name), (by_source["mm1"].name, by_source["held2"].name)}
    assert verify(program) == ()
    order = happens_before(program)
    assert order.before(by_source["held"].name, by_source["mm1"].name), "the default stream waits for the Identity on '1'"


@pytest.mark.usefixtures("npu_host")
def test_a_wait_before_a_converter_that_emits_a_const_is_lost() -> None:
    g = Graph("a", "b")
    mm = g.call("mm", aten.mm.default, *g.inputs)
    g.enter("1")
    g.wait(mm)
    added = g.call("added", aten.add.Tensor, g.inputs[1], 1)
    g.exit()
    module = g.done(mm, added)
    assert read_fx(module).lost == (), "the FX graph cannot tell"
    program = read_ascend_ir(offline.convert(module).serialized)
    assert found(verify(program), Severity.ERROR) == ["wait-on-const"]
    task = {step.source: step.name for step in program.steps if step.stream is not None}
    assert not happens_before(program, stream_order=True).before(task["mm"], task["added"])


@pytest.mark.usefixtures("npu_host")
def test_a_wait_before_a_write_back_vanishes_with_it() -> None:
    g = Graph("a", "b")
    new = g.call("new", aten.mm.default, g.inputs[0], g.inputs[0])
    g.enter("1")
    old = g.call("old", aten.relu.default, g.inputs[1])
    g.exit()
    g.wait(old)
    g.call("copy", aten.copy_.default, g.inputs[1], new)
    module = g.done(old)
    emitted = read_ascend_ir(offline.convert(module).serialized, in_order=True, written_back=written_back(module))
    assert [edge for edge in emitted.edges if edge.kind is EdgeKind.CONTROL] == []
    assert found(verify(emitted), Severity.ERROR) == ["race"]
    assert found(verify(read_fx(module)), Severity.ERROR) == ["lost-sync", "race"]


@pytest.mark.usefixtures("npu_host")
def test_a_record_after_a_write_back_dangles() -> None:
    g = Graph("a", "b")
    new = g.call("new", aten.mm.default, g.inputs[0], g.inputs[0])
    g.call("copy", aten.copy_.default, g.inputs[1], new)
    record = g.record()
    g.enter("1")
    g.wait(record)
    other = g.call("other", aten.relu.default, g.inputs[0])
    g.exit()
    module = g.done(other)
    assert [lost.kind for lost in read_fx(module).lost] == ["dangling-wait"]
    assert [lost.kind for lost in read_ascend_ir(offline.convert(module).serialized).lost] == ["dangling-wait"]


def _operators(g: Graph) -> list[torch.fx.Node]:
    """Operators of many kinds, views among them, on two labelled streams and the default one."""
    a, b, c = g.inputs
    x = g.call("x", aten.mm.default, a, b)
    split = g.call("split", aten.split.Tensor, x, 4)
    part = g.call("part", operator.getitem, split, 1)
    g.enter("1")
    turned = g.call("turned", aten.t.default, c)
    y = g.call("y", aten.mm.default, x, turned)
    flat = g.call("flat", aten.view.default, y, [64])
    one = g.call("one", aten.unsqueeze.default, flat, 0)
    g.wait(x)
    soft = g.call("soft", aten._softmax.default, y, -1, False)
    g.exit()
    permuted = g.call("permuted", aten.permute.default, soft, [1, 0])
    sliced = g.call("sliced", aten.slice.Tensor, permuted, 0, 0, 4)
    squeezed = g.call("squeezed", aten.squeeze.dim, sliced, 0)
    g.enter("2")
    picked = g.call("picked", aten.select.int, y, 0, 1)
    moved = g.call("moved", aten.detach.default, picked)
    z = g.call("z", aten.abs.default, moved)
    g.exit()
    record = g.record()
    g.enter("1")
    g.wait(record, name="wait_record")
    last = g.call("last", aten.relu.default, part)
    g.exit()
    end = g.call("end", aten.add.Tensor, squeezed, last)
    return [end, z, one]


@pytest.mark.usefixtures("npu_host")
def test_both_readers_agree_on_streams_and_on_orders_between_nodes() -> None:
    g = Graph("a", "b", "c")
    module = g.done(*_operators(g))
    fx_program = read_fx(module)
    ir_program = read_ascend_ir(offline.convert(module).serialized, in_order=True)
    assert fx_program.lost == ir_program.lost == ()
    ir_streams = {step.source: step.stream for step in ir_program.steps if step.source}
    task = {step.source: step.name for step in ir_program.steps if step.stream is not None}
    named = [step for step in fx_program.steps if step.name in ir_streams]
    assert len(named) >= 14
    assert {step.name: step.stream for step in named} == {step.name: ir_streams[step.name] for step in named}
    fx_order, ir_order = happens_before(fx_program), happens_before(ir_program)
    tasks = [step.name for step in named if step.stream is not None]
    for before in tasks:
        for after in tasks:
            assert fx_order.before(before, after) == ir_order.before(task[before], task[after]), (before, after)
