"""Kernel types of profiles as operators."""

from __future__ import annotations

import pytest

from autostream.cost.chips.factors import load_factors
from autostream.cost.measured.kernels import _table, find_kernel, kernels_of, normal_dtype, op_from_kernel
from autostream.graph.model import Op, Unit
from autostream.graph.units import classify


def product(op: Op | None) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of the factors and the result."""
    assert op is not None
    return op.inputs[0].shape, op.inputs[1].shape, op.outputs[0].shape


@pytest.mark.parametrize(
    ("kernel", "target"),
    [
        ("MatMulV3", "aten.mm.default"),
        ("matmulv2", "aten.mm.default"),
        ("MatMulV2_NDNZ_high_performance_229955", "aten.mm.default"),
        ("QuantBatchMatmulV3_ND_int8_1a2b3c4d5e6f", "npu.npu_quant_matmul.default"),
        ("ReduceSumD", "aten.sum.dim_IntList"),
        ("SoftmaxV2", "aten._softmax.default"),
        ("KvRmsNormRopeCache", "npu.npu_kv_rmsnorm_rope_cache.default"),
        ("SwiGlu", "npu.npu_swiglu.default"),
        ("PagedAttentionMaskNdKernel", "npu.npu_fused_infer_attention_score.default"),
        ("ReshapeAndCacheNdKernel", "npu.npu_scatter_pa_kv_cache.default"),
    ],
)
def test_versions_and_suffixes_do_not_matter(kernel: str, target: str) -> None:
    entry = find_kernel(kernel)
    assert entry is not None and entry.target == target


@pytest.mark.parametrize("kernel", ["split_qkv_rmsnorm_rope_kernel", "MyLibKernel", "", "_", "N/A", "V2", "triton_add_0"])
def test_a_kernel_nobody_knows_is_none(kernel: str) -> None:
    assert find_kernel(kernel) is None
    assert op_from_kernel(kernel, [(8, 8)], ["FLOAT"], [(8, 8)], ["FLOAT"]) is None


def test_every_entry_names_an_operator_that_has_a_unit_and_factors() -> None:
    assert len(_table()) > 250
    for name, entry in _table().items():
        assert classify(entry.target) is not None, name
        assert load_factors().find(entry.target) is not None, name
    assert "matmulv3" in kernels_of("aten.mm.default")
    assert kernels_of("mylib.secret.default") == ()


@pytest.mark.parametrize(
    ("a", "b", "out", "expected"),
    [
        ((64, 512), (512, 256), (64, 256), ((64, 512), (512, 256), (64, 256))),
        ((64, 512), (256, 512), (64, 256), ((64, 512), (512, 256), (64, 256))),
        ((512, 64), (512, 256), (64, 256), ((64, 512), (512, 256), (64, 256))),
        # Blocked weights: (n / 16, k / 16, 16, 16), and transposed.
        ((64, 512), (16, 32, 16, 16), (64, 256), ((64, 512), (512, 256), (64, 256))),
        ((64, 512), (32, 16, 16, 16), (64, 256), ((64, 512), (512, 256), (64, 256))),
        # A flat weight under a batch of activations.
        ((2, 32, 512), (512, 256), (2, 32, 256), ((64, 512), (512, 256), (64, 256))),
    ],
)
def test_products_come_out_plain(
    a: tuple[int, ...], b: tuple[int, ...], out: tuple[int, ...], expected: tuple[tuple[int, ...], ...]
) -> None:
    op = op_from_kernel("MatMulV2", [a, b], ["DT_BF16", "DT_BF16"], [out], ["DT_BF16"])
    assert product(op) == expected
    assert op is not None and op.flops == 2 * 64 * 512 * 256 and op.unit is Unit.CUBE
    assert op.bytes_read == 2 * (64 * 512 + 512 * 256)
    # Without the outputs the inner sizes tell.
    assert product(op_from_kernel("MatMulV2", [a, b], ["DT_BF16"] * 2)) == expected


def test_batches_and_types() -> None:
    op = op_from_kernel("BatchMatMulV2", [(16, 5, 128), (16, 128, 512)], ["FLOAT16", "FLOAT16"], [(16, 5, 512)], ["FLOAT16"])
    assert product(op) == ((16, 5, 128), (16, 128, 512), (16, 5, 512))
    quant = op_from_kernel(
        "QuantBatchMatmulV3",
        [(8, 2048), (224, 128, 16, 32), (7168,), None, (8,)],
        ["INT8", "INT8", "FLOAT", "", "FLOAT"],
        [(8, 7168)],
        ["DT_BF16"],
        ["FORMAT_ND", "FORMAT_FRACTAL_NZ", "ND", "ND", "ND"],
    )
    assert product(quant) == ((8, 2048), (2048, 7168), (8, 7168))
    assert quant is not None and quant.inputs[1].dtype == "int8" and quant.outputs[0].dtype == "bfloat16"
    # A named plain layout is believed: nothing is unblocked.
    plain = op_from_kernel("MatMulV2", [(4, 8, 16, 16), (4, 8, 16, 16)], ["FLOAT16"] * 2, [], [], ["ND", "ND"])
    assert plain is not None and plain.inputs[0].shape == (32, 16, 16)


@pytest.mark.parametrize(("dtype", "packed"), [("INT32", 1024 // 8), ("INT4", 1024), ("INT8", 1024)])
def test_packed_weights_of_a_grouped_product_count_fully(dtype: str, packed: int) -> None:
    op = op_from_kernel("GroupedMatmul", [(256, 512), (4, 512, packed)], ["DT_BF16", dtype], [(256, 1024)], ["DT_BF16"])
    assert op is not None and op.flops == 2 * 256 * 512 * 1024


def test_a_cache_update_moves_its_rows_and_no_cache() -> None:
    cache, rows = (892, 128, 1, 512), (5, 1, 1, 576)
    small = [rows, (512,), (5, 1, 1, 64), (5, 1, 1, 64), (5,), (892, 128, 1, 64), cache]
    op = op_from_kernel("KvRmsNormRopeCache", small, ["DT_BF16"] * 7)
    assert op is not None and op.bytes_written == 5 * 576 * 2
    assert op.bytes_read < 20_000
    put = op_from_kernel("IndexPutV2", [(4096, 151936), (4096,), (2,)], ["FLOAT", "FLOAT", "INT64"], [(4096, 151936)], ["FLOAT"])
    assert put is not None and put.bytes_written == 4096 * 4 and put.bytes_read < 50_000
    look = op_from_kernel("GatherV2", [(151936, 1024), (1, 4096), (1,)], ["DT_BF16", "INT64", "INT64"])
    assert look is not None and look.outputs[0].shape == (1, 4096, 1024)
    assert look.bytes_read < 2 * look.bytes_written


def test_shapes_that_do_not_fit_are_none() -> None:
    for inputs in ([(8192, 15365), (8192, 4096)], [(8,), (8,)], [(8, 8)], [], [None, (8, 8)], [(0, 8), (8, 8)]):
        out = [(1536, 4096)]
        assert op_from_kernel("MatMulV3", inputs, ["FLOAT16"] * 2, out, ["FLOAT16"]) is None
    assert op_from_kernel("FlashAttentionScore", [(8, 8), (8, 8)], ["FLOAT16"]) is None
    assert op_from_kernel("Conv2D", [(8, 3, 8, 8), (4, 3, 3)], ["FLOAT16"], [(8, 4, 6, 6)], ["FLOAT16"]) is None
    assert op_from_kernel("Add", [], [], [], []) is None


def test_scalars_and_absent_inputs() -> None:
    op = op_from_kernel("Add", [(), None, ()], ["FLOAT", "", "FLOAT"], [()], ["FLOAT"])
    assert op is not None and (op.bytes_read, op.bytes_written) == (8, 4)


def test_blocked_convolutions() -> None:
    op = op_from_kernel(
        "Conv2D", [(32, 24, 13, 13, 8), (216, 24, 16, 8), (384,)], ["FLOAT"] * 3, [(32, 48, 13, 13, 8)], ["FLOAT"]
    )
    assert op is not None and op.flops == 2 * 32 * 384 * 13 * 13 * 192 * 9
    same = op_from_kernel("Conv2D", [(32, 192, 13, 13), (384, 192, 3, 3)], ["FLOAT"] * 2, [(32, 384, 13, 13)], ["FLOAT"])
    assert same is not None and same.flops == op.flops


def test_causal_and_packed_attention_meets_fewer_keys() -> None:
    query, key = (4096, 1, 2048), (4096, 1, 1024)
    full = op_from_kernel("FlashAttentionScore", [query, key, key], ["DT_BF16"] * 3)
    causal = op_from_kernel("FlashAttentionScore", [query, key, key, None, None, None, (2048, 2048)], ["DT_BF16"] * 3)
    assert full is not None and causal is not None
    assert full.flops == 2 * causal.flops == 4 * 4096 * 2048 * 4096
    packed = op_from_kernel(
        "FusedInferAttentionScore", [(700, 4, 128), (700, 1, 128), (700, 1, 128), (7,)], ["DT_BF16"] * 3 + ["INT64"]
    )
    assert packed is not None and packed.flops == 4 * 700 * 4 * 128 * 100


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("DT_BF16", ("bfloat16", 2)),
        ("FLOAT", ("float32", 4)),
        ("fp16", ("float16", 2)),
        ("torch.int64", ("int64", 8)),
        ("?", None),
    ],
)
def test_spellings_of_dtypes(dtype: str, expected: tuple[str, int] | None) -> None:
    assert normal_dtype(dtype) == expected
