"""From an ATen FX graph to an `OpGraph`: operators, storages, and the DAG of everything that orders them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import networkx as nx
import torch
from torch import fx

from autostream.graph.aliases import Access, Aliasing, Step, analyse
from autostream.graph.calls import NO_OPERATOR, Facts, Kind, is_seeded, nodes_in, per_form
from autostream.graph.edges import edges_of
from autostream.graph.flops import flops_of
from autostream.graph.groups import group_name, group_size, share_sizes
from autostream.graph.model import Op, Operators, OpGraph, Storage, Unit, storages_behind
from autostream.graph.origin import module_path, source_line
from autostream.graph.refusals import memory_refusals, operator_notes, shape_refusals, sync_refusals
from autostream.graph.scopes import Scopes, read_scopes
from autostream.graph.survey import Survey
from autostream.graph.traffic import bytes_of, call_of
from autostream.graph.values import is_symbolic, specs_of, tensors_in, value_of

_FREE = Unit.FREE
#: The state of the random generator, read and advanced by every operator that draws numbers; no node can have this name.
RNG = "<rng>"
#: Reshapes that must move data when the strides do not allow a view.
_RESHAPES = ("aten.reshape.default", "aten._unsafe_view.default", "aten.flatten.using_ints")
#: Copies that TorchAir drops where they keep the shape.
_KEEPS_SHAPE = ("aten.expand.default", "aten.slice.Tensor")
#: An argument and the value of it that switches an operator's randomness off.
_NOT_RANDOM: Mapping[str, Any] = {"dropout_p": 0.0, "dropout_prob": 0.0, "keep_prob": 1.0, "train": False}


def capture(graph_module: fx.GraphModule) -> OpGraph:
    """Return the operators of a graph and everything that orders them. The graph is not changed.

    A graph that must not be scheduled is captured as far as possible and says why in `refusals`, each ``"code: sentence"`` with
    the code dynamic-shape, hand-written-sync, unsupported or no-shapes.
    """
    return Captured(graph_module).graph


class Captured:
    """A captured graph, with what helps to look at graphs that were rewritten from it. All it is made from is kept alive."""

    def __init__(self, graph_module: fx.GraphModule) -> None:
        """Capture a graph as `capture` does."""
        self._survey = Survey()
        self._found = found = _look(graph_module, self._survey)
        #: What `capture` returns.
        self.graph = OpGraph(
            dag=_dag(found),
            ops=share_sizes({node.name: _op(item, index, found) for index, (node, item) in enumerate(found.operators.items())}),
            storages=found.storages,
            outputs=_outputs(found),
            refusals=(
                *shape_refusals(found.facts),
                *sync_refusals(found.operators),
                *memory_refusals(found.operators),
                *found.scopes.refusals,
            ),
            notes=(*operator_notes(found.operators), *found.scopes.notes),
        )

    def rewritten(self, graph_module: fx.GraphModule) -> Operators:
        """Return the operators of a graph that was rewritten from this one, mostly known ones.

        An operator is taken over where its name, its scopes, what it is and all places of what it is given are the same. What
        does not follow from these (its position, the bytes it moves, `into_input`) is then as in the given graph.
        """
        found, known = _look(graph_module, self._survey, self._found), self._found.steps
        ops = {}
        for index, (node, item) in enumerate(found.operators.items()):
            name = node.name
            same = self.graph.ops[name] if found.steps[name] is known.get(name) else None
            ops[name] = same if same and same.scope == found.scopes.attributes[name] else _op(item, index, found)
        outputs = _outputs(found)
        sources = {node.name: item.inputs for node, item in found.operators.items() if found.units[node] is Unit.FREE}
        return Operators(
            ops=share_sizes(ops),
            storages=found.storages,
            returned=storages_behind(outputs, ops, lambda name: [node.name for node in sources[name] if node.name in ops]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What is known of a graph before anything is ordered; operators in graph order, accesses and steps by name."""

    facts: Mapping[fx.Node, Facts]
    operators: Mapping[fx.Node, Facts]
    units: Mapping[fx.Node, Unit]
    steps: Mapping[str, Step]
    accesses: Mapping[str, Access]
    scopes: Scopes
    storages: Mapping[str, Storage]


