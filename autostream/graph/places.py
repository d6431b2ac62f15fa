"""Where in its storages a value lies, followed through views with PyTorch's own view operators on tensors without memory."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from autostream.graph.calls import Facts, nodes_in, per_form
from autostream.graph.regions import Region, in_blocks, region
from autostream.graph.values import all_plain, elements_of, tensors_in, value_of

#: Views that a backend may make a copying task of, which reads all of the value before anything is cut out of it.
_TURNING = frozenset({"t", "transpose", "permute", "swapaxes", "movedim", "numpy_T", "view_as_real", "view_as_complex"})
#: What it reads does not depend on where its argument lies, only on the storage.
_REACHING = frozenset({"as_strided", "as_strided_", "as_strided_copy", "as_strided_scatter"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A strided tensor in a storage; elements."""

    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The part of a storage that a value lies in: `layout` if it is exactly known, else it is somewhere in `region`."""

    region: Region
    #: The blocks of memory that `region` reaches into.
    blocks: Region
    layout: Layout | None = None


#: By storage: the place of a value in it; None if it may be anywhere in it.
Places = Mapping[str, Place | None]


def place_of(tensor: Any) -> Place | None:
    """Return the place of a tensor with static shape at the start of a storage of its own."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return None
    sizes, strides = tuple(tensor.shape), tensor.stride()
    if not all_plain((*sizes, tensor.storage_offset(), *strides)):
        return None
    return _at_start(sizes, strides, tensor.dtype)


@functools.lru_cache(maxsize=4096)  # a deep model has few different ones
def _at_start(sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> Place | None:
    return _placed(Layout(offset=0, sizes=sizes, strides=strides, dtype=dtype))


def union(groups: Iterable[Places]) -> dict[str, Place | None]:
    """Return the places of a value that lies in any of several; two places in one storage make it any place."""
    found: dict[str, Place | None] = {}
    for group in groups:
        for storage, place in group.items():
            known = found.setdefault(storage, place)
            if known is not place and known != place:
                found[storage] = None
    return found


def somewhere(places: Places) -> dict[str, Place | None]:
    """Return places that keep their bounds and lose their layout."""
    return {name: place and _bounds(place) for name, place in places.items()}


def _bounds(place: Place) -> Place:
    return place if place.layout is None else Place(region=place.region, blocks=place.blocks)


def regions_in(groups: Iterable[Places]) -> tuple[tuple[str, Region], ...]:
    """Return (storage, region) of every block that the places reach into, without the storages where that is not known."""
    found: dict[str, list[Region] | None] = {}
    for group in groups:
        for storage, place in group.items():
            blocks = found.setdefault(storage, [])
            if place is None:
                found[storage] = None
            elif blocks is not None:
                blocks.append(place.blocks)
    regions: list[tuple[str, Region]] = []
    for storage, blocks in found.items():
        if blocks:
            regions += [(storage, part) for part in (blocks if len(blocks) == 1 else dict.fromkeys(blocks))]
    return tuple(regions)


def reaches_anywhere(item: Facts) -> bool:
    """Tell whether an operator may touch a storage outside the tensor it is given."""
    return _packet(item) in _REACHING


def view_of(item: Facts, index: int, source: Places) -> dict[str, Place | None]:
    """Return the places of one result of a view operator whose argument lies at `source`."""
    if reaches_anywhere(item) and (len(source) != 1 or not all(place and _is_at_start(place) for place in source.values())):
        return dict.fromkeys(source)
    return {name: place and _view(item, index, place) for name, place in source.items()}


def _is_at_start(place: Place) -> bool:
    """Tell whether what counts from the start of the storage counts from the start of this tensor."""
    return place.layout is not None and place.layout.offset == 0


@per_form
def _view(item: Facts, index: int, place: Place) -> Place | None:
    unknown = None if reaches_anywhere(item) else _bounds(place)
    if place.layout is None or _packet(item) in _TURNING:
        return unknown
    wanted = next(tensors_in(elements_of(value_of(item.node))[index]), None)
    results = _run(item, place.layout)
    result = results[index] if results is not None and index < len(results) else None
    if result is None or wanted is None or result.sizes != tuple(wanted.shape):
        return unknown
    return _placed(result) or unknown


def _run(item: Facts, layout: Layout) -> tuple[Layout, ...] | None:
    """Apply a view operator to a tensor without memory; None if it cannot be done, or the result is no view."""
    first, *others = item.arguments.items()
    if item.overload is None or not isinstance(first[1], fx.Node) or any(nodes_in(value) for _, value in others):
        return None
    extent = sum((size - 1) * stride for size, stride in zip(layout.sizes, layout.strides, strict=True)) + 1
    if 0 in layout.sizes or extent <= 0:
        return None
    call = (item.overload, first[0], layout, tuple(others), _room(item, layout.offset + extent))
    try:
        return _shown(*call)
    except TypeError:  # an argument that cannot be looked up
        return _shown.__wrapped__(*call)


@functools.lru_cache(maxsize=4096)  # the layers of a deep model are alike
def _shown(
    overload: OpOverload, name: str, layout: Layout, others: tuple[tuple[str, Any], ...], room: int
) -> tuple[Layout, ...] | None:
    memory = torch.empty(room, dtype=layout.dtype, device="meta")
    base = memory.as_strided(layout.sizes, layout.strides, layout.offset)
    try:
        value = overload(**{name: base, **dict(others)})
    except (RuntimeError, TypeError, ValueError, IndexError):
        return None
    results = list(value) if isinstance(value, (list, tuple)) else [value]
    storage = memory.untyped_storage()._cdata
    views = all(isinstance(result, torch.Tensor) and result.untyped_storage()._cdata == storage for result in results)
    return tuple(map(_layout, results)) if views else None


def _room(item: Facts, least: int) -> int:
    """Return how many elements the memory must have: a reaching operator may go past its argument."""
    if not reaches_anywhere(item):
        return least
    sizes, strides = item.argument("size"), item.argument("stride")
    offset = item.argument("storage_offset")
    end = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=False)) + 1
    return max(least, (least if offset is None else int(offset)) + int(end))


def _layout(tensor: torch.Tensor) -> Layout:
    return Layout(
        offset=int(tensor.storage_offset()), sizes=tuple(tensor.shape), strides=tuple(tensor.stride()), dtype=tensor.dtype
    )


def _placed(layout: Layout) -> Place | None:
    part = region(offset=layout.offset, sizes=layout.sizes, strides=layout.strides, itemsize=layout.dtype.itemsize)
    return None if part is None else Place(region=part, blocks=in_blocks(part), layout=layout)


@per_form
def _packet(item: Facts) -> str:
    return item.target.split(".")[1] if item.target.startswith("aten.") else ""
