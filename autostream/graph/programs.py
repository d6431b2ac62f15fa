"""Any way to hand over a program -> the flat ATen graph that TorchAir would hand to a pass.

That form: functional ATen and npu operators, composite ones decomposed, every parameter and buffer a placeholder, mutated inputs
written back by ``aten.copy_`` in front of `output`, and `output` a flat tuple of tensors.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from autostream.errors import CaptureError, InputError
from autostream.graph.calls import nodes_in
from autostream.graph.exported import flatten_exported, model_name
from autostream.graph.traced import trace
from autostream.graph.values import MISSING, attribute_of, value_of

_ALLOWED = "an nn.Module with example inputs, a torch.export.ExportedProgram, an ATen fx.GraphModule, or the path of a .pt2 file"

_ATTENTION = (
    "scaled_dot_product_attention was taken apart into ATen operators; an NPU runs it fused, so overlaps with its parts are not "
    "to be had"
)
_HINT = "the model must be exportable by torch.export, with static shapes and without data-dependent control flow"
#: What to do about failures whose text does not tell.
_HINTS = {
    "on the same device": "model and example inputs must be on one device",
    "expected compiled_fn to be GraphModule": "the model changes in place a buffer or input that shares memory with another one: "
    "pass the whole pool and slice it inside the model",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AtenProgram:
    """A program in flat ATen form. `graph_module` is a graph of its own: nothing of the caller's is shared but tensors."""

    graph_module: fx.GraphModule
    #: Fake tensors (or plain numbers) in the order of the placeholders.
    example_inputs: tuple[Any, ...]
    name: str
    #: What each placeholder is: the qualified name of a parameter, buffer or constant, or "" for an input of the user. A module
    #: that had to be traced (see `traced`) does not tell them apart: all are "".
    sources: tuple[str, ...] = ()
    #: What the reader of a report should know about how the program was captured.
    notes: tuple[str, ...] = ()


def to_aten(program: Any, example_inputs: Any = None, kwargs: Mapping[str, Any] | None = None) -> AtenProgram:
    """Return a program in flat ATen form.

    Args:
        program: an nn.Module, an ExportedProgram, an ATen fx.GraphModule, or the path of a .pt2 file.
        example_inputs: a tuple of inputs or a single tensor; real, fake or on the meta device. An nn.Module needs them; a
            GraphModule needs them if its placeholders have no ``meta["val"]``.
        kwargs: keyword inputs of an nn.Module.

    Raises:
        InputError: the program or its inputs cannot be used; the text says what is allowed.
        CaptureError: torch.export failed; the text starts with torch's own message.
    """
    inputs = _as_tuple(example_inputs)
    if isinstance(program, (str, Path)):
        exported = _load(Path(program))
        return _from_exported(exported, Path(program).stem)
    if isinstance(program, ExportedProgram):
        return _from_exported(program, model_name(program))
    if isinstance(program, fx.GraphModule) and _is_aten(program):
        return _from_graph(program, inputs)
    if isinstance(program, nn.Module):
        if inputs is None and isinstance(program, fx.GraphModule):
            inputs = _recorded_inputs(program)
        if inputs is None and not kwargs:
            advice = "pass a tuple of tensors (real, fake or on the meta device) or a single tensor"
            raise InputError(f"module {_name_of(program)} needs example inputs: {advice}")
        return _from_module(program, inputs or (), kwargs or {})
    raise InputError(f"program is of type {_name_of(program)}; allowed: {_ALLOWED}")


def _as_tuple(example_inputs: Any) -> tuple[Any, ...] | None:
    if example_inputs is None:
        return None
    if isinstance(example_inputs, torch.Tensor):
        return (example_inputs,)
    if isinstance(example_inputs, (tuple, list)):
        return tuple(example_inputs)
    raise InputError(
        f"example_inputs is of type {_name_of(example_inputs)}; allowed: a tuple or list of inputs, or a single tensor"
    )


def _load(path: Path) -> ExportedProgram:
    expected = "a .pt2 file written by torch.export.save"
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected {expected}")
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path}: not an archive (corrupt, or another format); expected {expected}")
    try:
        return torch.export.load(path)
    # torch raises a different type for every way a file can be wrong.
    except Exception as error:
        raise InputError(f"{path}: cannot be read ({_first_line(error)}); expected {expected}") from error


def _from_module(module: nn.Module, inputs: tuple[Any, ...], kwargs: Mapping[str, Any]) -> AtenProgram:
    """Export the module; what torch.export refuses is traced the way torch.compile does it."""
    name = _name_of(module)
    try:
        with torch.no_grad(), _quiet():
            return _from_exported(torch.export.export(module, inputs, dict(kwargs), strict=False), name)
    # Whatever the user's forward raises comes through here.
    except Exception as refused:
        try:
            with _quiet():
                graph_module = trace(module, inputs, kwargs)
        except Exception:
            raise refused if isinstance(refused, CaptureError) else _capture_error(name, refused) from refused
        return replace(_from_graph(graph_module, None), name=name)


def _from_exported(exported: ExportedProgram, name: str) -> AtenProgram:
    try:
        graph_module, sources = flatten_exported(exported)
    except Exception as error:
        raise _capture_error(name, error) from error
    fused = any("scaled_dot_product" in str(node.target) for node in exported.graph.nodes)
    return AtenProgram(
        graph_module=graph_module,
        example_inputs=_placeholder_values(graph_module),
        name=name,
        sources=sources,
        notes=(_ATTENTION,) if fused else (),
    )


