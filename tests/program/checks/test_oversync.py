from __future__ import annotations

import pytest

from autostream.program import EdgeKind, Intended, Semantics, Severity, StreamProgram, verify
from autostream.program.checks.oversync import hidden_waits, idle_waits, over_synchronised
from autostream.program.reading.fx import read_fx
from tests.program.programs import Graph, aten, program, step

STEPS = (step("a", writes=["x"]), step("b", "s", reads=["y"]), step("c", "s", reads=["x"]), step("d", writes=["z"]))


def planned(read: StreamProgram, *orders: str) -> list[tuple[str, ...]]:
    return [finding.steps for finding in over_synchronised(read, intended(*orders))]


def intended(*orders: str) -> Intended:
    pairs = [text.split(">") for text in orders]
    return Intended(orders=tuple((before, after, "data") for before, after in pairs), operators=("a", "b", "c", "d"))


def test_a_wait_the_plan_does_not_ask_for() -> None:
    plan = ("a>c", "b>d")
    assert planned(program(STEPS, control=["a>c", "b>d"]), *plan) == []
    assert planned(program(STEPS, control=["a>b", "a>c", "b>d"]), *plan) == [("a", "b")]
    # A planned order may be kept by a wait of a step before: then that step waits too early.
    assert planned(program(STEPS, control=["a>b", "b>d"]), *plan) == [("a", "b")]
    # What the plan orders through others is no surplus.
    assert planned(program(STEPS, control=["a>c", "b>d"]), "a>b", "b>d") == []
    (finding,) = verify(program(STEPS, control=["a>b", "a>c", "b>d"]), intended=intended("a>c", "b>d"))
    assert (finding.kind, finding.severity, finding.streams) == ("over-synchronised", Severity.WARNING, ("default", "s"))


def test_what_only_the_emitted_program_has_is_judged_by_what_waits_behind_it() -> None:
    steps = (STEPS[0], step("anchor", "s", kind="Identity"), *STEPS[1:])
    early = program(steps, control=["a>anchor"], data=["anchor>b"])
    assert planned(early, "a>c", "b>d") == [("a", "anchor")]
    late = program((*steps[:1], steps[2], steps[1], *steps[3:]), control=["a>anchor"], data=["anchor>c"])
    assert planned(late, "a>c", "b>d") == []


def test_a_plan_that_contradicts_the_emitted_order_is_left_to_other_checks() -> None:
    assert planned(program(STEPS, control=["a>b"]), "c>b", "a>c") == []


def idle(read: StreamProgram) -> list[tuple[str, tuple[str, ...]]]:
    findings = list(idle_waits(read))
    assert {finding.severity for finding in findings} <= {Severity.NOTE}
    return [(finding.kind, finding.steps) for finding in findings]


def test_waits_that_something_needs() -> None:
    assert idle(program(STEPS, control=["a>c"])) == []
    # The wait stands one step before the one that needs it.
    assert idle(program(STEPS, control=["a>b"])) == []
    collectives = (step("one", kind="HcomAllReduce"), step("two", "s", kind="HcomAllReduce"))
    assert idle(program(collectives, control=["one>two"])) == []


def test_waits_that_nothing_needs() -> None:
    assert idle(program(STEPS, control=["a>c", "b>d"])) == [("unneeded-wait", ("b", "d"))]
    assert idle(program(STEPS, control=["a>b", "a>c"])) == [("redundant-wait", ("a", "c"))]
    assert idle(program(STEPS, data=["a>c"], control=["a>c"])) == [("redundant-wait", ("a", "c"))]
    assert idle(program((step("a"), step("d")), control=["a>d"])) == [], "the order of one stream costs nothing"


def test_forks_and_joins_are_needed_in_the_capture_modes() -> None:
    steps = (step("a"), step("b", "s"), step("c", "s"), step("end"))
    joined = program(steps, event=["a>b", "c>end"], semantics=Semantics.CAPTURE)
    assert idle(joined) == []
    twice = program(steps, event=["a>b", "b>end", "c>end"], semantics=Semantics.CAPTURE)
    assert idle(twice) == [("redundant-wait", ("b", "end"))]


def test_the_predicted_gain_is_told() -> None:
    def predict(read: StreamProgram) -> int:
        return 1000 * sum(edge.kind is EdgeKind.CONTROL for edge in read.edges)

    (finding,) = idle_waits(program(STEPS, control=["b>d"]), predict)
    assert finding.explanation.endswith("predicted to take 1.0 us less")


@pytest.mark.usefixtures("npu_host")
def test_who_reads_the_result_of_a_wait_waits_too() -> None:
    import torch

    def module(*, apart: bool, joined: bool = False) -> StreamProgram:
        g = Graph("a", "b")
        x = g.call("x", aten.relu.default, g.inputs[0])
        g.enter("1")
        held = g.call("held", torch.ops.air.wait_tensor.default, g.inputs[1], x)
        y = g.call("y", aten.mm.default, held, g.inputs[0])
        g.exit()
        if joined:
            g.wait(y)
        z = g.call("z", aten.abs.default, g.inputs[1] if apart else held)
        return read_fx(g.done(y, z))

    (finding,) = hidden_waits(module(apart=False))
    assert (finding.kind, finding.severity, finding.steps) == ("hidden-wait", Severity.WARNING, ("held", "z"))
    assert list(hidden_waits(module(apart=True))) == []
    assert list(hidden_waits(module(apart=False, joined=True))) == [], "it waits for the stream anyway"
