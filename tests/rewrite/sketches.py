"""Random graphs of executable operators, and a machine that runs an emitted program's tasks in any order it allows."""

from __future__ import annotations

import operator
import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from autostream.graph import OpGraph, Unit
from autostream.program import StreamProgram
from autostream.program.order import order_of, predecessors
from autostream.program.reading.writeback import written_back
from tests.graph.orders import Builder, aten

UNARY = [aten.relu.default, aten.neg.default, aten.abs.default]
BINARY = [aten.add.Tensor, aten.mul.Tensor, aten.maximum.default]
IN_PLACE = [aten.relu_.default, aten.neg_.default, aten.abs_.default]
_TRANSPOSING = {aten.t.default, aten.transpose.int, aten.permute.default}
_VIEWS = {*_TRANSPOSING, aten.view.default}
#: What a step may be; the frequent ones are named more than once.
KINDS = (
    *("unary", "unary", "constant", "binary", "binary", "mm", "view", "view", "split", "norm", "cat"),
    *("scatter", "scatter", "in_place", "write", "foreach", "chunk_write", "reread", "epilogue", "epilogue"),
)

Step = tuple[str, int, int, int]


class Sketch(Builder):
    """Builds a graph while running it, with a cache update of torch_npu among the operators."""

    def _run(self, target: Any, args: Any, kwargs: Any) -> Any:
        return execute(target, args, kwargs)


def sketch(steps: Sequence[Step]) -> tuple[Sketch, fx.GraphModule]:
    """Build the graph of the drawn steps; copies into the inputs come last, as AOTAutograd writes them."""
    builder = Sketch(_inputs())
    for step in steps:
        if step[0] != "epilogue":
            _add(builder, *step)
    # A view that is a result is read outside every scope, so it would never be written inside one.
    results = [node for node in builder.tensors() if node.op != "placeholder" and node.target not in _VIEWS]
    for _, a, b, _ in (step for step in steps if step[0] == "epilogue"):
        inputs = [node for node in builder.tensors() if node.op == "placeholder"][:3]
        alike = [node for node in _floats(builder, (4, 4)) if node.target is not aten.copy_.default]
        builder.call(aten.copy_.default, inputs[a % len(inputs)], alike[-1 - b % len(alike)])
    return builder, builder.finish(results)


def _inputs() -> dict[str, Tensor]:
    values = ((torch.arange(48) * 37 % 19 - 9) / 4).reshape(3, 4, 4)
    return {"x": values[0].clone(), "y": values[1].clone(), "z": values[2].clone(), "slot": torch.tensor([1])}


def _floats(builder: Sketch, shape: tuple[int, ...] | None = None) -> list[fx.Node]:
    tensors = [node for node in builder.tensors() if builder.values[node].dtype is torch.float32]
    return [node for node in tensors if shape is None or tuple(builder.values[node].shape) == shape]


