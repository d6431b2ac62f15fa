"""K3, K6, K7: synchronisation lost or misplaced, labels that multiply, fusions that are cut."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import autostream
from autostream import StreamPass, offline
from autostream.graph.capture import capture
from autostream.graph.programs import to_aten
from autostream.options import Options
from autostream.pipeline import plan
from autostream.program import Semantics, cross_edges, happens_before, read_ascend_ir, verify
from autostream.program.reading.fx import read_fx
from autostream.rewrite.air import Air
from autostream.rewrite.sync import task_orders
from tests import models
from tests.faults.handwritten import enter, leave, woven
from tests.faults.scenarios import (
    bf16,
    fp32,
    noisy,
    planned,
    priced,
    program_of,
    scenario,
    scopes_of,
    streams_of,
    sync_nodes,
)

pytestmark = pytest.mark.usefixtures("npu_host")

npu = torch.ops.npu


def test_a11_labels_do_not_multiply_with_the_layers() -> None:
    """vllm-ascend #3582: a stream per layer broke graph replay."""
    labels = []
    for layers in (1, 4):
        module, inputs = models.many_layers(layers, npu=True, expert_parallel=False)
        outcome = planned(to_aten(module, inputs).graph_module, strategy="greedy")
        assert outcome.verdict.accepted
        labels.append({stream for stream in streams_of(outcome).values() if stream and stream.startswith("autostream")})
    assert labels == [{"autostream_1"}, {"autostream_1"}]


def test_a34_no_operator_waits_for_more_than_the_graph_asks_for() -> None:
    """TorchAir's own example: a rebound Identity made the main stream wait for the side stream."""
    captured = to_aten(*models.mixture(8))
    outcome = planned(captured.graph_module)
    assert outcome.program is not None
    wanted = {(before, after) for before, after, _ in task_orders(capture(captured.graph_module))}
    assert {(edge.before, edge.after) for edge in cross_edges(outcome.program)} <= wanted


