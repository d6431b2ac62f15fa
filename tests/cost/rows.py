"""Public kernel measurements as operators: one CSV row becomes the Op that would have launched that kernel."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autostream.graph.model import Op, TensorSpec, Unit

FILE = Path(__file__).resolve().parents[3] / "shared" / "data" / "measurements.csv"

#: Chip file by the class of the measured device.
CHIPS = {
    "910B1-class(24/48@1850)": "910B1",
    "910B2-class(24/48@1800)": "910B2",
    "910B3-class(20/40@1800)": "910B3",
    "910B4-class(20/40@1650)": "910B4",
    "A3-die(752T)": "910_9381",
}

#: Graph operator by kernel type. Kernels left out (optimizers, backward, cache updates whose CSV bytes count the whole cache)
#: have no row that can be compared.
TARGETS = {
    "Add": "aten.add.Tensor",
    "Adds": "aten.add.Scalar",
    "AddRmsNormBias": "npu.npu_add_rms_norm.default",
    "ArgMaxV2": "aten.argmax.default",
    "ArgMaxWithValue": "aten.argmax.default",
    "AscendQuantV2": "npu.npu_quantize.default",
    "BatchMatMulV2": "aten.bmm.default",
    "BroadcastTo": "aten.clone.default",
    "Cast": "aten._to_copy.default",
    "ConcatD": "aten.cat.default",
    "Cos": "aten.cos.default",
    "DynamicQuant": "npu.npu_dynamic_quant.default",
    "Equal": "aten.eq.Tensor",
    "Exp": "aten.exp.default",
    "FastGelu": "npu.npu_fast_gelu.default",
    "Fill": "aten.fill.Scalar",
    "FlashAttentionScore": "npu.npu_fusion_attention.default",
    "FusedInferAttentionScore": "npu.npu_fused_infer_attention_score.default",
    "GatherV2": "aten.embedding.default",
    "GreaterEqual": "aten.ge.Tensor",
    "Index": "aten.index.Tensor",
    "LayerNormV3": "aten.native_layer_norm.default",
    "Less": "aten.lt.Tensor",
    "Log": "aten.log.default",
    "LogicalNot": "aten.logical_not.default",
    "LogicalOr": "aten.logical_or.default",
    "LogSoftmaxV2": "aten._log_softmax.default",
    "LpNormReduceV2": "aten.linalg_vector_norm.default",
    "LpNormV2": "aten.linalg_vector_norm.default",
    "MaskedFill": "aten.masked_fill.Scalar",
    "MatMul": "aten.mm.default",
    "MatMulV2": "aten.mm.default",
    "MatMulV3": "aten.mm.default",
    "MaxPoolWithArgmaxV1": "aten.max_pool2d_with_indices.default",
    "MoeGatingTopK": "npu.npu_moe_gating_top_k.default",
    "Mul": "aten.mul.Tensor",
    "Muls": "aten.mul.Scalar",
    "Neg": "aten.neg.default",
    "NonZero": "aten.nonzero.default",
    "NotEqual": "aten.ne.Tensor",
    "OnesLike": "aten.ones_like.default",
    "Pows": "aten.pow.Tensor_Scalar",
    "QuantBatchMatmulV3": "npu.npu_quant_matmul.default",
    "Range": "aten.arange.default",
    "RealDiv": "aten.div.Tensor",
    "Reciprocal": "aten.reciprocal.default",
    "ReduceSum": "aten.sum.dim_IntList",
    "ReduceSumD": "aten.sum.dim_IntList",
    "Relu": "aten.relu.default",
    "RmsNorm": "npu.npu_rms_norm.default",
    "RotaryPositionEmbedding": "npu.npu_rotary_mul.default",
    "ScaledMaskedSoftmax": "npu.npu_scaled_masked_softmax.default",
    "Slice": "aten.clone.default",
    "SoftmaxV2": "aten._softmax.default",
    "Sort": "aten.sort.default",
    "StridedSliceD": "aten.clone.default",
    "Sub": "aten.sub.Tensor",
    "SwiGlu": "npu.npu_swiglu.default",
    "TensorMove": "aten.clone.default",
    "TopKV2": "aten.topk.default",
    "TransData": "npu.npu_format_cast.default",
    "Transpose": "aten.transpose_copy.int",
    "Tril": "aten.tril.default",
    "ZerosLike": "aten.zeros_like.default",
}

#: Kernels that only write: the CSV counts the tensor whose shape they copy as read.
_WRITE_ONLY = ("OnesLike", "ZerosLike", "Fill")
#: Kernels that touch only the rows an index names: the CSV counts the whole table.
_LOOK_UP = ("GatherV2", "Index")
_ITEMSIZE = {"bf16": 2, "fp16": 2, "fp32": 4, "int8": 1, "int32": 4, "int64": 8, "bool": 1}
_DTYPE = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measurement."""

    chip: str
    kernel: str
    kind: str
    op: Op
    microseconds: float
    #: Blocks the profiler saw, 0 where it says nothing.
    blocks: int


