"""What the compiler below makes one kernel of: a convolution and the activation of its result."""

from __future__ import annotations

from autostream.cost.analytic.product import read_product
from autostream.cost.chips.factors import base_name, load_factors
from autostream.cost.model import Machine
from autostream.graph.model import Op, OpGraph, Unit, Why

_ACTIVATIONS = frozenset({"aten.relu"})


def fused_activations(graph: OpGraph, machine: Machine) -> dict[str, str]:
    """Return the activations that GE runs inside the convolution before them, each with that convolution, in graph order.

    On chips whose cube applies a ReLU where it writes its results, GE puts a ReLU behind a two-dimensional convolution into its
    kernel (pass FIXPIPEFUSIONPASS, which cannot be turned off; static shapes only). Nothing else may read the result of the
    convolution, and both must be meant for the same stream.
    """
    if not machine.fuses_relu:
        return {}
    found: dict[str, str] = {}
    for op in graph:
        if base_name(op.target) not in _ACTIVATIONS:
            continue
        producers = list(graph.dag.predecessors(op.name))
        if len(producers) == 1 and _fuses(graph, graph.ops[producers[0]], op):
            found[op.name] = producers[0]
    return found


def _fuses(graph: OpGraph, before: Op, after: Op) -> bool:
    alone = list(graph.dag.successors(before.name)) == [after.name] and before.name not in graph.outputs
    return alone and Why.DATA in graph.why(before.name, after.name) and before.scope == after.scope and _is_conv2d(before)


def _is_conv2d(op: Op) -> bool:
    group = load_factors().find(op.target)
    if op.unit is not Unit.CUBE or group is None or group.product != "conv" or len(op.inputs[0].shape) != 4:
        return False
    # A transposed convolution is no product of these shapes.
    return read_product(op, group) is not None
