"""Prove where a wait lands by converting the constrained node alone.

A wait written before an FX node becomes an edge onto the first GE op of that node's converter. If that op is a Const the
edge is lost; if it is a Cast of one input, another input may be read too early. So the node is converted by the real
converter, alone, behind one marker operator, and the result is read back: every task of the node must come after the marker.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from autostream.errors import OfflineError
from autostream.program import happens_before, read_ascend_ir
from autostream.rewrite.deferred import DeferredModule
from autostream.rewrite.dialect import Dialect, Landing

_MARKER = "autostream_marker"
#: TorchAir's converters of these emit their one operator and nothing in front of it. They ask torch for the process group, so
#: where there is none a node alone cannot be converted. (TorchAir's ge_converter/c10d_functional.)
_ONE_OPERATOR = frozenset(
    f"_c10d_functional.{name}.default" for name in ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast")
)


def find_landing(node: fx.Node, label: str | None, dialect: Dialect) -> Landing:
    """Return how an order onto `node` can be expressed: by a wait in front of it, by an anchor, or not at all."""
    if node.op != "call_function":  # TorchAir converts no calls of modules or methods
        return Landing.LOST
    if str(node.target) in _ONE_OPERATOR:
        return Landing.DIRECT
    try:
        if _ordered(_lone(node, label, dialect, anchored=None), node.name):
            return Landing.DIRECT
        source = anchored_input(node)
        if source is not None and _ordered(_lone(node, label, dialect, anchored=source), node.name):
            return Landing.ANCHOR
    except OfflineError:
        return Landing.LOST
    return Landing.LOST


def anchored_input(node: fx.Node) -> fx.Node | None:
    """Return the first tensor input that `node` only reads, or None. Anchoring a written input would write the anchor's copy."""
    written = {source for source, is_written in _arguments(node) if is_written}
    for source, _ in _arguments(node):
        if source not in written and isinstance(source.meta.get("val"), torch.Tensor):
            return source
    return None


def _arguments(node: fx.Node) -> list[tuple[fx.Node, bool]]:
    """Return the node's inputs in argument order, each with whether the operator's schema says it is written."""
    schema = getattr(node.target, "_schema", None)
    found: list[tuple[fx.Node, bool]] = []
    for position, value in enumerate(node.args):
        info = schema.arguments[position].alias_info if schema and position < len(schema.arguments) else None
        found += [(source, bool(info and info.is_write)) for source in _nodes_in(value)]
    by_name = {argument.name: argument for argument in schema.arguments} if schema else {}
    for name, value in node.kwargs.items():
        info = by_name[name].alias_info if name in by_name else None
        found += [(source, bool(info and info.is_write)) for source in _nodes_in(value)]
    return found


def _nodes_in(value: object) -> list[fx.Node]:
    if isinstance(value, fx.Node):
        return [value]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [node for item in value for node in _nodes_in(item)]
    return []


def _lone(node: fx.Node, label: str | None, dialect: Dialect, *, anchored: fx.Node | None) -> fx.GraphModule:
    """Build a graph of placeholders, a marker operator, and `node` waiting for the marker in its own scope."""
    graph = fx.Graph()
    values: dict[fx.Node, fx.Node] = {}
    for source in node.all_input_nodes:
        values[source] = graph.placeholder(f"in_{source.name}")
        values[source].meta["val"] = source.meta.get("val")
    reference = next((s for s in node.all_input_nodes if isinstance(s.meta.get("val"), torch.Tensor)), None)
    if reference is None:
        raise OfflineError(f"{node.name!r} reads no tensor, so nothing can be ordered before it")
    extra = graph.placeholder("in_autostream_marker")
    extra.meta["val"] = reference.meta["val"]
    marker = graph.create_node("call_function", torch.ops.aten.abs.default, (extra,), name=_MARKER)
    marker.meta["val"] = reference.meta["val"]
    if label is not None:
        dialect.enter(graph, dialect.stream_scope(label))
    if anchored is None:
        dialect.wait(graph, [marker])
    else:
        values[anchored] = dialect.anchor(graph, values[anchored], marker)
    copy = graph.create_node(
        node.op,
        node.target,
        fx.map_arg(node.args, values.__getitem__),
        fx.map_arg(node.kwargs, values.__getitem__),
        name=node.name,
    )
    copy.meta["val"] = node.meta.get("val")
    if label is not None:
        dialect.exit(graph)
    graph.output((marker, *_tensor_results(graph, copy)))
    return DeferredModule(torch.nn.Module(), graph, "Lone")


def _tensor_results(graph: fx.Graph, node: fx.Node) -> list[fx.Node]:
    import operator

    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return [node]
    results = []
    if isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            if isinstance(item, torch.Tensor):
                result = graph.call_function(operator.getitem, (node, index))
                result.meta["val"] = item
                results.append(result)
    return results


def _ordered(module: fx.GraphModule, name: str) -> bool:
    """Convert `module` and return whether every task of the node called `name` comes after the marker."""
    from autostream import offline

    converted = offline.convert(module, None)
    program = read_ascend_ir(converted.serialized, in_order=False)
    tasks = [step.name for step in program.steps if step.source == name and step.stream is not None]
    markers = [step.name for step in program.steps if step.source == _MARKER]
    if not tasks or not markers:
        return False
    order = happens_before(program)
    return all(order.before(markers[-1], task) for task in tasks)
