"""How many bytes an operator moves, counted from shapes: an estimate of what it must touch, not of what caches save."""

from __future__ import annotations

from torch import fx

from autostream.graph.calls import Facts, Kind, defaults_of, nodes_in, per_form
from autostream.graph.flops import Call
from autostream.graph.model import TensorSpec
from autostream.graph.reinplace import is_written_back, nodes_overwritten, nodes_written, updated_in_place
from autostream.graph.values import specs_of, value_of


@per_form
def call_of(item: Facts) -> Call:
    """Return the call with its tensors as shapes and dtypes; arguments that are not given have their defaults."""
    tensors = {}
    scalars = dict(defaults_of(item.overload)) if item.overload else {}
    for name, value in item.arguments.items():
        nodes = nodes_in(value)
        if nodes:
            tensors[name] = tuple(spec for node in nodes for spec in specs_of(value_of(node)))
        else:
            scalars[name] = value
    return Call(tensors=tensors, scalars=scalars, outputs=specs_of(value_of(item.node)))


def bytes_of(item: Facts, created: int) -> tuple[int, int]:
    """Return (bytes read, bytes written); `created` is the size of the results that are new storages."""
    if is_written_back(item):
        return 0, 0
    return _moved(item, created, tuple(map(item.inputs.index, updated_in_place(item))))


@per_form
def _moved(item: Facts, created: int, in_place: tuple[int, ...]) -> tuple[int, int]:
    """Return (bytes read, bytes written) where the inputs at these positions are written where they stand."""
    call = call_of(item)
    returned = [item.inputs[position] for position in in_place]
    created = max(0, created - sum(spec.nbytes for node in returned for spec in specs_of(value_of(node))))
    written = returned or _written_in_place(item)
    touched = _touched(item, written)
    overwritten = nodes_overwritten(item)
    read = 0
    for name, source in _sources(item):
        nbytes = sum(spec.nbytes for spec in specs_of(value_of(source)))
        if (source in written and touched is not None) or source in overwritten:
            continue
        read += _limited(item, name, nbytes, call, created)
    wrote = sum(sum(spec.nbytes for spec in specs_of(value_of(node))) for node in written)
    return read, created + (wrote if touched is None else min(wrote, touched))


def _sources(item: Facts) -> list[tuple[str, fx.Node]]:
    """Return every tensor argument once, with the name of the argument it first appears as."""
    if item.kind in (Kind.BARRIER, Kind.GETITEM, Kind.SCALAR):
        return [("", node) for node in item.inputs]
    named: dict[fx.Node, str] = {}
    for name, value in item.arguments.items():
        for node in nodes_in(value):
            named.setdefault(node, name)
    return [(name, node) for node, name in named.items()]


def _written_in_place(item: Facts) -> list[fx.Node]:
    """Return the arguments that are written where they stand; a functional variant writes its results instead."""
    if item.kind is not Kind.SCHEMA or item.functional:
        return []
    return list(dict.fromkeys(nodes_written(item)))


def _touched(item: Facts, written: list[fx.Node]) -> int | None:
    """Return how many bytes of the written arguments an update reaches, or None if all of them."""
    if item.info is None or not item.info.update or not written:
        return None
    sources = [node for name in item.info.update for node in nodes_in(item.arguments.get(name)) if node not in written]
    if not sources:
        return None
    return sum(spec.nbytes for source in sources for spec in specs_of(value_of(source)))


def _limited(item: Facts, name: str, nbytes: int, call: Call, created: int) -> int:
    """Return how much of an argument is read."""
    traffic = item.info.traffic if item.info is not None else "dense"
    if traffic == "gather":
        return min(nbytes, created)
    if traffic == "capped":
        return min(nbytes, int(call.scalars.get("max_size") or nbytes))
    cache = call.first(name)
    if traffic == "paged" and cache is not None and name.startswith(("key", "value")):
        return _looked_up(cache, nbytes, call)
    return nbytes


def _looked_up(cache: TensorSpec, nbytes: int, call: Call) -> int:
    """Return how much of a cache of keys or values is read: the listed blocks, and of these what a sparse attention picks."""
    table, chosen = call.first("block_table"), call.first("sparse_indices")
    if table is not None and cache.shape:
        nbytes = min(nbytes, table.numel * (nbytes // max(1, cache.shape[0])))
    if chosen is not None and len(cache.shape) == 4:
        # [blocks, block size, heads, depth] or [batch, sequence, heads, depth]: the first two count the tokens.
        per_token = cache.nbytes // max(1, cache.shape[0] * cache.shape[1])
        nbytes = min(nbytes, chosen.numel * int(call.scalars.get("sparse_block_size") or 1) * per_token)
    return nbytes