def test_a45_a_fusable_chain_is_not_cut() -> None:
    """TorchAir e27ea807: patterns refuse to match across streams, so add, norm and quantisation stay together."""

    def layer(x: Tensor, y: Tensor, gamma: Tensor, scale: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        normed = npu.npu_rms_norm(x + y, gamma)[0]
        return npu.npu_quantize(normed, scale, None, torch.qint8, -1, False), torch.mm(w, v)

    module = scenario(layer, *(bf16(512, 7168),) * 2, bf16(7168), fp32(7168), bf16(64, 7168), bf16(7168, 4096))
    outcome = planned(module, min_gain=0.0)
    assert outcome.verdict.accepted
    streams = streams_of(outcome)
    assert len({streams[name] for name in ("add", "npu_rms_norm", "npu_quantize")}) == 1
    assert streams["mm"] != streams["add"]


def test_a42_two_graphs_in_one_process_get_the_same_names_as_alone() -> None:
    """TorchAir 90cec995: event names collided between graphs."""
    first, second = to_aten(*models.mixture(8)).graph_module, to_aten(*models.llama_layer()).graph_module
    outcomes = [planned(module) for module in (first, second, first)]
    graphs = [str(outcome.graph_module.graph) for outcome in outcomes if outcome.graph_module is not None]
    assert len(graphs) == 3 and graphs[0] == graphs[2] != graphs[1]


def test_g06_every_planned_stream_is_still_there_after_dead_code_elimination() -> None:
    """pytorch #109848, #176486: stream operators were silently ignored or removed."""
    outcome = planned(to_aten(*models.mixture(8)).graph_module)
    assert outcome.graph_module is not None and outcome.program is not None
    outcome.graph_module.graph.eliminate_dead_code()
    outcome.graph_module.recompile()
    assert read_fx(outcome.graph_module) == outcome.program


def test_a48_a_saved_graph_keeps_label_names_not_stream_numbers() -> None:
    """TorchAir b83c5b1e: a graph from a cache had no stream pool."""
    result = autostream.schedule(*models.mixture(8))
    assert result.ascend_ir is not None
    assert b"autostream_1" in result.ascend_ir.serialized


def test_a31_a_wait_for_a_record_that_is_gone_is_reported() -> None:
    """cann-recipes-infer 91680f0: the producer never recorded, the consumer waited."""

    def waits(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        record = torch.ops.air.record()  # nothing was emitted before it
        product = torch.mm(x, y)
        torch.ops.air.wait([record])
        return product, torch.relu(x)

    findings = autostream.check(scenario(waits, fp32(8, 8), fp32(8, 8)))
    assert any(finding.kind == "lost-sync" and "record" in finding.explanation for finding in findings)


# -- the kind, in variants --------------------------------------------------------------------------------------------------


def _region(x: Tensor, w: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return torch.mm(x, w), torch.sigmoid(torch.tanh(y))


def _regions(count: int) -> Callable[..., tuple[Tensor, Tensor]]:
    def layers(x: Tensor, w: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        for _ in range(count):
            x, y = _region(x, w, y)
            x = torch.add(x, y)
        return x, y

    return layers


@pytest.mark.parametrize("count", [1, 3])
def test_a35_every_region_of_a_label_is_closed_and_joined_by_the_pass_itself(count: int) -> None:
    """TorchAir 38efea2d: only the last region of a label was closed, and none where no stream was the user's."""
    outcome = planned(scenario(noisy(_regions(count)), fp32(64), fp32(8, 8), fp32(8, 8), fp32(8, 8)), priced())
    emitted, program = outcome.graph_module, program_of(outcome)
    assert emitted is not None
    depth = 0
    for target in sync_nodes(emitted):
        depth += {"air.scope_enter.default": 1, "air.scope_exit.default": -1}.get(target, 0)
        assert depth in (0, 1)  # flat
    assert depth == 0
    assert len({scope["_user_stream_label"] for scope in scopes_of(emitted)}) <= 2
    joins = [step.name for step in program.steps if step.name.startswith("add")]
    order = happens_before(program)
    assert len(joins) == count
    for layer, branch in enumerate([name for name in streams_of(outcome) if name.startswith("sigmoid")]):
        assert order.before(branch, joins[layer])


@pytest.mark.parametrize("limit", ["_op_aicore_num", "_op_vectorcore_num", "_user_stream_priority", "_super_kernel_scope"])
def test_a37_emitted_scopes_have_one_canonical_form_and_the_users_stay_as_they_are(limit: str) -> None:
    """TorchAir afc1ae24: lists of attributes are compared key by key; nested scopes reset the stream."""

    def layer(x: Tensor, w: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        torch.ops.air.scope_enter([limit], ["8"])
        mine = torch.relu(z)
        torch.ops.air.scope_exit()
        return *_region(x, w, y), mine

    outcome = planned(scenario(layer, *[fp32(8, 8)] * 4), priced())
    emitted = outcome.graph_module
    assert emitted is not None and outcome.graph is not None
    scopes = scopes_of(emitted)
    ours = [scope for scope in scopes if scope.get("_user_stream_label", "").startswith("autostream")]
    assert ours and all(list(scope) == list(ours[0]) and next(iter(scope)) == "_user_stream_label" for scope in ours)
    assert {limit: "8"} in scopes
    assert "need_execute" not in str(emitted.graph)
    again = capture(emitted)
    assert dict(again.ops["relu"].scope) == {limit: "8"}


_AFTER_NORM: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "quantize": lambda x, s: npu.npu_quantize(x, s, None, torch.qint8, -1, False),
    "dynamic": lambda x, s: npu.npu_dynamic_quant(x)[0],
    "cast": lambda x, s: x.to(torch.float32),
}


@pytest.mark.parametrize("last", _AFTER_NORM)
@pytest.mark.parametrize("slot", ["pre_pass", "post_pass"])
def test_a45_a_chain_that_may_fuse_gets_one_label_in_either_slot(last: str, slot: str) -> None:
    """TorchAir b02179ce: patterns refuse to match across labels."""

    def layer(x: Tensor, y: Tensor, gamma: Tensor, scale: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return _AFTER_NORM[last](npu.npu_rms_norm(x + y, gamma)[0], scale), torch.mm(w, v)

    module = scenario(layer, *(bf16(512, 7168),) * 2, bf16(7168), fp32(7168), bf16(64, 7168), bf16(7168, 4096))
    converted = offline.convert(module, **{slot: StreamPass(chip="910B2", options={"min_gain": 0.0})})  # type: ignore[arg-type]
    assert autostream.reports()[-1].verdict.accepted, autostream.reports()[-1].verdict.reason
    program = read_ascend_ir(converted.serialized)
    chain = {step.stream for step in program.steps if step.stream and step.kind not in ("MatMul", "MatMulV2", "MatMulV3")}
    products = {step.stream for step in program.steps if step.stream and step.kind.startswith("MatMul")}
    assert len(chain) == 1 and chain != products


@pytest.mark.parametrize("mode", ["reduce-overhead", "npugraph_ex", "something-new"])
def test_a47_a26_a_backend_with_other_words_gets_its_graph_back_with_the_reason(mode: str) -> None:
    """TorchAir e27ea807: the operators moved to another namespace; what is not known is not emitted."""
    module = scenario(_region, fp32(8, 8), fp32(8, 8), fp32(8, 8))
    before = str(module.graph)
    sections = {
        "ge_config": SimpleNamespace(enable_single_stream=SimpleNamespace(value="0")),
        "experimental_config": SimpleNamespace(topology_sorting_strategy=SimpleNamespace(value="DFS")),
    }
    config = SimpleNamespace(mode=SimpleNamespace(value=mode), **sections)
    StreamPass(cost_model=priced())(module, None, config)
    verdict = autostream.reports()[-1].verdict
    if verdict.accepted:  # then in that backend's own words, and none of max-autotune's
        assert not [name for name in sync_nodes(module) if name.startswith("air.") and mode == "npugraph_ex"]
    else:
        assert verdict.code == "unsupported" and mode in verdict.reason
        assert str(module.graph) == before


def test_a47_the_backend_that_is_known_gets_words_that_exist() -> None:
    module = scenario(_region, fp32(8, 8), fp32(8, 8), fp32(8, 8))
    StreamPass(cost_model=priced())(module)
    words = set(sync_nodes(module))
    assert words and all(hasattr(torch.ops.air, name.split(".")[1]) for name in words)
    assert {name.split(".")[0] for name in words} == {"air"}


@pytest.mark.parametrize("labels", [("b", "a"), ("a", "b"), ("autostream_1", "x")])
def test_g04_names_of_streams_are_kept_whatever_their_order(labels: tuple[str, str]) -> None:
    """pytorch #182084: streams were numbered in the order of use, and the numbers mixed up."""

    def two(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.relu(x), torch.sigmoid(y), torch.mm(y, z)

    marks = (enter("relu", labels[0]), leave("sigmoid"), enter("sigmoid", labels[1]), leave("mm"))
    module = woven(two, [fp32(8, 8)] * 3, *marks)
    for program in autostream.inspect(module).programs.values():
        placed = {step.source: step.stream for step in program.steps if step.stream}
        assert (placed["relu"], placed["sigmoid"], placed["mm"]) == (*labels, "default")


@pytest.mark.parametrize("prefix", ["autostream_", "zz", "A-1_"])
def test_g04_the_schedule_does_not_depend_on_what_streams_are_called(prefix: str) -> None:
    module = scenario(_regions(2), fp32(8, 8), fp32(8, 8), fp32(8, 8))
    plain = streams_of(planned(module, priced()))
    named = streams_of(planned(module, priced(), label_prefix=prefix))
    assert {name: stream and stream.replace(prefix, "autostream_") for name, stream in named.items()} == plain


@pytest.mark.parametrize("slot", ["pre_pass", "post_pass"])
def test_g06_every_stream_of_the_plan_is_in_the_ir(slot: str) -> None:
    module = to_aten(*models.mixture(8)).graph_module
    seen: dict[str, set[str]] = {}

    def run(graph_module: fx.GraphModule, inputs: Any, config: Any) -> None:
        StreamPass(chip="910B2")(graph_module, inputs, config)
        seen["fx"] = {scope["_user_stream_label"] for scope in scopes_of(graph_module)}

    converted = offline.convert(module, **{slot: run})  # type: ignore[arg-type]
    assert seen["fx"] == set(read_ascend_ir(converted.serialized).streams()) - {"default"} != set()


def test_g06_a_backend_that_drops_the_labels_is_found_out(caplog: pytest.LogCaptureFixture) -> None:
    """pytorch #109848: stream operators were silently ignored; a plan that nobody carries out is not an accepted one."""

    def deaf(graph_module: fx.GraphModule) -> offline.Converted:
        plain = fx.GraphModule(graph_module, copy.deepcopy(graph_module.graph))
        for node in list(plain.graph.nodes):
            if str(node.target).startswith("air.scope"):
                plain.graph.erase_node(node)
        return offline.convert(plain)

    module = scenario(_region, fp32(8, 8), fp32(8, 8), fp32(8, 8))
    outcome = plan(module, model=priced(), options=Options(), dialect=Air(), convert=deaf)
    assert (outcome.verdict.code, outcome.graph_module) == ("unverified", None)
    assert "autostream_1" in outcome.verdict.reason and "lost" in outcome.verdict.reason
    assert "autostream left the graph as it was" in caplog.text


def test_a10_attention_that_the_host_updates_stays_where_it_is() -> None:
    """vllm-ascend #13688: in a captured graph it waits for an event from outside; no collective may stand behind or beside it."""

    def layer(q: Tensor, k: Tensor, shard: Tensor) -> tuple[Tensor, Tensor]:
        gathered = torch.ops._c10d_functional.all_gather_into_tensor(shard, 8, "tp")
        attended = npu.npu_fused_infer_attention_score(q, k, k, num_heads=1, input_layout="BNSD")[0]
        return attended, torch.ops._c10d_functional.wait_tensor(gathered)

    module = scenario(layer, bf16(8, 1, 1, 128), bf16(8, 1, 64, 128), bf16(8, 128))
    captured = read_fx(module, semantics=Semantics.CAPTURE)
    apart = replace(captured, steps=tuple(s._replace(stream="s") if "all_gather" in s.kind else s for s in captured.steps))
    assert "collective-beside-update" in {one.kind for one in verify(apart, groups={})}
    moved = replace(captured, steps=tuple(s._replace(stream="s") if "infer_attention" in s.kind else s for s in captured.steps))
    assert "update-on-side-stream" in {one.kind for one in verify(moved, groups={})}
    assert not {"collective-beside-update", "update-on-side-stream"} & {one.kind for one in verify(captured, groups={})}
