"""Small operators for the cost tests."""

from __future__ import annotations

from autostream.graph.model import Op, TensorSpec, Unit

_ITEMSIZE = {"bfloat16": 2, "float16": 2, "float32": 4, "int8": 1, "int64": 8}


def spec(*shape: int, dtype: str = "bfloat16") -> TensorSpec:
    """Return a tensor spec."""
    return TensorSpec(shape=shape, dtype=dtype, itemsize=_ITEMSIZE[dtype])


def make(
    target: str,
    unit: Unit,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    *,
    flops: int = 0,
    known: bool = True,
    name: str = "op",
) -> Op:
    """Return an operator that reads its inputs and writes its outputs once."""
    return Op(
        name=name,
        target=target,
        unit=unit,
        position=0,
        inputs=inputs,
        outputs=outputs,
        flops=flops,
        bytes_read=sum(x.nbytes for x in inputs),
        bytes_written=sum(x.nbytes for x in outputs),
        known=known,
    )


def mm(m: int, n: int, k: int, dtype: str = "bfloat16") -> Op:
    """Return (m, k) x (k, n)."""
    inputs = (spec(m, k, dtype=dtype), spec(k, n, dtype=dtype))
    return make("aten.mm.default", Unit.CUBE, inputs, (spec(m, n, dtype=dtype),), flops=2 * m * n * k)


def vector(target: str, *shape: int) -> Op:
    """Return an operator with one input and one output of a shape."""
    return make(target, Unit.VECTOR, (spec(*shape),), (spec(*shape),))


def collective(target: str, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> Op:
    """Return a communication operator."""
    return make(target, Unit.COMM, inputs, outputs)
