"""What makes two operators cost the same: family, sizes, data types. Kernels of a profile and operators of a graph meet here."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from autostream.cost.analytic.product import read_product
from autostream.cost.chips.factors import base_name, load_factors
from autostream.cost.measured.kernels import op_from_kernel
from autostream.graph.model import Op, TensorSpec, Unit
from autostream.profiles.model import Kernel, Tensor

#: Operators that launch the kernels of another one: the operator by which `kernels.yaml` names those kernels.
_SAME_KERNELS: Mapping[str, tuple[str, ...]] = {
    "aten.mm": ("aten.matmul", "aten.linear", "aten.addmm", "aten._addmm_activation", "npu.npu_linear"),
    "aten.bmm": ("aten.baddbmm", "npu.npu_bmmV2"),
    "aten.convolution": (
        "aten._convolution",
        "aten.conv1d",
        "aten.conv2d",
        "aten.conv3d",
        "npu.npu_conv2d",
        "npu.npu_conv3d",
        "npu.npu_convolution",
    ),
    "npu.npu_fusion_attention": ("npu.npu_fusion_attention_v2", "npu.npu_fusion_attention_v3"),
    "npu.npu_fused_infer_attention_score": ("npu.npu_fused_infer_attention_score_v2",),
    "aten.sub": ("aten.rsub", "aten.subtract"),
    "aten.mul": ("aten.multiply",),
    "aten.div": ("aten.true_divide", "aten.divide", "aten.floor_divide", "aten.remainder", "aten.fmod"),
    "aten.eq": ("aten.ne", "aten.lt", "aten.le", "aten.gt", "aten.ge"),
    "aten.sqrt": ("aten.rsqrt",),
    "aten.gelu": ("npu.fast_gelu", "npu.npu_fast_gelu", "npu.npu_gelu"),
    "aten.silu": ("npu.npu_silu",),
    "aten._to_copy": ("aten.to", "npu._npu_dtype_cast", "npu.npu_dtype_cast", "prims.convert_element_type"),
    "aten.clone": ("aten.copy", "aten.contiguous", "aten.lift_fresh_copy"),
    "aten.zeros_like": (
        "aten.ones_like",
        "aten.full_like",
        "aten.fill",
        "aten.zero",
        "aten.zeros",
        "aten.ones",
        "aten.full",
        "aten.new_zeros",
        "aten.new_ones",
        "aten.new_full",
    ),
    "aten.arange": ("aten.linspace", "aten.range"),
    "aten.expand_copy": ("aten.repeat", "aten.tile", "aten.broadcast_to"),
    "aten.cat": ("aten.concat", "aten.stack", "aten.constant_pad_nd", "aten.pad"),
    "aten.permute_copy": ("aten.transpose_copy", "aten.t_copy", "npu.npu_transpose", "npu.npu_confusion_transpose"),
    "aten.tril": ("aten.triu",),
    "aten.logical_not": ("aten.logical_and", "aten.logical_or", "aten.logical_xor", "aten.bitwise_and", "aten.bitwise_or"),
    "aten.where": ("aten.isfinite", "aten.isinf", "aten.isnan"),
    "aten.clamp": ("aten.clamp_min", "aten.clamp_max", "aten.maximum", "aten.minimum", "aten.clip"),
    "aten.cos": ("aten.sin", "aten.tan", "aten.erf", "aten.erfc", "aten.acos", "aten.asin", "aten.atan", "aten.atan2"),
    "aten.native_layer_norm": ("aten.layer_norm", "npu.npu_layer_norm_eval"),
    "npu.npu_rms_norm": ("aten.rms_norm", "aten._fused_rms_norm", "npu.npu_gemma_rms_norm"),
    "npu.npu_add_rms_norm": ("npu.npu_add_rms_norm_v2",),
    "aten._softmax": ("aten.softmax", "aten._safe_softmax"),
    "aten._log_softmax": ("aten.log_softmax",),
    "aten.amax": ("aten.amin", "aten.max", "aten.min", "aten.any", "aten.all", "aten.prod"),
    "aten.argmax": ("aten.argmin",),
    "aten.sort": ("aten.argsort",),
    "aten.index": ("aten.masked_select",),
    "npu.npu_moe_distribute_dispatch_v2": ("npu.npu_moe_distribute_dispatch", "npu.npu_moe_distribute_dispatch_v3"),
    "npu.npu_moe_distribute_combine_v2": ("npu.npu_moe_distribute_combine", "npu.npu_moe_distribute_combine_v3"),
}
_FAMILY = {other: family for family, others in _SAME_KERNELS.items() for other in others}

_Sizes = tuple[tuple[tuple[int, ...], str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Operators with the same signature launch the same work.

    A product is known by (batch, m, n, k) of its factors: a graph does not say which of them is stored transposed. Other
    operators are known by the shapes of their tensors without sides of 1, as a kernel does not see views; scalars do not count.
    """

    family: str
    product: tuple[int, int, int, int] | None
    inputs: _Sizes
    output: _Sizes


def family(target: str) -> str:
    """Return the family of an operator such as ``"aten.addmm.default"``: the name whose kernels it launches."""
    base = base_name(target)
    return _FAMILY.get(base, base)


def signature(op: Op) -> Signature:
    """Return the signature of an operator."""
    group = load_factors().find(op.target)
    product = read_product(op, group) if group is not None and group.product == "matmul" else None
    if product is not None and group is not None:
        left, right = (op.inputs[place] for place in group.operands)
        return Signature(
            family=family(op.target),
            product=(product.batch, product.m, product.n, product.k),
            inputs=(((), left.dtype), ((), right.dtype)),
            output=(((), op.outputs[0].dtype),),
        )
    return Signature(family=family(op.target), product=None, inputs=_sizes(op.inputs), output=_sizes(op.outputs[:1]))


def kernel_op(kernel: Kernel) -> Op | None:
    """Return the operator that would have launched a kernel, or None where its type or shapes do not say."""
    found = None if kernel.communicates else _launcher(kernel.type, kernel.inputs, kernel.outputs)
    return found[0] if found is not None else None


def kernel_signature(kernel: Kernel) -> Signature | None:
    """Return the signature of the operator that would have launched a kernel, or None where that cannot be told."""
    found = None if kernel.communicates else _launcher(kernel.type, kernel.inputs, kernel.outputs)
    return found[1] if found is not None else None


@functools.lru_cache(maxsize=16_384)
def _launcher(kind: str, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> tuple[Op, Signature] | None:
    """Layers repeat: a profile shows far fewer different kernels than kernels."""
    sides = (inputs, outputs)
    shapes = [[tensor.shape if tensor.shape or tensor.dtype else None for tensor in side] for side in sides]
    dtypes = [[tensor.dtype for tensor in side] for side in sides]
    formats = [[tensor.format for tensor in side] for side in sides]
    if not shapes[0] and not shapes[1]:
        return None
    op = op_from_kernel(kind, shapes[0], dtypes[0], shapes[1], dtypes[1], formats[0], formats[1])
    # What takes no time of its own in a graph has no price to compare with.
    return None if op is None or op.unit is Unit.FREE else (op, signature(op))


def _sizes(specs: tuple[TensorSpec, ...]) -> _Sizes:
    return tuple((tuple(size for size in spec.shape if size != 1), spec.dtype) for spec in specs if spec.numel != 1)
