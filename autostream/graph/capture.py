"""From an ATen FX graph to an `OpGraph`: operators, storages, and the DAG of everything that orders them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import networkx as nx
import torch
from torch import fx

from autostream.graph.aliases import Access, Aliasing, analyse
from autostream.graph.calls import Facts, Kind, is_seeded, nodes_in, per_form
from autostream.graph.flops import flops_of
from autostream.graph.groups import group_size, share_sizes
from autostream.graph.hazards import Edges, add_barriers, add_block, add_chain, add_prefetches, add_storage_hazards
from autostream.graph.model import Op, OpGraph, Storage, Unit, Why
from autostream.graph.origin import module_path, source_line
from autostream.graph.refusals import memory_refusals, operator_notes, shape_refusals, sync_refusals
from autostream.graph.scopes import Scopes, read_scopes
from autostream.graph.survey import survey
from autostream.graph.traffic import bytes_of, call_of
from autostream.graph.values import is_symbolic, specs_of, tensors_in, value_of

#: The state of the random generator, read and advanced by every operator that draws numbers; no node can have this name.
RNG = "<rng>"
_GROUP_ARGUMENTS = ("group_name", "group_ep", "hcom", "group", "tag")
#: Reshapes that must move data when the strides do not allow a view.
_RESHAPES = ("aten.reshape.default", "aten._unsafe_view.default", "aten.flatten.using_ints")
#: Copies that TorchAir drops where they keep the shape.
_KEEPS_SHAPE = ("aten.expand.default", "aten.slice.Tensor")
#: An argument and the value of it that switches an operator's randomness off.
_NOT_RANDOM: Mapping[str, Any] = {"dropout_p": 0.0, "dropout_prob": 0.0, "keep_prob": 1.0, "train": False}


def capture(graph_module: fx.GraphModule, *, like: OpGraph | None = None) -> OpGraph:
    """Return the operators of a graph and everything that orders them. The graph is not changed.

    `like` is of a graph that this one was rewritten from: how much an operator that has kept its name and target computes and
    moves, and where it comes from, is taken over from there. What it accesses is always found out anew.

    A graph that must not be scheduled is captured as far as possible and says why in `refusals`, each ``"code: sentence"`` with
    the code dynamic-shape, hand-written-sync, unsupported or no-shapes.
    """
    facts = survey(graph_module.graph)
    operators = {node: item for node, item in facts.items() if item.kind not in (Kind.STORAGE, Kind.MARK, Kind.OUTPUT)}
    units = {node: _unit(item) for node, item in operators.items()}
    aliasing = analyse(facts, units)
    accesses = _with_hidden_state(operators, aliasing)
    scopes = read_scopes(facts)
    storages = dict(aliasing.storages)
    hidden = {name: None for access in accesses.values() for name in access.mutates if name not in storages}
    storages |= {name: Storage(name=name, nbytes=0, kind="state") for name in hidden}
    ops = {}
    for index, (node, item) in enumerate(operators.items()):
        same = like.ops.get(node.name) if like is not None else None
        if same is not None and (same.target != item.target or same.unit is not units[node]):
            same = None
        ops[node.name] = _op(item, index, accesses[node.name], scopes, storages, same)
    ops = share_sizes(ops)
    edges = _edges(operators, units, accesses, scopes)
    dag: nx.DiGraph = nx.DiGraph()
    dag.add_nodes_from(ops)
    dag.add_edges_from((before, after, {"why": why}) for before, after, why in edges.named())
    results = [node for item in facts.values() if item.kind is Kind.OUTPUT for node in item.node.all_input_nodes]
    return OpGraph(
        dag=dag,
        ops=ops,
        storages=storages,
        outputs=tuple(node.name for node in results if node in operators),
        refusals=(*shape_refusals(facts), *sync_refusals(operators), *memory_refusals(operators), *scopes.refusals),
        notes=(*operator_notes(operators), *scopes.notes),
    )


@per_form
def _unit(item: Facts) -> Unit:
    if item.kind in (Kind.SCALAR, Kind.GETITEM):
        return Unit.FREE
    if item.info is None:
        return Unit.MIXED
    if item.target in _RESHAPES and _moves_data(item.node):
        return Unit.VECTOR
    nothing = item.target in _KEEPS_SHAPE and _changes_nothing(item.node)
    return Unit.FREE if nothing or _is_empty(item) else item.info.unit


def _is_empty(item: Facts) -> bool:
    """Tell whether an operator makes tensors without elements and does nothing else: backends make constants of them."""
    if item.overload is None or item.overload._schema.is_mutable or item.info is None or item.info.order or item.info.writes:
        return False
    results = specs_of(value_of(item.node))
    return bool(results) and all(spec.numel == 0 for spec in results)


def _changes_nothing(node: fx.Node) -> bool:
    result = specs_of(value_of(node))
    return bool(result) and result == specs_of(value_of(node.all_input_nodes[0]))


def _moves_data(node: fx.Node) -> bool:
    """Tell whether a reshape of a permuted tensor has to copy: then it is a task of its own and reads where it stands."""
    source = next(tensors_in(value_of(node.all_input_nodes[0])), None) if node.all_input_nodes else None
    result = next(tensors_in(value_of(node)), None)
    if not isinstance(source, torch.Tensor) or not isinstance(result, torch.Tensor) or is_symbolic([source, result]):
        return False
    try:
        source.view(result.shape)
    except RuntimeError:
        return True
    return False


def _with_hidden_state(operators: Mapping[fx.Node, Facts], aliasing: Aliasing) -> dict[str, Access]:
    """Add what operators change that none of their arguments shows: the random generator, a workspace that a library shares."""
    accesses = dict(aliasing.accesses)
    for node, item in operators.items():
        hidden = _hidden_state(item)
        if hidden:
            access = accesses[node.name]
            accesses[node.name] = replace(access, reads=(*access.reads, *hidden), mutates=(*access.mutates, *hidden))
    return accesses


@per_form
def _hidden_state(item: Facts) -> tuple[str, ...]:
    random = (RNG,) if _is_random(item) else ()
    workspace = item.info.workspace if item.info is not None else ""
    return (*random, f"<workspace {workspace}>") if workspace else random


def _is_random(item: Facts) -> bool:
    listed = item.info is not None and "random" in item.info.order
    return (listed or is_seeded(item.overload)) and not any(item.argument(name) == off for name, off in _NOT_RANDOM.items())


def _op(item: Facts, index: int, access: Access, scopes: Scopes, storages: Mapping[str, Storage], same: Op | None) -> Op:
    """Return an operator at its place, in its scopes and on its storages.

    How much it computes and moves, and where it comes from, is that of `same` if there is one.
    """
    known = _alone(item) if same is None else same
    moved = _bytes(item, access, storages) if same is None else (same.bytes_read, same.bytes_written)
    node = item.node
    # Spelled out: `replace` takes twice the time, and a deep graph has thousands of operators.
    return Op(
        name=node.name,
        target=known.target,
        unit=known.unit,
        index=index,
        inputs=known.inputs,
        outputs=known.outputs,
        flops=known.flops,
        bytes_read=moved[0],
        bytes_written=moved[1],
        reads=access.reads,
        writes=(*access.mutates, *access.creates),
        read_regions=access.read_regions,
        write_regions=access.mutated_regions,
        module_path=module_path(node) if same is None else same.module_path,
        source_line=source_line(node) if same is None else same.source_line,
        scope=scopes.attributes[node.name],
        group=known.group,
        group_size=known.group_size,
        in_kernel=known.in_kernel,
        into_input=_is_into_input(item) if same is None else same.into_input,
        known=known.known,
    )


def _bytes(item: Facts, access: Access, storages: Mapping[str, Storage]) -> tuple[int, int]:
    return (0, 0) if _unit(item) is Unit.FREE else bytes_of(item, sum(storages[name].nbytes for name in access.creates))


@per_form
def _alone(item: Facts) -> Op:
    """Return what is known of an operator without the graph around it."""
    unit, call = _unit(item), call_of(item)
    return Op(
        name="",
        target=item.target,
        unit=unit,
        index=0,
        inputs=tuple(spec for source in _tensor_arguments(item) for spec in specs_of(value_of(source))),
        outputs=call.outputs,
        flops=flops_of(item.info, call) if item.info is not None and unit is not Unit.FREE else 0,
        bytes_read=0,
        bytes_written=0,
        group=_group(item),
        group_size=group_size(item),
        in_kernel=item.info is not None and item.info.in_kernel,
        known=item.info is not None or item.kind is Kind.SCALAR,
    )


def _tensor_arguments(item: Facts) -> list[fx.Node]:
    return nodes_in((item.node.args, dict(item.node.kwargs)))


def _is_into_input(item: Facts) -> bool:
    destination = item.arguments.get("self")
    return item.target == "aten.copy_.default" and isinstance(destination, fx.Node) and destination.op == "placeholder"


def _group(item: Facts) -> str | None:
    if item.info is None or "collective" not in item.info.order:
        return None
    name = next((item.argument(argument) for argument in _GROUP_ARGUMENTS if item.argument(argument)), "")
    ranks = item.arguments.get("ranks") or item.arguments.get("rank_list")
    return f"{name}{list(ranks)}" if ranks else str(name)


def _edges(
    operators: Mapping[fx.Node, Facts], units: Mapping[fx.Node, Unit], accesses: Mapping[str, Access], scopes: Scopes
) -> Edges:
    edges = Edges([node.name for node in operators])
    at = {node: position for position, node in enumerate(operators)}
    for node, item in operators.items():
        for source in item.inputs:
            if source in at:
                edges.add(at[source], at[node], Why.DATA)
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
    tasks = [at[node] for node in operators if units[node] is not Unit.FREE]
    add_prefetches(edges, accesses, positions["prefetch"], tasks)
    for first, last in scopes.blocks:
        add_block(edges, edges.position[first], edges.position[last])
    add_barriers(edges, positions["barrier"])
    return edges


def _producers(operators: Mapping[fx.Node, Facts], units: Mapping[fx.Node, Unit], at: Mapping[fx.Node, int]) -> list[set[int]]:
    """Return, by operator, the operators with a task whose values it gets, views left out."""
    found: list[set[int]] = []
    for item in operators.values():
        producers: set[int] = set()
        for source in item.inputs:
            if source in at:
                producers |= found[at[source]] if units[source] is Unit.FREE else {at[source]}
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
