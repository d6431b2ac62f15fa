"""How many bytes an operator moves, counted from shapes: an estimate of what it must touch, not of what caches save."""

from __future__ import annotations

from torch import fx

from autostream.graph.calls import Facts, Kind, nodes_in
from autostream.graph.flops import Call
from autostream.graph.reinplace import arguments_written, nodes_overwritten
from autostream.graph.values import specs_of, value_of


def bytes_of(item: Facts, call: Call, created: int) -> tuple[int, int]:
    """Return (bytes read, bytes written); `created` is the size of the results that are new storages."""
    written = _written_in_place(item)
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
        return [("", node) for node in item.node.all_input_nodes]
    named: dict[fx.Node, str] = {}
    for name, value in item.arguments.items():
        for node in nodes_in(value):
            named.setdefault(node, name)
    return [(name, node) for node, name in named.items()]


def _written_in_place(item: Facts) -> list[fx.Node]:
    """Return the arguments that are written where they stand; a functional variant writes its results instead."""
    if item.kind is not Kind.SCHEMA or item.target.rpartition(".")[0].endswith("_functional"):
        return []
    return list(dict.fromkeys(node for value in arguments_written(item) for node in nodes_in(value)))


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
    table = call.first("block_table")
    cache = call.first(name)
    if traffic == "paged" and table is not None and cache is not None and name.startswith(("key", "value")) and cache.shape:
        return min(nbytes, table.numel * (nbytes // max(1, cache.shape[0])))
    return nbytes
