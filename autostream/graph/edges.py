"""Everything that orders the operators of a graph, put together: values, storages, and what must stay as it was written."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import torch
from torch import fx

from autostream.graph.aliases import Access
from autostream.graph.calls import Facts, Kind, per_form
from autostream.graph.hazards import Edges, add_barriers, add_block, add_chain, add_prefetches, add_storage_hazards
from autostream.graph.model import Unit, Why
from autostream.graph.scopes import Scopes
from autostream.graph.values import tensors_in, value_of


def edges_of(
    operators: Mapping[fx.Node, Facts], units: Mapping[fx.Node, Unit], accesses: Mapping[str, Access], scopes: Scopes
) -> Edges:
    """Return the edges of a graph between its operators.

    Args:
        operators: every operator, in graph order.
        units: the unit of every operator.
        accesses: what every operator does to storages, by name.
        scopes: the user's own scopes.
    """
    edges = Edges([node.name for node in operators])
    at = {node: position for position, node in enumerate(operators)}
    data, free = Why.DATA, Unit.FREE
    for node, item in operators.items():
        for source in item.inputs:
            if source in at:
                edges.add(at[source], at[node], data)
    add_storage_hazards(edges, accesses, _producers(operators, units, at))
    positions: dict[str, list[int]] = {role: [] for role in _ROLES}
    for node, item in operators.items():
        for role in _roles(item):
            positions[role].append(at[node])
    add_chain(edges, positions["collective"], Why.COLLECTIVE)
    add_chain(edges, positions["opaque"], Why.EFFECT)
    if any(item.custom for item in operators.values()):
        # A custom operator may communicate inside: beside a collective on another stream, the ranks could wait for each other.
        add_chain(edges, positions["may communicate"], Why.EFFECT)
    add_chain(edges, positions["host"], Why.EFFECT)
    tasks = [at[node] for node in operators if units[node] is not free]
    add_prefetches(edges, accesses, positions["prefetch"], tasks)
    for first, last in scopes.blocks:
        add_block(edges, edges.position[first], edges.position[last])
    add_barriers(edges, positions["barrier"])
    return edges


def _producers(operators: Mapping[fx.Node, Facts], units: Mapping[fx.Node, Unit], at: Mapping[fx.Node, int]) -> list[set[int]]:
    """Return, by operator, the operators with a task whose values it gets, views left out."""
    found: list[set[int]] = []
    free = Unit.FREE
    for item in operators.values():
        producers: set[int] = set()
        for source in item.inputs:
            if source in at:
                producers |= found[at[source]] if units[source] is free else {at[source]}
        found.append(producers)
    return found


#: What operators are kept in order for.
_ROLES = ("collective", "opaque", "may communicate", "host", "prefetch", "barrier")


@per_form
def _roles(item: Facts) -> tuple[str, ...]:
    communicates = _in_order(item, "collective")
    holds = (
        communicates,
        item.custom or _in_order(item, "opaque"),
        item.custom or communicates,
        _is_host(item),
        _in_order(item, "prefetch"),
        item.kind is Kind.BARRIER,
    )
    return tuple(itertools.compress(_ROLES, holds))


def _in_order(item: Facts, order: str) -> bool:
    return item.info is not None and order in item.info.order


def _is_host(item: Facts) -> bool:
    """Tell whether an operator meets the host: by the table, or because it copies from the device."""
    if _in_order(item, "host"):
        return True
    if item.kind is not Kind.SCHEMA or item.target.rpartition(".")[0] not in ("aten._to_copy", "aten.copy_", "aten.to"):
        return False
    devices = {device for node in item.inputs for device in _devices(node)}
    return _devices(item.node) == ["cpu"] and bool(devices - {"cpu", "meta"})


def _devices(node: fx.Node) -> list[str]:
    return [tensor.device.type for tensor in tensors_in(value_of(node)) if isinstance(tensor, torch.Tensor)]
