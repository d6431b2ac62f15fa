"""From an ATen FX graph to an `OpGraph`: operators, storages, and the DAG of everything that orders them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import networkx as nx
import torch
from torch import fx

from autostream.graph.aliases import Access, Aliasing, analyse
from autostream.graph.calls import Facts, Kind, defaults_of, is_seeded, look, nodes_in
from autostream.graph.flops import Call, flops_of
from autostream.graph.groups import group_size, share_sizes
from autostream.graph.hazards import Edges, add_barriers, add_block, add_chain, add_prefetches, add_storage_hazards
from autostream.graph.model import Op, OpGraph, Storage, Unit, Why
from autostream.graph.origin import module_path, source_line
from autostream.graph.scopes import Scopes, read_scopes
from autostream.graph.traffic import bytes_of
from autostream.graph.values import MISSING, is_symbolic, specs_of, tensors_in, value_of

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
    facts = {node: look(node) for node in graph_module.graph.nodes}
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
        if same is not None and same.target == item.target and same.unit is units[node]:
            ops[node.name] = _moved(same, index, accesses[node.name], scopes)
        else:
            ops[node.name] = _op(item, index, units[node], accesses[node.name], scopes, storages)
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
        refusals=(*_shape_refusals(facts), *_sync_refusals(operators), *_memory_refusals(operators), *scopes.refusals),
        notes=(*_operator_notes(operators), *scopes.notes),
    )


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
        hidden = [RNG] if _is_random(item) else []
        hidden += [f"<workspace {item.info.workspace}>"] if item.info is not None and item.info.workspace else []
        if hidden:
            access = accesses[node.name]
            accesses[node.name] = replace(access, reads=(*access.reads, *hidden), mutates=(*access.mutates, *hidden))
    return accesses


def _is_random(item: Facts) -> bool:
    listed = item.info is not None and "random" in item.info.order
    return (listed or is_seeded(item.overload)) and not any(item.argument(name) == off for name, off in _NOT_RANDOM.items())


def _op(item: Facts, index: int, unit: Unit, access: Access, scopes: Scopes, storages: Mapping[str, Storage]) -> Op:
    call = _call(item)
    created = sum(storages[name].nbytes for name in access.creates)
    read, written = (0, 0) if unit is Unit.FREE else bytes_of(item, call, created)
    return Op(
        name=item.node.name,
        target=item.target,
        unit=unit,
        index=index,
        inputs=tuple(spec for source in _tensor_arguments(item) for spec in specs_of(value_of(source))),
        outputs=call.outputs,
        flops=flops_of(item.info, call) if item.info is not None and unit is not Unit.FREE else 0,
        bytes_read=read,
        bytes_written=written,
        reads=access.reads,
        writes=(*access.mutates, *access.creates),
        read_regions=access.read_regions,
        write_regions=access.mutated_regions,
        module_path=module_path(item.node),
        source_line=source_line(item.node),
        scope=scopes.attributes[item.node.name],
        group=_group(item),
        into_input=_is_into_input(item),
        group_size=group_size(item),
        in_kernel=item.info is not None and item.info.in_kernel,
        known=item.info is not None or item.kind is Kind.SCALAR,
    )


def _moved(op: Op, index: int, access: Access, scopes: Scopes) -> Op:
    """Return an operator at another place, in other scopes and on other storages."""
    return replace(
        op,
        index=index,
        reads=access.reads,
        writes=(*access.mutates, *access.creates),
        read_regions=access.read_regions,
        write_regions=access.mutated_regions,
        scope=scopes.attributes[op.name],
    )


def _call(item: Facts) -> Call:
    tensors = {}
    scalars = dict(defaults_of(item.overload)) if item.overload else {}
    for name, value in item.arguments.items():
        nodes = nodes_in(value)
        if nodes:
            tensors[name] = tuple(spec for node in nodes for spec in specs_of(value_of(node)))
        else:
            scalars[name] = value
    return Call(tensors=tensors, scalars=scalars, outputs=specs_of(value_of(item.node)))


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
    at = edges.position
    for node in operators:
        for source in node.all_input_nodes:
            if source in operators:
                edges.add(at[source.name], at[node.name], Why.DATA)
    add_storage_hazards(edges, accesses, _producers(operators, units, at))
    add_chain(edges, [at[node.name] for node, item in operators.items() if _in_order(item, "collective")], Why.COLLECTIVE)
    add_chain(edges, [at[node.name] for node, item in operators.items() if _is_opaque(item)], Why.EFFECT)
    if any(item.custom for item in operators.values()):
        # A custom operator may communicate inside: beside a collective on another stream, the ranks could wait for each other.
        may_communicate = [node for node, item in operators.items() if item.custom or _in_order(item, "collective")]
        add_chain(edges, [at[node.name] for node in may_communicate], Why.EFFECT)
    add_chain(edges, [at[node.name] for node, item in operators.items() if _is_host(item)], Why.EFFECT)
    tasks = [at[node.name] for node in operators if units[node] is not Unit.FREE]
    add_prefetches(edges, accesses, [at[node.name] for node, item in operators.items() if _in_order(item, "prefetch")], tasks)
    for first, last in scopes.blocks:
        add_block(edges, at[first], at[last])
    add_barriers(edges, [at[node.name] for node, item in operators.items() if item.kind is Kind.BARRIER])
    return edges


def _producers(operators: Mapping[fx.Node, Facts], units: Mapping[fx.Node, Unit], at: Mapping[str, int]) -> list[set[int]]:
    """Return, by operator, the operators with a task whose values it gets, views left out."""
    found: dict[fx.Node, set[int]] = {}
    for node in operators:
        found[node] = set()
        for source in node.all_input_nodes:
            if source in operators:
                found[node] |= found[source] if units[source] is Unit.FREE else {at[source.name]}
    return list(found.values())


def _in_order(item: Facts, order: str) -> bool:
    return item.info is not None and order in item.info.order


def _is_opaque(item: Facts) -> bool:
    return item.custom or _in_order(item, "opaque")


def _is_host(item: Facts) -> bool:
    """Tell whether an operator meets the host: by the table, or because it copies from the device."""
    if _in_order(item, "host"):
        return True
    if item.kind is not Kind.SCHEMA or item.target.rpartition(".")[0] not in ("aten._to_copy", "aten.copy_", "aten.to"):
        return False
    devices = {device for node in item.node.all_input_nodes for device in _devices(node)}
    return _devices(item.node) == ["cpu"] and bool(devices - {"cpu", "meta"})


def _devices(node: fx.Node) -> list[str]:
    return [tensor.device.type for tensor in tensors_in(value_of(node)) if isinstance(tensor, torch.Tensor)]


def _shape_refusals(facts: Mapping[fx.Node, Facts]) -> list[str]:
    values = {node.name: value_of(node) for node, item in facts.items() if item.kind not in (Kind.OUTPUT, Kind.MARK)}
    missing = [name for name, value in values.items() if value is MISSING]
    dynamic = [name for name, value in values.items() if is_symbolic(value)]
    refusals = []
    if missing:
        advice = "run it through autostream.schedule(model, inputs) or fake tensor propagation"
        refusals.append(f"no-shapes: node {missing[0]} has no shape{_more(missing)}; {advice}")
    if dynamic:
        advice = "capture the model with static shapes"
        refusals.append(f"dynamic-shape: node {dynamic[0]} has a symbolic shape or value{_more(dynamic)}; {advice}")
    return refusals


def _more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


def _sync_refusals(operators: Mapping[fx.Node, Facts]) -> list[str]:
    names = [node.name for node, item in operators.items() if item.hand_written_sync]
    if not names:
        return []
    shown = ", ".join(names[:3]) + (" ..." if len(names) > 3 else "")
    return [f"hand-written-sync: the graph already synchronises streams by hand ({shown})"]


def _memory_refusals(operators: Mapping[fx.Node, Facts]) -> list[str]:
    """Refuse operators that give a tensor another shape or other memory: every access before and after means something else."""
    found = [item for item in operators.values() if item.overload is not None and torch.Tag.inplace_view in item.overload.tags]
    return [
        f"unsupported: {item.node.name} ({item.target}) changes the shape or the memory of a tensor in place"
        for item in found[:1]
    ]


def _operator_notes(operators: Mapping[fx.Node, Facts]) -> list[str]:
    """Name, once per target, the operators that are treated with more care than they may need."""
    schemas = (item for item in operators.values() if item.overload is not None and not item.custom)
    unknown = Counter(item.target for item in schemas if item.info is None)
    opaque = Counter(item.target for item in operators.values() if item.custom)
    barriers = Counter(item.target for item in operators.values() if item.kind is Kind.BARRIER)
    cpu_only = Counter(item.target for item in operators.values() if "_for_cpu" in item.target)
    return [
        *(f"{name} ({count} x) exists on CPUs only: an NPU runs and pays another" for name, count in cpu_only.items()),
        *(f"unknown operator {name} ({count} x): taken to use every core" for name, count in unknown.items()),
        *(f"custom operator {name} ({count} x): taken to read and write all its tensors" for name, count in opaque.items()),
        *(f"{name} ({count} x) is no ATen operator: nothing moves across it" for name, count in barriers.items()),
    ]
