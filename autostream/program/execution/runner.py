"""Runs single steps of a program on the CPU, whenever it is told to."""

from __future__ import annotations

import copy
import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, fx
from torch._ops import HigherOrderOperator
from torch.utils import _pytree as pytree

from autostream.errors import InputError, VerificationError
from autostream.program.kinds import may_vanish
from autostream.program.model import Semantics, StreamProgram

#: Stands in for an operator: takes its arguments, returns its value.
Kernel = Callable[..., Any]

_WAIT_TENSOR = "air.wait_tensor.default"
_COPY = "aten.copy_.default"
_OPERATIONS = ("placeholder", "get_attr", "call_function", "output")


class ExecutionError(VerificationError):
    """A step could not run where it came: a value it reads was not there yet, or its operator failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What a run left behind; tensors are copies."""

    #: Leaves of the graph's output, in order.
    outputs: tuple[Any, ...]
    #: The graph's inputs as they are afterwards.
    inputs: tuple[Any, ...]
    #: The module's own tensors that the graph reads (``get_attr``), as they are afterwards.
    attributes: tuple[Any, ...] = ()

    def same_bits(self, other: Execution) -> bool:
        """Return True if both runs left the same bits (a NaN is equal to itself)."""
        mine, theirs = (run.outputs + run.inputs + run.attributes for run in (self, other))
        return len(mine) == len(theirs) and all(_same(one, two) for one, two in zip(mine, theirs, strict=True))


