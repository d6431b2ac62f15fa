"""What a backend's multi-stream vocabulary must offer to the emitter."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from torch import fx

from autostream.program.model import Semantics


class Landing(StrEnum):
    """Where a wait written right before a node ends up in the backend's own graph."""

    #: On the node's own first task: every task of the node is ordered.
    DIRECT = "direct"
    #: Not on a task, but an anchor in front of one input carries the order.
    ANCHOR = "anchor"
    #: Neither: the order cannot be expressed at this node.
    LOST = "lost"


class Dialect(Protocol):
    """Writes scopes and synchronisation into an FX graph, at the graph's current insertion point."""

    name: str
    semantics: Semantics

    def stream_scope(self, label: str) -> tuple[tuple[str, str], ...]:
        """Return the scope attributes that put operators on the stream `label`, in the order the backend expects."""
        ...

    def core_scope(self, aic: int, aiv: int) -> tuple[tuple[str, str], ...]:
        """Return the scope attributes that limit operators to so many cube and vector cores; empty if there is no such scope."""
        ...

    def enter(self, graph: fx.Graph, scope: Sequence[tuple[str, str]]) -> fx.Node:
        """Open a scope."""
        ...

    def exit(self, graph: fx.Graph) -> fx.Node:
        """Close the innermost scope."""
        ...

    def wait(self, graph: fx.Graph, values: Sequence[fx.Node]) -> fx.Node:
        """Make the next operator on the current stream wait for the producers of `values`."""
        ...

    def record(self, graph: fx.Graph) -> fx.Node:
        """Return a value that stands for the last operator emitted on the current stream."""
        ...

    def anchor(self, graph: fx.Graph, value: fx.Node, dependency: fx.Node) -> fx.Node:
        """Return `value`, available only after the producer of `dependency` has run."""
        ...

    def landing(self, node: fx.Node, label: str | None) -> Landing:
        """Find out where a wait in front of `node` (on stream `label`, None = default) lands."""
        ...
