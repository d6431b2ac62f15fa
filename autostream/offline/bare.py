"""The Ascend IR and nothing beside it: what TorchAir's conversion need not do where nobody else looks at what it makes.

TorchAir copies the graph that it is given and has Python code made for every copy. It writes a second Python program, which would
build the Ascend IR, with the lines of the model as comments, and it searches a list for each name that it gives to an operator.
On a deep model that is half of its time, and none of it reaches the IR. Importing this module imports torchair.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.fx._lazy_graph_module import _LazyGraphModule
from torchair._ge_concrete_graph.fx2ge_converter import GeGraph


class BareModule(_LazyGraphModule):
    """A graph that TorchAir may change as it is: it was copied already. Its code is made if somebody runs or reads it."""

    def __deepcopy__(self, _memo: dict[int, Any]) -> BareModule:
        return self


class BareGraph(GeGraph):  # type: ignore[misc] # TorchAir has no type information
    """A graph of TorchAir's without the program that would build it, and with the names of its operators where they are found."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.op_name_list = _Names()

    def add_python_code(self, *_: Any) -> None:
        """Leave it out."""


class _Names(dict[str, None]):
    """Names in the order in which they were appended: as much of a list as TorchAir asks for, but `in` does not search."""

    def append(self, name: str) -> None:
        self[name] = None


def bare_copy(graph_module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Copy the graph, but for where its operators come from in the model, and share the tensors."""
    graph = copy.deepcopy(graph_module.graph)
    for node in graph.nodes:
        node.meta.pop("stack_trace", None)
    return BareModule(graph_module, graph)
