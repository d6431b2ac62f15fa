"""What `node.meta` says of a node's value: shapes, dtypes and whether any dimension is symbolic."""

from __future__ import annotations

import functools
import operator
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import torch
from torch import fx
from torch.fx.passes.shape_prop import TensorMetadata

from autostream.graph.model import TensorSpec

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_PLAIN = frozenset({int})


class Missing:
    """The value of a node that carries no shape information."""


MISSING = Missing()


def value_of(node: fx.Node) -> Any:
    """Return what is known of a node's value: (tuples of) tensors or scalars, None, or MISSING.

    `meta["val"]` is used first, then the older `meta["tensor_meta"]`; an element of a tuple follows from its producer.
    """
    if "val" in node.meta:
        return node.meta["val"]
    if "tensor_meta" in node.meta:
        return node.meta["tensor_meta"]
    if node.op == "get_attr":
        return attribute_of(node)
    if node.op == "call_function" and node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        whole, key = value_of(node.args[0]), node.args[1]
        if isinstance(whole, (list, tuple)) and isinstance(key, int) and -len(whole) <= key < len(whole):
            return whole[key]
        return MISSING
    if returns_nothing(node):
        return None
    return MISSING


def attribute_of(node: fx.Node) -> Any:
    """Return what a get_attr node refers to, or MISSING if its module is not there."""
    found: Any = node.graph.owning_module
    for name in str(node.target).split("."):
        found = getattr(found, name, MISSING)
    return found


def returns_nothing(node: fx.Node) -> bool:
    """Tell whether the schema of a node's operator declares no return value."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and all(str(item.type) == "NoneType" for item in schema.returns)


def is_tensor(value: Any) -> bool:
    """Tell whether a value is one tensor (or the TensorMetadata of one)."""
    return isinstance(value, (torch.Tensor, TensorMetadata))


def tensors_in(value: Any) -> Iterator[Any]:
    """Yield the tensors (or TensorMetadata) inside a value, depth first."""
    if is_tensor(value):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def is_symbolic(value: Any) -> bool:
    """Tell whether a value is, or has a dimension that is, not a plain number."""
    if isinstance(value, _SYMBOLIC):
        return True
    if isinstance(value, (torch.Tensor, TensorMetadata)):
        return not all_plain(value.shape)
    if isinstance(value, (list, tuple)):
        return any(is_symbolic(item) for item in value)
    return False


def spec_of(tensor: Any) -> TensorSpec:
    """Return the TensorSpec of a tensor or TensorMetadata whose shape is static."""
    return _spec(tuple(tensor.shape), tensor.dtype)


def specs_of(value: Any) -> tuple[TensorSpec, ...]:
    """Return the specs of all tensors inside a value; none where a shape is symbolic or missing."""
    if is_tensor(value):
        shape = value.shape
        return (_spec(tuple(shape), value.dtype),) if all_plain(shape) else ()
    return tuple(spec_of(tensor) for tensor in tensors_in(value) if not is_symbolic(tensor))


def all_plain(shape: Iterable[Any]) -> bool:
    """Tell whether sizes, strides or offsets are plain numbers, all of them."""
    kinds = set(map(type, shape))
    return kinds <= _PLAIN or not any(issubclass(kind, _SYMBOLIC) for kind in kinds)


def layout_of(value: Any) -> Hashable | None:
    """Return what is equal for two values only if their tensors have the same types, shapes, strides, dtypes and devices.

    None for a value that is, or holds, anything but strided tensors of static shape: nothing is known to equal it.
    """
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            return None
        numbers = (*value.shape, *value.stride(), value.storage_offset())
        return (type(value), value.dtype, value.device, numbers) if all_plain(numbers) else None
    if value is None:
        return ()
    if isinstance(value, (list, tuple)):
        parts = [layout_of(item) for item in value]
        return None if any(part is None for part in parts) else (type(value), *parts)
    return None


def elements_of(value: Any) -> list[Any]:
    """Return the results that a value consists of."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


@functools.lru_cache(maxsize=4096)  # a deep model has few different ones
def _spec(shape: tuple[int, ...], dtype: torch.dtype) -> TensorSpec:
    return TensorSpec(shape=tuple(map(int, shape)), dtype=str(dtype).removeprefix("torch."), itemsize=dtype.itemsize)
