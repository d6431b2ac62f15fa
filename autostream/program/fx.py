"""Read a program back from an FX graph that carries TorchAir's scopes, records and waits.

This follows what TorchAir does with them, independently of whatever wrote them: the innermost stream label wins, but records
and waits are kept per outermost label; a record stands for the last operator converted on the stream, a wait lands on the
next one; views outside a scope convert to nothing. What the converters emit for one node (a Const first, say) only the
Ascend IR tells: see `autostream.program.ascend_ir`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

from torch import fx

from autostream.graph import Op, OpGraph, Unit, capture
from autostream.program.kinds import DEFAULT, HCCL, kinds
from autostream.program.model import Edge, EdgeKind, Lost, Semantics, Step, StreamProgram
from autostream.program.scopes import Scopes

_RECORD = "air.record.default"
_WAIT = "air.wait.default"
_WAIT_TENSOR = "air.wait_tensor.default"
_COPY = "aten.copy_.default"
#: Copies that TorchAir drops before it converts where the whole value stays the same, with the position of what they copy.
_DROPPED = {"aten.clone.default": 0, "aten.copy.default": 1, "aten.slice_scatter.default": 1}
_SCOPES = frozenset({"air.scope_enter.default", "air.scope_exit.default"})
#: Super-kernel marks: no operator, no stream.
_MARKS = ("npu.super_kernel_scope_begin", "npu.super_kernel_scope_end")


def read_fx(graph_module: fx.GraphModule, *, semantics: Semantics = Semantics.GE, in_order: bool = True) -> StreamProgram:
    """Return the program of an FX graph: one step per operator, in graph order. Inputs and constants are no steps.

    Args:
        graph_module: ATen graph, with or without ``torch.ops.air`` scopes.
        semantics: GE (max-autotune) or CAPTURE (reduce-overhead); in capture mode records and waits are events, views have
            no task at all, and the graph's output is the last step of the default stream.
        in_order: True if the backend keeps the order of one stream (GE: StableRDFS).

    Raises:
        CaptureError: the graph cannot be analysed. Unpaired scopes and lost waits are no errors: they are in `lost`.
    """
    reader = _Reader(graph_module, capture(graph_module), semantics)
    reader.run()
    return StreamProgram(
        semantics=semantics,
        steps=tuple(reader.steps),
        edges=tuple(dict.fromkeys(reader.edges)),
        in_order=in_order,
        lost=tuple(reader.lost),
    )


def written_back(graph_module: fx.GraphModule) -> dict[str, tuple[str, ...]]:
    """Return the FX values (``"node.position"``) that GE writes straight into graph inputs, with the names of these inputs.

    TorchAir turns a ``copy_`` into a graph input into an output that shares the input's memory: the producer of the value
    writes the input, the copy itself is gone.
    """
    found: dict[str, tuple[str, ...]] = {}
    for node in graph_module.graph.nodes:
        for producer, position in _values_written(node) if _is_write_back(node) else ():
            if producer.op == "call_function":
                value = f"{producer.name}.{position}"
                found[value] = (*found.get(value, ()), str(node.args[0].target))
    return found


class _Reader:
    """Walks the graph once. Bookkeeping of records and waits is per key of `Scopes.key`, as in TorchAir."""

    def __init__(self, graph_module: fx.GraphModule, graph: OpGraph, semantics: Semantics) -> None:
        self._nodes = list(graph_module.graph.nodes)
        self._ops = graph.ops
        self._ge = semantics is Semantics.GE
        self._scopes = Scopes(outermost=self._ge)
        self._last: dict[str | None, str] = {}
        self._pending: dict[str | None, list[tuple[fx.Node, fx.Node]]] = {}
        self._recorded: dict[fx.Node, str | None] = {}
        self._waited: set[fx.Node] = set()
        #: Copies into graph inputs: GE makes them part of the operator whose value is copied.
        self._copies = {node.name for node in self._nodes if self._ge and _is_write_back(node)}
        self._extra_writes = self._write_backs()
        self.steps: list[Step] = []
        self.edges: list[Edge] = []
        self.lost: list[Lost] = []
        self._streams: dict[str, str | None] = {}
        self._values: dict[str, tuple[str, ...]] = {}

    def run(self) -> None:
        for node in self._nodes:
            if node.op == "call_function":
                self._visit(node, str(node.target))
            elif node.op == "output" and not self._ge:
                self._add(node, "output", DEFAULT, None)
        self._finish()

    def _visit(self, node: fx.Node, target: str) -> None:
        if target in _SCOPES:
            self.lost.extend(self._scopes.visit(node, target))
        elif target == _RECORD:
            self._recorded[node] = self._last.get(self._scopes.key)
        elif target == _WAIT:
            self._wait(node)
        elif not target.startswith(_MARKS):
            op = self._ops.get(node.name)
            self._add(node, op.target if op else target, self._stream(node, op, target), op)

    # -- streams ----------------------------------------------------------------------------------------------------

    def _stream(self, node: fx.Node, op: Op | None, target: str) -> str | None:
        """Return the stream of a node's task, or None if it has none."""
        if target == _WAIT_TENSOR or op is None or op.unit is not Unit.FREE:
            if node.name in self._copies or (self._ge and _is_empty(node)):
                return None
            # GE has a stream of its own for collectives; in capture modes they are launched from the current one.
            communicates = self._ge and op is not None and op.unit is Unit.COMM
            return self._scopes.label or (HCCL if communicates else DEFAULT)
        if not self._ge or not self._converts(node, op) or target in kinds().fx_no_task:
            return None
        return self._scopes.label or DEFAULT

    def _converts(self, node: fx.Node, op: Op | None) -> bool:
        """True if the node becomes an operator of the backend's graph, with or without a task."""
        kind = op.target if op else str(node.target)
        is_view = op is not None and op.unit is Unit.FREE and kind != _WAIT_TENSOR
        if _is_empty(node) or (is_view and (not self._ge or kind in kinds().fx_nothing)):
            return False
        return not self._ge or self._scopes.inside or kind not in kinds().fx_deferred

    # -- steps ------------------------------------------------------------------------------------------------------

    def _add(self, node: fx.Node, kind: str, stream: str | None, op: Op | None) -> None:
        is_view = op is not None and op.unit is Unit.FREE
        sources = node.all_input_nodes[:1] if kind == _WAIT_TENSOR else node.all_input_nodes
        behind = tuple(name for source in sources for name in self._storages(source))
        reads = behind if is_view else op.reads if op else ()
        writes = (*(op.writes if op else ()), *self._extra_writes.get(node.name, ()))
        self._values[node.name] = behind if is_view else writes
        self.steps.append(
            Step(
                name=node.name,
                kind=kind,
                stream=stream,
                reads=tuple(dict.fromkeys(reads)) if stream else (),
                writes=tuple(dict.fromkeys(writes)) if stream else (),
                source=node.name,
            )
        )
        self._streams[node.name] = stream
        for source in sources:
            if source.name in self._streams:
                self._edge(source.name, node.name, EdgeKind.DATA)
        if kind == _WAIT_TENSOR:
            self._depend(node, node.args[1] if len(node.args) > 1 else node.kwargs.get("dependency"))
        if node.op == "output" or self._converts(node, op):
            self._land(node)
            self._last[self._scopes.key] = node.name

    def _storages(self, node: fx.Node) -> tuple[str, ...]:
        """Return the storages a node's value lies in, or may lie in: a view that becomes a task reads them."""
        if _is_getitem(node):
            element = f"{node.all_input_nodes[0].name}.{node.args[1]}"
            whole = self._storages(node.all_input_nodes[0])
            return (element,) if element in whole else whole
        return self._values.get(node.name, (node.name,))

    def _edge(self, before: str, after: str, kind: EdgeKind) -> None:
        self.edges.append(Edge(before=before, after=after, kind=kind))

    def _write_backs(self) -> dict[str, tuple[str, ...]]:
        """Return the storages a node writes because a later ``copy_`` of its value becomes part of it."""
        writes: dict[str, tuple[str, ...]] = {}
        for node in self._nodes:
            if node.name in self._copies and node.name in self._ops:
                for producer, _ in _values_written(node):
                    writes[producer.name] = (*writes.get(producer.name, ()), *self._ops[node.name].writes)
        return writes

    # -- records and waits ------------------------------------------------------------------------------------------

    def _wait(self, node: fx.Node) -> None:
        values = list(_waited_values(node))
        self._pending.setdefault(self._scopes.key, []).extend((node, value) for value in values)
        if not values:
            self._lose("empty-wait", node.name, f"{node.name!r} waits for nothing")

    def _land(self, node: fx.Node) -> None:
        """Give the waits that are pending on the current stream to `node`."""
        for wait, value in self._pending.pop(self._scopes.key, ()):
            self._waited.add(value)
            self._depend(node, value, wait)

    def _depend(self, node: fx.Node, value: object, wait: fx.Node | None = None) -> None:
        """Add the edge for "`node` waits for `value`", or say why there is none."""
        if not isinstance(value, fx.Node):
            return
        where = wait.name if wait is not None else node.name
        before = self._recorded[value] if value in self._recorded else self._task_behind(value).name
        if before is None:
            if self._ge:  # in capture mode this is how a stream is forked at the start of a graph
                self._lose("empty-record", where, f"waits for {value.name!r}, a record with no operator before it on its stream")
            return
        if before not in self._streams:
            self._lose("wait-on-input", where, f"waits for the graph input {before!r}, which no task produces")
            return
        self._edge(before, node.name, EdgeKind.CONTROL if self._ge else EdgeKind.EVENT)
        if self._streams[before] is None:
            kind = "dangling-wait" if before in self._copies else "record-after-view"
            self._lose(kind, where, f"waits for {before!r}, which emits no task", before)
        elif self._streams[node.name] is None:
            kind = "wait-on-copy" if node.name in self._copies else "wait-on-view"
            self._lose(kind, node.name, f"the wait {where!r} landed on {node.name!r}, which has no task; nothing waits", before)

    def _task_behind(self, value: fx.Node) -> fx.Node:
        """Return the node whose operator a wait for `value` waits for.

        Tuple access has none; a deferred view is converted for the wait, and a transpose then is a task behind its producer's.
        """
        while value.name in self._streams and self._streams[value.name] is None and value.all_input_nodes:
            target = str(value.target)
            passes_on = _is_getitem(value) or target in kinds().fx_nothing or not self._ge
            if not passes_on and (target in kinds().fx_no_task or target not in kinds().fx_deferred):
                break
            value = value.all_input_nodes[0]
        return value

    def _lose(self, kind: str, step: str, explanation: str, before: str = "") -> None:
        self.lost.append(Lost(kind=kind, step=step, explanation=explanation, before=before))

    def _finish(self) -> None:
        for waits in self._pending.values():
            for wait, value in waits:
                self._waited.add(value)
                awaited = self._recorded.get(value) or value.name
                self._lose("trailing-wait", wait.name, f"no operator follows {wait.name!r} on its stream: nothing waits", awaited)
        for record, before in self._recorded.items():
            if record not in self._waited:
                self._lose("unused-record", record.name, f"nothing waits for {record.name!r}", before or "")
        self.lost.extend(self._scopes.unclosed())


