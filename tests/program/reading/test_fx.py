from __future__ import annotations

import pytest
import torch

from autostream.program import EdgeKind, Semantics, Severity, StreamProgram, verify
from autostream.program.reading.fx import read_fx
from autostream.program.reading.writeback import written_back
from tests.program.programs import Graph, aten, found

pytestmark = pytest.mark.usefixtures("npu_host")


def streams(program: StreamProgram) -> dict[str, str | None]:
    return {step.name: step.stream for step in program.steps}


def edges(program: StreamProgram, kind: EdgeKind) -> set[str]:
    return {f"{edge.before}>{edge.after}" for edge in program.edges if edge.kind is kind}


def losses(program: StreamProgram) -> list[tuple[str, str]]:
    return [(lost.kind, lost.step) for lost in program.lost]


def test_a_plain_graph_is_one_stream_of_data_edges() -> None:
    g = Graph("a", "b")
    x = g.call("x", aten.mm.default, *g.inputs)
    y = g.call("y", aten.relu.default, x)
    program = read_fx(g.done(y))
    assert streams(program) == {"x": "default", "y": "default"}
    assert [step.kind for step in program.steps] == ["aten.mm.default", "aten.relu.default"]
    assert edges(program, EdgeKind.DATA) == {"x>y"}
    assert (program.semantics, program.in_order, program.lost) == (Semantics.GE, True, ())
    assert program.steps[1].reads == ("x",)
    assert program.steps[1].writes == ("y",)
    assert program.steps[1].source == "y"
    assert verify(program) == ()


def test_the_innermost_label_places_an_operator() -> None:
    g = Graph("a")
    g.enter("1")
    x = g.call("x", aten.relu.default, g.inputs[0])
    g.enter("2")
    y = g.call("y", aten.relu.default, x)
    g.enter(None, _op_aicore_num="4")
    z = g.call("z", aten.relu.default, y)
    for _ in range(3):
        g.exit()
    w = g.call("w", aten.relu.default, z)
    program = read_fx(g.done(w))
    assert streams(program) == {"x": "1", "y": "2", "z": "2", "w": "default"}
    assert verify(program) == ()


def test_a_record_is_the_last_operator_so_far_and_a_wait_lands_on_the_next() -> None:
    g = Graph("a", "b")
    x = g.call("x", aten.mm.default, *g.inputs)
    g.call("x2", aten.relu.default, x)
    record = g.record()
    g.enter("1")
    g.wait(record)
    y = g.call("y", aten.abs.default, g.inputs[0])
    y2 = g.call("y2", aten.abs.default, y)
    back = g.record("back")
    g.exit()
    g.wait(back, name="join")
    z = g.call("z", aten.sub.Tensor, x, g.inputs[1])
    program = read_fx(g.done(z, y2))
    assert edges(program, EdgeKind.CONTROL) == {"x2>y", "y2>z"}
    assert program.lost == ()


def test_records_and_waits_are_kept_per_outermost_label() -> None:
    """TorchAir's own bookkeeping: inside '1', a nested '2' records and waits for '1'."""
    g = Graph("a")
    g.enter("1")
    x = g.call("x", aten.relu.default, g.inputs[0])
    g.enter("2")
    record = g.record()
    g.exit()
    g.exit()
    g.enter("2")
    g.wait(record)
    g.exit()
    g.enter("1")
    y = g.call("y", aten.relu.default, g.inputs[0])
    g.exit()
    g.enter("2")
    z = g.call("z", aten.relu.default, g.inputs[0])
    g.exit()
    program = read_fx(g.done(x, y, z))
    assert edges(program, EdgeKind.CONTROL) == {"x>z"}


def test_a_wait_for_tensors_comes_from_their_producers() -> None:
    g = Graph("a")
    x = g.call("x", aten.relu.default, g.inputs[0])
    parts = g.call("parts", aten.split.Tensor, x, 4)
    part = g.item("part", parts, 1)
    turned = g.call("turned", aten.t.default, x)
    g.call("other", aten.relu.default, g.inputs[0])
    g.enter("1")
    g.wait(x, part, turned)
    y = g.call("y", aten.abs.default, g.inputs[0])
    g.exit()
    program = read_fx(g.done(y, part))
    assert edges(program, EdgeKind.CONTROL) == {"x>y", "parts>y"}
    assert streams(program)["part"] is None
    assert program.lost == ()


