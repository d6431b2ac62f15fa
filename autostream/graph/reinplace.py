"""Which arguments an operator writes, and which operators a backend may turn into in-place ones.

After functionalisation a cache update is ``new = index_put(cache, ...)`` with ``copy_(cache, new)`` at the end. Backends undo
that: the operators between the two may write `cache` where they stand, so they count as writers of it. The same goes for the
operator whose value simply replaces that of a graph input.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from autostream.graph.calls import Facts, Kind, nodes_in, per_form, positions_of
from autostream.graph.model import TensorSpec, Unit
from autostream.graph.units import classify
from autostream.graph.values import specs_of, value_of

#: The argument that an operator overwrites without reading it, where that is not called `out`.
_OVERWRITTEN = {"aten.copy_": "self", "aten.fill_": "self", "aten.zero_": "self", "npu.copy_memory_": "input"}

#: Functional updates that become in-place ones; other operators of ATen are converted as they are and make a new tensor.
_IN_PLACE_LATER = ("npu.", "aten.index_put.")

StoragesOf = Callable[[fx.Node], tuple[str, ...]]

#: By operator that may become an in-place one: the storages that an element of its result would then lie in (None: the result).
Reinplaced = dict[fx.Node, dict[int | None, tuple[str, ...]]]


#: Copies that TorchAir drops, and the argument whose value they hand on.
_COPIES: Mapping[str, str] = {"aten.copy.default": "src", "aten.clone.default": "self"}


def arguments_written(item: Facts) -> list[Any]:
    """Return the arguments an operator writes, or would write once its functional form is undone."""
    if item.kind is Kind.FUNCTIONALIZED:
        bases = item.arguments.get("_all_bases")
        return [bases] if bases is not None else [item.arguments.get(name) for name in _schema_writes(item)]
    if item.kind is not Kind.SCHEMA:
        return []
    names = [*_schema_writes(item)]
    if item.info is not None:
        names += item.info.writes
    if item.target.endswith(".out"):
        names += ["out", "workspace"]
    return [item.arguments[name] for name in dict.fromkeys(names) if name in item.arguments]


def nodes_written(item: Facts) -> list[fx.Node]:
    """Return the values in the arguments that an operator writes, in order."""
    return [item.inputs[position] for position in positions_written(item)]


@per_form
def positions_written(item: Facts) -> tuple[int, ...]:
    """Return which of its inputs an operator writes, in the order of its arguments."""
    return positions_of(item, (node for value in arguments_written(item) for node in nodes_in(value)))


def nodes_overwritten(item: Facts) -> set[fx.Node]:
    """Return the values an operator writes without having read them."""
    return {item.inputs[position] for position in positions_overwritten(item)}


@per_form
def positions_overwritten(item: Facts) -> tuple[int, ...]:
    """Return which of its inputs an operator writes without having read them."""
    name = _OVERWRITTEN.get(item.target.rpartition(".")[0], "out")
    if item.kind is not Kind.SCHEMA or name not in item.arguments:
        return ()
    kept = {node for argument, value in item.arguments.items() if argument != name for node in nodes_in(value)}
    return positions_of(item, (node for node in nodes_in(item.arguments[name]) if node not in kept))


def _schema_writes(item: Facts) -> tuple[str, ...]:
    """Return the arguments the schema marks as written; a functional variant answers for its in-place counterpart."""
    return _marked(item.overload) if item.overload is not None else ()


@functools.cache
def _marked(overload: OpOverload) -> tuple[str, ...]:
    base = overload._schema.name.removesuffix("_functional")
    if base != overload._schema.name:
        namespace, _, name = base.partition("::")
        packet = getattr(getattr(torch.ops, namespace), name, None)
        overload = getattr(packet, overload._overloadname, overload)
    annotated = {argument.name: argument.alias_info for argument in overload._schema.arguments}
    return tuple(name for name, alias in annotated.items() if alias is not None and alias.is_write)


def updated_in_place(item: Facts) -> list[fx.Node]:
    """Return the buffers that a functional update writes where they stand, and empty unless that is certain.

    TorchAir converts such an operator of torch_npu to a copy and an in-place kernel, and drops the copy where the buffer is a
    graph input that nobody uses but the operator and the ``copy_`` of its result back; an ``index_put``, which only captured
    graphs take, it turns into the in-place form under the same condition.
    """
    if item.kind is not Kind.SCHEMA or item.info is None or not item.info.update or not item.target.startswith(_IN_PLACE_LATER):
        return []
    declared = nodes_written(item)
    if declared and not item.functional:
        return []
    buffers = declared or list(item.inputs[:1])
    return buffers if all(_only_copied_back(buffer, item.node) for buffer in buffers) else []


def is_written_back(item: Facts) -> bool:
    """Tell whether a copy into a graph input moves nothing: TorchAir lets the operator that makes the value write the input.

    A value that is returned as well, or of another type, still has to be copied.
    """
    if item.target != "aten.copy_.default":
        return False
    target, source = item.arguments.get("self"), item.arguments.get("src")
    if not isinstance(target, fx.Node) or not isinstance(source, fx.Node):
        return False
    if target.op != "placeholder" or specs_of(value_of(target)) != specs_of(value_of(source)):
        return False
    while source.all_input_nodes and not any(user.op == "output" for user in source.users) and _is_free(source):
        source = source.all_input_nodes[0]
    return source.op == "call_function" and not any(user.op == "output" for user in source.users)


def _is_free(node: fx.Node) -> bool:
    info = classify("getitem" if node.target is operator.getitem else str(node.target))
    return info is not None and info.unit is Unit.FREE


def _only_copied_back(buffer: fx.Node, update: fx.Node) -> bool:
    others = [user for user in buffer.users if user is not update]
    if buffer.op != "placeholder" or len(others) != 1 or str(others[0].target) != "aten.copy_.default":
        return False
    given = dict(zip(("self", "src"), others[0].args, strict=False)) | others[0].kwargs
    source = given.get("src")
    if isinstance(source, fx.Node) and source.target is operator.getitem:
        source = source.args[0]
    return given.get("self") is buffer and source is update


def find_reinplaced(facts: Mapping[fx.Node, Facts], storages_of: StoragesOf) -> Reinplaced:
    """Find the operators between a buffer and the final `copy_` back into it."""
    found: Reinplaced = {}
    for item in facts.values():
        if item.target != "aten.copy_.default":
            continue
        destinations, sources = nodes_in(item.arguments.get("self")), nodes_in(item.arguments.get("src"))
        if len(destinations) == 1 and len(sources) == 1:
            target = storages_of(destinations[0])
            chain = _chain(facts, sources[0], destinations[0], storages_of)
            if facts[destinations[0]].kind is Kind.STORAGE:
                chain = list(dict.fromkeys([*chain, *_producer(facts, sources[0])]))
            for node, output in chain:
                elements = found.setdefault(node, {})
                elements[output] = tuple(dict.fromkeys((*elements.get(output, ()), *target)))
    return found


def _chain(
    facts: Mapping[fx.Node, Facts], source: fx.Node, destination: fx.Node, storages_of: StoragesOf
) -> list[tuple[fx.Node, int | None]]:
    """Walk from the value copied back towards the buffer, through values of the buffer's size; empty if it is not reached."""
    target, size = set(storages_of(destination)), _size(destination)
    if size is None:
        return []
    chain: list[tuple[fx.Node, int | None]] = []
    current: fx.Node | None = source
    while current is not None and not target & set(storages_of(current)):
        current, output = _root(facts, current)
        item = facts[current]
        if item.kind not in (Kind.SCHEMA, Kind.FUNCTIONALIZED, Kind.OPAQUE):
            return []
        chain.append((current, output))
        candidates = [node for node in _updated(item) if _size(node) == size]
        reached = (node for node in candidates if target & set(storages_of(node)))
        current = next(reached, candidates[0] if candidates else None)
    return chain if current is not None else []


