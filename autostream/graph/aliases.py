"""Which storages every node's value may lie in, and which storages every operator reads and writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import fx

from autostream.graph.calls import NO_OPERATOR, Facts, Form, Kind, per_form
from autostream.graph.model import Storage, Unit
from autostream.graph.places import Places, reaches_anywhere, regions_in, union
from autostream.graph.regions import Region
from autostream.graph.reinplace import Reinplaced, find_reinplaced, positions_overwritten, positions_written
from autostream.graph.sharing import NOT_SHARED, makes_new, results_of, shared_with
from autostream.graph.values import tensors_in, value_of

#: Storages, first seen first.
Names = tuple[str, ...]
Regions = tuple[tuple[str, Region], ...]


class Access(NamedTuple):
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


class Step(NamedTuple):
    """What was found out about one operator, and all that it was found out from: of the same, the same would be found out."""

    form: Form
    #: By input: the places of every element of its value.
    given: Sequence[Sequence[Places]]
    #: See `Reinplaced`.
    later: Mapping[int | None, Names]
    #: The places of every element of its value.
    parts: Sequence[Places]
    access: Access
    created: Sequence[Storage]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aliasing:
    """The result of the analysis, by node name."""

    accesses: Mapping[str, Access]
    storages: Mapping[str, Storage]
    #: How the accesses were found.
    steps: Mapping[str, Step]


def analyse(facts: Mapping[fx.Node, Facts], units: Mapping[fx.Node, Unit], known: Mapping[str, Step]) -> Aliasing:
    """Return the accesses of every operator.

    Args:
        facts: every node of the graph, in graph order.
        units: the unit of every operator; a free one accesses nothing itself, its consumers do.
        known: the steps of another graph of the same survey (or none). What has the same name, form and places is not looked at
            again.
    """
    first = _Walk(units, {}, known)
    first.run(facts)
    reinplaced = find_reinplaced(facts, first.of_node)
    if not reinplaced:
        return first.result()
    second = _Walk(units, reinplaced, known or first.steps)
    second.run(facts)
    return second.result()


class _Walk:
    """One pass over the graph in order; `_parts` holds the places of every element of a node's value."""

    def __init__(self, units: Mapping[fx.Node, Unit], reinplaced: Reinplaced, known: Mapping[str, Step]) -> None:
        self._units = units
        self._reinplaced = reinplaced
        self._known = known
        self._parts: dict[fx.Node, Sequence[Places]] = {}
        self._storages: dict[str, Storage] = {}
        self._inputs: dict[int, str] = {}
        self.steps: dict[str, Step] = {}

    def run(self, facts: Mapping[fx.Node, Facts]) -> None:
        for node, item in facts.items():
            if item.kind not in NO_OPERATOR:
                step = self.steps[node.name] = self._step(item)
                self._parts[node] = step.parts
                for storage in step.created:
                    self._keep(storage)
            elif item.kind is Kind.STORAGE:
                self._parts[node] = [self._input(item)]
            else:
                self._parts[node] = []

    def result(self) -> Aliasing:
        accesses = {name: step.access for name, step in self.steps.items()}
        return Aliasing(accesses=accesses, storages=self._storages, steps=self.steps)

    def of_node(self, node: fx.Node) -> Names:
        """Return every storage a node's value may lie in."""
        return tuple(union(self._parts.get(node, ())))

    def _input(self, item: Facts) -> Places:
        """Name the storage of a graph input; inputs whose examples share memory (slices of one pool) share the storage.

        Where in it the second one lies is not known: it may be another place at the next call.
        """
        node, tensor = item.node, next(tensors_in(value_of(item.node)), None)
        if not isinstance(tensor, torch.Tensor):
            return {}
        key = _memory(tensor)
        name = self._inputs.setdefault(key, node.name) if key is not None else node.name
        result = next(result for result in results_of(item) if result is not None)
        self._keep(Storage(name=name, nbytes=result.nbytes, kind="input"))
        return {name: result.place if name == node.name and tensor.storage_offset() == 0 else None}

    def _step(self, item: Facts) -> Step:
        node = item.node
        given = [self._parts.get(source, ()) for source in item.inputs]
        later = self._reinplaced.get(node, _NOT_LATER)
        known = self._known.get(node.name)
        if known is not None and known.form is item.form and known.later == later and known.given == given:
            return known
        if item.kind is Kind.SCALAR:
            return Step(form=item.form, given=given, later=later, parts=[], access=_NOTHING, created=())
        if item.kind is Kind.GETITEM:
            parts = [_element(given[0], node.args[1])]
            return Step(form=item.form, given=given, later=later, parts=parts, access=_NOTHING, created=())
        return self._operator(item, given, later)

    def _operator(self, item: Facts, given: Sequence[Sequence[Places]], later: Mapping[int | None, Names]) -> Step:
        node, inputs = item.node, [parts[0] if len(parts) == 1 else union(parts) for parts in given]
        mutates = _written(item, inputs) if _writes(item) else _NOWHERE
        if later:
            mutates = union([mutates, *(dict.fromkeys(names) for names in later.values())])
        free, new = self._units[node] is Unit.FREE, makes_new(item)
        parts: list[Places] = []
        seen: list[Places] | None = []
        created: list[Storage] = []
        results = results_of(item)
        for index, result in enumerate(results):
            if result is None:
                parts.append({})
                continue
            shared, in_place, is_view = NOT_SHARED if new else shared_with(item, index, inputs, mutates)
            seen = [*seen, shared] if is_view and seen is not None else None
            if later:
                shared = union([shared, dict.fromkeys((*later.get(None, ()), *later.get(index, ())))])
            if not (free and shared) and not in_place:
                name = node.name if len(results) == 1 else f"{node.name}.{index}"
                created.append(Storage(name=name, nbytes=result.nbytes, kind="intermediate"))
                shared = {**shared, name: result.place} if shared else {name: result.place}
            parts.append(shared)
        access = _NOTHING if free else _access(item, inputs, mutates, created, seen, reinplaced=bool(later))
        return Step(form=item.form, given=given, later=later, parts=parts, access=access, created=created)

    def _keep(self, storage: Storage) -> None:
        known = self._storages.get(storage.name)
        if known is not None and known.nbytes > storage.nbytes:
            storage = Storage(name=storage.name, nbytes=known.nbytes, kind=storage.kind)
        self._storages[storage.name] = storage


