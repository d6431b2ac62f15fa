"""Operators of an Ascend IR graph in the form that cost models price: those that communicate, for the proofs about cores."""

from __future__ import annotations

from collections.abc import Sequence

from autostream.graph.model import Op, TensorSpec, Unit
from autostream.graph.units import classify
from autostream.program.kinds import kinds
from autostream.program.reading.ge_dump import GeOp

#: Types are not read from a graph; which cores an operator takes hardly depends on them.
_DTYPE, _ITEMSIZE = "bfloat16", 2


def communicating(ops: Sequence[GeOp]) -> dict[str, Op]:
    """Return the operators that communicate and that a table knows, by name; sizes as far as the graph tells, 2 bytes each."""
    specs = {(op.name, index): _spec(shape) for op in ops for index, shape in enumerate(op.shapes)}
    found = {}
    for index, op in enumerate(ops):
        target = next((target for types, target in kinds().priced_as if op.type in types), None)
        if target is None:
            continue
        info = classify(target)
        given = (specs.get((source.producer, source.output)) for source in op.inputs if source is not None)
        inputs = tuple(spec for spec in given if spec is not None)
        outputs = tuple(spec for spec in (_spec(shape) for shape in op.shapes) if spec is not None)
        found[op.name] = Op(
            name=op.name,
            target=target,
            unit=info.unit if info is not None else Unit.COMM,
            position=index,
            inputs=inputs,
            outputs=outputs,
            flops=0,
            bytes_read=sum(spec.nbytes for spec in inputs),
            bytes_written=sum(spec.nbytes for spec in outputs),
            group=op.group or None,
            known=info is not None,
        )
    return found


def _spec(shape: tuple[int, ...] | None) -> TensorSpec | None:
    return None if shape is None else TensorSpec(shape=shape, dtype=_DTYPE, itemsize=_ITEMSIZE)
