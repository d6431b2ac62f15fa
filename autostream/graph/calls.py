"""What one FX node is: an operator with a trusted schema, an opaque one, a scope mark, plain Python arithmetic ..."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload

from autostream.graph.units import OpInfo, classify
from autostream.graph.values import MISSING, is_tensor, tensors_in, value_of

_Found = TypeVar("_Found")
_Rest = TypeVarTuple("_Rest")

#: Namespaces whose schemas say truly what is aliased and written; what they leave out is in `ops.yaml`.
_TRUSTED = frozenset(
    {"aten", "prims", "npu", "atb", "npu_define", "air", "npugraph_ex", "c10d", "c10d_functional", "_c10d_functional"}
)

SCOPE_ENTER = "air.scope_enter.default"
SCOPE_EXIT = "air.scope_exit.default"
SUPER_KERNEL_BEGIN = "npu.super_kernel_scope_begin.default"
SUPER_KERNEL_END = "npu.super_kernel_scope_end.default"
_MARKS = frozenset({SCOPE_ENTER, SCOPE_EXIT, SUPER_KERNEL_BEGIN, SUPER_KERNEL_END})

_HAND_WRITTEN = ("air.record", "air.wait", "air.tagged_event_", "npugraph_ex.")

#: What TorchAir removes when it changes neither shape nor dtype, with the argument that replaces it.
_NO_OPS: Mapping[str, str] = {
    "aten.clone": "self",
    "aten._to_copy": "self",
    "aten.to": "self",
    "aten.contiguous": "self",
    "aten.copy": "src",
    "aten.slice_scatter": "src",
    "aten.repeat": "self",
    "aten.constant_pad_nd": "self",
    "aten.ceil": "self",
    "aten.floor": "self",
    "aten.round": "self",
    "aten.trunc": "self",
    "aten.pow": "self",
    "aten.cat": "tensors",
    "aten.native_dropout": "input",
    "prims.convert_element_type": "a",
    "prims.device_put": "a",
}


class Kind(StrEnum):
    """How much of a node's effect is known."""

    #: A placeholder or an attribute: a storage, not an operator.
    STORAGE = "storage"
    #: A scope mark: it changes what follows and is no operator itself.
    MARK = "mark"
    #: An operator whose schema is trusted.
    SCHEMA = "schema"
    #: A custom operator: it may read and write every tensor it is given.
    OPAQUE = "opaque"
    #: `auto_functionalized`: a mutating operator in functional clothes, written in place later.
    FUNCTIONALIZED = "functionalized"
    #: Access to one element of a tuple.
    GETITEM = "getitem"
    #: Arithmetic on plain numbers.
    SCALAR = "scalar"
    #: Anything else: nothing may move across it.
    BARRIER = "barrier"
    OUTPUT = "output"


#: Nodes that are no operators. Sets, and constants in other modules: before Python 3.12 every look at a member of an enumeration
#: takes ten times as long as one at a constant, and a deep graph has thousands of nodes.
NO_OPERATOR = frozenset({Kind.STORAGE, Kind.MARK, Kind.OUTPUT})
_UNTRUSTED = frozenset({Kind.OPAQUE, Kind.FUNCTIONALIZED})


class Form:
    """What calls have in common that differ only in which nodes they are given: see `Survey`. It lives as long as the survey."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        #: What `per_form` found out, by function, or by function and its other arguments.
        self.known: dict[Any, Any] = {}


class Facts(NamedTuple):
    """One node, looked at once. A graph has thousands of them: hence no dataclass."""

    node: fx.Node
    #: The operator's name; that of the wrapped operator for FUNCTIONALIZED.
    target: str
    kind: Kind
    info: OpInfo | None
    overload: OpOverload | None
    #: The nodes it is given, each once, in the order of its arguments.
    inputs: tuple[fx.Node, ...]
    #: True if its value is known to consist of tensors of static shape (or of nothing).
    static: bool
    form: Form

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments by schema name (empty where there is no schema): those of the wrapped operator for FUNCTIONALIZED."""
        if self.kind is Kind.FUNCTIONALIZED:
            return dict(self.node.kwargs)
        if self.overload is None:
            return {}
        return dict(zip(defaults_of(self.overload), self.node.args, strict=False)) | dict(self.node.kwargs)

    @property
    def custom(self) -> bool:
        """Whether it is, or wraps, a custom operator, whose schema may leave out what it reads and writes."""
        return self.kind in _UNTRUSTED and not _is_trusted(self.overload)

    @property
    def functional(self) -> bool:
        """Whether it is the functional variant of an in-place operator: it writes its results instead of its arguments."""
        return self.target.rpartition(".")[0].endswith("_functional")

    @property
    def hand_written_sync(self) -> bool:
        """Whether the node is synchronisation the user wrote."""
        return self.target.startswith(_HAND_WRITTEN)

    def argument(self, name: str) -> Any:
        """Return an argument, or the schema's default for it (None if there is no such argument)."""
        given = self.arguments
        if name in given or self.overload is None:
            return given.get(name)
        return defaults_of(self.overload).get(name)

    @property
    def no_op_source(self) -> str | None:
        """The argument that may replace the node, if it is a candidate for no-op removal."""
        return _NO_OPS.get(self.target.rpartition(".")[0])


