"""Hand-written streams and events in traced graphs, as authors and engines write them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from tests.faults.scenarios import Input, scenario


def capture_vocabulary() -> None:
    """Define the tagged events of the capture modes: TorchAir does so when they are first used."""
    importlib.import_module("torchair.ops._tagged_event")


def woven(function: Callable[..., Any], inputs: list[Input], *marks: tuple[str, str, *tuple[Any, ...]]) -> fx.GraphModule:
    """Trace `function` and write marks into the graph.

    A mark is (name of the node it stands in front of, operator of ``torch.ops.air``, arguments); an argument ``"@name"`` is the
    value of a node. Marks of one place keep their order.
    """
    module = scenario(function, *inputs)
    nodes = {node.name: node for node in module.graph.nodes}
    for place, operator, *arguments in marks:
        target = getattr(torch.ops.air, operator).default
        values = tuple(_resolved(argument, nodes) for argument in arguments)
        with module.graph.inserting_before(nodes[place]):
            made = module.graph.call_function(target, values)
            made.meta["val"] = torch.empty(0, device="meta") if operator == "record" else None
            nodes[made.name] = made
    module.recompile()
    return module


def _resolved(argument: Any, nodes: dict[str, fx.Node]) -> Any:
    if isinstance(argument, list):
        return [_resolved(item, nodes) for item in argument]
    return nodes[argument[1:]] if isinstance(argument, str) and argument.startswith("@") else argument


def enter(place: str, label: str) -> tuple[str, str, list[str], list[str]]:
    """Open a stream scope in front of a node."""
    return (place, "scope_enter", ["_user_stream_label"], [label])


def leave(place: str) -> tuple[str, str]:
    """Close the innermost scope in front of a node."""
    return (place, "scope_exit")
