"""K1: data races through buffers that no data edge shows."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import pytest
import torch
from torch import Tensor

from autostream.graph import Why, capture
from autostream.program import happens_before
from tests.faults.scenarios import bf16, fp32, int64, planned, scenario, streams_of

pytestmark = pytest.mark.usefixtures("npu_host")

npu = torch.ops.npu


def test_a62_a_cache_written_without_a_result_that_is_used_precedes_the_attention_that_reads_it() -> None:
    """vLLM-Ascend / omni-infer shape: the writer's outputs are ignored, only the buffer carries the data."""

    def decode(kv: Tensor, gamma: Tensor, cos: Tensor, sin: Tensor, slots: Tensor, k: Tensor, ckv: Tensor, q: Tensor) -> Tensor:
        npu.npu_kv_rmsnorm_rope_cache(kv, gamma, cos, sin, slots, k, ckv)
        attended: Tensor = npu.npu_fused_infer_attention_score(q, ckv, ckv, num_heads=1, input_layout="BNSD")[0]
        return attended

    module = scenario(
        decode,
        bf16(64, 1, 1, 576),
        bf16(512),
        bf16(64, 1, 1, 64),
        bf16(64, 1, 1, 64),
        int64(64),
        bf16(64, 1, 32, 64),
        bf16(64, 1, 32, 512),
        bf16(64, 1, 1, 512),
    )
    graph = capture(module)
    (writer,) = [op.name for op in graph if "kv_rmsnorm_rope_cache" in op.target]
    (reader,) = [op.name for op in graph if "infer_attention" in op.target]
    assert Why.RAW in graph.why(writer, reader)
    assert not planned(module).verdict.accepted  # nothing runs beside it


def test_a62_two_layers_that_share_a_pool_keep_read_before_write() -> None:
    """WAR over a view: layer n reads a slice of the pool that layer n + 1 overwrites."""

    def layers(pool: Tensor, q: Tensor, new: Tensor, index: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        attended = torch.mm(q, pool.select(0, 0).t())
        npu.npu_scatter_nd_update_(pool.select(0, 0), index, new)
        return attended, torch.mm(x, w)

    module = scenario(layers, bf16(2, 4096, 512), bf16(64, 512), bf16(64, 512), int64(64, 1), bf16(64, 7168), bf16(7168, 7168))
    graph = capture(module)
    (writer,) = [op.name for op in graph if "scatter" in op.target]
    readers = [op.name for op in graph if "pool_1" in op.reads and op.name != writer]
    assert readers and any(Why.WAR in graph.why(reader, writer) for reader in readers)
    outcome = planned(module)
    assert outcome.program is not None
    order = happens_before(outcome.program)
    assert all(order.before(reader, writer) for reader in readers)


def test_g19_two_operators_on_one_storage_are_never_reordered() -> None:
    """sglang #29142: after streams are flattened, the order in the graph is the only order in-place operators have."""

    def twice(x: Tensor, a: Tensor, b: Tensor, w: Tensor) -> Tensor:
        x.copy_(torch.mul(x, a))
        x.copy_(torch.add(x, b))
        return torch.mm(x, w)

    module = scenario(twice, fp32(64, 64), fp32(64, 64), fp32(64, 64), fp32(64, 64))
    graph = capture(module)
    chain = ["mul", *(op.name for op in graph if op.target in ("aten.copy_.default", "aten.add.Tensor")), "mm"]
    assert [graph.ops[name].target for name in chain[1:4]] == ["aten.copy_.default", "aten.add.Tensor", "aten.copy_.default"]
    assert all(nx.has_path(graph.dag, before, after) for before, after in pairwise(chain))


def test_a44_a_buffer_made_in_place_is_not_overwritten_while_another_stream_reads_it() -> None:
    """TorchAir's re-inplacing: y = x + 1 may overwrite x, which mm reads."""

    def step(x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        product = torch.mm(x, w)
        x.copy_(torch.mul(x, v))
        return product, torch.sigmoid(v)

    module = scenario(step, bf16(64, 7168), bf16(7168, 7168), bf16(64, 7168))
    graph = capture(module)
    assert Why.WAR in graph.why("mm", "mul")
    outcome = planned(module, min_gain=0.0)
    assert outcome.program is not None
    assert happens_before(outcome.program).before("mm", "mul")
    assert streams_of(outcome)["mm"] == streams_of(outcome)["mul"]


def test_g16_a_normed_and_a_raw_value_of_one_shape_are_not_confused() -> None:
    """vLLM #28740: the shared expert got the hidden states before the norm."""

    def layer(h: Tensor, gamma: Tensor, shared: Tensor, routed: Tensor) -> Tensor:
        normed = npu.npu_rms_norm(h, gamma)[0]
        return h + torch.mm(normed, shared) + npu.npu_swiglu(torch.mm(normed, routed))

    module = scenario(layer, bf16(64, 7168), bf16(7168), bf16(7168, 7168), bf16(7168, 14336))
    outcome = planned(module, min_gain=0.0)
    emitted = outcome.graph_module
    assert emitted is not None
    inputs = {
        node.name: [source.name for source in node.all_input_nodes]
        for node in emitted.graph.nodes
        if node.op == "call_function" and "mm" in str(node.target)
    }
    (normed,) = [
        n.name for n in module.graph.nodes if n.op == "call_function" and n.all_input_nodes and n.name.startswith("getitem")
    ][:1]
    assert all(sources[0] == normed for sources in inputs.values())