def _producer(facts: Mapping[fx.Node, Facts], source: fx.Node) -> list[tuple[fx.Node, int | None]]:
    """Return the operators that may write a graph input which is overwritten with the value `source`.

    TorchAir makes an output in the input's own memory of such a copy, so the operator that computes the value may write the
    input where it stands; a plain copy on the way is dropped, and then it is the operator before that.
    """
    found: list[tuple[fx.Node, int | None]] = []
    current: fx.Node | None = source
    while current is not None:
        node, output = _root(facts, current)
        item = facts[node]
        if item.kind not in (Kind.SCHEMA, Kind.FUNCTIONALIZED, Kind.OPAQUE):
            break
        found.append((node, output))
        copied = item.arguments.get(_COPIES.get(item.target, ""))
        current = copied if isinstance(copied, fx.Node) else None
    return found


def _root(facts: Mapping[fx.Node, Facts], node: fx.Node) -> tuple[fx.Node, int | None]:
    """Go back through views and tuple access to the operator that made a value; also return the element of its result."""
    output: int | None = None
    while True:
        item = facts[node]
        if item.kind is Kind.GETITEM and isinstance(node.args[0], fx.Node) and isinstance(node.args[1], int):
            output, node = node.args[1], node.args[0]
        elif item.kind is Kind.SCHEMA and item.info is not None and item.info.unit is Unit.FREE and node.all_input_nodes:
            output, node = None, node.all_input_nodes[0]
        else:
            return node, output


def _updated(item: Facts) -> list[fx.Node]:
    """Return the values an operator may update in place: what it declares, else any of its tensors."""
    return nodes_written(item) or list(item.inputs)


def _size(node: fx.Node) -> tuple[int, str] | None:
    specs: tuple[TensorSpec, ...] = specs_of(value_of(node))
    return (specs[0].numel, specs[0].dtype) if len(specs) == 1 else None
