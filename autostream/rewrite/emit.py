"""Write a schedule into a copy of the user's FX graph.

    before                          after (b on a side stream)
    a = op(x)                       a = op(x)
    b = op(y)                       scope_enter(stream side)
    c = op(a, b)                    b = op(y)
                                    scope_exit()
                                    c = op(a, b)

Scopes are flat. Views go with their consumers, once per stream that needs them. Explicit waits are written only for the
orders that no data edge implies, right in front of the operator they hold back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass

from torch import fx

from autostream.errors import RewriteError
from autostream.graph.model import OpGraph, Unit
from autostream.graph.scopes import STREAM_LABEL
from autostream.rewrite.deferred import DeferredModule
from autostream.rewrite.dialect import Dialect, Landing
from autostream.rewrite.landing import anchored_input
from autostream.rewrite.order import emission_order
from autostream.rewrite.sync import ForcedOrder, forced_orders
from autostream.rewrite.views import belongs_in_scope, completes_collective
from autostream.scheduling.problem import HCCL, MAIN, Schedule

logger = logging.getLogger(__name__)

Scope = tuple[tuple[str, str], ...]

#: The scope of operators that carry no attributes.
NO_SCOPE: Scope = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitted:
    """The rewritten graph and what it cost to write it."""

    graph_module: fx.GraphModule
    control_edges: int
    #: Same-stream orders that could not be pinned and rely on the order of emission.
    unpinned: tuple[ForcedOrder, ...]


def emit(
    graph_module: fx.GraphModule,
    graph: OpGraph,
    schedule: Schedule,
    dialect: Dialect,
    limits: Mapping[str, tuple[int, int]] | None = None,
) -> Emitted:
    """Return a new GraphModule that runs `schedule`; `graph_module` is not touched.

    `limits` are the cube and vector cores that operators are limited to, by name; they go into the scope of the stream, as
    scopes in scopes lose the stream in some versions. An operator in a scope of the user's keeps that alone.

    Raises:
        RewriteError: an order between two streams cannot be expressed in this dialect, with the operators' names.
    """
    emitter = _Emitter(graph_module, graph, schedule, dialect, limits or {})
    return emitter.run()


class _Emitter:
    def __init__(
        self,
        graph_module: fx.GraphModule,
        graph: OpGraph,
        schedule: Schedule,
        dialect: Dialect,
        limits: Mapping[str, tuple[int, int]],
    ) -> None:
        self._source = graph_module
        self._graph = graph
        self._dialect = dialect
        self._order = emission_order(graph, schedule)
        self._stream = {p.task: p.stream for p in schedule.placements}
        self._limits = limits
        self._nodes = {node.name: node for node in graph_module.graph.nodes}
        self._new = fx.Graph(owning_module=graph_module, tracer_cls=graph_module.graph._tracer_cls)
        self._open: Scope = NO_SCOPE
        #: The one copy of a node, and the copies of a view by the scope they are in.
        self._copies: dict[fx.Node, fx.Node] = {}
        self._view_copies: dict[fx.Node, dict[Scope, fx.Node]] = {}
        self._waits: dict[str, list[ForcedOrder]] = {}
        self._records: dict[str, fx.Node] = {}
        self._written_views: set[fx.Node] = set()
        self._needs_record: set[str] = set()
        self._edges = 0
        self._unpinned: list[ForcedOrder] = []
        free = {node for name, node in self._nodes.items() if name in graph.ops and graph.ops[name].unit is Unit.FREE}
        self._getitems = {node for node in free if self._accesses_result(node, free)}
        self._views = free - self._getitems
        self._completing = {view for view in self._views if completes_collective(view)}
        self._scopes = {name: self._scope_of(name) for name in self._order}
        #: By operator: the storages it changes that are not those of its own results.
        self._overwritten = {name: written for name in self._order if (written := self._overwritten_by(name))}
        self._readers = self._tasks_that_read_views()
        self._inside = {view: self._belongs_in_scope(view) for view in self._readers}
        self._views_of = self._views_by_storage()

    def run(self) -> Emitted:
        self._plan_waits()
        for node in self._source.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                self._copies[node] = self._copy(node, self._copies.__getitem__)
        for node in self._source.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                self._write_results(node)
        for name in self._order:
            self._write_task(name)
        self._switch(NO_SCOPE)
        for node in self._source.graph.nodes:
            if node.op == "output":
                self._prepare(node, NO_SCOPE)
                self._switch(NO_SCOPE)
                self._copy(node, lambda n: self._value(n, NO_SCOPE))
        self._new.set_codegen(self._source.graph._codegen)
        self._new.lint()
        module = DeferredModule(self._source, self._new, class_name=type(self._source).__name__)
        module.meta.update(self._source.meta)
        return Emitted(graph_module=module, control_edges=self._edges, unpinned=tuple(self._unpinned))

    # -- what must be waited for ------------------------------------------------------------------------------------

    def _plan_waits(self) -> None:
        """Group the forced orders by the operator that waits, keeping those this dialect can express."""
        for order in forced_orders(self._graph):
            landing = self._dialect.landing(self._nodes[order.after], self._label(order.after))
            same_stream = self._stream[order.before] == self._stream[order.after]
            # On one stream the order of emission holds by itself: a wait that costs nothing pins it, an anchor is not worth it.
            if landing is Landing.LOST or (same_stream and landing is Landing.ANCHOR):
                if not same_stream:
                    raise RewriteError(
                        f"{order.after!r} on stream {self._stream[order.after]!r} must wait for {order.before!r} on stream "
                        f"{self._stream[order.before]!r} ({'+'.join(sorted(order.why))}), and no wait in front of "
                        f"{self._nodes[order.after].target} lands on its task"
                    )
                self._unpinned.append(order)
                continue
            self._waits.setdefault(order.after, []).append(order)
            if self._tensor_of(self._nodes[order.before]) is None:
                self._needs_record.add(order.before)

    def _tensor_of(self, node: fx.Node) -> fx.Node | None:
        """Return the node whose value is a tensor made by `node`: itself, or one of its getitems; None if there is none."""
        value = node.meta.get("val")
        if hasattr(value, "dtype"):
            return node
        for user in node.users:
            if user in self._getitems and hasattr(user.meta.get("val"), "dtype"):
                return user
        return None

    # -- writing ----------------------------------------------------------------------------------------------------

    def _write_task(self, name: str) -> None:
        node = self._nodes[name]
        scope = self._scopes[name]
        self._prepare(node, scope)
        dependencies = [self._dependency(order) for order in self._waits.get(name, ())]
        self._switch(scope)
        replaced: dict[fx.Node, fx.Node] = {}
        if dependencies:
            if self._dialect.landing(node, self._label(name)) is Landing.ANCHOR:
                replaced = self._anchor(node, scope, dependencies)
            else:
                self._dialect.wait(self._new, dependencies)
            self._edges += len(dependencies)
        copy = self._copy(node, lambda n: replaced.get(n) or self._value(n, scope))
        if copy.name != name:  # what is read back is compared by name
            raise RewriteError(f"the name of {name!r} was taken by a node that was written for the schedule")
        self._copies[node] = copy
        self._write_results(node)
        self._forget_views_of(self._overwritten.get(name, ()))
        if name in self._needs_record:
            self._records[name] = self._dialect.record(self._new)

    def _write_results(self, node: fx.Node) -> None:
        for user in node.users:
            if user in self._getitems:
                self._copies[user] = self._copy(user, self._copies.__getitem__)
                self._write_results(user)

    def _copy(self, node: fx.Node, value: Callable[[fx.Node], fx.Node], name: str | None = None) -> fx.Node:
        """Write a node with the given values; under its own name if it gets no other."""
        copy = self._new.create_node(node.op, node.target, name=name or node.name, type_expr=node.type)
        # Given afterwards: `create_node` would search them for symbols, which takes longer than all the rest. And past the hook
        # of `Node` that files a node anew whatever of it is set: what it is filed under is its target.
        if node.args:
            object.__setattr__(copy, "args", fx.map_arg(node.args, value))
        if node.kwargs:
            object.__setattr__(copy, "kwargs", fx.map_arg(node.kwargs, value))
        copy.meta.update(node.meta)
        return copy

    def _anchor(self, node: fx.Node, scope: Scope, dependencies: list[fx.Node]) -> dict[fx.Node, fx.Node]:
        """Put an anchor in front of the first input that `node` only reads, and return the substitution."""
        source = anchored_input(node)
        if source is None:
            raise RewriteError(f"{node.name!r} has no input that an order could be anchored to")
        *others, last = dependencies
        if others:  # an anchor emits its task first, so a wait in front of it lands there
            self._dialect.wait(self._new, others)
        return {source: self._dialect.anchor(self._new, self._value(source, scope), last)}

    def _dependency(self, order: ForcedOrder) -> fx.Node:
        if order.before in self._records:
            return self._records[order.before]
        tensor = self._tensor_of(self._nodes[order.before])
        assert tensor is not None
        return self._copies[tensor]

    def _prepare(self, node: fx.Node, scope: Scope) -> None:
        """Write the views that `node`, in `scope`, reads: those that stay outside first, then those that go into the scope."""
        needed: dict[tuple[fx.Node, Scope], None] = {}

        def visit(reader: fx.Node, reader_scope: Scope) -> None:
            for source in reader.all_input_nodes:
                if source not in self._views:
                    continue
                at = self._view_scope(source, reader_scope)
                if at not in self._view_copies.get(source, ()) and (source, at) not in needed:
                    visit(source, at)
                    needed[source, at] = None

        visit(node, scope)
        for view, at in sorted(needed, key=lambda item: item[1] != NO_SCOPE):  # stable: producers stay first
            self._switch(at)
            self._write_view(view, at)

    def _tasks_that_read_views(self) -> dict[fx.Node, set[str | None]]:
        """Return for each view the operators that read it, directly or through other views; None stands for the output."""
        readers: dict[fx.Node, set[str | None]] = {}
        for node in reversed(self._source.graph.nodes):
            if node.op == "output":
                found: set[str | None] = {None}
            elif node in self._views:
                found = readers.get(node, set())
            elif node.name in self._stream:
                found = {node.name}
            else:
                continue
            for source in node.all_input_nodes:
                if source in self._views:
                    readers.setdefault(source, set()).update(found)
        return readers

    def _overwritten_by(self, name: str) -> set[str]:
        return {storage for storage in self._graph.ops[name].writes if storage.partition(".")[0] != name}

    def _forget_views_of(self, written: Iterable[str]) -> None:
        """Have the views of storages that were just written made again for later readers: a transpose may be a copy."""
        for storage in written:
            for view in self._views_of.get(storage, ()):
                self._view_copies.pop(view, None)

    def _views_by_storage(self) -> dict[str, list[fx.Node]]:
        """Return the views by those overwritten storages that all their readers touch: a view's own are among them."""
        found: dict[str, list[fx.Node]] = {}
        written = set[str]().union(*self._overwritten.values())
        for view, readers in self._readers.items():
            ops = [self._graph.ops[name] for name in readers if name is not None]
            for storage in written.intersection(*((*op.reads, *op.writes) for op in ops)) if ops else ():
                found.setdefault(storage, []).append(view)
        return found

    def _write_view(self, view: fx.Node, scope: Scope) -> None:
        # Only the first copy takes the view's own name; a numbered name could belong to an operator still to be written.
        name = f"{view.name}_for_{self._scope_name(scope)}" if view in self._written_views else view.name
        self._written_views.add(view)
        self._view_copies.setdefault(view, {})[scope] = self._copy(view, lambda n: self._value(n, scope), name)

    @staticmethod
    def _scope_name(scope: Scope) -> str:
        return dict(scope).get(STREAM_LABEL, MAIN) if scope else MAIN

    def _view_scope(self, view: fx.Node, reader_scope: Scope) -> Scope:
        """Return the scope in which a reader in `reader_scope` finds its copy of `view`."""
        if reader_scope == NO_SCOPE or not self._inside[view]:
            return NO_SCOPE
        if view in self._completing:  # on the stream of its reader, but no part of the reader's kernel or core limit
            label = dict(reader_scope).get(STREAM_LABEL)
            return NO_SCOPE if label is None else tuple(self._dialect.stream_scope(label))
        return reader_scope

    def _belongs_in_scope(self, view: fx.Node) -> bool:
        scopes = {self._scopes[name] if name is not None else NO_SCOPE for name in self._readers[view]}
        return scopes != {NO_SCOPE} and belongs_in_scope(view, self._views.__contains__, shared=len(scopes) > 1)

    def _value(self, node: fx.Node, scope: Scope) -> fx.Node:
        """Return the copy of `node` that an operator in `scope` reads."""
        if node in self._views:
            return self._view_copies[node][self._view_scope(node, scope)]
        return self._copies[node]

    def _switch(self, scope: Scope) -> None:
        if scope == self._open:
            return
        if self._open != NO_SCOPE:
            self._dialect.exit(self._new)
        if scope != NO_SCOPE:
            self._dialect.enter(self._new, scope)
        self._open = scope

    # -- what an operator is ----------------------------------------------------------------------------------------

    def _accesses_result(self, node: fx.Node, free: Container[fx.Node]) -> bool:
        """True for access to one result of an operator that emits a task; it emits nothing and is written once, behind it."""
        if self._graph.ops[node.name].target != "getitem":
            return False
        producer = node.all_input_nodes[0]
        return producer not in free or self._accesses_result(producer, free)

    def _label(self, name: str) -> str | None:
        return dict(self._scopes[name]).get(STREAM_LABEL)

    def _scope_of(self, name: str) -> Scope:
        """Return the attributes `name` is written under: the user's own, or those of its side stream and its core limit."""
        own = self._graph.ops[name].scope
        if own:
            return own
        stream = self._stream[name]
        scope = NO_SCOPE if stream in (MAIN, HCCL) else tuple(self._dialect.stream_scope(stream))
        return (*scope, *self._dialect.core_scope(*self._limits[name])) if name in self._limits else scope
