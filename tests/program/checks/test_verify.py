from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from autostream.program import Edge, EdgeKind, Finding, Lost, Semantics, Severity, Step, StreamProgram, verify
from tests.program.programs import found, program, step


def _only(findings: tuple[Finding, ...]) -> Finding:
    assert len(findings) == 1, findings
    return findings[0]


# -- races ----------------------------------------------------------------------------------------------------------------


def test_an_ordered_program_has_no_finding() -> None:
    steps = [step("w", writes=["x"]), step("r", "s", reads=["x"]), step("w2", writes=["x"])]
    assert verify(program(steps, data=["w>r"], control=["r>w2"])) == ()


@pytest.mark.parametrize(
    ("first", "second", "hazard"),
    [
        ("writes", "reads", "read after write"),
        ("reads", "writes", "write after read"),
        ("writes", "writes", "write after write"),
    ],
)
def test_every_kind_of_race_is_found_with_the_edge_that_mends_it(first: str, second: str, hazard: str) -> None:
    def access(name: str, stream: str, what: str) -> Step:
        return step(name, stream, reads=["x"] if what == "reads" else [], writes=["x"] if what == "writes" else [])

    racing = program([access("a", "default", first), access("b", "s", second)])
    finding = _only(verify(racing))
    assert (finding.kind, finding.severity) == ("race", Severity.ERROR)
    assert finding.steps == ("a", "b")
    assert finding.streams == ("default", "s")
    assert finding.explanation.startswith(f"{hazard} on storage 'x': 'a' on stream 'default' and 'b' on stream 's'")
    assert "control edge from 'a' to 'b'" in finding.remedy
    assert verify(replace(racing, edges=(Edge(before="a", after="b", kind=EdgeKind.CONTROL),))) == ()


def test_two_readers_do_not_race_and_neither_does_a_step_with_itself() -> None:
    steps = [step("a", reads=["x"]), step("b", "s", reads=["x"]), step("c", "t", reads=["y"], writes=["y"])]
    assert verify(program(steps)) == ()


def test_steps_without_a_stream_do_not_race() -> None:
    assert verify(program([step("a", None, writes=["x"]), step("b", "s", writes=["x"])])) == ()


def test_many_races_on_one_storage_and_pair_of_streams_are_one_finding() -> None:
    steps = [step(f"w{i}", writes=["x"]) for i in range(5)] + [step(f"r{i}", "s", reads=["x"]) for i in range(4)]
    finding = _only(verify(program(steps)))
    assert "and 19 more pairs on" in finding.explanation
    more = [*steps, step("other", "t", writes=["x"]), step("w9", writes=["y"]), step("r9", "s", reads=["y"])]
    assert found(verify(program(more))) == ["race"] * 4


def test_emission_order_that_the_engine_may_change_is_a_warning() -> None:
    steps = [step("a", reads=["x"]), step("b", writes=["x"])]
    assert verify(program(steps)) == ()
    finding = _only(verify(program(steps, in_order=False)))
    assert (finding.kind, finding.severity) == ("relies-on-sort", Severity.WARNING)
    assert verify(program(steps, control=["a>b"], in_order=False)) == ()


def test_an_order_over_a_third_step_relies_on_sort_too() -> None:
    steps = [step("a", reads=["x"]), step("c"), step("b", "s", writes=["x"])]
    assert verify(program(steps, control=["c>b"])) == ()
    assert found(verify(program(steps, control=["c>b"], in_order=False)), Severity.WARNING) == ["relies-on-sort"]
    assert found(verify(program(steps, in_order=False)), Severity.ERROR) == ["race"]


def test_a_reader_behind_an_identity_is_not_ordered_by_its_place() -> None:
    steps = [
        step("write", writes=["x"]),
        step("id", reads=["x"], writes=["y"], kind="Identity"),
        step("read", "s", reads=["y", "x"]),
    ]
    finding = _only(verify(program(steps, data=["id>read"])))
    assert (finding.kind, finding.steps) == ("race", ("write", "read"))
    assert verify(program(steps, data=["write>id", "id>read"])) == ()


def test_in_capture_modes_a_data_edge_orders_nothing() -> None:
    steps = [step("a", writes=["x"]), step("b", "s", reads=["x"]), step("end")]
    ge = program(steps, data=["a>b", "b>end"])
    assert verify(ge) == ()
    captured = replace(ge, semantics=Semantics.CAPTURE)
    assert found(verify(captured)) == ["race", "unforked-stream", "unjoined-stream"]
    assert "an event from 'a' to 'b'" in verify(captured)[0].remedy
    assert verify(program(steps, event=["a>b", "b>end"], semantics=Semantics.CAPTURE)) == ()


# -- lost synchronisation -------------------------------------------------------------------------------------------------


def _with_lost(kind: str, **more: str) -> StreamProgram:
    return program(
        [step("a", "s"), step("b")], lost=(Lost(kind=kind, step=more.pop("step", "b"), explanation="because", **more),)
    )


