"""Hand-written streams, exported and converted by the real TorchAir: one program per finding, and a near miss without it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import fx

import autostream
from autostream import offline
from autostream.errors import InputError
from autostream.program import Finding, Semantics, Severity
from tests.program.programs import Graph, aten

if offline.why_unavailable() is not None and not TYPE_CHECKING:
    pytest.skip(str(offline.why_unavailable()), allow_module_level=True)

from tests import handwritten
from tests.models.trace import aten_graph

ERROR, WARNING, NOTE = Severity


def inspect(name: str, **options: Any) -> autostream.Inspection:
    torch._dynamo.reset()
    return autostream.inspect(handwritten.Model(getattr(handwritten, name)), handwritten.inputs(), **options)


def at_least(inspection: autostream.Inspection, worst: Severity) -> list[Finding]:
    """The findings that are as bad as that, or worse."""
    order = list(Severity)
    return [finding for finding in inspection.findings if order.index(finding.severity) <= order.index(worst)]


@pytest.mark.parametrize(
    ("faulty", "near_miss", "kind", "severity", "steps"),
    [
        ("doc_example", "doc_example_kept_apart", "hidden-wait", WARNING, ("wait_tensor", "mm_1")),
        ("read_beside_write", "read_before_write", "race", ERROR, ("relu", "mm")),
        ("input_to_input_beside_read", "input_to_input_before_read", "race", ERROR, ("relu", "copy")),
        ("wait_on_const", "wait_on_task", "wait-on-const", ERROR, ("Add", "Const")),
        ("trailing", "wait_on_task", "lost-sync", ERROR, ("add", "wait")),
        ("record_after_view", "record_before_view", "lost-sync", ERROR, ("view", "wait")),
        ("empty_record", "record_before_view", "lost-sync", ERROR, ("wait",)),
        ("nested_record", "flat_record", "nested-scope", WARNING, ("record",)),
        ("waits_for_data_anyway", "read_before_write", "redundant-wait", NOTE, ("add", "mm")),
        ("wait_on_task", "read_before_write", "unneeded-wait", NOTE, ("add", "mm")),
        ("no_event", "forked_and_joined", "race", ERROR, ("add", "mm")),
        ("not_joined", "three_regions_joined", "unjoined-stream", NOTE, ("copy",)),
        ("three_regions_not_joined", "three_regions_joined", "unjoined-stream", NOTE, ("copy",)),
        ("not_forked", "forked_at_the_start", "unforked-stream", NOTE, ("mm",)),
        ("never_recorded", "forked_and_joined", "event-never-recorded", ERROR, ("tagged_event_wait",)),
        ("recorded_later", "forked_and_joined", "event-recorded-later", ERROR, ("tagged_event_wait",)),
        ("recorded_twice", "forked_and_joined", "event-recorded-twice", WARNING, ("tagged_event_record_1",)),
        ("never_awaited", "forked_and_joined", "lost-sync", WARNING, ("tagged_event_record",)),
        ("awaited_on_two_streams", "an_event_for_each_stream", "event-awaited-twice", WARNING, ("tagged_event_wait_1",)),
        ("stream_as_event", "forked_and_joined", "stream-as-event", ERROR, ("tagged_event_wait_2",)),
        ("guard_on_own_stream", "forked_and_joined", "guard-on-own-stream", WARNING, ("add", "record_tagged_stream")),
        ("guard_on_copy", "forked_and_joined", "guard-on-copy", ERROR, ("clone", "record_tagged_stream")),
        ("guard_without_use", "forked_and_joined", "guard-without-use", WARNING, ("relu", "record_tagged_stream")),
        ("used_again_too_early", "guarded", "memory-reuse", ERROR, ("relu", "mm_1")),
    ],
)
def test_a_fault_and_its_near_miss(faulty: str, near_miss: str, kind: str, severity: Severity, steps: tuple[str, ...]) -> None:
    found = [finding for finding in inspect(faulty).findings if finding.kind == kind and finding.severity is severity]
    assert steps in [finding.steps for finding in found]
    assert found[0].remedy
    assert any("handwritten.py:" in where for where in found[0].where), found[0].where
    clean = _inspected(near_miss)
    assert not [finding for finding in clean.findings if finding.kind == kind]
    if severity is not NOTE:
        assert at_least(clean, WARNING) == []


_CLEAN: dict[str, autostream.Inspection] = {}


def _inspected(name: str) -> autostream.Inspection:
    if name not in _CLEAN:
        _CLEAN[name] = inspect(name)
    return _CLEAN[name]


def test_the_words_of_the_graph_choose_the_semantics() -> None:
    assert _inspected("forked_and_joined").semantics is Semantics.CAPTURE
    assert list(_inspected("forked_and_joined").programs) == ["fx"]
    plain = _inspected("read_before_write")
    assert (plain.semantics, list(plain.programs)) == (Semantics.GE, ["fx", "ascend_ir"])
    # The same program in the other mode: nothing waits for the data any more, and the words are not understood.
    forced = inspect("waits_for_data_anyway", semantics="capture")
    assert forced.semantics is Semantics.CAPTURE and list(forced.programs) == ["fx"]
    assert [(finding.kind, finding.severity) for finding in forced.findings] == [("unjoined-stream", NOTE)]
    refused = inspect("forked_and_joined", semantics="ge")
    kinds = [finding.kind for finding in at_least(refused, ERROR)]
    assert kinds.count("sync-not-lowered") == 5  # two events, recorded and waited for, and a guard
    assert any("FX graph only" in note for note in refused.notes)
    with pytest.raises(InputError, match=r"unknown semantics 'captur' \(did you mean 'capture'\?\); allowed: auto, ge, capture"):
        inspect("guarded", semantics="captur")


def test_one_fault_found_on_both_levels_is_told_once_with_its_lines() -> None:
    (finding,) = at_least(inspect("read_beside_write"), ERROR)
    assert finding.levels == ("fx", "ascend_ir")
    source = Path(str(handwritten.__file__)).read_text(encoding="utf-8").splitlines()
    lines = [source[int(where.rstrip(")").rpartition(":")[2]) - 1].strip() for where in finding.where]
    assert lines == ["old = torch.relu(z)", "z.copy_(torch.mm(x, y))"]


def test_two_faults_of_one_pair_of_steps_are_two_findings() -> None:
    g = Graph("a", "one", "two")
    g.enter("1")
    old = g.call("old", aten.add.Tensor, g.inputs[1], g.inputs[2])
    g.exit()
    new = g.call("new", aten.relu.default, g.inputs[0])
    for target in g.inputs[1:]:
        g.call(f"to_{target.name}", aten.copy_.default, target, new)
    races = [finding for finding in autostream.check(g.done(old)) if finding.kind == "race"]
    assert [finding.steps for finding in races] == [("old", "new")] * 2
    assert {text for finding in races for text in ("'one'", "'two'") if text in finding.explanation} == {"'one'", "'two'"}


def test_an_implied_wait_costs_what_the_simulation_says() -> None:
    (finding,) = [finding for finding in _inspected("wait_on_task").findings if finding.kind == "unneeded-wait"]
    assert "predicted to take" in finding.explanation


def test_a_copy_between_graph_inputs_is_a_write() -> None:
    """As it stands behind TorchAir's removal of no-ops: no operator computes the value, the copy itself has to run."""
    g = Graph("x", "cache")
    g.enter("1")
    old = g.call("old", aten.relu.default, g.inputs[1])
    g.exit()
    g.call("write", aten.copy_.default, g.inputs[1], g.inputs[0])
    (finding,) = [finding for finding in autostream.check(g.done(old)) if finding.kind == "race"]
    assert (finding.severity, set(finding.steps)) == (ERROR, {"old", "write"})

    g = Graph("x", "cache")
    g.enter("1")
    old = g.call("old", aten.relu.default, g.inputs[1])
    g.exit()
    g.wait(old)
    g.call("write", aten.copy_.default, g.inputs[1], g.inputs[0])
    assert [f.kind for f in autostream.inspect(g.done(old)).findings if f.severity is ERROR] == []


