"""The capture modes' words in their less usual spellings, written as graphs; the usual ones are in tests/test_inspection.py."""

from __future__ import annotations

import pytest
import torch
from torch import fx

from autostream.program import EdgeKind, Semantics, Severity, StreamProgram, verify
from autostream.program.reading.events import needs_capture
from autostream.program.reading.fx import read_fx
from tests.program.programs import Graph, aten, found

pytestmark = pytest.mark.usefixtures("npu_host")


@pytest.fixture(scope="module", params=["air", "npugraph_ex"])
def words(request: pytest.FixtureRequest, npu_host: None) -> object:
    """The operators of one backend."""
    import torchair.ops._tagged_event  # noqa: F401

    if request.param == "npugraph_ex":
        pytest.importorskip("npugraph_ex.ops._tagged_event")
        pytest.importorskip("npugraph_ex.scope._scope")
        pytest.importorskip("npugraph_ex.ops._record_wait")
    return getattr(torch.ops, str(request.param))


def captured(module: fx.GraphModule) -> StreamProgram:
    assert needs_capture(module)
    return read_fx(module, semantics=Semantics.CAPTURE)


def events(program: StreamProgram) -> set[str]:
    return {f"{edge.before}>{edge.after}" for edge in program.edges if edge.kind is EdgeKind.EVENT}


def enter(g: Graph, words: object, label: str, **attributes: str) -> None:
    pairs = {"_user_stream_label": label} | attributes
    g.call("enter", words.scope_enter.default, list(pairs), list(pairs.values()))  # type: ignore[attr-defined]


def leave(g: Graph, words: object) -> None:
    g.call("leave", words.scope_exit.default)  # type: ignore[attr-defined]


def test_tagged_events_order_streams(words: object) -> None:
    g = Graph("a", "b")
    x = g.call("x", aten.relu.default, g.inputs[0])
    g.call("r", words.tagged_event_record.default, "e", True)  # type: ignore[attr-defined]
    g.call("later", aten.relu.default, x)
    enter(g, words, "1")
    g.call("w", words.tagged_event_wait.default, "e", True)  # type: ignore[attr-defined]
    y = g.call("y", aten.mm.default, x, g.inputs[1])
    g.call("back", words.tagged_event_record.default, "f", True)  # type: ignore[attr-defined]
    leave(g, words)
    g.call("join", words.tagged_event_wait.default, "f", True)  # type: ignore[attr-defined]
    program = captured(g.done(y))
    assert {step.name: step.stream for step in program.steps} == {
        "x": "default",
        "later": "default",
        "y": "1",
        "output": "default",
    }
    assert events(program) == {"x>y", "y>output"}
    assert verify(program) == ()


def test_a_record_means_its_latest_place_and_a_wait_what_came_before_it(words: object) -> None:
    g = Graph("a")
    x = g.call("x", aten.relu.default, g.inputs[0])
    g.call("r1", words.tagged_event_record.default, "e")  # type: ignore[attr-defined]
    enter(g, words, "1")
    g.call("w1", words.tagged_event_wait.default, "e")  # type: ignore[attr-defined]
    y = g.call("y", aten.abs.default, x)
    leave(g, words)
    z = g.call("z", aten.abs.default, x)
    g.call("r2", words.tagged_event_record.default, "e")  # type: ignore[attr-defined]
    enter(g, words, "1")
    g.call("w2", words.tagged_event_wait.default, "e")  # type: ignore[attr-defined]
    v = g.call("v", aten.add.Tensor, z, y)
    leave(g, words)
    program = captured(g.done(v))
    assert events(program) == {"x>y", "z>v"}
    assert [lost.kind for lost in program.lost] == ["event-recorded-twice"]


def test_streams_may_be_named_by_number(words: object) -> None:
    """What TorchAir makes of ``event.record(stream)``, ``stream.wait_event`` and ``stream.wait_stream``."""
    main = ("DEFAULT_STREAM_ID_MARKER", "DEFAULT_DEVICE_INDEX_MARKER", "DEFAULT_DEVICE_TYPE_MARKER")
    side = ("7", "0", "20")
    g = Graph("a")
    x = g.call("x", aten.relu.default, g.inputs[0])
    g.call("r", words.tagged_event_record_on_stream.default, "e", *main, True)  # type: ignore[attr-defined]
    g.call("w", words.tagged_event_wait_on_stream.default, "e", *side, True)  # type: ignore[attr-defined]
    enter(g, words, "graph_0_stream", _user_stream_id="7")
    y = g.call("y", aten.relu.default, x)
    leave(g, words)
    g.call("join", words.tagged_stream_wait_stream.default, *main, *side)  # type: ignore[attr-defined]
    program = captured(g.done(y))
    assert events(program) == {"x>y", "y>output"}
    assert verify(program) == ()