@pytest.mark.parametrize(
    "kind", ["trailing-wait", "empty-record", "empty-wait", "dangling-wait", "wait-on-view", "wait-on-copy", "record-after-view"]
)
def test_a_lost_synchronisation_is_an_error(kind: str) -> None:
    finding = _only(verify(_with_lost(kind)))
    assert (finding.kind, finding.severity, finding.steps, finding.streams) == ("lost-sync", Severity.ERROR, ("b",), ("default",))
    assert finding.explanation == "because"
    assert finding.remedy


@pytest.mark.parametrize("kind", ["wait-on-const", "unpaired-scope"])
def test_some_losses_have_a_kind_of_their_own(kind: str) -> None:
    finding = _only(verify(_with_lost(kind)))
    assert (finding.kind, finding.severity) == (kind, Severity.ERROR)
    assert finding.remedy


@pytest.mark.parametrize("kind", ["wait-on-input", "unused-record"])
def test_a_loss_that_nobody_can_miss_is_a_warning(kind: str) -> None:
    assert _only(verify(_with_lost(kind))).severity is Severity.WARNING


def test_a_wait_on_a_const_is_a_note_if_its_operator_is_ordered_anyway() -> None:
    steps = [step("a", "s"), step("const", None), step("add")]
    lost = (Lost(kind="wait-on-const", step="const", explanation="because", before="a"),)
    unordered = program(steps, data=["const>add"], control=["a>const"], lost=lost)
    assert found(verify(unordered), Severity.ERROR) == ["wait-on-const"]
    ordered = program(steps, data=["const>add", "a>add"], control=["a>const"], lost=lost)
    assert _only(verify(ordered)).severity is Severity.NOTE
    through = [*steps, step("view", None), step("late", "t")]
    half = program(through, data=["const>add", "a>add", "const>view", "view>late"], control=["a>const"], lost=lost)
    assert found(verify(half), Severity.ERROR) == ["wait-on-const"], "one of the two that were meant to wait does not"


# -- cycles ---------------------------------------------------------------------------------------------------------------


def test_a_cycle_of_waits_is_a_deadlock() -> None:
    finding = _only(verify(program([step("a"), step("b", "s")], control=["a>b", "b>a"])))
    assert (finding.kind, finding.severity) == ("deadlock", Severity.ERROR)
    assert sorted(finding.steps) == ["a", "b"]
    assert set(finding.streams) == {"default", "s"}


def test_a_cycle_over_the_order_of_two_streams_is_a_deadlock() -> None:
    steps = [step("a"), step("b"), step("c", "s"), step("d", "s")]
    crossing = program(steps, control=["d>a", "b>c"])
    finding = _only(verify(crossing))
    assert finding.kind == "deadlock"
    cycle = [*finding.steps, finding.steps[0]]
    allowed = {("a", "b"), ("c", "d"), ("d", "a"), ("b", "c")}
    assert set(pairwise(cycle)) == allowed
    assert verify(replace(crossing, in_order=False)) == (), "an engine that sorts runs d, a, b, c"


def test_a_step_that_waits_for_itself_is_a_deadlock() -> None:
    assert _only(verify(program([step("a")], control=["a>a"]))).steps == ("a",)


# -- required orders ------------------------------------------------------------------------------------------------------


def test_a_required_order_holds_or_is_an_error() -> None:
    steps = [step("a"), step("b", "s")]
    required = [("a", "b", "war")]
    finding = _only(verify(program(steps), required))
    assert (finding.kind, finding.severity, finding.steps) == ("order-lost", Severity.ERROR, ("a", "b"))
    assert "(war)" in finding.explanation
    assert verify(program(steps, control=["a>b"]), required) == ()


def test_a_required_order_binds_the_tasks_that_share_memory() -> None:
    steps = [
        step("cast", source="a", reads=["cache"]),
        step("a"),
        step("const", None, source="b"),
        step("pre", "s", source="b"),
        step("write", "s", source="b", writes=["cache"]),
        step("b", "t"),
    ]
    data = ["pre>write", "write>b"]
    required = [("a", "b", "war")]
    assert verify(program(steps, data=data, control=["cast>write"]), required) == ()
    assert found(verify(program(steps, data=data, control=["cast>b"]), required)) == ["race", "order-lost"]


def test_a_value_must_flow_to_every_task_that_reads_it() -> None:
    steps = [step("a", writes=["v"]), step("early", "s", source="b", reads=["v"]), step("b", "t", reads=["v"])]
    assert found(verify(program(steps, data=["a>b"]), [("a", "b", "data")])) == ["race", "order-lost"]
    assert verify(program(steps, data=["a>b", "a>early"]), [("a", "b", "data")]) == ()


def test_without_shared_memory_the_last_tasks_stand_for_their_operators() -> None:
    steps = [step("values", source="topk"), step("topk", "s"), step("cast", "t", source="b"), step("b", "u")]
    values_only = program(steps, data=["values>topk", "values>b", "cast>b"])
    assert verify(values_only, [("topk", "b", "data")]) == (), "one of two results is used"
    assert _only(verify(values_only, [("topk", "b", "effect")])).steps == ("topk", "b")
    assert verify(program(steps, control=["topk>b"]), [("topk", "b", "effect")]) == ()
    assert _only(verify(program(steps, control=["topk>cast"]), [("topk", "b", "effect")])).steps == ("topk", "b")