def _two_reductions(*, joined: bool) -> fx.GraphModule:
    """Two collectives of one group, on two streams."""
    functional = torch.ops._c10d_functional
    g = Graph("x", "y")
    g.enter("1")
    one = g.call("one", functional.all_reduce.default, g.inputs[0], "sum", "tp")
    one = g.call("one_done", functional.wait_tensor.default, one)
    g.exit()
    if joined:
        g.wait(one)
    two = g.call("two", functional.all_reduce.default, g.inputs[1], "sum", "tp")
    two = g.call("two_done", functional.wait_tensor.default, two)
    return g.done(one, two)


def test_groups_of_hand_written_streams_are_known() -> None:
    apart = {finding.kind for finding in autostream.check(_two_reductions(joined=False), chip="910B2")}
    assert "group-on-two-streams" in apart
    in_order = {finding.kind for finding in autostream.check(_two_reductions(joined=True), chip="910B2")}
    assert "group-on-two-streams" not in in_order
    with pytest.raises(InputError, match="910B22"):
        autostream.inspect(_two_reductions(joined=True), chip="910B22")


DUMP = """
op { name: "x" type: "Data" output_desc { name: "y" dtype: DT_BF16 shape { dim: 64 dim: 7168 } } }
op { name: "one" type: "MoeDistributeDispatchV2" input: "x:0" attr { key: "group_ep" value { s: "ep" } }
     attr { key: "_user_stream_label" value { s: "1" } } input_desc { name: "x" }
     output_desc { name: "y" dtype: DT_BF16 shape { dim: 64 dim: 7168 } } }
op { name: "two" type: "MoeDistributeDispatchV2" input: "x:0" %s attr { key: "group_ep" value { s: "other" } }
     attr { key: "_user_stream_label" value { s: "2" } } input_desc { name: "x" }
     output_desc { name: "y" dtype: DT_SOMETHING_NEW shape { dim: -1 dim: 7168 } } }
op { name: "out" type: "NetOutput" input: "one:0" input: "two:0" }
"""


