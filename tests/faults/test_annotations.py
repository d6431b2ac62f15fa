"""K3, K6, K7: synchronisation lost or misplaced, labels that multiply, fusions that are cut."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import autostream
from autostream.graph import capture, to_aten
from autostream.program import cross_edges, read_fx
from autostream.rewrite.sync import task_orders
from tests import models
from tests.faults.scenarios import bf16, fp32, planned, scenario, streams_of

pytestmark = pytest.mark.usefixtures("npu_host")

npu = torch.ops.npu


def test_a11_labels_do_not_multiply_with_the_layers() -> None:
    """vllm-ascend #3582: a stream per layer broke graph replay."""
    labels = []
    for layers in (1, 4):
        module, inputs = models.many_layers(layers, npu=True, expert_parallel=False)
        outcome = planned(to_aten(module, inputs).graph_module)
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
