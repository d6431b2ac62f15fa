"""Where the results of one operator may lie in the memory of its arguments: what schema, operator table and backend say.

Schemas are the truth. An operator that is a view for PyTorch may be a copy for GE and the other way round (no-op removal,
re-inplacing), so "may share" is what is told: an order that holds for it holds for both readings.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._C import DispatchKey
from torch._ops import OpOverload

from autostream.graph.calls import Facts, Kind, nodes_in, per_form, positions_of
from autostream.graph.places import Place, Places, place_of, reaches_anywhere, somewhere, union, view_of
from autostream.graph.reinplace import positions_written
from autostream.graph.values import elements_of, is_symbolic, spec_of, specs_of, tensors_in, value_of

#: Operators without a task whose result is their first argument, to the stride.
_SAME_VALUE = frozenset({"air.wait_tensor.default", "_c10d_functional.wait_tensor.default"})

#: Lies in no argument's memory; neither a written argument nor a view.
NOT_SHARED: tuple[Places, bool, bool] = ({}, False, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One result of an operator in a storage of its own."""

    nbytes: int
    place: Place | None


@per_form
def results_of(item: Facts) -> tuple[Result | None, ...]:
    """Return every result of an operator; None for one that is no tensor."""
    tensors = [next(tensors_in(element), None) for element in elements_of(value_of(item.node))]
    return tuple(None if tensor is None else Result(nbytes=_nbytes(tensor), place=place_of(tensor)) for tensor in tensors)


@per_form
def makes_new(item: Facts) -> bool:
    """Tell whether neither schema nor table nor backend lets any result lie in the memory of an argument."""
    overload = item.overload
    if item.kind is not Kind.SCHEMA or overload is None or any(_declared(overload, i)[0] for i in range(len(results_of(item)))):
        return False
    may_share = (item.info is not None and item.info.writes) or _may_alias(item) or _is_composite(overload)
    return not may_share and (item.no_op_source is None or not _may_be_no_op(item))


@per_form
def _inputs_alike(item: Facts, index: int) -> tuple[int, ...]:
    """Return which inputs have the shape and dtype of a result."""
    wanted = set(specs_of(elements_of(value_of(item.node))[index]))
    return tuple(at for at, source in enumerate(item.inputs) if wanted & set(specs_of(value_of(source))))


@per_form
def _may_alias(item: Facts) -> bool:
    listed = item.info is not None and item.info.aliases
    return listed or (item.overload is not None and torch.Tag.view_copy in item.overload.tags)


def _is_composite(overload: OpOverload) -> bool:
    return bool(overload.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd))


def _nbytes(tensor: Any) -> int:
    return 0 if is_symbolic(tensor) else spec_of(tensor).nbytes


@functools.cache
def _declared(overload: OpOverload, index: int) -> tuple[tuple[str, ...], bool]:
    """Return the arguments that a schema says a result may share memory with, and whether it is one that is written."""
    schema = overload._schema
    # A single return that is a list answers for all its elements.
    result = schema.returns[min(index, len(schema.returns) - 1)] if schema.returns else None
    if result is None or result.alias_info is None:
        return (), False
    marks = set(result.alias_info.before_set) | set(result.alias_info.after_set)
    annotated = {item.name: set(item.alias_info.before_set) for item in schema.arguments if item.alias_info is not None}
    # Lists lose their letters (``Tensor(a)[]``): without letters on either side, every annotated argument is meant.
    named = tuple(name for name, letters in annotated.items() if not marks or not letters or letters & marks)
    return named, bool(result.alias_info.is_write)


def _may_be_no_op(item: Facts) -> bool:
    packet = item.target.rpartition(".")[0]
    if packet == "aten.pow":
        return item.arguments.get("exponent") == 1
    if packet in ("aten.ceil", "aten.floor", "aten.round", "aten.trunc"):
        return not any(tensor.dtype.is_floating_point for tensor in tensors_in(value_of(item.node)))
    return True


def shared_with(item: Facts, index: int, inputs: Sequence[Places], mutates: Places) -> tuple[Places, bool, bool]:
    """Return where one result may lie in the memory of the arguments, and whether it is a written argument or a view."""
    if item.kind in (Kind.OPAQUE, Kind.BARRIER):
        return dict.fromkeys(union(inputs)), False, False
    if item.kind is Kind.FUNCTIONALIZED:
        return _alike(item, index, inputs, range(len(inputs))), False, False
    assert item.overload is not None
    declared, in_place = _declared(item.overload, index)
    if declared:
        places = union(inputs[position] for position in _given_as(item, *declared))
        if in_place:
            return dict.fromkeys(places) if reaches_anywhere(item) else places, True, False
        is_view = declared == (_first(item),)
        return (view_of(item, index, places), False, True) if is_view else (dict.fromkeys(places), False, False)
    if item.info is not None and item.info.writes and mutates:
        alike = _alike(item, index, inputs, positions_written(item))
        # Such a result is the written argument itself; a functional variant returns a copy unless it is re-inplaced.
        return alike, bool(alike) and not item.functional, False
    if _may_alias(item):
        first = union(inputs[position] for position in _given_as(item, _first(item)))
        if item.target in _SAME_VALUE:
            return first, False, False
        return dict.fromkeys(first) if reaches_anywhere(item) else somewhere(first), False, False
    if item.no_op_source is not None and _may_be_no_op(item):
        return _alike(item, index, inputs, _given_as(item, item.no_op_source)), False, False
    if _is_composite(item.overload):
        return dict.fromkeys(_alike(item, index, inputs, range(len(inputs)))), False, False
    return NOT_SHARED


def _alike(item: Facts, index: int, inputs: Sequence[Places], positions: Iterable[int]) -> Places:
    """Return the places of those of some inputs that have the shape and dtype of a result."""
    alike = _inputs_alike(item, index)
    return somewhere(union(inputs[position] for position in positions if position in alike))


@per_form
def _first(item: Facts) -> str:
    """Return the name of the first argument, or nothing."""
    return next(iter(item.arguments), "")


@per_form
def _given_as(item: Facts, *names: str) -> tuple[int, ...]:
    """Return which inputs are given as some arguments."""
    arguments = item.arguments
    return positions_of(item, (node for name in names for node in nodes_in(arguments.get(name))))
