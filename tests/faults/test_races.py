"""K1: data races through buffers that no data edge shows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import networkx as nx
import pytest
import torch
from torch import Tensor

from autostream.graph import Why
from autostream.graph.capture import capture
from autostream.program import happens_before
from tests.faults.scenarios import (
    Input,
    bf16,
    fp32,
    inputs_of,
    int64,
    noisy,
    planned,
    priced,
    program_of,
    same_bits_in_every_order,
    scenario,
    streams_of,
)

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


# -- the kind, in variants --------------------------------------------------------------------------------------------------

BOOL = torch.bool


def _kernel_writer(cache: Tensor, at: Tensor, new: Tensor) -> None:
    npu.npu_scatter_nd_update_(cache, at.unsqueeze(1), new)


def _aten_writer(cache: Tensor, at: Tensor, new: Tensor) -> None:
    cache.index_put_((at,), new)


def _view_writer(cache: Tensor, at: Tensor, new: Tensor) -> None:
    cache.narrow(0, 3, new.shape[0]).copy_(new)


def _strided_writer(cache: Tensor, at: Tensor, new: Tensor) -> None:
    cache.as_strided(new.shape, cache.stride(), 2 * cache.shape[1]).copy_(new)


@pytest.mark.parametrize("write", [_kernel_writer, _aten_writer, _view_writer, _strided_writer])
@pytest.mark.parametrize("reads_first", [False, True])
@pytest.mark.parametrize("rows", [4, 16])
def test_a62_g22_a_cache_is_read_and_written_in_the_order_of_the_graph(
    write: Callable[[Tensor, Tensor, Tensor], None], reads_first: bool, rows: int
) -> None:
    """Read after write, and write after read: neither has a data edge, whichever operator writes and whichever view it takes."""

    def step(cache: Tensor, at: Tensor, new: Tensor, q: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        new = torch.sigmoid(new)
        if reads_first:
            attended = torch.mm(q, cache.t())
            write(cache, at, new)
        else:
            write(cache, at, new)
            attended = torch.mm(q, cache.t())
        return attended, torch.tanh(torch.sigmoid(torch.mm(x, w)))

    module = scenario(noisy(step), fp32(64), fp32(32, 8), int64(rows), fp32(rows, 8), fp32(8, 8), fp32(8, 8), fp32(8, 8))
    outcome = planned(module, priced(npu__npu_scatter_nd_update_=20.0))
    order = happens_before(program_of(outcome))
    cache = inputs_of(module)[1]
    (writer,) = [step.name for step in program_of(outcome).steps if step.stream and cache in step.writes]
    reader = "mm"
    assert order.before(reader, writer) if reads_first else order.before(writer, reader)
    if write is not _kernel_writer:  # which has no CPU kernel
        same_bits_in_every_order(module, outcome)


def _added(x: Tensor, v: Tensor) -> None:
    x.add_(v)


def _copied(x: Tensor, v: Tensor) -> None:
    x.copy_(torch.mul(x, v))


def _partly(x: Tensor, v: Tensor) -> None:
    x.select(0, 1).mul_(v.select(0, 0))


@pytest.mark.parametrize("mutate", [_added, _copied, _partly])
@pytest.mark.parametrize("extra", [0, 2])
def test_a44_g19_a_buffer_changed_in_place_keeps_its_place_among_its_readers(
    mutate: Callable[[Tensor, Tensor], None], extra: int
) -> None:
    """One reader before, one behind, and others of the same branch: bits tell whether any of them saw the wrong state."""

    def step(x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        before = [torch.mm(x, w), *(torch.sigmoid(x) for _ in range(extra))]
        mutate(x, v)
        return (*before, torch.mm(torch.tanh(v), w), torch.relu(x))

    module = scenario(noisy(step), fp32(64), fp32(8, 8), fp32(8, 8), fp32(8, 8))
    outcome = planned(module, priced())
    assert len(program_of(outcome).streams()) > 1
    same_bits_in_every_order(module, outcome)


@pytest.mark.parametrize("side", ["mm", "sigmoid"])
def test_g14_a_clone_is_taken_before_its_source_is_overwritten(side: str) -> None:
    """vLLM #28430: the clone was scheduled behind the switch, after the in-place operator."""

    def step(x: Tensor, w: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        kept = torch.clone(x)
        x.add_(y)
        branch = torch.mm(kept, w) if side == "mm" else torch.sigmoid(kept)
        return branch, torch.tanh(torch.mm(x, w) if side == "sigmoid" else x)

    module = scenario(noisy(step), fp32(64), fp32(8, 8), fp32(8, 8), fp32(8, 8))
    outcome = planned(module, priced(), min_gain=0.0)
    writer = next(step.name for step in program_of(outcome).steps if step.stream and inputs_of(module)[1] in step.writes)
    assert happens_before(program_of(outcome)).before("clone", writer)
    same_bits_in_every_order(module, outcome)


def _norms(h: Tensor, g: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    normed = torch.mul(h, g)  # of the shape and type of h, so that a mix-up is no error
    return torch.mm(normed, w), torch.tanh(torch.sigmoid(normed)), torch.sigmoid(h), torch.mm(h, v)


def _mask(x: Tensor, mask: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return torch.mm(torch.where(mask, x, 0.0), w) + torch.sigmoid(torch.where(mask, v, 0.0))


def _shared_quantisation(x: Tensor, s: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    quantised, scale = torch.round(torch.mul(x, s)), torch.relu(s)
    return torch.mm(quantised, w) * scale, torch.sigmoid(torch.mul(quantised, scale)), torch.mm(quantised, v)


@pytest.mark.parametrize("rows", [3, 61])
@pytest.mark.parametrize(
    ("layer", "second"),
    [(_norms, None), (_mask, BOOL), (_shared_quantisation, None)],
    ids=["g16", "a28", "a33"],
)
def test_a_value_that_both_branches_read_is_the_same_for_both_in_every_order(
    layer: Callable[..., Any], second: torch.dtype | None, rows: int
) -> None:
    """G16: the raw for the normed value. A28: a padded batch with its mask. A33: one quantised value with its scale."""
    other: Input = ((rows, 1), second) if second else fp32(rows, 8)
    module = scenario(noisy(layer), fp32(64), fp32(rows, 8), other, fp32(8, 8), fp32(rows, 8) if second else fp32(8, 8))
    outcome = planned(module, priced(aten__round=20.0))
    assert len(program_of(outcome).streams()) > 1
    same_bits_in_every_order(module, outcome)
