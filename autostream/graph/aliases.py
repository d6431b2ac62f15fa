"""Which storages every node's value may lie in, and which storages every operator reads and writes.

Schemas are the truth. An operator that is a view for PyTorch may be a copy for GE and the other way round (no-op removal,
re-inplacing), so "may share" is what is computed: an order that holds for it holds for both readings.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._C import DispatchKey
from torch._ops import OpOverload

from autostream.graph.calls import Facts, Kind, nodes_in, per_form
from autostream.graph.model import Storage, Unit
from autostream.graph.places import Place, Places, place_of, reaches_anywhere, regions_in, somewhere, union, view_of
from autostream.graph.regions import Region
from autostream.graph.reinplace import Reinplaced, find_reinplaced, nodes_overwritten, nodes_written
from autostream.graph.values import elements_of, is_symbolic, spec_of, specs_of, tensors_in, value_of

#: Operators without a task whose result is their first argument, to the stride.
_SAME_VALUE = frozenset({"air.wait_tensor.default", "_c10d_functional.wait_tensor.default"})

#: Storages, first seen first.
Names = tuple[str, ...]
Regions = tuple[tuple[str, Region], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What one operator does to storages."""

    reads: Names = ()
    #: Storages that existed before and are changed in place.
    mutates: Names = ()
    #: Storages of its own results.
    creates: Names = ()
    #: Where in some of these storages; one that is not named is touched anywhere.
    read_regions: Regions = ()
    mutated_regions: Regions = ()


_NOTHING = Access()


@dataclass(frozen=True, slots=True, kw_only=True)
class Aliasing:
    """The result of the analysis, by node name."""

    accesses: Mapping[str, Access]
    storages: Mapping[str, Storage]


def analyse(facts: Mapping[fx.Node, Facts], units: Mapping[fx.Node, Unit]) -> Aliasing:
    """Return the accesses of every operator.

    Args:
        facts: every node of the graph, in graph order.
        units: the unit of every operator; a free one accesses nothing itself, its consumers do.
    """
    first = _Walk(units, {})
    first.run(facts)
    reinplaced = find_reinplaced(facts, first.of_node)
    if not reinplaced:
        return first.result()
    second = _Walk(units, reinplaced)
    second.run(facts)
    return second.result()


