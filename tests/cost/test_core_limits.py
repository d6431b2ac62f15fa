"""Operators on a part of the chip."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autostream.cost import CoreLimited, RooflineModel, TableModel, load_chip
from autostream.cost.chips.factors import load_factors
from autostream.graph.model import Op, Unit
from tests.cost.build import collective, make, mm, spec, vector

A3 = RooflineModel(load_chip("910_9391"))


def attention(batch: int, length: int) -> Op:
    """Return one decode step of grouped-query attention."""
    query, cache = spec(batch, 16, 1, 128), spec(batch, 2, length, 128)
    flops = 4 * query.numel * length
    return make("npu.npu_fused_infer_attention_score.default", Unit.MIXED, (query, cache, cache), (query,), flops=flops)


def prolog(tokens: int) -> Op:
    """Return the projections before latent attention."""
    x, down, up, out = spec(tokens, 7168), spec(7168, 2112), spec(1536, 8192), spec(tokens, 8192)
    flops = 2 * tokens * (down.numel + up.numel)
    return make("npu.npu_mla_prolog_v2.default", Unit.MIXED, (x, down, up), (out,), flops=flops)


def quantised(m: int, n: int, k: int) -> Op:
    """Return an int8 product."""
    inputs = (spec(m, k, dtype="int8"), spec(k, n, dtype="int8"))
    return make("npu.npu_quant_matmul.default", Unit.CUBE, inputs, (spec(m, n),), flops=2 * m * n * k)


def batched(b: int, m: int, n: int, k: int) -> Op:
    """Return a batched product."""
    inputs = (spec(b, m, k), spec(b, k, n))
    return make("npu.npu_transpose_batchmatmul.default", Unit.CUBE, inputs, (spec(b, m, n),), flops=2 * b * m * n * k)


DECODE = {
    "attention": attention(64, 4096),
    "prolog": prolog(32),
    "matmul": mm(16, 3072, 4096),
    "batched matmul": batched(32, 32, 512, 512),
    "quant matmul": quantised(32, 7168, 2048),
    "wide quant matmul": quantised(32, 4608, 7168),
}


@pytest.mark.parametrize("name", sorted(DECODE))
def test_half_of_the_cores_cost_what_was_published(name: str) -> None:
    # Six published kernels, 24 + 48 cores -> 12 + 24: x1.23 to x1.57, never x2.
    whole, half = A3.estimate(DECODE[name]), A3.limited(DECODE[name], aic=12, aiv=24)
    assert 1.2 <= half.duration / whole.duration <= 1.65
    assert 0 < half.resources.aic <= 12 and half.resources.aiv <= 24


def test_all_cores_are_no_limit() -> None:
    for op in DECODE.values():
        assert A3.limited(op, aic=24, aiv=48) == A3.limited(op, aic=100, aiv=100) == A3.estimate(op)


def test_a_large_product_takes_twice_as_long_on_half_of_the_cores() -> None:
    op = mm(4096, 6144, 4096)
    assert A3.limited(op, aic=12, aiv=24).duration == pytest.approx(2 * A3.estimate(op).duration, rel=0.05)


def test_a_kernel_on_few_cores_takes_less_of_the_memory_rate() -> None:
    op = DECODE["matmul"]
    assert A3.limited(op, aic=4, aiv=8).resources.hbm < A3.estimate(op).resources.hbm


@pytest.mark.parametrize(
    "op",
    [
        vector("aten.add.Tensor", 4096, 4096),
        vector("npu.npu_rms_norm.default", 512, 7168),
        collective("npu.npu_moe_distribute_dispatch_v2.default", (spec(64, 7168), spec(64, 8)), (spec(64, 7168),)),
        make("aten._local_scalar_dense.default", Unit.HOST, (spec(1),), ()),
        make("mylib.secret.default", Unit.CUBE, (spec(64, 64),), (spec(64, 64),)),
        mm(64, 4096, 4096)._replace(known=False),
        mm(64, 4096, 4096)._replace(unit=Unit.FREE),
    ],
)
def test_what_would_not_keep_a_limit_answers_with_the_whole_chip(op: Op) -> None:
    assert A3.limited(op, aic=2, aiv=4) == A3.estimate(op)


def test_limits_are_kept_only_where_the_kernels_are_known() -> None:
    kept = {name for name, group in load_factors().file.groups.items() if group.limits == "kept"}
    assert kept == {"matmul", "grouped_matmul", "matmul_with_bias", "fused_products", "attention", "moe_gating", "moe_routing"}


def test_the_protocol_tells_who_knows_limits() -> None:
    assert isinstance(A3, CoreLimited)
    assert not isinstance(TableModel(A3.machine, {}), CoreLimited)


@settings(max_examples=80)
@given(name=st.sampled_from(sorted(DECODE)), aic=st.integers(1, 24), fewer=st.integers(0, 23), aiv=st.integers(2, 48))
def test_fewer_cores_are_never_faster_and_never_exceeded(name: str, aic: int, fewer: int, aiv: int) -> None:
    more = A3.limited(DECODE[name], aic=aic, aiv=aiv)
    less = A3.limited(DECODE[name], aic=max(1, aic - fewer), aiv=aiv)
    assert less.duration >= more.duration
    assert less.resources.aic <= max(1, aic - fewer) and less.resources.aiv <= aiv


def test_a_prefetch_holds_memory_rate_and_no_core() -> None:
    weight = spec(7168, 2048)
    op = make("npu.npu_prefetch.default", Unit.VECTOR, (weight,), ())
    cost = A3.estimate(op)
    assert (cost.resources.aic, cost.resources.aiv, cost.resources.comm) == (0, 0, 0)
    assert cost.resources.hbm > 500
    assert cost.duration > weight.nbytes / 1600
