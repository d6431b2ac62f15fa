"""From torch.export's form (mutations as extra outputs, constants among inputs and outputs) to the flat form of AOT inference."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import fx
from torch._decomp import core_aten_decompositions
from torch._decomp.decompositions import get_scale_value, upsample_compute_output_size
from torch._export.utils import _collect_all_valid_cia_ops, _get_decomp_for_cia
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind

#: Fused only for CPUs and unknown to TorchAir: taken apart although AOT would keep it.
_CPU_ONLY = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


def flatten_exported(exported: ExportedProgram) -> tuple[fx.GraphModule, tuple[str, ...]]:
    """Return the flat ATen graph and, per placeholder, the qualified name of what it holds ("" for an input of the user)."""
    with warnings.catch_warnings():
        # torch copies its own deprecated class here.
        warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
        program = exported.run_decompositions(_decompositions())
    graph = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    for node in program.graph.nodes:
        if node.op != "output":
            copied[node] = graph.node_copy(node, lambda old: copied[old])
    _write_outputs(graph, program, copied)
    sources = _drop_unused(graph, program, copied)
    module = fx.GraphModule(program.graph_module, graph)
    return module, sources


def model_name(exported: ExportedProgram) -> str:
    """Return the class name of the model that was exported."""
    for node in exported.graph.nodes:
        for path, kind in node.meta.get("nn_module_stack", {}).values():
            if not path:
                return str(getattr(kind, "__qualname__", kind)).rpartition(".")[2]
    return "ExportedProgram"


def _decompositions() -> dict[Any, Any]:
    """Return what AOT decomposes for TorchAir: the composite operators, and nothing else that TorchAir knows."""
    table: dict[Any, Any] = {op: _get_decomp_for_cia(op) for op in _collect_all_valid_cia_ops()}
    table |= cpu_only_decompositions()
    # TorchAir keeps this one whole, where torch would gather row by row.
    del table[torch.ops.aten.upsample_nearest2d.default]
    table[torch.ops.aten.upsample_nearest2d.vec] = _upsample_nearest2d
    return table


def cpu_only_decompositions() -> dict[Any, Any]:
    """Return how operators that exist only on CPUs are taken apart."""
    return {_CPU_ONLY: core_aten_decompositions()[_CPU_ONLY]}


def _upsample_nearest2d(data: torch.Tensor, size: list[int] | None, factors: list[float] | None) -> Any:
    shape = upsample_compute_output_size(data.size(), size, factors)
    scales = [get_scale_value(factors, axis) for axis in (0, 1)]
    return torch.ops.aten.upsample_nearest2d.default(data, shape, *scales)


def _write_outputs(graph: fx.Graph, program: ExportedProgram, copied: dict[fx.Node, fx.Node]) -> None:
    """Turn the extra outputs that hold new values of inputs into copies back, and keep the tensors the user asked for."""
    signature = program.graph_signature
    by_target = {spec.target: spec.arg.name for spec in signature.input_specs if spec.target is not None}
    placeholders = {node.name: copied[node] for node in program.graph.find_nodes(op="placeholder")}
    (old_output,) = program.graph.find_nodes(op="output")
    results: list[fx.Node] = []
    for spec, value in zip(signature.output_specs, old_output.args[0], strict=True):
        if not isinstance(value, fx.Node):
            continue
        if spec.kind is OutputKind.USER_OUTPUT:
            results.append(copied[value])
            continue
        if spec.kind not in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION):
            continue
        target = placeholders[spec.target if spec.kind is OutputKind.USER_INPUT_MUTATION else by_target[spec.target]]
        copy = graph.call_function(torch.ops.aten.copy_.default, (target, copied[value]))
        copy.meta["val"] = target.meta["val"]
    output = graph.output(tuple(results))
    output.meta["val"] = tuple(node.meta.get("val") for node in results)


def _drop_unused(graph: fx.Graph, program: ExportedProgram, copied: dict[fx.Node, fx.Node]) -> tuple[str, ...]:
    """Erase what AOT does not have: metadata assertions, plain numbers as inputs, and parameters nobody reads."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten._assert_tensor_metadata.default):
        graph.erase_node(node)
    sources: list[str] = []
    for spec, old in zip(program.graph_signature.input_specs, program.graph.find_nodes(op="placeholder"), strict=True):
        node = copied[old]
        number = isinstance(spec.arg, ConstantArgument)
        if not node.users and (number or spec.kind is not InputKind.USER_INPUT):
            graph.erase_node(node)
            continue
        sources.append("" if spec.kind is InputKind.USER_INPUT else str(spec.target))
    return tuple(sources)