def test_getitem_and_deferred_views_convert_nothing() -> None:
    g = Graph("a")
    x = g.call("x", aten.split.Tensor, g.inputs[0], 4)
    record = g.record()
    g.wait(record)
    part = g.item("part", x, 0)
    view = g.call("view", aten.view.default, part, [32])
    y = g.call("y", aten.relu.default, view)
    program = read_fx(g.done(y))
    assert streams(program) == {"x": "default", "part": None, "view": None, "y": "default"}
    assert edges(program, EdgeKind.CONTROL) == {"x>y"}


def test_a_value_without_elements_converts_nothing() -> None:
    g = Graph("a")
    x = g.call("x", aten.relu.default, g.inputs[0])
    none = g.call("none", aten.slice.Tensor, g.inputs[0], 0, 8, 8)
    g.enter("1")
    g.wait(x)
    empty = g.call("empty", aten.relu.default, none)
    y = g.call("y", aten.abs.default, g.inputs[0])
    g.exit()
    program = read_fx(g.done(y, empty))
    assert streams(program) == {"x": "default", "none": None, "empty": None, "y": "1"}
    assert edges(program, EdgeKind.CONTROL) == {"x>y"}


def test_views_inside_a_scope_are_operators_with_a_task_or_without() -> None:
    g = Graph("a", "b")
    x = g.call("x", aten.relu.default, g.inputs[0])
    g.enter("1")
    g.wait(x)
    turned = g.call("turned", aten.t.default, g.inputs[1])
    y = g.call("y", aten.mm.default, g.inputs[0], turned)
    flat = g.call("flat", aten.view.default, y, [64])
    record = g.record()
    g.exit()
    g.wait(record, name="wait_after")
    z = g.call("z", aten.relu.default, x)
    program = read_fx(g.done(z, flat))
    assert streams(program) == {"x": "default", "turned": "1", "y": "1", "flat": None, "z": "default"}
    assert edges(program, EdgeKind.CONTROL) == {"x>turned", "flat>z"}
    assert losses(program) == [("record-after-view", "wait_after")]
    assert next(step for step in program.steps if step.name == "turned").reads == ("b",)


def test_wait_tensor_is_an_operator_with_a_control_edge() -> None:
    g = Graph("a", "b")
    x = g.call("x", aten.add.Tensor, *g.inputs)
    g.enter("1")
    held = g.call("held", torch.ops.air.wait_tensor.default, g.inputs[1], x)
    y = g.call("y", aten.mm.default, g.inputs[0], held)
    g.exit()
    program = read_fx(g.done(x, y))
    assert streams(program) == {"x": "default", "held": "1", "y": "1"}
    assert edges(program, EdgeKind.CONTROL) == {"x>held"}
    assert edges(program, EdgeKind.DATA) == {"held>y"}
    assert verify(program) == ()


def test_lost_synchronisation_is_reported() -> None:
    g = Graph("a", "b")
    empty = g.record("empty")
    g.wait(empty, name="wait_empty")
    x = g.call("x", aten.relu.default, g.inputs[0])
    g.record("unused")
    g.wait(g.inputs[1], name="wait_input")
    y = g.call("y", aten.relu.default, x)
    g.enter("1")
    z = g.call("z", aten.abs.default, x)
    g.wait(y, name="trailing")
    g.exit()
    g.call("nothing", torch.ops.air.wait.default, [])
    program = read_fx(g.done(y, z))
    assert losses(program) == [
        ("empty-record", "wait_empty"),
        ("wait-on-input", "wait_input"),
        ("empty-wait", "nothing"),
        ("trailing-wait", "trailing"),
        ("unused-record", "unused"),
    ]
    assert found(verify(program), Severity.ERROR) == ["lost-sync"] * 3


def test_unpaired_scopes_are_findings_not_exceptions() -> None:
    g = Graph("a")
    g.exit()
    x = g.call("x", aten.relu.default, g.inputs[0])
    g.enter("1")
    y = g.call("y", aten.relu.default, x)
    program = read_fx(g.done(y))
    assert [lost.kind for lost in program.lost] == ["unpaired-scope"] * 2
    assert streams(program)["y"] == "1"
    assert found(verify(program), Severity.ERROR) == ["unpaired-scope"] * 2


