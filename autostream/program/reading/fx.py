"""Read a program back from an FX graph that carries TorchAir's scopes, records and waits.

This follows what TorchAir does with them, independently of whatever wrote them: the innermost stream label wins, but records
and waits are kept per outermost label; a record stands for the last operator converted on the stream, a wait lands on the
next one; views outside a scope convert to nothing. What the converters emit for one node (a Const first, say) only the
Ascend IR tells: see `reading.ascend_ir`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import fx

from autostream.graph import Op, Operators, OpGraph, Unit
from autostream.graph.capture import capture
from autostream.program.kinds import DEFAULT, HCCL, kinds
from autostream.program.model import Edge, EdgeKind, Lost, Semantics, Step, StreamProgram
from autostream.program.reading.events import Action, Events, Sync, is_default_stream, not_lowered, streams_by_id, sync_of
from autostream.program.reading.guards import Guard, guard_complaints
from autostream.program.reading.scopes import SCOPE_ENTERS, SCOPE_EXITS, Scopes
from autostream.program.reading.writeback import is_absorbed, is_getitem, values_written

_DATA, _FREE = EdgeKind.DATA, Unit.FREE
_COPY = "aten.copy_.default"
_RECORD = "air.record.default"
_WAIT = "air.wait.default"
_WAIT_TENSOR = "air.wait_tensor.default"
#: Super-kernel marks: no operator, no stream.
_MARKS = ("npu.super_kernel_scope_begin", "npu.super_kernel_scope_end")


def read_fx(
    graph_module: fx.GraphModule,
    *,
    semantics: Semantics = Semantics.GE,
    in_order: bool = True,
    graph: OpGraph | Operators | None = None,
) -> StreamProgram:
    """Return the program of an FX graph: one step per operator, in graph order. Inputs and constants are no steps.

    Args:
        graph_module: ATen graph, with or without ``torch.ops.air`` scopes.
        semantics: GE (max-autotune) or CAPTURE (reduce-overhead); in capture mode records and waits are events, views have
            no task at all, and the graph's output is the last step of the default stream. Named events and waits between
            streams order steps, record_stream guards memory.
        in_order: True if the backend keeps the order of one stream (GE: StableRDFS).
        graph: the operators of this very graph, where they are known already.

    Raises:
        CaptureError: the graph cannot be analysed. Unpaired scopes and lost waits are no errors: they are in `lost`.
    """
    reader = _Reader(graph_module, capture(graph_module) if graph is None else graph, semantics)
    reader.run()
    return StreamProgram(
        semantics=semantics,
        steps=tuple(reader.steps),
        edges=tuple(reader.edges),
        in_order=in_order,
        lost=tuple(reader.lost),
        forked=tuple(reader.forked),
        # Reduce-overhead and npugraph_ex (torch_npu 2.13, apply_event_closure_with_multi_stream) do so for every stream scope.
        closed=() if semantics is Semantics.GE else tuple(reader.opened),
        guards=tuple((storage, guard.stream) for guard in reader.guards for storage in guard.storages),
        opened=tuple(reader.opened.items()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Awaited:
    """A wait that has not landed yet: for a value or a record, or (if there is none) for a step that an event stands for."""

    wait: str
    value: fx.Node | None = None
    before: str = ""


class _Reader:
    """Walks the graph once. Bookkeeping of records and waits is per key of `Scopes.key`, as in TorchAir."""

    def __init__(self, graph_module: fx.GraphModule, graph: OpGraph | Operators, semantics: Semantics) -> None:
        self._graph_module = graph_module
        self._stream_ids: dict[str, str] | None = None
        self._nodes = list(graph_module.graph.nodes)
        targets = {id(node.target): node.target for node in self._nodes}  # the graph keeps them alive
        names = {key: str(target) for key, target in targets.items()}
        self._targets = {node: names[id(node.target)] for node in self._nodes}
        self._ops = graph.ops
        self._semantics = semantics
        self._ge = semantics is Semantics.GE
        self._scopes = Scopes(outermost=self._ge)
        self._last: dict[str | None, str] = {}
        self._pending: dict[str | None, list[_Awaited]] = {}
        #: By record: the last operator before it, and its stream.
        self._recorded: dict[fx.Node, tuple[str | None, str | None]] = {}
        self._waited: set[fx.Node] = set()
        #: Copies into graph inputs: GE makes them part of the operator whose value is copied.
        copies = (node for node in self._nodes if self._targets[node] == _COPY)
        self._copies = {node.name for node in copies if self._ge and is_absorbed(node)}
        self._extra_writes = self._write_backs()
        self.steps: list[Step] = []
        self.edges: list[Edge] = []
        self._waits: set[tuple[str, str, EdgeKind]] = set()
        self.lost: list[Lost] = []
        self.guards: list[Guard] = []
        #: Streams that wait for the default one before that has a task; how many scopes open a label.
        self.forked: dict[str, None] = {}
        self.opened: dict[str, int] = {}
        self._events = Events()
        self._steers: dict[str, bool] = {}
        self._streams: dict[str, str | None] = {}
        self._values: dict[str, tuple[str, ...]] = {}

    def run(self) -> None:
        for node in self._nodes:
            if node.op == "call_function":
                target = self._targets[node]
                (self._steering if self._is_steering(node, target) else self._operator)(node, target)
            elif node.op == "output" and not self._ge:
                self._add(node, "output", DEFAULT, None, converts=True)
        self._finish()

    def _is_steering(self, node: fx.Node, target: str) -> bool:
        """True for what is a mark or synchronises, if only in some mode."""
        if target not in self._steers:
            marks = target in SCOPE_ENTERS or target in SCOPE_EXITS or target in (_RECORD, _WAIT) or target.startswith(_MARKS)
            self._steers[target] = marks or sync_of(node) is not None or bool(not_lowered(target, self._semantics))
        return self._steers[target]

    def _steering(self, node: fx.Node, target: str) -> None:
        sync, refused = sync_of(node), not_lowered(target, self._semantics)
        if refused:
            text = f"{node.name!r} ({target}) synchronises nothing: {refused}"
            self.lost.append(Lost(kind="sync-not-lowered", step=node.name, explanation=text))
        if target in SCOPE_ENTERS or target in SCOPE_EXITS:
            self._scope(node, target)
        elif target == _RECORD:
            self._note_nesting(node)
            self._recorded[node] = (self._last.get(self._scopes.key), self._scopes.key)
        elif target == _WAIT:
            self._note_nesting(node)
            self._wait(node)
        elif sync is not None:
            if not refused:
                self._synchronise(node, sync)
        elif not target.startswith(_MARKS) and (not refused or target == _WAIT_TENSOR):
            self._operator(node, target)

    def _scope(self, node: fx.Node, target: str) -> None:
        outer = self._scopes.label
        self.lost.extend(self._scopes.visit(node, target))
        label = self._scopes.label
        if target in SCOPE_ENTERS and label is not None and label != outer:
            self.opened[label] = self.opened.get(label, 0) + 1

    def _note_nesting(self, node: fx.Node) -> None:
        labels = self._scopes.nested
        if self._ge and labels:
            text = (
                f"{node.name!r} is written inside stream {labels[-1]!r} but counts for stream {labels[0]!r}, the outermost scope"
            )
            self._lose("nested-scope", node.name, text)

    # -- streams ----------------------------------------------------------------------------------------------------

    def _stream(self, node: fx.Node, op: Op | None, *, view: bool, empty: bool, converts: bool) -> str | None:
        """Return the stream of a node's task, or None if it has none."""
        if not view:
            if node.name in self._copies or (self._ge and empty):
                return None
            # GE has a stream of its own for the library's collectives; in capture modes they are launched from the current one.
            communicates = self._ge and op is not None and op.on_comm_stream
            return self._scopes.label or (HCCL if communicates else DEFAULT)
        if not self._ge or not converts or self._targets[node] in kinds().fx_no_task:
            return None
        return self._scopes.label or DEFAULT

    def _converts(self, kind: str, *, view: bool, empty: bool) -> bool:
        """True if a node becomes an operator of the backend's graph, with or without a task."""
        if empty or (view and (not self._ge or kind in kinds().fx_nothing)):
            return False
        return not self._ge or self._scopes.inside or kind not in kinds().fx_deferred

    # -- steps ------------------------------------------------------------------------------------------------------

    def _operator(self, node: fx.Node, target: str) -> None:
        op = self._ops.get(node.name)
        kind, empty = op.target if op else target, _is_empty(node, op)
        view = op is not None and op.unit is _FREE and kind != _WAIT_TENSOR
        converts = self._converts(kind, view=view, empty=empty)
        self._add(node, kind, self._stream(node, op, view=view, empty=empty, converts=converts), op, converts=converts)

    def _add(self, node: fx.Node, kind: str, stream: str | None, op: Op | None, *, converts: bool) -> None:
        name, sources, wait = node.name, node.all_input_nodes, kind == _WAIT_TENSOR
        if wait:
            del sources[1:]
        reads, writes = (op.reads, op.writes) if op else ((), ())
        absorbing = name in self._extra_writes
        if absorbing:
            writes = tuple(dict.fromkeys((*writes, *self._extra_writes[name])))
        if op is not None and op.unit is _FREE:
            reads = tuple(dict.fromkeys([storage for source in sources for storage in self._storages(source)]))
            self._values[name] = reads
        else:
            self._values[name] = writes
        if stream:
            step = Step(
                name=name,
                kind=kind,
                stream=stream,
                reads=reads,
                writes=writes,
                source=name,
                read_regions=op.read_regions if op else (),
                # Where a copy that became part of the operator is made is not known.
                write_regions=() if op is None or absorbing else op.write_regions,
                cores=self._scopes.cores if self._ge else None,
            )
        else:
            step = Step(name=name, kind=kind, stream=stream, source=name)
        self.steps.append(step)
        self._streams[name] = stream
        for source in sources:
            before = source.name
            if before in self._streams:
                self.edges.append(Edge(before, name, _DATA))
        if wait and self._ge and not node.users:
            self._lose("unused-wait", name, f"nothing reads the result of {name!r}: it is removed, and nothing waits")
        elif wait and self._ge:
            self._depend(node, node.args[1] if len(node.args) > 1 else node.kwargs.get("dependency"))
        if converts:
            self._land(node)
            self._last[self._scopes.key] = name

    def _storages(self, node: fx.Node) -> tuple[str, ...]:
        """Return the storages a node's value lies in, or may lie in: a view that becomes a task reads them."""
        if is_getitem(node):
            element = f"{node.all_input_nodes[0].name}.{node.args[1]}"
            whole = self._storages(node.all_input_nodes[0])
            return (element,) if element in whole else whole
        return self._values.get(node.name, (node.name,))

    def _order(self, before: str, after: str, kind: EdgeKind) -> None:
        """Add the edge of a wait, once."""
        if (before, after, kind) not in self._waits:
            self._waits.add((before, after, kind))
            self.edges.append(Edge(before=before, after=after, kind=kind))

    def _write_backs(self) -> dict[str, tuple[str, ...]]:
        """Return the storages a node writes because a later ``copy_`` of its value becomes part of it."""
        writes: dict[str, tuple[str, ...]] = {}
        for node in self._nodes if self._copies else ():
            if node.name in self._copies and node.name in self._ops:
                for producer, _ in values_written(node):
                    writes[producer.name] = (*writes.get(producer.name, ()), *self._ops[node.name].writes)
        return writes

    # -- records and waits ------------------------------------------------------------------------------------------

    def _wait(self, node: fx.Node) -> None:
        values = list(_waited_values(node))
        self._pending.setdefault(self._scopes.key, []).extend(_Awaited(wait=node.name, value=value) for value in values)
        if not values:
            self._lose("empty-wait", node.name, f"{node.name!r} waits for nothing")

    def _synchronise(self, node: fx.Node, sync: Sync) -> None:
        """Follow a named event, a wait between streams or a guard."""
        stream = self._named(sync.stream)
        if sync.action is Action.RECORD:
            self._events.record(node.name, sync.tag, stream, self._last.get(stream))
        elif sync.action is Action.WAIT:
            found = self._events.wait(node.name, sync.tag, stream or DEFAULT)
            if found is not None:
                self._await(node.name, stream, *found)
        elif sync.action is Action.WAIT_STREAM:
            other = self._named(sync.other)
            self._await(node.name, stream, self._last.get(other), other)
        elif sync.tensor is not None:
            producer = self._task_behind(sync.tensor)
            self.guards.append(
                Guard(
                    node=node.name,
                    stream=stream or DEFAULT,
                    producer=producer.name,
                    storages=self._storages(sync.tensor),
                    copied=tuple(name for source in producer.all_input_nodes[:2] for name in self._storages(source)),
                )
            )

    def _named(self, spelling: str | None) -> str | None:
        """Return the key of a stream that a node spells out, or of the current one."""
        if spelling is None:
            return self._scopes.key
        if self._stream_ids is None:
            self._stream_ids = streams_by_id(self._graph_module)
        return None if is_default_stream(spelling) else self._stream_ids.get(spelling, spelling)

    def _await(self, wait: str, stream: str | None, before: str | None, on: str | None) -> None:
        """Make `stream` wait for `before`, the last operator on stream `on`; where there is none, this may be a fork."""
        if before is not None:
            self._pending.setdefault(stream, []).append(_Awaited(wait=wait, before=before))
        elif stream is not None and stream not in self._last and (on is None or on in self.forked):
            self.forked[stream] = None

    def _land(self, node: fx.Node) -> None:
        """Give the waits that are pending on the current stream to `node`."""
        for awaited in self._pending.pop(self._scopes.key, ()):
            if awaited.value is None:
                self._order(awaited.before, node.name, EdgeKind.EVENT)
            else:
                self._waited.add(awaited.value)
                self._depend(node, awaited.value, awaited.wait)

    def _depend(self, node: fx.Node, value: object, wait: str = "") -> None:
        """Add the edge for "`node` waits for `value`", or say why there is none."""
        if not isinstance(value, fx.Node):
            return
        where = wait or node.name
        recorded = self._recorded.get(value)
        before = recorded[0] if recorded else self._task_behind(value).name
        if before is None:
            if self._ge:
                self._lose("empty-record", where, f"waits for {value.name!r}, a record with no operator before it on its stream")
            else:  # this is how a stream is forked at the start of a graph
                self._await(where, self._scopes.key, None, recorded[1] if recorded else None)
            return
        if before not in self._streams:
            self._lose("wait-on-input", where, f"waits for the graph input {before!r}, which no task produces")
            return
        self._order(before, node.name, EdgeKind.CONTROL if self._ge else EdgeKind.EVENT)
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
            target = self._targets[value]
            passes_on = is_getitem(value) or target in kinds().fx_nothing or not self._ge
            if not passes_on and (target in kinds().fx_no_task or target not in kinds().fx_deferred):
                break
            value = value.all_input_nodes[0]
        return value

    def _lose(self, kind: str, step: str, explanation: str, before: str = "") -> None:
        self.lost.append(Lost(kind=kind, step=step, explanation=explanation, before=before))

    def _finish(self) -> None:
        for waits in self._pending.values():
            for waiting in waits:
                awaited = waiting.before
                if waiting.value is not None:
                    self._waited.add(waiting.value)
                    awaited = self._recorded.get(waiting.value, (None, None))[0] or waiting.value.name
                self._lose(
                    "trailing-wait", waiting.wait, f"no operator follows {waiting.wait!r} on its stream: nothing waits", awaited
                )
        for record, (before, _) in self._recorded.items():
            if record not in self._waited:
                self._lose("unused-record", record.name, f"nothing waits for {record.name!r}", before or "")
        self.lost.extend(self._events.complaints(set(self.opened)))
        self.lost.extend(guard_complaints(self.guards, self.steps))
        self.lost.extend(self._scopes.unclosed())


def _waited_values(node: fx.Node) -> Iterator[fx.Node]:
    values = node.args[0] if node.args else node.kwargs.get("x", ())
    for value in values if isinstance(values, (list, tuple)) else (values,):
        if isinstance(value, fx.Node):
            yield value


def _is_empty(node: fx.Node, op: Op | None) -> bool:
    """True for a value without elements: TorchAir makes a constant of it and converts nothing."""
    if op is not None and len(op.outputs) == 1 and 0 not in op.outputs[0].shape:
        return False
    shape = getattr(node.meta.get("val"), "shape", ())
    return 0 in shape