def _look(graph_module: fx.GraphModule, survey: Survey, known: _Found | None = None) -> _Found:
    """Find out about a graph; `known` is of another one of the same survey."""
    facts = survey.of(graph_module.graph)
    operators = {node: item for node, item in facts.items() if item.kind not in NO_OPERATOR}
    units = {node: _unit(item) for node, item in operators.items()}
    aliasing = analyse(facts, units, known.steps if known is not None else {})
    accesses = _with_hidden_state(operators, aliasing)
    hidden = {name: None for access in accesses.values() for name in access.mutates if name not in aliasing.storages}
    return _Found(
        facts=facts,
        operators=operators,
        units=units,
        steps=aliasing.steps,
        accesses=accesses,
        scopes=read_scopes(facts),
        storages={**aliasing.storages, **{name: Storage(name=name, nbytes=0, kind="state") for name in hidden}},
    )


def _dag(found: _Found) -> nx.DiGraph:
    edges = edges_of(found.operators, found.units, found.accesses, found.scopes)
    dag: nx.DiGraph = nx.DiGraph()
    dag.add_nodes_from(edges.names)
    dag.add_edges_from((before, after, {"why": why}) for before, after, why in edges.named())
    return dag


def _outputs(found: _Found) -> tuple[str, ...]:
    """Return the operators whose values the graph returns."""
    results = [node for item in found.facts.values() if item.kind is Kind.OUTPUT for node in item.inputs]
    return tuple(node.name for node in results if node in found.operators)


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
    except (RuntimeError, ValueError):  # a fake tensor raises the latter
        return True
    return False


def _with_hidden_state(operators: Mapping[fx.Node, Facts], aliasing: Aliasing) -> dict[str, Access]:
    """Add what operators change that none of their arguments shows: the random generator, a workspace that a library shares."""
    accesses = dict(aliasing.accesses)
    for node, item in operators.items():
        hidden = _hidden_state(item)
        if hidden:
            access = accesses[node.name]
            accesses[node.name] = access._replace(reads=(*access.reads, *hidden), mutates=(*access.mutates, *hidden))
    return accesses


@per_form
def _hidden_state(item: Facts) -> tuple[str, ...]:
    random = (RNG,) if _is_random(item) else ()
    workspace = item.info.workspace if item.info is not None else ""
    return (*random, f"<workspace {workspace}>") if workspace else random


def _is_random(item: Facts) -> bool:
    listed = item.info is not None and "random" in item.info.order
    return (listed or is_seeded(item.overload)) and not any(item.argument(name) == off for name, off in _NOT_RANDOM.items())


def _op(item: Facts, index: int, found: _Found) -> Op:
    """Return an operator at its place, in its scopes and on its storages."""
    node, known = item.node, _alone(item)
    access = found.accesses[node.name]
    read, written = _bytes(item, access, found.storages)
    # Spelled out: `_replace` takes twice the time, and a deep graph has thousands of operators.
    return Op(
        name=node.name,
        target=known.target,
        unit=known.unit,
        position=index,
        inputs=known.inputs,
        outputs=known.outputs,
        flops=known.flops,
        bytes_read=read,
        bytes_written=written,
        reads=access.reads,
        writes=(*access.mutates, *access.creates),
        read_regions=access.read_regions,
        write_regions=access.mutated_regions,
        module_path=module_path(node),
        source_line=source_line(node),
        scope=found.scopes.attributes[node.name],
        group=known.group,
        group_size=known.group_size,
        in_kernel=known.in_kernel,
        into_input=_is_into_input(item),
        known=known.known,
    )


def _bytes(item: Facts, access: Access, storages: Mapping[str, Storage]) -> tuple[int, int]:
    return (0, 0) if _unit(item) is _FREE else bytes_of(item, sum(storages[name].nbytes for name in access.creates))


@per_form
def _alone(item: Facts) -> Op:
    """Return what is known of an operator without the graph around it."""
    unit, call = _unit(item), call_of(item)
    return Op(
        name="",
        target=item.target,
        unit=unit,
        position=0,
        inputs=tuple(spec for source in _tensor_arguments(item) for spec in specs_of(value_of(source))),
        outputs=call.outputs,
        flops=flops_of(item.info, call) if item.info is not None and unit is not Unit.FREE else 0,
        bytes_read=0,
        bytes_written=0,
        group=group_name(item),
        group_size=group_size(item),
        in_kernel=item.info is not None and item.info.in_kernel,
        known=item.info is not None or item.kind is Kind.SCALAR,
    )


def _tensor_arguments(item: Facts) -> list[fx.Node]:
    return nodes_in((item.node.args, dict(item.node.kwargs)))


def _is_into_input(item: Facts) -> bool:
    if item.target != "aten.copy_.default":
        return False
    destination = item.arguments.get("self")
    return isinstance(destination, fx.Node) and destination.op == "placeholder"