def test_a_wait_with_no_step_behind_it_is_lost(words: object) -> None:
    g = Graph("a")
    x = g.call("x", aten.relu.default, g.inputs[0])
    g.call("r", words.tagged_event_record.default, "e")  # type: ignore[attr-defined]
    enter(g, words, "1")
    g.call("w", words.tagged_event_wait.default, "e")  # type: ignore[attr-defined]
    leave(g, words)
    program = captured(g.done(x))
    assert [(lost.kind, lost.step, lost.before) for lost in program.lost] == [("trailing-wait", "w", "x")]


def test_a_stream_forked_from_a_forked_one_is_forked(words: object) -> None:
    def module(tag: str) -> fx.GraphModule:
        g = Graph("a")
        g.call("r0", words.tagged_event_record.default, "e0")  # type: ignore[attr-defined]
        enter(g, words, "1")
        g.call("w0", words.tagged_event_wait.default, "e0")  # type: ignore[attr-defined]
        g.call("r1", words.tagged_event_record.default, "e1")  # type: ignore[attr-defined]
        leave(g, words)
        enter(g, words, "2")
        g.call("w1", words.tagged_event_wait.default, tag)  # type: ignore[attr-defined]
        y = g.call("y", aten.relu.default, g.inputs[0])
        g.call("r2", words.tagged_event_record.default, "e2")  # type: ignore[attr-defined]
        leave(g, words)
        g.call("w2", words.tagged_event_wait.default, "e2")  # type: ignore[attr-defined]
        return g.done(y)

    assert captured(module("e1")).forked == ("1", "2")
    assert found(verify(captured(module("e1"))), Severity.ERROR) == []
    assert found(verify(captured(module("other"))), Severity.ERROR) == ["event-never-recorded"]
    assert "unforked-stream" in found(verify(captured(module("other"))), Severity.NOTE)


def test_guards_are_read_and_are_no_steps(words: object) -> None:
    g = Graph("a")
    x = g.call("x", aten.relu.default, g.inputs[0])
    g.call("guard", words.record_tagged_stream.default, x, "1")  # type: ignore[attr-defined]
    program = captured(g.done(x))
    assert program.guards == (("x", "1"),)
    assert [step.name for step in program.steps] == ["x", "output"]
    assert [lost.kind for lost in program.lost] == ["guard-without-use"]


def test_npugraph_ex_record_and_wait_do_nothing() -> None:
    pytest.importorskip("npugraph_ex.ops._record_wait")
    words = torch.ops.npugraph_ex
    g = Graph("a")
    x = g.call("x", aten.relu.default, g.inputs[0])
    mark = g.call("mark", words.record.default)
    g.enter("1")
    g.call("w", words.wait.default, [mark])
    y = g.call("y", aten.relu.default, x)
    g.exit()
    program = captured(g.done(y))
    assert [(lost.kind, lost.step) for lost in program.lost] == [("sync-not-lowered", "mark"), ("sync-not-lowered", "w")]
    assert events(program) == set()
    assert found(verify(program), Severity.ERROR).count("sync-not-lowered") == 2


def test_wait_tensor_is_no_sync_in_the_capture_modes() -> None:
    g = Graph("a", "b")
    x = g.call("x", aten.relu.default, g.inputs[0])
    g.enter("1")
    held = g.call("held", torch.ops.air.wait_tensor.default, g.inputs[1], x)
    y = g.call("y", aten.relu.default, held)
    g.exit()
    module = g.done(y)
    assert [lost.kind for lost in read_fx(module, semantics=Semantics.CAPTURE).lost] == ["sync-not-lowered"]
    assert read_fx(module).lost == ()


def test_a_wait_tensor_that_nobody_reads_is_lost() -> None:
    g = Graph("a", "b")
    x = g.call("x", aten.relu.default, g.inputs[0])
    g.enter("1")
    g.call("held", torch.ops.air.wait_tensor.default, g.inputs[1], x)
    y = g.call("y", aten.relu.default, g.inputs[1])
    g.exit()
    program = read_fx(g.done(x, y))
    assert [(lost.kind, lost.step) for lost in program.lost] == [("unused-wait", "held")]
    assert found(verify(program), Severity.ERROR) == ["lost-sync"]
