"""Random graphs of executable operators, wide enough to be worth several streams: views, in-place operators, cache writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from autostream.cost.model import Breakdown, Cost, Machine, Resources, Tier
from autostream.graph import OpGraph, Unit
from tests.graph.orders import Builder, aten
from tests.rewrite.sketches import execute

#: (kind, three numbers that choose operands and operator).
Drawn = tuple[str, int, int, int]

#: What a drawn step may be; the frequent ones are named more than once.
KINDS = (
    *("unary", "unary", "unary", "binary", "binary", "mm", "norm", "cat", "random", "constant"),
    *("view", "view", "part", "part", "split", "unbind", "expand"),
    *("in_place", "write", "copy_", "out", "foreach", "part_write", "part_write", "two_halves"),
    *("cache", "cache", "rows", "rows_functional", "reread", "epilogue"),
)
_UNARY = (aten.relu.default, aten.neg.default, aten.abs.default)
_BINARY = (aten.add.Tensor, aten.mul.Tensor, aten.maximum.default)
_IN_PLACE = (aten.relu_.default, aten.neg_.default, aten.abs_.default)

#: What a made-up operator of a unit holds: few enough cores for several to run at once.
_HELD = {Unit.CUBE: Resources(aic=6), Unit.VECTOR: Resources(aiv=12), Unit.MIXED: Resources(aic=6, aiv=12)}
MACHINE = Machine(name="made-up", aic=24, aiv=48, sync=300, sync_error=0.0)


def _as_drawn(target: Any) -> Any:
    return lambda *args, **kwargs: execute(target, args, kwargs)


#: Stand-ins for what has no CPU kernel or depends on the layout of memory.
KERNELS = {str(target): _as_drawn(target) for target in (aten.mm.default, aten.split.Tensor)} | {
    "npu.scatter_update_.default": lambda *args, **kwargs: execute(torch.ops.npu.scatter_update_.default, args, kwargs)
}


class _Executing(Builder):
    def _run(self, target: Any, args: Any, kwargs: Any) -> Any:
        return execute(target, args, kwargs)


@dataclass
class Wide:
    """A graph under construction: four square inputs, a pool of two caches, and slots to write at."""

    builder: _Executing = field(default_factory=lambda: _Executing(inputs()))
    #: Copies into graph inputs that were drawn: they come last.
    epilogues: list[Drawn] = field(default_factory=list)

    def finish(self) -> fx.GraphModule:
        """Write the drawn copies into graph inputs and return every value."""
        results = [node for node in self.floats() if node.op != "placeholder" and _is_task(node)]
        for _, a, b, _ in self.epilogues:
            alike = [node for node in self.floats((4, 4)) if _is_task(node) and node.op != "placeholder"]
            if alike:
                self.builder.call(aten.copy_.default, self._input(a), alike[-1 - b % len(alike)])
        return self.builder.finish(results)

    def floats(self, shape: tuple[int, ...] | None = None) -> list[fx.Node]:
        tensors = [node for node in self.builder.tensors() if self.builder.values[node].dtype is torch.float32]
        return [node for node in tensors if shape is None or tuple(self.builder.values[node].shape) == shape]

    def add(self, step: Drawn) -> None:
        """Add one drawn step; what PyTorch refuses is left out."""
        kind, a, b, c = step
        left = self._pick(self.floats(), a)
        shape = tuple(self.builder.values[left].shape)
        right = self._pick(self.floats(shape), b)
        call = self.builder.call
        if kind == "unary":
            call(_UNARY[c % 3], left)
        elif kind == "constant":
            call(aten.add.Tensor, left, 1.5)
        elif kind == "binary":
            call(_BINARY[c % 3], left, right)
        elif kind == "mm":
            call(aten.mm.default, self._pick(self.floats((4, 4)), a), self._pick(self.floats((4, 4)), b))
        elif kind == "norm":
            call(aten.native_layer_norm.default, left, [shape[-1]], None, None, 1e-5)
        elif kind == "cat":
            call(aten.cat.default, [left, right])
        elif kind == "random":
            call(aten.bernoulli.p, left, 0.5)
        elif kind == "view" and len(shape) == 2:
            view = [(aten.t.default,), (aten.view.default, [-1]), (aten.unsqueeze.default, 0), (aten.detach.default,)][c % 4]
            call(view[0], left, *view[1:])
        elif kind == "part" and len(shape) == 2:
            self._part(left, b, c)
        elif kind in ("split", "unbind") and len(shape) == 2 and shape[0] > 1:
            call(*((aten.split.Tensor, left, shape[0] // 2) if kind == "split" else (aten.unbind.int, left)))
        elif kind == "expand" and len(shape) == 2:
            call(aten.expand.default, left, [2, -1, -1])
        elif kind == "epilogue":
            self.epilogues.append(step)
        else:
            self._write(kind, left, right, a, b, c)

    def _write(self, kind: str, left: fx.Node, right: fx.Node, a: int, b: int, c: int) -> None:
        call = self.builder.call
        if kind == "in_place":
            call(_IN_PLACE[c % 3], left)
        elif kind == "write":
            call(aten.add_.Tensor, left, right)
        elif kind == "copy_" and left.op != "placeholder":
            call(aten.copy_.default, left, right)
        elif kind == "out":
            call(aten.add.out, left, right, out=self._pick(self.floats(tuple(self.builder.values[left].shape)), c))
        elif kind == "foreach":
            call(aten._foreach_add_.Scalar, [left, right], 1.5)
        elif kind == "part_write":
            part = self._part(self._input(a), b, c)
            if part is not None:
                call(_IN_PLACE[c % 3], part)
        elif kind == "two_halves":
            pool = self._input(a)
            for start, operator in ((0, _IN_PLACE[b % 3]), (2, _IN_PLACE[c % 3])):
                half = call(aten.slice.Tensor, pool, 0, start, start + 2)
                if half is not None:
                    call(operator, half)
        elif kind in ("cache", "reread"):
            turned = call(aten.t.default, self._input(a)) if kind == "reread" else None
            if turned is not None:
                call(aten.relu.default, turned)
            self._cache(a, b)
            if turned is not None:
                call(aten.neg.default, turned)
        elif kind in ("rows", "rows_functional"):
            source = call(aten.slice.Tensor, self._pick(self.floats((4, 4)), b), 0, 1, 3)
            target = aten.index_put_.default if kind == "rows" else aten.index_put.default
            if source is not None:
                call(target, self._input(a), [self._named("rows")], source)

    def _cache(self, a: int, b: int) -> None:
        whole = self.builder.call(aten.view.default, self._input(a), [1, 1, 4, 4])
        rows = self.builder.call(aten.slice.Tensor, self._pick(self.floats((4, 4)), b), 0, 0, 2)
        fresh = rows and self.builder.call(aten.abs.default, rows)
        part = fresh and self.builder.call(aten.view.default, fresh, [1, 1, 2, 4])
        if whole is not None and part is not None:
            self.builder.call(torch.ops.npu.scatter_update_.default, whole, self._named("slot"), part, -2)

    def _part(self, left: fx.Node, b: int, c: int) -> fx.Node | None:
        calls: list[tuple[Any, ...]] = [
            (aten.slice.Tensor, left, b % 2, 0, 2),
            (aten.slice.Tensor, left, b % 2, 2, 4),
            (aten.slice.Tensor, left, 0, b % 2, 4, 2),
            (aten.select.int, left, b % 2, c % 2),
            (aten.diagonal.default, left),
            (aten.as_strided.default, left, [2, 2], [4, 1], 8 * (b % 2)),
        ]
        return self.builder.call(*calls[c % len(calls)])

    def _input(self, which: int) -> fx.Node:
        return [node for node in self.builder.tensors() if node.op == "placeholder"][which % 4]

    def _named(self, name: str) -> fx.Node:
        return next(node for node in self.builder.values if node.name == name)

    @staticmethod
    def _pick(nodes: Sequence[fx.Node], which: int) -> fx.Node:
        return nodes[which % len(nodes)]


def wide(steps: Sequence[Drawn]) -> tuple[fx.GraphModule, list[Tensor]]:
    """Return the graph of the drawn steps and its inputs."""
    graph = Wide()
    for step in steps:
        graph.add(step)
    return graph.finish(), list(graph.builder.inputs.values())


def inputs() -> dict[str, Tensor]:
    """Return four square tensors, the slot of an update and the rows of another."""
    values = ((torch.arange(64) * 37 % 19 - 9) / 4).reshape(4, 4, 4)
    squares = {name: values[at].clone() for at, name in enumerate(("x", "y", "z", "pool"))}
    return squares | {"slot": torch.tensor([1]), "rows": torch.tensor([2, 0])}


def made_up_costs(graph: OpGraph, durations: Sequence[int]) -> dict[str, Cost]:
    """Give every operator with a task one of the durations (microseconds), and the cores its kind of unit holds."""
    tasks = [op for op in graph if op.unit is not Unit.FREE]
    return {
        op.name: Cost(
            duration=1000 * durations[at % len(durations)],
            breakdown=Breakdown(),
            resources=_HELD.get(op.unit, Resources()),
            tier=Tier.ANALYTIC,
            error=0.1,
        )
        for at, op in enumerate(tasks)
    }


def _is_task(node: fx.Node) -> bool:
    """Tell whether a value may be returned: a view is read outside every scope, so it would never be written inside one."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and not any(value.alias_info for value in schema.returns)
