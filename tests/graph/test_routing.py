"""Prices behind an expert-parallel dispatch rest on the rows that are filled, not on the room for them."""

from __future__ import annotations

import pytest

from autostream.demo import moe_decode_layer
from autostream.graph.capture import capture
from autostream.graph.programs import to_aten
from autostream.graph.routing import expected_load
from tests import models

pytestmark = pytest.mark.usefixtures("npu_host")


def test_operators_between_dispatch_and_combine_see_the_expected_rows() -> None:
    graph = capture(to_aten(*moe_decode_layer(npu=True, batch=64, top_k=8, expert_parallel=True)).graph_module)
    load = expected_load(graph)
    given, filled = graph.ops["npu_grouped_matmul"], load.ops["npu_grouped_matmul"]
    capacity = given.inputs[0].shape[0]
    assert capacity > 64 * 8
    assert filled.inputs[0].shape == (64 * 8, *given.inputs[0].shape[1:])
    assert filled.outputs[0].shape[0] == 64 * 8
    assert filled.flops == given.flops * 64 * 8 // capacity
    weights = sum(spec.nbytes for spec in given.inputs if spec.shape[0] != capacity)
    assert weights <= filled.bytes_read < given.bytes_read
    assert load.ops["npu_dequant_swiglu_quant"].bytes_written < graph.ops["npu_dequant_swiglu_quant"].bytes_written
    assert load.ops["npu_moe_distribute_combine_v2"].bytes_read < graph.ops["npu_moe_distribute_combine_v2"].bytes_read
    assert load.notes == ("rows behind npu.npu_moe_distribute_dispatch* priced at balanced load: 512 of 8192",)


def test_what_is_not_behind_a_dispatch_is_left_alone() -> None:
    graph = capture(to_aten(*moe_decode_layer(npu=True, expert_parallel=True)).graph_module)
    load = expected_load(graph)
    for name in ("npu_rms_norm", "npu_quant_matmul", "npu_swiglu", "add", "add_1"):
        assert load.ops[name] == graph.ops[name]
    plain = capture(to_aten(*models.mixture(8)).graph_module)
    assert dict(expected_load(plain).ops) == dict(plain.ops) and not expected_load(plain).notes