class _Walk:
    """One pass over the graph in order; `_parts` holds the places of every element of a node's value."""

    def __init__(self, units: Mapping[fx.Node, Unit], reinplaced: Reinplaced) -> None:
        self._units = units
        self._reinplaced = reinplaced
        self._parts: dict[fx.Node, Sequence[Places]] = {}
        self._accesses: dict[str, Access] = {}
        self._storages: dict[str, Storage] = {}
        self._inputs: dict[int, str] = {}

    def run(self, facts: Mapping[fx.Node, Facts]) -> None:
        for node, item in facts.items():
            if item.kind is Kind.STORAGE:
                self._parts[node] = [self._input(node)]
            elif item.kind is Kind.GETITEM:
                self._parts[node] = [self._element(node)]
                self._accesses[node.name] = _NOTHING
            elif item.kind in (Kind.MARK, Kind.OUTPUT, Kind.SCALAR):
                self._parts[node] = []
                if item.kind is Kind.SCALAR:
                    self._accesses[node.name] = _NOTHING
            else:
                self._operator(item)

    def result(self) -> Aliasing:
        return Aliasing(accesses=self._accesses, storages=self._storages)

    def of_node(self, node: fx.Node) -> Names:
        """Return every storage a node's value may lie in."""
        return tuple(self._places(node))

    def _places(self, node: fx.Node) -> Places:
        parts = self._parts.get(node, ())
        return parts[0] if len(parts) == 1 else union(parts)

    def _of_all(self, nodes: Iterable[fx.Node]) -> Places:
        return union(map(self._places, nodes))

    def _input(self, node: fx.Node) -> Places:
        """Name the storage of a graph input; inputs whose examples share memory (slices of one pool) share the storage.

        Where in it the second one lies is not known: it may be another place at the next call.
        """
        tensor = next(tensors_in(value_of(node)), None)
        if not isinstance(tensor, torch.Tensor):
            return {}
        key = _memory(tensor)
        name = self._inputs.setdefault(key, node.name) if key is not None else node.name
        self._keep(name, _nbytes(tensor), "input")
        return {name: place_of(tensor) if name == node.name and tensor.storage_offset() == 0 else None}

    def _element(self, node: fx.Node) -> Places:
        source, key = node.args[0], node.args[1]
        parts = self._parts.get(source, []) if isinstance(source, fx.Node) else []
        return parts[key] if isinstance(key, int) and -len(parts) <= key < len(parts) else union(parts)

    def _operator(self, item: Facts) -> None:
        node = item.node
        written = self._written(item)
        in_place_later = self._reinplaced.get(node, {})
        mutates = union([written, *(dict.fromkeys(names) for names in in_place_later.values())]) if in_place_later else written
        free = self._units[node] is Unit.FREE
        parts: list[Places] = []
        seen: list[Places] | None = []
        creates: list[str] = []
        results = _results(item)
        for index, result in enumerate(results):
            if result is None:
                parts.append({})
                continue
            shared, in_place, is_view = _NOT_SHARED if _makes_new(item) else self._shared(item, index, mutates)
            seen = [*seen, shared] if is_view and seen is not None else None
            if in_place_later:
                later = (*in_place_later.get(None, ()), *in_place_later.get(index, ()))
                shared = union([shared, dict.fromkeys(later)])
            if not (free and shared) and not in_place:
                name = node.name if len(results) == 1 else f"{node.name}.{index}"
                self._keep(name, result.nbytes, "intermediate")
                creates.append(name)
                shared = {**shared, name: result.place}
            parts.append(shared)
        self._parts[node] = parts
        self._accesses[node.name] = _NOTHING if free else self._access(item, mutates, creates, seen)

    def _written(self, item: Facts) -> Places:
        if item.custom or item.kind is Kind.BARRIER:
            return dict.fromkeys(self._of_all(item.inputs))
        found = self._of_all(nodes_written(item))
        return dict.fromkeys(found) if reaches_anywhere(item) else found

    def _access(self, item: Facts, mutates: Places, creates: Iterable[str], seen: list[Places] | None) -> Access:
        """Return what an operator with a task does; `seen` are the places of its results if all of them are views."""
        overwritten = nodes_overwritten(item)
        anywhere = item.custom or item.kind is Kind.BARRIER or reaches_anywhere(item) or item.node in self._reinplaced
        read = [self._places(source) for source in item.inputs if source not in overwritten]
        if item.custom or item.kind is Kind.BARRIER or (reaches_anywhere(item) and not seen):
            read = [dict.fromkeys(places) for places in read]
        written = [self._places(source) for source in nodes_written(item)]
        return Access(
            reads=tuple(union(read)),
            mutates=tuple(mutates),
            creates=tuple(creates),
            # A view that copies reads what it shows of its argument.
            read_regions=regions_in(seen or read),
            mutated_regions=() if anywhere else regions_in(written),
        )

    def _shared(self, item: Facts, index: int, mutates: Places) -> tuple[Places, bool, bool]:
        """Return where one result may lie in the memory of the arguments, and whether it is a written argument or a view."""
        if item.kind in (Kind.OPAQUE, Kind.BARRIER):
            return dict.fromkeys(self._of_all(item.inputs)), False, False
        if item.kind is Kind.FUNCTIONALIZED:
            return self._alike(item, index, item.inputs), False, False
        assert item.overload is not None
        declared, in_place = _declared(item.overload, index)
        if declared:
            places = self._of_all(node for name in declared for node in nodes_in(item.arguments.get(name)))
            if in_place:
                return dict.fromkeys(places) if reaches_anywhere(item) else places, True, False
            is_view = declared == (next(iter(item.arguments), None),)
            return (view_of(item, index, places), False, True) if is_view else (dict.fromkeys(places), False, False)
        if item.info is not None and item.info.writes and mutates:
            alike = self._alike(item, index, nodes_written(item))
            # Such a result is the written argument itself; a functional variant returns a copy unless it is re-inplaced.
            return alike, bool(alike) and not item.functional, False
        if _may_alias(item):
            first = self._of_all(nodes_in(next(iter(item.arguments.values()), None)))
            if item.target in _SAME_VALUE:
                return first, False, False
            return dict.fromkeys(first) if reaches_anywhere(item) else somewhere(first), False, False
        if item.no_op_source is not None and _may_be_no_op(item):
            return self._alike(item, index, nodes_in(item.arguments.get(item.no_op_source))), False, False
        if _is_composite(item.overload):
            return dict.fromkeys(self._alike(item, index, item.inputs)), False, False
        return _NOT_SHARED

    def _alike(self, item: Facts, index: int, sources: Iterable[fx.Node]) -> Places:
        """Return the places of the sources that have the shape and dtype of a result."""
        alike = {item.inputs[position] for position in _inputs_alike(item, index)}
        return somewhere(self._of_all(source for source in sources if source in alike))

    def _keep(self, name: str, nbytes: int, kind: str) -> None:
        known = self._storages.get(name)
        self._storages[name] = Storage(name=name, nbytes=max(nbytes, known.nbytes if known else 0), kind=kind)


#: Lies in no argument's memory; neither a written argument nor a view.
_NOT_SHARED: tuple[Places, bool, bool] = ({}, False, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """One result of an operator in a storage of its own."""

    nbytes: int
    place: Place | None


@per_form
def _results(item: Facts) -> tuple[_Result | None, ...]:
    """Return every result of an operator; None for one that is no tensor."""
    tensors = [next(tensors_in(element), None) for element in elements_of(value_of(item.node))]
    return tuple(None if tensor is None else _Result(nbytes=_nbytes(tensor), place=place_of(tensor)) for tensor in tensors)


@per_form
def _makes_new(item: Facts) -> bool:
    """Tell whether neither schema nor table nor backend lets any result lie in the memory of an argument."""
    overload = item.overload
    if item.kind is not Kind.SCHEMA or overload is None or any(_declared(overload, i)[0] for i in range(len(_results(item)))):
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


def _memory(tensor: torch.Tensor) -> int | None:
    """Identify the memory of an example tensor, if it has any."""
    return int(tensor.untyped_storage()._cdata) if torch._C._has_storage(tensor) else None
