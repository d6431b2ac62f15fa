"""K3, K2: synchronisation that is lost, unpaired, misordered or more than was asked for, and guards of memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

import autostream
from autostream.errors import InputError
from autostream.graph.capture import capture
from autostream.graph.programs import to_aten
from autostream.program import EdgeKind, Finding, Semantics, Severity, StreamProgram, cross_edges, verify
from autostream.program.reading.fx import read_fx
from autostream.rewrite.sync import task_orders
from tests import models
from tests.faults.handwritten import capture_vocabulary, enter, leave, woven
from tests.faults.scenarios import (
    Input,
    fp32,
    int64,
    noisy,
    passed,
    planned,
    priced,
    program_of,
    same_bits_in_every_order,
    scenario,
    scopes_of,
    sync_nodes,
)

pytestmark = pytest.mark.usefixtures("npu_host")

_SQUARES: list[Input] = [fp32(8, 8)] * 3
Mark = tuple[Any, ...]


def _two(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    return torch.relu(torch.mm(x, y)), torch.sigmoid(torch.add(x, z))


def _captured(*marks: Mark, function: Callable[..., Any] = _two) -> tuple[Finding, ...]:
    """Check a hand-written graph of the capture modes."""
    capture_vocabulary()
    return autostream.check(woven(function, _SQUARES, *marks), semantics="capture")


def _said(findings: tuple[Finding, ...], *words: str, severity: Severity | None = None) -> list[Finding]:
    return [
        finding
        for finding in findings
        if all(word in finding.explanation for word in words) and severity in (None, finding.severity)
    ]


#: add and sigmoid on the stream s, forked and joined by events of their own.
_FORKED: tuple[Mark, ...] = (
    ("add", "tagged_event_record", "fork"),
    enter("add", "s"),
    ("add", "tagged_event_wait", "fork"),
    ("output", "tagged_event_record", "join"),
    leave("output"),
    ("output", "tagged_event_wait", "join"),
)


def test_a_graph_with_its_records_and_waits_in_order_has_no_error() -> None:
    """The near miss of everything below."""
    assert [one for one in _captured(*_FORKED) if one.severity is Severity.ERROR] == []


@pytest.mark.parametrize("dropped", range(len(_FORKED)))
def test_a23_a31_g29_each_mark_that_is_dropped_is_missed(dropped: int) -> None:
    """cann-recipes-infer 91680f0, vllm-ascend #13792: a record removed, a wait removed, a stream that is never joined."""
    mark = _FORKED[dropped]
    findings = _captured(*(one for one in _FORKED if one is not mark))
    if mark[1].startswith("scope"):
        assert _said(findings, "scope", severity=Severity.ERROR)
    elif mark[1] == "tagged_event_record":
        assert _said(findings, "nothing in the graph records", repr(mark[2]), severity=Severity.ERROR)
    else:
        assert _said(findings, "nothing waits for event", repr(mark[2]))
        if mark[2] == "join":
            assert "unjoined-stream" in {one.kind for one in findings}


def test_a21_a42_an_event_that_is_recorded_behind_its_wait_belongs_to_the_replay_before() -> None:
    """vllm-ascend #4233: the event of one replay was recorded while the one before still waited for it."""
    early = (enter("add", "s"), ("add", "tagged_event_wait", "e"), leave("output"), ("output", "tagged_event_record", "e"))
    (finding,) = _said(_captured(*early), "'e'", "replay before")
    assert finding.severity is not Severity.NOTE
    twice = (*_FORKED[:1], ("relu", "tagged_event_record", "fork"), *_FORKED[1:])
    assert _said(_captured(*twice), "'fork' is recorded 2 times")


def test_a55_a_stream_handed_as_an_event_is_named() -> None:
    """Ascend/sglang: wait_event was given the stream."""
    findings = _captured(enter("add", "s"), leave("output"), ("output", "tagged_event_wait", "s"))
    (finding,) = _said(findings, "'s'", "is a stream")
    assert finding.severity is Severity.ERROR


def test_a55_a_guard_for_the_stream_that_made_the_value_keeps_nothing() -> None:
    own = _captured(*_FORKED[:3], ("sigmoid", "record_tagged_stream", "@add", "s"), *_FORKED[3:])
    assert _said(own, "where it was made")


