"""The user's own scopes in a graph: which attributes they give each operator, and which operators must stay together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import fx

from autostream.graph.calls import NO_OPERATOR, SCOPE_ENTER, SCOPE_EXIT, SUPER_KERNEL_BEGIN, Facts, Kind

STREAM_LABEL = "_user_stream_label"
SUPER_KERNEL = "_super_kernel_scope"
_SUPER_KERNEL_OPTIONS = "_super_kernel_options"


@dataclass(slots=True)
class Scopes:
    """What the scopes of a graph say."""

    #: Merged attributes of the enclosing scopes by operator name, innermost wins, as TorchAir applies them.
    attributes: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    #: First and last operator of every super-kernel scope that holds any.
    blocks: list[tuple[str, str]] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Open:
    """A scope that is open: `kernel` is the name of a super kernel it makes, "" if it takes its operators out of one."""

    mark: str
    by_name: bool
    kernel: str | None
    values: dict[str, str]
    members: list[str] = field(default_factory=list)


def read_scopes(facts: Mapping[fx.Node, Facts]) -> Scopes:
    """Walk the graph in order and pair its scope marks."""
    scopes = Scopes()
    stack: list[_Open] = []
    nested: set[tuple[str, str]] = set()
    merged = _merged(stack)
    for node, item in facts.items():
        if item.kind not in NO_OPERATOR:
            scopes.attributes[node.name] = merged
            if stack:
                _join(node.name, stack, scopes)
        elif item.kind is Kind.MARK:
            _mark(node, item, stack, scopes, nested)
            merged = _merged(stack)
    scopes.refusals += [f"unsupported: scope opened by {item.mark} is never closed; every scope needs its exit" for item in stack]
    return scopes


def _mark(node: fx.Node, item: Facts, stack: list[_Open], scopes: Scopes, nested: set[tuple[str, str]]) -> None:
    if item.target == SCOPE_ENTER:
        keys, values = item.arguments.get("keys") or (), item.arguments.get("values") or ()
        given = {str(key): str(value) for key, value in zip(keys, values, strict=False)}
        outer = dict(_merged(stack)).get(STREAM_LABEL)
        inner = given.get(STREAM_LABEL)
        if outer is not None and inner is not None and (outer, inner) not in nested:
            nested.add((outer, inner))
            scopes.notes.append(
                f"stream scope {inner!r} is nested in stream scope {outer!r} (at {node.name}): attributes follow the inner "
                "label, but the backend's record and wait follow the outer one"
            )
        stack.append(_Open(mark=node.name, by_name=False, kernel=given.get(SUPER_KERNEL), values=given))
    elif item.target == SUPER_KERNEL_BEGIN:
        name = _kernel_name(item)
        stack.append(_Open(mark=node.name, by_name=True, kernel=name, values={SUPER_KERNEL: name}))
    else:
        _close(node, item, stack, scopes)


def _close(node: fx.Node, item: Facts, stack: list[_Open], scopes: Scopes) -> None:
    """Close the innermost scope of the right sort; begin/end pairs go by name and may cross other scopes."""
    if item.target == SCOPE_EXIT:
        fitting = [entry for entry in stack if not entry.by_name]
    else:
        fitting = [entry for entry in stack if entry.by_name and entry.kernel == _kernel_name(item)]
    if not fitting:
        scopes.refusals.append(f"unsupported: {node.name} closes a scope that was never opened")
        return
    entry = fitting[-1]
    stack.remove(entry)
    if entry.kernel and entry.members:
        scopes.blocks.append((entry.members[0], entry.members[-1]))


def _kernel_name(item: Facts) -> str:
    return str(item.arguments.get("scope_name") or "super_kernel")


def _merged(stack: list[_Open]) -> tuple[tuple[str, str], ...]:
    merged: dict[str, str] = {}
    for entry in stack:
        merged |= entry.values
        if entry.values.get(SUPER_KERNEL) == "":
            merged.pop(SUPER_KERNEL)
            merged.pop(_SUPER_KERNEL_OPTIONS, None)
    return tuple(merged.items())


def _join(name: str, stack: list[_Open], scopes: Scopes) -> None:
    """Count an operator as a member of the super-kernel scopes around it."""
    for entry in stack:
        if entry.kernel:
            entry.members.append(name)
    if any(entry.kernel == "" for entry in stack) and any(entry.kernel for entry in stack):
        kernel = next(entry.kernel for entry in stack if entry.kernel)
        text = f"unsupported: super-kernel scope {kernel!r} is interrupted by operators that are taken out of it"
        if text not in scopes.refusals:
            scopes.refusals.append(text)
