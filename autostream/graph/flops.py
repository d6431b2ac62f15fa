"""How much an operator computes: one short rule per kind of operator, by the name `ops.yaml` uses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autostream.graph.model import TensorSpec
from autostream.graph.units import OpInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of an operator, its arguments by the names of its schema."""

    tensors: Mapping[str, tuple[TensorSpec, ...]]
    scalars: Mapping[str, Any]
    outputs: tuple[TensorSpec, ...]

    def first(self, *names: str) -> TensorSpec | None:
        """Return the first tensor of the first of these arguments that is given."""
        for name in names:
            if self.tensors.get(name):
                return self.tensors[name][0]
        return None

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Every tensor given, in the order of the schema."""
        return tuple(spec for specs in self.tensors.values() for spec in specs)


def flops_of(info: OpInfo, call: Call) -> int:
    """Return the floating-point (or integer) operations of a call; a multiply-add counts two."""
    return RULES[info.flops](call, info.per)


def _none(_call: Call, _per: int) -> int:
    return 0


def _elementwise(call: Call, per: int) -> int:
    sizes = [spec.numel for spec in call.outputs] or [spec.numel for spec in call.inputs]
    return per * max(sizes, default=0)


def _reduction(call: Call, per: int) -> int:
    return per * max((spec.numel for spec in call.inputs + call.outputs), default=0)


def _matmul(call: Call, _per: int) -> int:
    left = call.first("mat1", "batch1", "mat", "x1", "x", "input", "self", "a")
    if left is None or not left.shape or not call.outputs:
        return 0
    return 2 * call.outputs[0].numel * left.shape[-1]


def _grouped_matmul(call: Call, _per: int) -> int:
    rows = call.tensors.get("x") or call.tensors.get("gmm_x") or call.tensors.get("x1") or call.tensors.get("self") or ()
    weights = call.tensors.get("weight") or call.tensors.get("gmm_weight") or call.tensors.get("w") or call.tensors.get("x2")
    weights = weights or call.tensors.get("mat2") or call.tensors.get("quantized_weight") or ()
    if len(rows) == len(weights):
        return sum(2 * x.numel * _columns(x, w) for x, w in zip(rows, weights, strict=True))
    total = sum(x.numel for x in rows)
    return 2 * total * max((_columns(rows[0], w) for w in weights), default=0) if rows else 0


def _columns(x: TensorSpec, weight: TensorSpec) -> int:
    """Return the columns of one expert's weight ([experts,] K x N in either orientation)."""
    experts = weight.shape[0] if len(weight.shape) == 3 else 1
    depth = max(1, x.shape[-1] if x.shape else 1)
    # Eight weights of 4 bits in an int32.
    packed = 8 if weight.dtype == "int32" and x.dtype != "int32" else 1
    return packed * weight.numel // max(1, experts * depth)


def _convolution(call: Call, _per: int) -> int:
    weight, data = call.first("weight"), call.first("input", "self")
    if weight is None or data is None or not call.outputs or not weight.shape:
        return 0
    per_channel = weight.numel // max(1, weight.shape[0])
    # A transposed convolution scatters every input element; its weight is [in, out / groups, ...].
    return 2 * per_channel * (data.numel if call.scalars.get("transposed") else call.outputs[0].numel)


#: Where the key's sequence axis is, by layout.
_SEQUENCE_AXIS = {"BSH": 1, "BSND": 1, "TND": 0, "SBH": 0, "BNSD": 2}


def _attention(call: Call, _per: int) -> int:
    query, key = call.first("query", "query_layer", "query_ik"), call.first("key", "key_layer", "key_ij")
    if query is None or key is None or not key.shape:
        return 0
    rope = call.first("query_rope")
    length = _key_length(call, key)
    return 4 * query.numel * length + (2 * rope.numel * length if rope else 0)


def _scores(call: Call, _per: int) -> int:
    """Count the first product of an attention alone: every query against every key."""
    query, key = call.first("query"), call.first("key")
    return 2 * query.numel * _key_length(call, key) if query is not None and key is not None and key.shape else 0


def _key_length(call: Call, key: TensorSpec) -> int:
    """Return how many keys each query meets; a sparse attention meets those it is given the indices of."""
    length = _stored_length(call, key)
    chosen = call.first("sparse_indices")
    return min(length, chosen.shape[-1] * int(call.scalars.get("sparse_block_size") or 1)) if chosen and chosen.shape else length


def _stored_length(call: Call, key: TensorSpec) -> int:
    table = call.first("block_table")
    if table is not None and table.shape and len(key.shape) > 1:
        block = call.scalars.get("block_size") or key.shape[1]
        return int(table.shape[-1] * block)
    layout = str(call.scalars.get("input_layout") or call.scalars.get("layout_kv") or call.scalars.get("layout_key") or "")
    # A paged cache says "PA_BSND"; a layout that the kernel changes says "BSND_BNSD".
    axis = _SEQUENCE_AXIS.get(layout.removeprefix("PA_").split("_", maxsplit=1)[0], len(key.shape) - 2)
    return key.shape[axis] if 0 <= axis < len(key.shape) else 1


def _projections(call: Call, _per: int) -> int:
    """Count fused linear layers: every token meets every weight matrix once."""
    tokens = call.first("token_x", "x")
    if tokens is None or not tokens.shape:
        return 0
    rows = tokens.numel // max(1, tokens.shape[-1])
    matrices = [spec for name, specs in call.tensors.items() if name.startswith(("weight", "kernel")) for spec in specs]
    return 2 * rows * sum(spec.numel for spec in matrices if len(spec.shape) > 1)


def _pooling(call: Call, _per: int) -> int:
    kernel = call.scalars.get("kernel_size")
    window = math.prod(kernel) if isinstance(kernel, (list, tuple)) and kernel else 1
    outputs = max((spec.numel for spec in call.outputs), default=0)
    return max(outputs * window, max((spec.numel for spec in call.inputs), default=0) if window == 1 else 0)


RULES: Mapping[str, Callable[[Call, int], int]] = {
    "none": _none,
    "elementwise": _elementwise,
    "reduction": _reduction,
    "matmul": _matmul,
    "grouped_matmul": _grouped_matmul,
    "convolution": _convolution,
    "attention": _attention,
    "scores": _scores,
    "projections": _projections,
    "pooling": _pooling,
}
