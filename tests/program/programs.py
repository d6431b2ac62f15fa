"""Short spellings of programs and of FX graphs with TorchAir's scopes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from autostream.program import Edge, EdgeKind, Finding, Semantics, Severity, Step, StreamProgram

aten = torch.ops.aten
MAIN = "default"


def step(
    name: str,
    stream: str | None = MAIN,
    *,
    reads: Iterable[str] = (),
    writes: Iterable[str] = (),
    kind: str = "op",
    source: str | None = None,
) -> Step:
    """A step whose source is its name unless said."""
    return Step(
        name=name, kind=kind, stream=stream, reads=tuple(reads), writes=tuple(writes), source=name if source is None else source
    )


def program(
    steps: Sequence[Step],
    *,
    data: Iterable[str] = (),
    control: Iterable[str] = (),
    event: Iterable[str] = (),
    in_order: bool = True,
    semantics: Semantics = Semantics.GE,
    **more: Any,
) -> StreamProgram:
    """A program; edges are written ``"a>b"``."""
    edges = [
        Edge(before=text.split(">")[0], after=text.split(">")[1], kind=kind)
        for kind, texts in ((EdgeKind.DATA, data), (EdgeKind.CONTROL, control), (EdgeKind.EVENT, event))
        for text in texts
    ]
    return StreamProgram(semantics=semantics, steps=tuple(steps), edges=tuple(edges), in_order=in_order, **more)


def found(findings: Iterable[Finding], severity: Severity | None = None) -> list[str]:
    """The kinds of the findings (of one severity)."""
    return [finding.kind for finding in findings if severity is None or finding.severity is severity]


class Graph:
    """Writes an FX graph node by node; operators get the names they are given."""

    def __init__(self, *inputs: str) -> None:
        self.graph = fx.Graph()
        self.inputs = [self.graph.placeholder(name) for name in inputs]

    def call(self, name: str, target: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        return self.graph.create_node("call_function", target, args, kwargs, name=name)

    def item(self, name: str, value: fx.Node, index: int) -> fx.Node:
        return self.call(name, operator.getitem, value, index)

    def enter(self, label: str | None = None, **attributes: str) -> fx.Node:
        pairs = ({"_user_stream_label": label} if label else {}) | attributes
        return self.call("enter", torch.ops.air.scope_enter.default, list(pairs), list(pairs.values()))

    def exit(self) -> fx.Node:
        return self.call("exit", torch.ops.air.scope_exit.default)

    def record(self, name: str = "record") -> fx.Node:
        return self.call(name, torch.ops.air.record.default)

    def wait(self, *values: fx.Node, name: str = "wait") -> fx.Node:
        return self.call(name, torch.ops.air.wait.default, list(values))

    def done(self, *outputs: fx.Node, shape: tuple[int, ...] = (8, 8)) -> fx.GraphModule:
        """Finish the graph; all inputs are float tensors of one shape."""
        self.graph.output(tuple(outputs))
        module = fx.GraphModule(torch.nn.Module(), self.graph)
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        with mode:
            inputs = [torch.empty(*shape) for _ in self.inputs]
        FakeTensorProp(module, mode).propagate_dont_convert_inputs(*inputs)
        return module