_NOT_LATER: Mapping[int | None, Names] = {}
_NOWHERE: Places = {}


def _element(parts: Sequence[Places], key: object) -> Places:
    return parts[key] if isinstance(key, int) and -len(parts) <= key < len(parts) else union(parts)


@per_form
def _anywhere(item: Facts) -> bool:
    """Tell whether an operator may read and write all of its inputs, wherever they lie."""
    return item.custom or item.kind is Kind.BARRIER


@per_form
def _writes(item: Facts) -> bool:
    """Tell whether an operator writes any of its inputs."""
    return _anywhere(item) or bool(positions_written(item))


def _written(item: Facts, inputs: Sequence[Places]) -> Places:
    """Return what an operator writes of the places of its inputs."""
    if _anywhere(item):
        return dict.fromkeys(union(inputs))
    found = union(inputs[position] for position in positions_written(item))
    return dict.fromkeys(found) if reaches_anywhere(item) else found


def _access(
    item: Facts,
    inputs: Sequence[Places],
    mutates: Places,
    created: Iterable[Storage],
    seen: list[Places] | None,
    *,
    reinplaced: bool,
) -> Access:
    """Return what an operator with a task does; `seen` are the places of its results if all of them are views."""
    overwritten = positions_overwritten(item)
    read: Sequence[Places] = inputs
    if overwritten:
        read = [places for position, places in enumerate(inputs) if position not in overwritten]
    anywhere, reaching = _anywhere(item), reaches_anywhere(item)
    if anywhere or (reaching and not seen):
        read = [dict.fromkeys(places) for places in read]
    written = [] if anywhere or reaching or reinplaced else [inputs[position] for position in positions_written(item)]
    return Access(
        reads=tuple(dict.fromkeys(name for places in read for name in places)),
        mutates=tuple(mutates),
        creates=tuple([storage.name for storage in created]),
        # A view that copies reads what it shows of its argument.
        read_regions=regions_in(seen or read),
        mutated_regions=regions_in(written) if written else (),
    )


def _memory(tensor: torch.Tensor) -> int | None:
    """Identify the memory of an example tensor, if it has any."""
    return int(tensor.untyped_storage()._cdata) if torch._C._has_storage(tensor) else None