def test_a_dump_says_what_it_does_not_show(tmp_path: Path) -> None:
    """The write of the race is an output that shares the input's memory, of which the graph itself knows nothing."""
    module = aten_graph(handwritten.Model(handwritten.read_beside_write), handwritten.inputs())
    (tmp_path / "graph.txt").write_text(offline.convert(module).text, encoding="utf-8")
    inspection = autostream.inspect(tmp_path / "graph.txt")
    assert inspection.findings == () and "written back into graph inputs" in inspection.notes[0]


def test_gangs_in_a_dump_are_checked_against_the_chip(tmp_path: Path) -> None:
    (tmp_path / "apart.txt").write_text(DUMP % "")
    (tmp_path / "ordered.txt").write_text(DUMP % 'input: "one:-1"')
    apart = autostream.inspect(tmp_path / "apart.txt", chip="910B2")
    (gangs,) = [finding for finding in at_least(apart, ERROR) if finding.kind == "gang-deadlock"]
    assert "AIV sum 96 > 48" in gangs.explanation and gangs.steps == ("one", "two")
    assert at_least(autostream.inspect(tmp_path / "ordered.txt", chip="910B2"), WARNING) == []
    with pytest.raises(InputError, match="max-autotune"):
        autostream.inspect(tmp_path / "apart.txt", semantics="capture")


def test_what_no_table_knows_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text((DUMP % "").replace("MoeDistributeDispatchV2", "DistributeBarrierV9", 1))
    notes = [finding for finding in autostream.check(tmp_path / "new.txt") if finding.kind == "cores-unknown"]
    assert [(note.severity, note.steps) for note in notes] == [(NOTE, ("one",))]


def test_keyword_inputs() -> None:
    x, y, z = handwritten.inputs()
    module = handwritten.Model(handwritten.read_beside_write)
    found = autostream.check(module, example_kwargs={"x": x, "y": y, "z": z})
    assert [finding.kind for finding in found if finding.severity is ERROR] == ["race"]


def test_suppressions_are_applied(tmp_path: Path) -> None:
    path = tmp_path / "accepted.yaml"
    path.write_text("- {kind: race, steps: [relu, mm], streams: ['1', default], reason: one token per row}\n")
    judged = inspect("read_beside_write", suppressions=path)
    assert at_least(judged, WARNING) == []
    assert [(entry.finding.kind, entry.reason) for entry in judged.suppressed] == [("race", "one token per row")]
    stale = inspect("read_before_write", suppressions=path)
    assert [(finding.kind, finding.severity) for finding in at_least(stale, WARNING)] == [("stale-suppression", WARNING)]
