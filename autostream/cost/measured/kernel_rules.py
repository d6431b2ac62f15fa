"""How the shapes of a kernel are read: one rule per kind of kernel, by the name `kernels.yaml` uses.

A rule gets the inputs by position (those that were not given are missing) and the outputs a profile tells. It returns the
tensors of the operator, its outputs and its flop, or None where the shapes do not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from autostream.graph.model import TensorSpec

_Read = tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...], int]
Rule = Callable[[Mapping[int, TensorSpec], tuple[TensorSpec, ...]], _Read | None]


def _dense(given: Mapping[int, TensorSpec], outputs: tuple[TensorSpec, ...]) -> _Read | None:
    tensors = tuple(given.values())
    if not outputs and not tensors:
        return None
    largest = max(tensors, key=lambda spec: spec.numel, default=None)
    return tensors, outputs or ((largest,) if largest else ()), 0


def _reduction(given: Mapping[int, TensorSpec], outputs: tuple[TensorSpec, ...]) -> _Read | None:
    tensors = tuple(given.values())
    if not tensors:
        return None
    first = tensors[0]
    return tensors, outputs or (TensorSpec(shape=first.shape[:-1], dtype=first.dtype, itemsize=first.itemsize),), 0


def _gated(given: Mapping[int, TensorSpec], outputs: tuple[TensorSpec, ...]) -> _Read | None:
    """One half gates the other: the result has half of the last dimension."""
    tensors = tuple(given.values())
    if not tensors or not tensors[0].shape:
        return None
    first = tensors[0]
    half = TensorSpec(shape=(*first.shape[:-1], first.shape[-1] // 2), dtype=first.dtype, itemsize=first.itemsize)
    return tensors, outputs or (half,), 0


def _look_up(given: Mapping[int, TensorSpec], outputs: tuple[TensorSpec, ...]) -> _Read | None:
    """Rows of the first input, one for each index of the second."""
    if outputs or len(given) < 2:
        return _dense(given, outputs)
    table, index = tuple(given.values())[:2]
    rows = TensorSpec(shape=(*index.shape, *table.shape[1:]), dtype=table.dtype, itemsize=table.itemsize)
    return tuple(given.values()), (rows,), 0


def _product(given: Mapping[int, TensorSpec], outputs: tuple[TensorSpec, ...]) -> _Read | None:
    """Two factors, each perhaps transposed; the size of the result tells which way where the inner sizes do not."""
    if 0 not in given or 1 not in given:
        return None
    a, b = given[0], given[1]
    if len(a.shape) < 2 or len(b.shape) < 2 or min(a.numel, b.numel) <= 0:
        return None
    wanted = outputs[0].numel if outputs else 0
    found: list[tuple[int, int, int, int]] = []
    batch = max(math.prod(a.shape[:-2]), math.prod(b.shape[:-2]))
    # As they are first, then transposed.
    for m, k in (a.shape[-2:], a.shape[:-3:-1]):
        # A flat weight meets every row of every batch of the left factor.
        rows, shared = (a.numel // k, 1) if len(b.shape) == 2 else (m, batch)
        found += [(shared, rows, n, k) for inner, n in (b.shape[-2:], b.shape[:-3:-1]) if inner == k]
    plain = found[:1] if a.shape[-1] == b.shape[-2] else []
    fits = [item for item in found if not wanted or item[0] * item[1] * item[2] == wanted] or plain
    if not fits:
        return None
    batch, m, n, k = fits[0]
    lead = (batch,) if batch > 1 else ()
    out = outputs[0] if outputs else a
    factors = (
        TensorSpec(shape=(*lead, m, k), dtype=a.dtype, itemsize=a.itemsize),
        TensorSpec(shape=(*lead, k, n), dtype=b.dtype, itemsize=b.itemsize),
    )
    others = tuple(spec for place, spec in given.items() if place > 1)
    result = TensorSpec(shape=(*lead, m, n), dtype=out.dtype, itemsize=out.itemsize)
    return (*factors, *others), (result, *outputs[1:]), 2 * batch * m * n * k


def _grouped(given: Mapping[int, TensorSpec], outputs: tuple[TensorSpec, ...]) -> _Read | None:
    """Rows of `x` shared out over a stack of weights (expert, k, n) in either orientation."""
    x = given.get(0)
    weight = next((spec for place, spec in given.items() if place > 0 and len(spec.shape) == 3), None)
    if x is None or weight is None or len(x.shape) < 2 or min(x.numel, weight.numel) <= 0:
        return None
    k, packing = x.shape[-1], (8 if weight.dtype == "int32" else 2 if weight.dtype == "int4" else 1)
    experts, n = weight.shape[0], weight.numel * packing // (weight.shape[0] * k)
    if not n:
        return None
    rows = math.prod(x.shape[:-1])
    stack = TensorSpec(shape=(experts, k, max(1, n // packing)), dtype=weight.dtype, itemsize=weight.itemsize)
    out = outputs or (TensorSpec(shape=(rows, n), dtype="bfloat16", itemsize=2),)
    others = tuple(spec for place, spec in given.items() if place > 0 and spec is not weight)
    return (x, stack, *others), out, 2 * rows * k * n


def _convolution(given: Mapping[int, TensorSpec], outputs: tuple[TensorSpec, ...]) -> _Read | None:
    """Plain (NCHW, OIHW) or blocked (NC1HWC0, fractal Z) input and weight; a blocked window comes out as (area, 1)."""
    if 0 not in given or 1 not in given or not outputs:
        return None
    x, weight, out = given[0], given[1], outputs[0]
    if len(x.shape) == 5 and len(weight.shape) == 4 and x.shape[1]:
        batch, blocks, height, width, lanes = x.shape
        depth, wide, inner, _ = weight.shape
        channels, area = wide * inner, depth // blocks
        pixels = out.numel // max(1, batch * channels)
        if not area or batch * channels * pixels != out.numel:
            return None
        x = TensorSpec(shape=(batch, blocks * lanes, height, width), dtype=x.dtype, itemsize=x.itemsize)
        weight = TensorSpec(shape=(channels, blocks * lanes, area, 1), dtype=weight.dtype, itemsize=weight.itemsize)
        out = TensorSpec(shape=(batch, channels, pixels, 1), dtype=out.dtype, itemsize=out.itemsize)
    if len(x.shape) != len(weight.shape) or not weight.shape[0]:
        return None
    others = tuple(spec for place, spec in given.items() if place > 1)
    return (x, weight, *others), (out, *outputs[1:]), 2 * out.numel * (weight.numel // weight.shape[0])


def _convolution_backward(given: Mapping[int, TensorSpec], outputs: tuple[TensorSpec, ...]) -> _Read | None:
    """The gradient of the weight, from input and output gradient."""
    tensors = [spec for spec in given.values() if len(spec.shape) >= 4]
    if len(tensors) < 2 or not outputs:
        return None
    return tuple(given.values()), outputs, _backward_flop(tensors[-1], outputs[0])


def _convolution_input_backward(given: Mapping[int, TensorSpec], outputs: tuple[TensorSpec, ...]) -> _Read | None:
    """The gradient of the input, from weight and output gradient."""
    tensors = [spec for spec in given.values() if len(spec.shape) >= 4]
    if len(tensors) < 2 or not outputs:
        return None
    return tuple(given.values()), outputs, _backward_flop(tensors[-1], tensors[-2])


def _backward_flop(gradient: TensorSpec, weight: TensorSpec) -> int:
    """Every output gradient meets every weight of its channel once, whichever of the two gradients is made."""
    channels = gradient.shape[1] * (gradient.shape[4] if len(gradient.shape) == 5 else 1)
    return 2 * (gradient.numel // max(1, channels)) * weight.numel


def _attention(given: Mapping[int, TensorSpec], outputs: tuple[TensorSpec, ...]) -> _Read | None:
    """Queries against keys. With the lengths of the sequences beside them, tokens are packed and meet their own sequence only.

    A square mask marks causal attention, which skips half of the scores.
    """
    if 0 not in given or 1 not in given or len(given[0].shape) < 3 or len(given[1].shape) < 3:
        return None
    query, key = given[0], given[1]
    lengths = next((spec for place, spec in given.items() if place > 2 and len(spec.shape) == 1), None)
    square = any(place > 2 and len(spec.shape) > 1 and spec.shape[-1] == spec.shape[-2] for place, spec in given.items())
    if len(key.shape) == 3 and lengths is not None:
        length = key.shape[0] / max(1, lengths.numel)
    else:
        # The sequence is the longer of the two axes that may hold it; the other is the batch or the heads.
        length = max(key.shape[:2]) if len(key.shape) == 3 else max(key.shape[1:3])
    flops = 4 * query.numel * length * (0.5 if square else 1.0)
    return tuple(given.values()), outputs or (query,), round(flops)


RULES: Mapping[str, Rule] = {
    "dense": _dense,
    "create": _dense,
    "reduction": _reduction,
    "gated": _gated,
    "look_up": _look_up,
    "product": _product,
    "grouped": _grouped,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "convolution_input_backward": _convolution_input_backward,
    "attention": _attention,
}