def test_a_required_order_that_rests_on_emission_is_a_warning() -> None:
    steps = [step("a"), step("b")]
    assert verify(program(steps), [("a", "b", "effect")]) == ()
    assert found(verify(program(steps, in_order=False), [("a", "b", "effect")]), Severity.WARNING) == ["relies-on-sort"]
    assert found(verify(program(steps), [("b", "a", "effect")]), Severity.ERROR) == ["order-lost"]


def test_lost_orders_between_two_streams_are_one_finding() -> None:
    steps = [step("a"), step("b"), step("c", "s"), step("d", "t")]
    findings = verify(program(steps), [("a", "c", "war"), ("b", "c", "war"), ("b", "d", "war")])
    assert [finding.steps for finding in findings] == [("a", "c"), ("b", "d")]
    assert "and 1 more order between" in findings[0].explanation


def test_between_two_collectives_only_the_communication_is_meant() -> None:
    steps = [
        step("gather", "hccl", kind="HcomAllGather"),
        step("cast", source="reduce"),
        step("reduce", "hccl", kind="HcomAllReduce"),
    ]
    assert verify(program(steps, data=["cast>reduce"]), [("gather", "reduce", "collective")]) == ()


def test_orders_of_nodes_without_a_task_are_counted_in_one_note() -> None:
    steps = [step("a"), step("view", None)]
    finding = _only(verify(program(steps), [("a", "view", "data"), ("gone", "a", "war")]))
    assert (finding.kind, finding.severity) == ("order-unproven", Severity.NOTE)
    assert "2 required orders without" in finding.explanation


# -- collectives and joins ------------------------------------------------------------------------------------------------


def test_unordered_collectives_on_two_streams_are_an_error() -> None:
    steps = [step("a", "hccl", kind="HcomAllReduce"), step("b", "s", kind="MoeDistributeDispatchV2")]
    finding = _only(verify(program(steps)))
    assert (finding.kind, finding.severity) == ("unordered-collectives", Severity.ERROR)
    assert verify(program(steps, control=["a>b"])) == ()


def test_unordered_collectives_on_one_stream_are_a_warning_if_it_may_be_sorted() -> None:
    steps = [step(f"c{i}", "hccl", kind="_c10d_functional.all_reduce.default") for i in range(4)]
    assert verify(program(steps)) == ()
    finding = _only(verify(program(steps, in_order=False)))
    assert (finding.kind, finding.severity) == ("unordered-collectives", Severity.WARNING)
    assert "2 more" in finding.explanation


def test_a_capture_stream_must_be_joined_before_the_end() -> None:
    steps = [step("a"), step("b", "s"), step("c", "s"), step("out")]
    fork = program(steps, event=["a>b", "b>out"], semantics=Semantics.CAPTURE)
    finding = _only(verify(fork))
    assert (finding.kind, finding.severity, finding.steps, finding.streams) == ("unjoined-stream", Severity.ERROR, ("c",), ("s",))
    assert verify(program(steps, event=["a>b", "c>out"], semantics=Semantics.CAPTURE)) == ()
    assert verify(program(steps, data=["a>b"])) == (), "GE joins every stream itself"


# -- the verifier itself --------------------------------------------------------------------------------------------------


def test_every_edge_of_a_minimal_program_is_needed() -> None:
    """Mutation: each edge carries a hazard of its own, so dropping any one is found."""
    steps = [
        step("a", writes=["x"]),
        step("b", "s1", reads=["x"], writes=["y"]),
        step("c", "s2", reads=["x"], writes=["z"]),
        step("d", reads=["y", "z"], writes=["x"]),
    ]
    whole = program(steps, data=["a>b", "a>c", "b>d", "c>d"])
    assert verify(whole) == ()
    for edge in whole.edges:
        mutant = replace(whole, edges=tuple(e for e in whole.edges if e != edge))
        errors = [finding for finding in verify(mutant) if finding.severity is Severity.ERROR]
        assert any({edge.before, edge.after} == set(finding.steps) for finding in errors), edge


def test_swapping_two_steps_of_a_stream_is_found() -> None:
    steps = [step("r", reads=["x"]), step("w", writes=["x"]), step("other", "s", reads=["x"])]
    assert verify(program(steps, control=["w>other"]), [("r", "w", "war")]) == ()
    swapped = [steps[1], steps[0], steps[2]]
    assert "order-lost" in found(verify(program(swapped, control=["w>other"]), [("r", "w", "war")]))


def test_findings_come_in_a_fixed_order() -> None:
    steps = [step(f"w{i}", f"s{i % 3}", writes=[f"x{i % 4}", f"y{i % 5}"]) for i in range(30)]
    racing = program(steps, lost=(Lost(kind="trailing-wait", step="w1", explanation="e"),))
    first = verify(racing)
    assert len(first) > 10
    assert first == verify(racing)
    assert first[0].kind == "lost-sync"
