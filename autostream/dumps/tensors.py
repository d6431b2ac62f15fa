"""The tensors of a dump: what it tells of them, and what follows where it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autostream.cost.measured.kernels import normal_dtype
from autostream.graph.model import TensorSpec
from autostream.program.kinds import kinds
from autostream.program.reading.ge_dump import GeInput, GeOp

#: An output, as (operator, index).
Place = tuple[str, int]
#: What stands for a data type that a dump does not name: most tensors of the graphs in question have two bytes an element.
_ASSUMED = ("float16", 2)


def tensors_of(ops: Sequence[GeOp]) -> Mapping[Place, TensorSpec]:
    """Return the outputs whose shape is known. `ops` is in topological order.

    A dump that TorchAir wrote tells the shapes of what torch saw. Of the operators that a converter emits on the way, it tells
    nothing: the result of an elementwise operator has the common shape of its inputs, an unknown input of an operator with one
    input the shape of its result, and a matrix is turned over by a Transpose.
    """
    shapes = {
        (op.name, index): tensor.shape
        for op in ops
        for index, tensor in enumerate(op.tensors)
        if tensor.shape is not None and not tensor.dynamic
    }
    for op in ops:
        if (op.name, 0) not in shapes and op.tensors:
            shape = _forward(op, shapes)
            if shape is not None:
                shapes[op.name, 0] = shape
    for op in reversed(ops):
        known, source = shapes.get((op.name, 0)), op.inputs[0] if len(op.inputs) == 1 else None
        if known is not None and source is not None and op.type in kinds().broadcasts:
            shapes.setdefault(_place(source), known)
    dtypes = {(op.name, index): tensor.dtype for op in ops for index, tensor in enumerate(op.tensors)}
    return {place: _spec(shape, dtypes.get(place, "")) for place, shape in shapes.items()}


def inputs_of(op: GeOp, tensors: Mapping[Place, TensorSpec]) -> tuple[TensorSpec | None, ...]:
    """Return the inputs by port; None for one that is not fed or not known."""
    return tuple(None if source is None else tensors.get(_place(source)) for source in op.inputs)


def outputs_of(op: GeOp, tensors: Mapping[Place, TensorSpec]) -> tuple[TensorSpec | None, ...]:
    """Return the outputs by index; None for one that is not known."""
    return tuple(tensors.get((op.name, index)) for index in range(len(op.tensors)))


def _forward(op: GeOp, shapes: Mapping[Place, tuple[int, ...]]) -> tuple[int, ...] | None:
    given = [None if source is None else shapes.get(_place(source)) for source in op.inputs]
    if op.type in kinds().broadcasts and given:
        return _common(given)
    if op.type == "Transpose" and given and given[0] is not None and len(given[0]) == 2:
        return given[0][::-1]
    return None


def _common(shapes: Sequence[tuple[int, ...] | None]) -> tuple[int, ...] | None:
    rank = max((len(shape) for shape in shapes if shape is not None), default=0)
    sizes = [1] * rank
    for shape in shapes:
        if shape is None:
            return None
        for at, size in enumerate(shape, start=rank - len(shape)):
            if size != 1 and sizes[at] not in (1, size):
                return None
            sizes[at] = size if sizes[at] == 1 else sizes[at]
    return tuple(sizes)


def _place(source: GeInput) -> Place:
    return source.producer, source.output


def _spec(shape: tuple[int, ...], dtype: str) -> TensorSpec:
    name, itemsize = normal_dtype(dtype) or _ASSUMED
    return TensorSpec(shape=shape, dtype=name, itemsize=itemsize)