def test_a39_a_guard_on_a_copy_is_told_from_one_on_the_value() -> None:
    """TorchAir b39a0f30: the guard ended up on a clone; the side stream used the original."""

    def cloned(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        shared = torch.mm(x, y)
        return torch.clone(shared), torch.sigmoid(shared), torch.relu(z)

    side = (
        ("sigmoid", "tagged_event_record", "fork"),
        enter("sigmoid", "s"),
        ("sigmoid", "tagged_event_wait", "fork"),
        ("relu", "tagged_event_record", "join"),
        leave("relu"),
        ("relu", "tagged_event_wait", "join"),
    )
    on_copy = _captured(("sigmoid", "record_tagged_stream", "@clone", "s"), *side, function=cloned)
    assert _said(on_copy, "copy", "unguarded")
    on_value = _captured(("sigmoid", "record_tagged_stream", "@mm", "s"), *side, function=cloned)
    assert not _said(on_value, "guards")


def test_g02_one_event_awaited_on_two_streams_is_reported_and_two_events_are_not() -> None:
    """pytorch #193409: of several waits on one event only the first held its stream back."""

    def fanned(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.mm(x, y), torch.relu(z), torch.sigmoid(z)

    def marks(first: str, second: str) -> tuple[Mark, ...]:
        records = dict.fromkeys((first, second))
        return (
            *(("relu", "tagged_event_record", tag) for tag in records),
            enter("relu", "s"), ("relu", "tagged_event_wait", first),
            ("sigmoid", "tagged_event_record", "join1"), leave("sigmoid"),
            enter("sigmoid", "t"), ("sigmoid", "tagged_event_wait", second),
            ("output", "tagged_event_record", "join2"), leave("output"),
            ("output", "tagged_event_wait", "join1"), ("output", "tagged_event_wait", "join2"),
        )  # fmt: skip

    assert _said(_captured(*marks("e", "e"), function=fanned), "'e' is waited for on 2 streams")
    assert not _said(_captured(*marks("e", "f"), function=fanned), "is waited for on")


# -- max-autotune -----------------------------------------------------------------------------------------------------------


def _checked(*marks: Mark, function: Callable[..., Any] = _two) -> tuple[Finding, ...]:
    return autostream.check(woven(function, _SQUARES, *marks))


def test_a31_a_wait_without_a_live_record_and_a_record_without_a_wait_are_reported() -> None:
    paired = _checked(("add", "record"), enter("add", "s"), ("add", "wait", ["@record_default"]), leave("output"))
    assert not _said(paired, "record") and [one for one in paired if one.severity is Severity.ERROR] == []
    unused = _checked(("add", "record"), enter("add", "s"), leave("output"))
    assert _said(unused, "nothing waits for 'record_default'")
    empty = _checked(("mm", "record"), enter("add", "s"), ("add", "wait", ["@record_default"]), leave("output"))
    assert _said(empty, "no operator before it", severity=Severity.ERROR)
    trailing = _checked(("add", "record"), enter("output", "s"), ("output", "wait", ["@record_default"]), leave("output"))
    assert _said(trailing, "nothing waits", severity=Severity.ERROR)


def test_a34_the_hidden_wait_of_torchairs_own_example_is_visible() -> None:
    """A rebound Identity: the product on the default stream consumes it, and so waits for the side stream."""

    def example(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        first = torch.add(x, y)
        bound = torch.ops.air.wait_tensor(z, first)
        return torch.mm(bound, y), torch.mm(bound, x)

    module = woven(example, _SQUARES, enter("wait_tensor", "1"), leave("mm_1"))
    program = autostream.inspect(module).programs["fx"]
    backwards = [(edge.before, edge.after) for edge in cross_edges(program) if edge.after == "mm_1"]
    assert backwards == [("wait_tensor", "mm_1")]


_ZOO: dict[str, Callable[[], tuple[Any, Any]]] = {
    "mixture": lambda: models.mixture(8),
    "cnn": models.cnn_branches,
    "llama": models.llama_layer,
    "cache": lambda: models.kv_cache(npu=True),
    "layers": lambda: models.many_layers(2, npu=True, expert_parallel=False),
}


@pytest.mark.parametrize("name", _ZOO)
def test_a34_g06_g07_emitted_graphs_wait_for_no_more_than_they_must_and_survive_dead_code_elimination(name: str) -> None:
    """TorchAir's example, pytorch #109848 and #176486, TensorRT-LLM #12659."""
    module = to_aten(*_ZOO[name]()).graph_module
    outcome = planned(module, min_gain=0.0, strategy="greedy")
    emitted = outcome.graph_module
    assert emitted is not None and outcome.program is not None, outcome.verdict.reason
    wanted = {(before, after) for before, after, _ in task_orders(capture(module))}
    operators = {name for order in wanted for name in order}
    for edge in cross_edges(outcome.program):
        producers, consumers = (_links(outcome.program, forwards=forwards) for forwards in (False, True))
        befores, afters = _operators(edge.before, producers, operators), _operators(edge.after, consumers, operators)
        assert not wanted.isdisjoint(product(befores, afters)), edge
    before = sync_nodes(emitted)
    assert before.count("air.scope_enter.default") == before.count("air.scope_exit.default") > 0
    assert before.count("air.record.default") <= before.count("air.wait.default")
    assert not outcome.program.lost
    emitted.graph.eliminate_dead_code()
    emitted.recompile()
    assert sync_nodes(emitted) == before
    assert read_fx(emitted) == outcome.program


def _links(program: StreamProgram, *, forwards: bool) -> dict[str, list[str]]:
    """Where a step's value goes, or where its values come from."""
    links: dict[str, list[str]] = {}
    for edge in program.edges:
        if edge.kind is EdgeKind.DATA:
            one, two = (edge.before, edge.after) if forwards else (edge.after, edge.before)
            links.setdefault(one, []).append(two)
    return links


def _operators(step: str, links: Mapping[str, list[str]], operators: set[str]) -> set[str]:
    """The step itself, or the operators next to a view that has become a task of its own."""
    if step in operators:
        return {step}
    return {name for one in links.get(step, ()) for name in _operators(one, links, operators)}


@pytest.mark.parametrize("regions", [1, 3])
@pytest.mark.parametrize("mutation", ["index", "copy"])
def test_a23_a35_a_side_branch_without_a_result_is_part_of_the_graph(regions: int, mutation: str) -> None:
    """vllm-ascend #13792, TorchAir 38efea2d: branches that only write a cache, in several regions of one label."""

    def layers(cache: Tensor, at: Tensor, new: Tensor, x: Tensor, w: Tensor) -> Tensor:
        for _ in range(regions):
            written = torch.sigmoid(torch.tanh(new))
            if mutation == "index":
                cache.index_put_((at,), written)
            else:
                cache.narrow(0, 0, new.shape[0]).copy_(written)
            x = torch.mm(x, w)
        return x

    module = scenario(noisy(layers), fp32(64), fp32(32, 8), int64(4), fp32(4, 8), fp32(8, 8), fp32(8, 8))
    outcome = planned(module, priced(), min_gain=0.0)
    emitted = outcome.graph_module
    assert emitted is not None
    program = program_of(outcome)
    assert len(program.streams()) > 1 and len({scope["_user_stream_label"] for scope in scopes_of(emitted)}) >= 1
    assert [one for one in verify(program, required=task_orders(capture(module))) if one.severity is Severity.ERROR] == []
    same_bits_in_every_order(module, outcome)
    # The same graph in a capture mode would end before its streams have: the verifier says so instead of relying on a backend.
    captured = read_fx(emitted, semantics=Semantics.CAPTURE)
    assert "unjoined-stream" in {one.kind for one in verify(captured)}


@pytest.mark.parametrize("side", [1, 2])
def test_a21_an_emitted_graph_names_no_event_and_repeats(side: int) -> None:
    """Replays share nothing but the engine's own events: two in a row give the bits of two eager runs."""

    def step(cache: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        read = torch.mm(cache, w)
        cache.copy_(torch.mul(cache, x))
        return read, torch.sigmoid(torch.tanh(x))

    module = scenario(step, *_SQUARES)
    outcome = planned(module, priced(), side_streams=side, min_gain=0.0)
    assert outcome.graph_module is not None
    assert not [name for name in sync_nodes(outcome.graph_module) if "tagged" in name]
    inputs = [torch.rand(8, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    eager, replayed = [value.clone() for value in inputs], [value.clone() for value in inputs]
    for _ in range(2):
        expected, found = module(*eager), outcome.graph_module(*replayed)
        assert all(torch.equal(one, two) for one, two in zip((*expected, *eager), (*found, *replayed), strict=True))


# -- wishes -----------------------------------------------------------------------------------------------------------------


class _Layer(torch.nn.Module):
    def __init__(self, flag: bool) -> None:
        super().__init__()
        self.routed, self.shared = torch.nn.Linear(512, 512, bias=False), torch.nn.Sigmoid()
        self.flag = flag

    def forward(self, x: Tensor) -> Tensor:
        routed = self.routed(x)
        return routed + self.shared(torch.tanh(x)) if self.flag else routed


def test_a30_a_wanted_region_is_told_scheduled_or_why_not() -> None:
    """vllm-ascend #9530: the flag was on and the overlap was not taken, without a word."""
    inputs = torch.rand(512, 512)
    result = autostream.schedule(_Layer(True), inputs, options={"wanted": "shared, routed", "min_gain": 0.0})
    assert result.verdict.accepted, result.verdict.reason
    told = {name: note for note in result.report.notes for name in ("shared", "routed") if repr(name) in note}
    assert " beside other operators, on stream " in told["shared"]
    assert " beside other operators, on stream " in told["routed"]
    alone = autostream.schedule(_Layer(True), inputs, options={"wanted": ["shared"], "strategy": "serial"})
    (note,) = [note for note in alone.report.notes if "'shared'" in note]
    assert "runs beside nothing" in note and "open no side stream" in note


def test_a30_a_wanted_region_that_a_flag_folded_away_is_an_error_in_strict_mode() -> None:
    inputs = torch.rand(512, 512)
    result = autostream.schedule(_Layer(False), inputs, options={"wanted": ["shared"]})
    assert any("'shared' is not in the graph" in note for note in result.report.notes)
    with pytest.raises(InputError, match="'shared' is not in the graph"):
        autostream.schedule(_Layer(False), inputs, options={"wanted": ["shared"], "strict": True})
    assert autostream.schedule(_Layer(False), inputs, options={"wanted": ["routed"], "strict": True}).report.notes is not None


def test_a30_the_pass_tells_wishes_too() -> None:
    _, report = passed(to_aten(_Layer(True), torch.rand(512, 512)).graph_module, options={"wanted": ("nowhere",)})
    assert any("'nowhere' is not in the graph" in note for note in report.notes)