def read_rows() -> Iterator[Row]:
    """Yield the rows whose kernel has an operator."""
    with FILE.open(newline="", encoding="utf-8") as handle:
        for index, line in enumerate(csv.DictReader(handle)):
            if line["op"] in TARGETS and _possible(line):
                yield Row(
                    chip=CHIPS[line["chip"]],
                    kernel=line["op"],
                    kind=line["cls"],
                    op=_op(line, index),
                    microseconds=float(line["us"]),
                    blocks=int(float(line["blk"] or 0)),
                )


def _possible(line: dict[str, str]) -> bool:
    """A few rows carry garbled shapes: their flop would need several times the peak of the chip."""
    peak_per_us = int(line["aic"]) * float(line["mhz"]) * 16384
    return float(line["flops"]) < 1.1 * peak_per_us * float(line["us"])


def _op(line: dict[str, str], index: int) -> Op:
    dtype, itemsize = _DTYPE.get(line["dtype"], line["dtype"]), _ITEMSIZE[line["dtype"]]
    read = 0 if line["op"] in _WRITE_ONLY else int(float(line["bi"]))
    written = int(float(line["bo"]))
    if line["op"] in _LOOK_UP:
        read = written
    unit = {"matmul": Unit.CUBE, "attention": Unit.MIXED}.get(line["cls"], Unit.VECTOR)
    if line["cls"] == "matmul":
        inputs, outputs = _product(line, dtype, itemsize)
    else:
        shapes = [tuple(int(n) for n in shape.split(",") if n) for shape in line["shapes"].split(";")]
        inputs = tuple(TensorSpec(shape=shape, dtype=dtype, itemsize=itemsize) for shape in shapes)
        outputs = (TensorSpec(shape=(written // itemsize,), dtype=dtype, itemsize=itemsize),)
    return Op(
        name=f"row_{index}",
        target=TARGETS[line["op"]],
        unit=unit,
        index=index,
        inputs=inputs,
        outputs=outputs,
        flops=int(float(line["flops"])),
        bytes_read=read,
        bytes_written=written,
    )


def _product(line: dict[str, str], dtype: str, itemsize: int) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    m, n, k = (int(float(line[key])) for key in "MNK")
    if line["op"] == "BatchMatMulV2":
        # The CSV folds the batch into m and n.
        batch = int(line["shapes"].split(",")[0])
        shapes: list[tuple[int, ...]] = [(batch, m // batch, k), (batch, k, n // batch), (batch, m // batch, n // batch)]
    else:
        shapes = [(m, k), (k, n), (m, n)]
    a, b, out = (TensorSpec(shape=shape, dtype=dtype, itemsize=itemsize) for shape in shapes)
    return (a, b), (out,)
