"""The stack of TorchAir scopes while a graph is walked."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx

from autostream.program.model import Lost
from autostream.program.reading.limits import core_limit

#: By backend: max-autotune and reduce-overhead, npugraph_ex.
SCOPE_ENTERS = frozenset({"air.scope_enter.default", "npugraph_ex.scope_enter.default"})
SCOPE_EXITS = frozenset({"air.scope_exit.default", "npugraph_ex.scope_exit.default"})
_LABEL = "_user_stream_label"
#: A scope with these attributes alone does not change how views convert.
_SUPER_KERNEL = frozenset({"_super_kernel_scope", "_super_kernel_options"})


class Scopes:
    """Open scopes, outermost first.

    Args:
        outermost: True if records and waits are kept per outermost label (TorchAir's GE mode), False if per innermost.
    """

    def __init__(self, *, outermost: bool) -> None:
        self._outermost = outermost
        self._open: list[tuple[str, dict[str, str]]] = []
        #: Stream label an operator gets here: that of the innermost scope that has one.
        self.label: str | None = None
        #: Under which label records and waits are kept here.
        self.key: str | None = None
        #: True if some scope is open that makes views convert to operators of their own.
        self.inside = False
        #: Cube and vector cores an operator is limited to here: the innermost scope wins, for each kind.
        self.cores: tuple[int, int] | None = None

    def visit(self, node: fx.Node, target: str) -> Iterator[Lost]:
        """Enter or leave a scope; yield a complaint about an exit without a scope."""
        if target in SCOPE_ENTERS:
            keys = node.args[0] if node.args else node.kwargs.get("keys")
            values = node.args[1] if len(node.args) > 1 else node.kwargs.get("values")
            self._open.append((node.name, dict(zip(_strings(keys), _strings(values), strict=False))))
        elif self._open:
            self._open.pop()
        else:
            yield Lost(kind="unpaired-scope", step=node.name, explanation=f"{node.name!r} closes a scope and none is open")
        self._settle()

    def _settle(self) -> None:
        labels = self._labels()
        self.label = labels[-1] if labels else None
        self.key = labels[0] if labels and self._outermost else self.label
        self.inside = any(key not in _SUPER_KERNEL for _, attributes in self._open for key in attributes)
        merged: dict[str, str] = {}
        for _, attributes in self._open:
            merged |= attributes
        self.cores = core_limit(merged)

    def unclosed(self) -> Iterator[Lost]:
        """Yield a complaint about every scope that is still open at the end."""
        for name, _ in self._open:
            yield Lost(kind="unpaired-scope", step=name, explanation=f"{name!r} opens a scope that is never closed")

    @property
    def nested(self) -> tuple[str, ...]:
        """The open stream labels, outermost first, where they differ; empty otherwise."""
        labels = tuple(dict.fromkeys(self._labels()))
        return labels if len(labels) > 1 else ()

    def _labels(self) -> list[str]:
        return [attributes[_LABEL] for _, attributes in self._open if attributes.get(_LABEL)]


def _strings(values: object) -> list[str]:
    return [str(value) for value in values] if isinstance(values, (list, tuple)) else []