def test_super_kernel_marks_are_ignored() -> None:
    g = Graph("a")
    g.enter(None, _super_kernel_scope="sk", _super_kernel_options="")
    turned = g.call("turned", aten.t.default, g.inputs[0])
    y = g.call("y", aten.relu.default, turned)
    g.exit()
    program = read_fx(g.done(y))
    assert streams(program) == {"turned": None, "y": "default"}, "alone it does not stop views from being deferred"


def test_a_copy_into_an_input_becomes_part_of_the_producer() -> None:
    g = Graph("a", "b")
    new = g.call("new", aten.mm.default, g.inputs[0], g.inputs[0])
    g.enter("1")
    old = g.call("old", aten.relu.default, g.inputs[1])
    g.exit()
    g.wait(old)
    g.call("copy", aten.copy_.default, g.inputs[1], g.call("view", aten.view.default, new, [8, 8]))
    module = g.done(old)
    program = read_fx(module)
    assert streams(program)["copy"] is None
    assert "b" in next(step for step in program.steps if step.name == "new").writes
    assert losses(program) == [("wait-on-copy", "copy")]
    assert found(verify(program), Severity.ERROR) == ["lost-sync", "race"]
    assert written_back(module) == {"new.0": ("b",)}


@pytest.mark.parametrize("cast", [False, True])
def test_a_copy_that_is_dropped_makes_the_producer_of_its_value_write_the_input(cast: bool) -> None:
    g = Graph("a", "b", "c")
    a, b, c = g.inputs
    g.enter("1")
    new = g.call("new", aten.mm.default, a, a)
    g.exit()
    old = g.call("old", aten.relu.default, b)
    source = g.call("half", aten._to_copy.default, new, dtype=torch.float16) if cast else new
    copied = g.call("copied", aten.copy.default, b, source)
    g.call("to_b", aten.copy_.default, b, g.call("filled", aten.slice_scatter.default, b, copied))
    g.call("to_c", aten.copy_.default, c, g.call("cloned", aten.clone.default, new))
    module = g.done(old)
    copies = {"filled.0": ("b",), "copied.0": ("b",), "cloned.0": ("c",)}
    assert written_back(module) == copies | {"new.0": ("c",) if cast else ("b", "c")}
    program = read_fx(module)
    assert {"c"} <= set(next(step for step in program.steps if step.name == "new").writes)
    assert found(verify(program), Severity.ERROR) == ([] if cast else ["race"])


def test_capture_mode_has_events_and_an_end() -> None:
    g = Graph("a")
    fork = g.record("fork")
    x = g.call("x", aten.relu.default, g.inputs[0])
    g.enter("1")
    g.wait(fork, name="wait_fork")
    turned = g.call("turned", aten.t.default, g.inputs[0])
    y = g.call("y", aten.relu.default, turned)
    done = g.record("done")
    g.exit()
    g.wait(done, name="join")
    program = read_fx(g.done(x, y), semantics=Semantics.CAPTURE)
    assert streams(program) == {"x": "default", "turned": None, "y": "1", "output": "default"}
    assert edges(program, EdgeKind.EVENT) == {"y>output"}
    assert program.lost == ()
    assert verify(program) == ()


def test_a_stream_without_a_join_in_capture_mode_is_left_to_torchair() -> None:
    """Its `apply_event_closure_with_multi_stream` joins every stream scope before the output."""
    g = Graph("a")
    x = g.call("x", aten.relu.default, g.inputs[0])
    g.enter("1")
    g.wait(x)
    y = g.call("y", aten.relu.default, x)
    g.exit()
    program = read_fx(g.done(x, y), semantics=Semantics.CAPTURE)
    assert edges(program, EdgeKind.EVENT) == {"x>y"}
    assert program.closed == ("1",)
    assert found(verify(program), Severity.ERROR) == []
    assert found(verify(program), Severity.NOTE) == ["unjoined-stream"]


def test_collectives_go_to_the_communication_stream() -> None:
    g = Graph("a")
    x = g.call("x", torch.ops.aten.relu.default, g.inputs[0])
    reduced = g.call("reduced", torch.ops._c10d_functional.all_reduce.default, x, "sum", "0")
    waited = g.call("waited", torch.ops._c10d_functional.wait_tensor.default, reduced)
    y = g.call("y", aten.relu.default, waited)
    program = read_fx(g.done(y))
    assert streams(program) == {"x": "default", "reduced": "hccl", "waited": "default", "y": "default"}