class _WithoutGraphs(io.TextIOBase):
    """Passes on what is written to a stream except the graph as far as it was traced, which torch.export prints."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._dropped = False

    def write(self, text: str) -> int:
        self._dropped = "def forward(self" in text or (self._dropped and text == "\n")
        return len(text) if self._dropped else self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch from logging and printing what is about to be raised as an error of ours."""
    loggers = [logging.getLogger(name) for name in ("torch._subclasses.fake_tensor", "torch.export", "torch.fx.experimental")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with contextlib.redirect_stderr(_WithoutGraphs(sys.stderr)):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _capture_error(name: str, error: Exception) -> CaptureError:
    first = _first_line(error)
    hint = next((hint for part, hint in _HINTS.items() if part in first), _HINT)
    return CaptureError(f"{first} (while exporting {name}; {hint})")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _is_aten(graph_module: fx.GraphModule) -> bool:
    """Tell whether a graph calls operators (of any library) and no module or method that export would still have to trace."""
    calls = [node for node in graph_module.graph.nodes if node.op in ("call_function", "call_method", "call_module")]
    operators = [node for node in calls if isinstance(node.target, torch._ops.OpOverload)]
    return not calls or (bool(operators) and all(node.op == "call_function" for node in calls))


def _from_graph(program: fx.GraphModule, inputs: tuple[Any, ...] | None) -> AtenProgram:
    graph_module, sources = _copy_lifted(program)
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    given = [node for node, source in zip(placeholders, sources, strict=True) if not source]
    if inputs is not None and len(inputs) != len(given):
        names = ", ".join(node.name for node in given)
        raise InputError(f"the graph has {len(given)} inputs ({names}), but {len(inputs)} example inputs were given")
    unshaped = [node.name for node in given if value_of(node) is MISSING]
    if inputs is None and unshaped:
        raise InputError(f"input {unshaped[0]} of the graph has no shape: give example_inputs, or placeholders with meta['val']")
    if inputs is not None or any(_lacks_value(node) for node in graph_module.graph.nodes):
        _propagate(graph_module, dict(zip(given, inputs or (), strict=False)))
    return AtenProgram(
        graph_module=graph_module, example_inputs=_placeholder_values(graph_module), name=_name_of(program), sources=sources
    )


def _recorded_inputs(program: fx.GraphModule) -> tuple[Any, ...] | None:
    """Return the inputs a graph was traced with, if it says so."""
    values = [value_of(node) for node in program.graph.find_nodes(op="placeholder")]
    return None if any(value is MISSING for value in values) else tuple(values)


def _lacks_value(node: fx.Node) -> bool:
    return node.op != "output" and value_of(node) is MISSING


def _copy_lifted(program: fx.GraphModule) -> tuple[fx.GraphModule, tuple[str, ...]]:
    """Copy a graph (not its tensors) and turn every attribute that is a tensor into a placeholder in front of the inputs."""
    graph = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    graph.output(tuple(nodes_in(graph.graph_copy(program.graph, copied))))
    lifted: dict[int, fx.Node] = {}
    sources: list[str] = []
    first = next(iter(graph.nodes))
    attributes = [old for old in program.graph.find_nodes(op="get_attr") if isinstance(attribute_of(old), torch.Tensor)]
    for old in attributes:
        tensor = attribute_of(old)
        if id(tensor) not in lifted:
            with graph.inserting_before(first):
                lifted[id(tensor)] = graph.placeholder(old.name)
            lifted[id(tensor)].meta = {"val": old.meta.get("val", tensor)}
            sources.append(str(old.target))
        copied[old].replace_all_uses_with(lifted[id(tensor)])
    for old in attributes:
        graph.erase_node(copied[old])
    count = len(graph.find_nodes(op="placeholder")) - len(sources)
    return fx.GraphModule(program, graph, class_name=_name_of(program)), (*sources, *[""] * count)


def _propagate(graph_module: fx.GraphModule, given: Mapping[fx.Node, Any]) -> None:
    """Fill in the value of every node from those of the placeholders."""
    for node in graph_module.graph.find_nodes(op="placeholder"):
        node.meta["val"] = given.get(node, value_of(node))
    values = _placeholder_values(graph_module)
    mode = next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)
    try:
        FakeTensorProp(graph_module, mode).propagate_dont_convert_inputs(*values)
    except Exception as error:
        hint = "while propagating shapes through the graph; do the example inputs fit?"
        raise CaptureError(f"{_first_line(error)} ({hint})") from error


def _placeholder_values(graph_module: fx.GraphModule) -> tuple[Any, ...]:
    """Return the fake values of the placeholders; a real tensor among them is replaced by a fake one."""
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    fakes = [value_of(node) for node in placeholders if isinstance(value_of(node), FakeTensor)]
    mode = fakes[0].fake_mode if fakes else FakeTensorMode(allow_non_fake_inputs=True)
    for node in placeholders:
        value = value_of(node)
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
            node.meta["val"] = mode.from_tensor(value, static_shapes=True)
    return tuple(value_of(node) for node in placeholders)


def _name_of(thing: object) -> str:
    return type(thing).__name__