def _add(builder: Sketch, kind: str, a: int, b: int, c: int) -> None:
    tensors = _floats(builder)
    left = tensors[a % len(tensors)]
    shape = tuple(builder.values[left].shape)
    right = (alike := _floats(builder, shape))[b % len(alike)]
    call = builder.call
    if kind == "unary":
        call(UNARY[c % len(UNARY)], left)
    elif kind == "constant":  # converts to Const, Add: a wait in front of it is lost
        call(aten.add.Tensor, left, 1.5)
    elif kind == "binary":
        call(BINARY[c % len(BINARY)], left, right)
    elif kind == "mm" and len(shape) == 2:
        matching = [node for node in tensors if builder.values[node].dim() == 2 and builder.values[node].shape[0] == shape[1]]
        if matching:
            call(aten.mm.default, left, matching[b % len(matching)])
    elif kind == "view" and len(shape) == 2:
        _view(builder, left, c)
    elif kind in ("in_place", "write", "foreach") and not (_is_writable(builder, left) and _is_writable(builder, right)):
        return  # GE would write into a transposed copy, scheduled or not
    elif kind in ("split", "chunk_write") and len(shape) == 2 and shape[0] > 1:
        parts = call(aten.split.Tensor, left, shape[0] // 2)
        if kind == "chunk_write" and parts is not None:
            call(IN_PLACE[c % len(IN_PLACE)], next(iter(parts.users)))
    elif kind == "norm":
        call(aten.native_layer_norm.default, left, [shape[-1]], None, None, 1e-5)
    elif kind == "cat":
        call(aten.cat.default, [left, right])
    elif kind == "scatter":
        _scatter(builder, a, b)
    elif kind == "reread":
        _reread(builder, a, b)
    elif kind == "in_place":
        call(IN_PLACE[c % len(IN_PLACE)], left)
    elif kind == "write":
        call(aten.add_.Tensor if c % 2 or left.op == "placeholder" else aten.copy_.default, left, right)
    elif kind == "foreach":
        call(aten._foreach_add_.Scalar, [left, right], 1.5)


def _view(builder: Sketch, left: fx.Node, c: int) -> None:
    calls: list[tuple[Any, ...]] = [
        (aten.t.default, left),
        (aten.transpose.int, left, 0, 1),
        (aten.permute.default, left, [1, 0]),
        (aten.view.default, left, [-1]),
        (aten.view.default, left, [2, -1]),
    ]
    builder.call(*calls[c % len(calls)])


def _is_writable(builder: Sketch, node: fx.Node) -> bool:
    """Tell whether no transposing view is between a value and the memory it lies in."""
    while node.op == "call_function" and _shares_memory(builder.values[node], builder.values[node.all_input_nodes[0]]):
        if node.target in _TRANSPOSING:
            return False
        node = node.all_input_nodes[0]
    return True


def _shares_memory(one: Any, two: Any) -> bool:
    return isinstance(two, Tensor) and one.untyped_storage().data_ptr() == two.untyped_storage().data_ptr()


def _scatter(builder: Sketch, a: int, b: int) -> None:
    """Write two rows of a cache in place; TorchAir converts this one, and a wait in front of it lands."""
    cache = [node for node in builder.tensors() if node.op == "placeholder"][a % 3]
    rows = _floats(builder, (2, 4)) or [node for node in [_rows(builder, b)] if node is not None]
    slot = next(node for node in builder.tensors() if node.name == "slot")
    whole, part = builder.call(aten.view.default, cache, [1, 1, 4, 4]), None
    if rows:
        part = builder.call(aten.view.default, rows[b % len(rows)], [1, 1, 2, 4])
    if whole is not None and part is not None:
        builder.call(torch.ops.npu.scatter_update_.default, whole, slot, part, -2)


def _reread(builder: Sketch, a: int, b: int) -> None:
    """Read a transposed cache before it is written and after."""
    cache = [node for node in builder.tensors() if node.op == "placeholder"][a % 3]
    turned = builder.call(aten.t.default, cache)
    builder.call(aten.relu.default, turned)
    _scatter(builder, a, b)
    builder.call(aten.neg.default, turned)


def _rows(builder: Sketch, b: int) -> fx.Node | None:
    squares = _floats(builder, (4, 4))
    parts = builder.call(aten.split.Tensor, squares[b % len(squares)], 2)
    return None if parts is None else next(iter(parts.users))


def execute(target: Any, args: Any, kwargs: Any) -> Any:
    """Run one operator on the CPU, the cache update of torch_npu included, with results that no layout of memory changes.

    As in GE, the parts of a split are copies.
    """
    if target is torch.ops.npu.scatter_update_.default:
        cache, slots, rows, axis = args
        assert axis == -2
        for batch, slot in enumerate(slots.tolist()):
            cache[batch, :, slot : slot + rows.shape[2]] = rows[batch]
        return cache
    if target is aten.split.Tensor:
        return [part.clone() for part in target(*args)]
    if target is aten.mm.default:
        left, right = (item.contiguous() for item in args)
        return (left.unsqueeze(-1) * right.unsqueeze(0)).contiguous().sum(dim=1)
    return target(*args, **kwargs)


def draw_run(program: StreamProgram, seed: int, *, anchors: bool = False) -> list[str]:
    """Draw an order of the tasks that the program allows: streams run in order, and waits hold.

    With `anchors` an Identity is a task that has its place on its stream. Without, the engine has taken it away: it copies
    nothing and keeps no place, and what waited through it waits all the same.

    With an odd seed, one stream always goes first where it can, then another: the most unlike the order of emission.
    """
    order = order_of(program)
    before = [set(sources) for sources in predecessors(order, stream_order=True, vanishing=anchors)]
    chooser = random.Random(seed)
    rank = {stream: chooser.random() for stream in sorted(set(order.streams))}
    left, done = list(range(len(before))), []
    while left:
        ready = [position for position in left if not before[position]]
        chosen = min(ready, key=lambda p: (rank[order.streams[p]], p)) if seed % 2 else chooser.choice(ready)
        left.remove(chosen)
        done.append(order.names[chosen])
        for sources in before:
            sources.discard(chosen)
    return done


class Machine:
    """Runs the tasks of a program on the CPU as GE might.

    - A view without a task is looked through when its reader runs; one with a task is a copy, made where it stands.
    - An anchor (Identity) copies if `copies`, else it is gone.
    - A value that is copied into an input is written there by its producer, when that runs.
    """

    def __init__(self, graph_module: fx.GraphModule, graph: OpGraph, inputs: Mapping[str, Tensor], *, copies: bool) -> None:
        self._nodes = {node.name: node for node in graph_module.graph.nodes}
        self._graph = graph
        self._copies = copies
        self._values: dict[fx.Node, Any] = {self._nodes[name]: tensor.clone() for name, tensor in inputs.items()}
        self._inputs = [self._nodes[name] for name in inputs]
        self._write_backs = [node for node in self._nodes.values() if _is_epilogue(node)]
        producers = {name.rpartition(".")[0] for name in written_back(graph_module)}
        self._late = [node for node in self._write_backs if _producer(node.args[1]).name not in producers]

    def run(self, tasks: Sequence[str]) -> list[bytes]:
        """Run the tasks in this order; return the bits of the results and of the inputs as they are afterwards."""
        torch.manual_seed(7)
        for name in tasks:
            self._task(self._nodes[name])
        for copy in self._late:
            self._value(copy.args[0]).copy_(self._value(copy.args[1]))
        results: list[fx.Node] = list(self._nodes["output"].all_input_nodes)
        return [_bits(self._value(node)) for node in (*results, *self._inputs)]

    def _task(self, node: fx.Node) -> None:
        if str(node.target) == "air.wait_tensor.default":
            value = self._value(node.args[0])
            self._values[node] = value.clone() if self._copies else value
            return
        args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), self._value)
        value = execute(node.target, args, kwargs)
        is_view = node.name not in self._graph.ops or self._graph.ops[node.name].unit is Unit.FREE
        self._values[node] = value.clone() if is_view else value
        for copy in self._write_backs:
            if copy not in self._late and _producer(copy.args[1]) is node:
                self._value(copy.args[0]).copy_(self._value(copy.args[1]))

    def _value(self, node: Any) -> Any:
        if node in self._values:
            return self._values[node]
        unit = self._graph.ops[node.name].unit if node.name in self._graph.ops else Unit.FREE
        assert unit is Unit.FREE, f"{node.name} is read before it has run"
        return node.target(*fx.node.map_arg(node.args, self._value), **node.kwargs)


def tasks_of(graph: OpGraph) -> list[str]:
    """Return the tasks of a graph in program order, without the copies into inputs (their producers write)."""
    return [op.name for op in graph if op.unit is not Unit.FREE]


def _is_epilogue(node: fx.Node) -> bool:
    return node.target is aten.copy_.default and isinstance(node.args[0], fx.Node) and node.args[0].op == "placeholder"


def _producer(value: Any) -> fx.Node:
    """Return the node whose task makes a value, looking through what `written_back` looks through."""
    assert isinstance(value, fx.Node)
    node: fx.Node = value
    while node.op == "call_function" and (node.target is operator.getitem or node.target in _VIEWS):
        node = node.all_input_nodes[0]
    return node


def _bits(tensor: Tensor) -> bytes:
    return bytes(tensor.contiguous().numpy().tobytes())