class Runner:
    """The memory of one run, and the steps that change it. The inputs and the module's own tensors are copied first.

    Views without a task are looked through where they are read. Views share memory as in eager mode; in GE one with a task
    copies, and here does where eager mode cannot tell: nothing writes that memory afterwards. Steps on different threads may
    run at the same time.
    """

    def __init__(
        self, graph_module: fx.GraphModule, program: StreamProgram, inputs: Sequence[Any], kernels: Mapping[str, Kernel]
    ) -> None:
        self._nodes: dict[str, fx.Node] = {node.name: node for node in graph_module.graph.nodes}
        self._refuse_unknown(program)
        self._kernels = kernels
        self._index = {node: position for position, node in enumerate(self._nodes.values())}
        self._tasks = {self._nodes[step.name]: str(step.stream) for step in program.steps if step.stream is not None}
        self._placeholders = [node for node in self._nodes.values() if node.op == "placeholder"]
        self._attributes = [node for node in self._nodes.values() if node.op == "get_attr"]
        self._values = self._initial(graph_module, inputs)
        self._done: set[str] = set()
        self._lock = threading.Lock()
        self._result: Execution | None = None
        copies = [node for step in program.steps if step.stream is None and _is_write_back(node := self._nodes[step.name])]
        self._copying = self._find_copying(program, copies) if program.semantics is Semantics.GE else frozenset()
        self._write_backs = self._find_write_backs(copies)
        self._write_back()

    def run(self, name: str) -> None:
        """Run one step.

        Raises:
            ExecutionError: it reads a value that is not there yet, or its operator fails; names both.
        """
        node = self._nodes[name]
        if node.op == "output":
            self._result = self._snapshot()
        else:
            value = self._evaluate(node)
            self._values[node] = copy.deepcopy(value) if node in self._copying else value  # a clone may have other strides
        with self._lock:
            self._done.add(name)
            self._write_back()

    def result(self) -> Execution:
        """Return what the graph returns: as it was when the output step ran, or as it is now if the output is no step."""
        return self._result or self._snapshot()

    # -- values -----------------------------------------------------------------------------------------------------

    def _evaluate(self, node: fx.Node) -> Any:
        """Compute a node's value, and before it, once, those of the nodes without a task that it reads."""
        for source in self._untasked(node):
            self._values.setdefault(source, self._call(source, node))  # another thread may be faster
        return self._call(node, node)

    def _untasked(self, node: fx.Node) -> list[fx.Node]:
        """Return the nodes without a task or a value that `node` reads, directly or through each other, in graph order."""
        found: set[fx.Node] = set()
        stack = [node]
        while stack:
            for source in _sources(stack.pop()):
                if source not in found and source not in self._tasks and source not in self._values:
                    found.add(source)
                    stack.append(source)
        return sorted(found, key=self._index.__getitem__)

    def _call(self, node: fx.Node, reader: fx.Node) -> Any:
        def value(source: fx.Node) -> Any:
            if source not in self._values:
                raise ExecutionError(f"{source.name!r}{self._on(source)} is read before it was written, by {reader.name!r}")
            return self._values[source]

        target = str(node.target)
        if target == _WAIT_TENSOR or (target == _COPY and node not in self._tasks):  # such a copy is made by `_write_back`
            return value(_sources(node)[0])
        args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), value)
        return args if node.op == "output" else self._apply(node, args, kwargs)

    def _apply(self, node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        target = str(node.target)
        call: Kernel = self._kernels.get(target) or cast("Kernel", node.target)
        try:
            return call(*args, **kwargs)
        except Exception as error:
            raise ExecutionError(f"operator {node.name!r} ({target}){self._on(node)} failed: {error}") from error

    def _on(self, node: fx.Node) -> str:
        return f" on stream {self._tasks[node]!r}" if node in self._tasks else ""

    def _initial(self, graph_module: fx.GraphModule, inputs: Sequence[Any]) -> dict[fx.Node, Any]:
        if len(inputs) != len(self._placeholders):
            raise InputError(f"the graph has {len(self._placeholders)} inputs, {len(inputs)} were given")
        attributes = [operator.attrgetter(str(node.target))(graph_module) for node in self._attributes]
        given = [value.detach() if isinstance(value, Tensor) else value for value in (*inputs, *attributes)]
        # Copied in one go: tensors that share memory still do afterwards.
        copies = copy.deepcopy([value if isinstance(value, Tensor) else None for value in given])
        values = [old if new is None else new for old, new in zip(given, copies, strict=True)]
        return dict(zip((*self._placeholders, *self._attributes), values, strict=True))

    def _snapshot(self) -> Execution:
        output = next(node for node in self._nodes.values() if node.op == "output")
        outputs, inputs, attributes = pytree.tree_map_only(
            Tensor,
            torch.clone,
            (
                tuple(pytree.tree_leaves(self._evaluate(output))),
                tuple(self._values[node] for node in self._placeholders),
                tuple(self._values[node] for node in self._attributes if isinstance(self._values[node], Tensor)),
            ),
        )
        return Execution(outputs=outputs, inputs=inputs, attributes=attributes)

    def _refuse_unknown(self, program: StreamProgram) -> None:
        unknown = next((step.name for step in program.steps if step.name not in self._nodes), None)
        if unknown is not None:
            raise InputError(f"step {unknown!r} of the program is no node of the graph")
        foreign = next((node for node in self._nodes.values() if node.op not in _OPERATIONS), None)
        if foreign is not None:
            raise InputError(f"{foreign.name!r} is a {foreign.op}; a graph to execute holds {', '.join(_OPERATIONS)} nodes")

    # -- copies that the graph does not show ----------------------------------------------------------------------------

    def _find_copying(self, program: StreamProgram, copies: Sequence[fx.Node]) -> frozenset[fx.Node]:
        """Return the views with a task, which copy, as far as that does not change what eager mode computes."""
        views = [
            node
            for step in program.steps
            if (node := self._nodes[step.name]) in self._tasks and not may_vanish(step.kind)
            if _shares_memory(node) and not _mutates(node)
        ]
        writers = {node: self._reached(node) for node in (*self._tasks, *copies) if _mutates(node)} if views else {}
        copying = []
        for view in views:
            memory = {view, *self._reached(view)}
            later = (touched for writer, touched in writers.items() if self._index[writer] > self._index[view])
            if all(memory.isdisjoint(touched) for touched in later):
                copying.append(view)
        return frozenset(copying)

    def _find_write_backs(self, copies: Sequence[fx.Node]) -> list[tuple[fx.Node, set[str]]]:
        """Return the copies into graph inputs that are no steps, in graph order, each with the steps it has to wait for.

        GE has the producer of the value write the input, so the copy is made as soon as the value is there. Only what the
        graph has between the two and uses the input, or changes the value, still comes first: GE copies where it must.
        """
        reached = {node: self._reached(node) for node in (*self._tasks, *copies)} if copies else {}
        found: list[tuple[fx.Node, set[str]]] = []
        for node in copies:
            destination = _sources(node)[0]
            producers = {source for item in (*self._untasked(node), node) for source in _sources(item) if source in self._tasks}
            start = max((self._index[source] for source in producers), default=-1)
            needed = {source.name for source in producers}
            for task in self._tasks:
                if start < self._index[task] < self._index[node]:
                    changes = _mutates(task) and not reached[node].isdisjoint(reached[task])
                    if changes or destination in reached[task]:
                        needed.add(task.name)
            for earlier, before in found:
                if destination in reached[earlier] or _sources(earlier)[0] in reached[node]:
                    needed |= before
            found.append((node, needed))
        return found

    def _reached(self, node: fx.Node) -> set[fx.Node]:
        """Return the nodes in whose memory a node's arguments lie, or may lie."""
        found: set[fx.Node] = set()
        stack = [node]
        while stack:
            for source in _sources(stack.pop()):
                if source not in found:
                    found.add(source)
                    if source not in self._tasks or _shares_memory(source):
                        stack.append(source)
        return found

    def _write_back(self) -> None:
        """Make the copies whose time has come."""
        for item in [item for item in self._write_backs if item[1] <= self._done]:
            self._write_backs.remove(item)
            destination, source = _sources(item[0])[0], item[0].args[1]
            assert isinstance(source, fx.Node)
            value = self._values[source] if source in self._values else self._evaluate(source)
            self._apply(item[0], (self._values[destination], value), {})


def _sources(node: fx.Node) -> list[fx.Node]:
    """Return the nodes whose values a node reads; an anchor only waits for its second one."""
    return node.all_input_nodes[:1] if str(node.target) == _WAIT_TENSOR else node.all_input_nodes


def _is_write_back(node: fx.Node) -> bool:
    """True for a copy of a value into a graph input."""
    return str(node.target) == _COPY and _sources(node)[0].op == "placeholder" and isinstance(node.args[1], fx.Node)


def _shares_memory(node: fx.Node) -> bool:
    """True if an operator's result may lie in the memory of its arguments."""
    schema = getattr(node.target, "_schema", None)
    return str(node.target) == _WAIT_TENSOR or (schema is not None and any(value.alias_info for value in schema.returns))


def _mutates(node: fx.Node) -> bool:
    """True if an operator writes its arguments, or may: what a higher-order one does is not looked into."""
    schema = getattr(node.target, "_schema", None)
    return isinstance(node.target, HigherOrderOperator) if schema is None else bool(schema.is_mutable)


def _same(one: Any, two: Any) -> bool:
    if not isinstance(one, Tensor) or not isinstance(two, Tensor):
        return type(one) is type(two) and bool(one == two)
    return one.dtype == two.dtype and one.shape == two.shape and torch.equal(_bits(one), _bits(two))


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)