def _waited_values(node: fx.Node) -> Iterator[fx.Node]:
    values = node.args[0] if node.args else node.kwargs.get("x", ())
    for value in values if isinstance(values, (list, tuple)) else (values,):
        if isinstance(value, fx.Node):
            yield value


def _value(node: fx.Node) -> tuple[fx.Node, int]:
    """Return the node that makes a value, and which of its results it is, looking through tuple access and views."""
    target = str(node.target)
    if node.op != "call_function" or not node.all_input_nodes:
        return node, 0
    if _is_getitem(node):
        return node.all_input_nodes[0], int(str(node.args[1]))
    if target in kinds().fx_deferred or target in kinds().fx_no_task or target in kinds().fx_nothing:
        return _value(node.all_input_nodes[0])
    return node, 0


def _values_written(copy: fx.Node) -> Iterator[tuple[fx.Node, int]]:
    """Yield the value that a copy into a graph input writes and, where that is a copy that TorchAir may drop, what it copies."""
    source: object = copy.args[1]
    while isinstance(source, fx.Node):
        producer, position = _value(source)
        yield producer, position
        at = _DROPPED.get(str(producer.target))
        source = producer.args[at] if at is not None and at < len(producer.args) else None
        if isinstance(source, fx.Node) and _layout(source) != _layout(producer):
            return


def _layout(node: fx.Node) -> tuple[str, ...]:
    value: Any = node.meta.get("val")
    return (str(value.shape), str(value.dtype), str(value.stride())) if hasattr(value, "stride") else ()


def _is_getitem(node: fx.Node) -> bool:
    return node.target is operator.getitem


def _is_write_back(node: fx.Node) -> bool:
    """True for a copy into a graph input."""
    if str(node.target) != _COPY or len(node.args) < 2:
        return False
    destination, source = node.args[:2]
    return isinstance(destination, fx.Node) and destination.op == "placeholder" and isinstance(source, fx.Node)


def _is_empty(node: fx.Node) -> bool:
    """True for a value without elements: TorchAir makes a constant of it and converts nothing."""
    shape = getattr(node.meta.get("val"), "shape", ())
    return any(size == 0 for size in shape)