def look(node: fx.Node, *, static: bool = False) -> Facts:
    """Return the facts of a node; never raises for a legal FX graph. `static`: see there."""
    kind = _kind(node)
    overload = _overload(node, kind)
    target = name_of(overload) if overload is not None else _name(node)
    info = classify(target) if overload is not None or kind is Kind.GETITEM else None
    return Facts(
        node=node,
        target=target,
        kind=kind,
        info=info,
        overload=overload,
        inputs=tuple(node.all_input_nodes),
        static=static,
        form=Form(),
    )


def per_form(function: Callable[[Facts, *_Rest], _Found]) -> Callable[[Facts, *_Rest], _Found]:
    """Have a function answer once for all calls of one form (and equal other arguments, which are hashable).

    Only for what follows from the operator, its arguments and the values of the nodes: not from the nodes, their users or names.
    """

    @functools.wraps(function)
    def found(item: Facts, *rest: *_Rest) -> _Found:
        known = item.form.known
        key = (function, *rest) if rest else function
        if key not in known:
            known[key] = function(item, *rest)
        result: _Found = known[key]
        return result

    return found


def positions_of(item: Facts, nodes: Iterable[fx.Node]) -> tuple[int, ...]:
    """Return which of its inputs the nodes are: the same for all calls of one form."""
    return tuple(item.inputs.index(node) for node in nodes)


def _is_trusted(overload: OpOverload | None) -> bool:
    return overload is not None and overload.namespace in _TRUSTED


def _kind(node: fx.Node) -> Kind:
    if node.op in ("placeholder", "get_attr"):
        return Kind.STORAGE
    if node.op == "output":
        return Kind.OUTPUT
    if node.op != "call_function":
        return Kind.BARRIER
    if isinstance(node.target, OpOverload):
        if name_of(node.target) in _MARKS:
            return Kind.MARK
        return Kind.SCHEMA if _is_trusted(node.target) else Kind.OPAQUE
    if isinstance(node.target, HigherOrderOperator):
        functionalized = str(node.target) in ("auto_functionalized", "auto_functionalized_v2")
        return Kind.FUNCTIONALIZED if functionalized and isinstance(node.args[0], OpOverload) else Kind.BARRIER
    if node.target is operator.getitem and isinstance(node.args[0], fx.Node) and not is_tensor(value_of(node.args[0])):
        return Kind.GETITEM
    return Kind.BARRIER if any(_may_hold_tensors(item) for item in (node, *node.all_input_nodes)) else Kind.SCALAR


def _may_hold_tensors(node: fx.Node) -> bool:
    value = value_of(node)
    return value is MISSING or any(True for _ in tensors_in(value))


def _overload(node: fx.Node, kind: Kind) -> OpOverload | None:
    if kind is Kind.FUNCTIONALIZED and isinstance(node.args[0], OpOverload):
        return node.args[0]
    return node.target if isinstance(node.target, OpOverload) else None


def _name(node: fx.Node) -> str:
    if isinstance(node.target, str):
        return node.target
    if node.target is operator.getitem:
        return "getitem"
    if isinstance(node.target, HigherOrderOperator):
        return str(node.target)
    module, name = getattr(node.target, "__module__", None), getattr(node.target, "__name__", str(node.target))
    return f"{module}.{name}" if module else name


@functools.cache
def defaults_of(overload: OpOverload) -> Mapping[str, Any]:
    """Return the arguments of an operator in the order of its schema, with their default values (None if there is none)."""
    return {argument.name: argument.default_value for argument in overload._schema.arguments}


@functools.cache
def name_of(overload: OpOverload) -> str:
    """Return ``str(overload)``, which is put together anew each time."""
    return str(overload)


def nodes_in(value: Any) -> list[fx.Node]:
    """Return the nodes inside one argument, in order."""
    if isinstance(value, fx.Node):
        return [value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return []
    found: list[fx.Node] = []
    fx.node.map_arg(value, found.append)
    return found


def is_seeded(overload: OpOverload | None) -> bool:
    """Tell whether torch tags the operator as drawing random numbers."""
    return overload is not None and torch.Tag.nondeterministic_seeded in overload.tags
