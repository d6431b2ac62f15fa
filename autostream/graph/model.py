"""What the dependency analyser produces: operators, storages and the DAG that says why one operator must precede another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import networkx as nx

from autostream.graph.regions import Region


class Unit(StrEnum):
    """The part of the chip an operator runs on."""

    CUBE = "cube"
    VECTOR = "vector"
    MIXED = "mixed"
    COMM = "comm"
    HOST = "host"
    #: Emits no task of its own (views, getitem): it goes wherever its consumer goes.
    FREE = "free"


class Why(StrEnum):
    """Why an edge of the DAG exists."""

    DATA = "data"
    #: Storage hazards that no data edge expresses.
    RAW = "raw"
    WAR = "war"
    WAW = "waw"
    #: Order of side effects (random state, host transfers, opaque operators).
    EFFECT = "effect"
    #: The one total order of collectives.
    COLLECTIVE = "collective"
    #: Order the user's own scopes fix (a super-kernel scope is not split).
    USER = "user"


class TensorSpec(NamedTuple):
    """Shape and dtype of one tensor; `dtype` is torch's name without the prefix, such as ``"bfloat16"``."""

    shape: tuple[int, ...]
    dtype: str
    #: Bytes per element.
    itemsize: int

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the dense tensor."""
        return self.numel * self.itemsize


class Storage(NamedTuple):
    """One buffer: every view of it is an access to the same storage."""

    name: str
    nbytes: int
    #: ``"input"`` (graph input, weight or buffer), ``"intermediate"``, or ``"state"`` (random generator, hidden workspace).
    kind: str


class Op(NamedTuple):
    """One operator of the graph, free of any torch object. A graph has thousands of them: hence no dataclass.

    `reads` and `writes` name storages. `scope` holds the merged attributes of the user's enclosing scopes (innermost wins).
    `read_regions` and `write_regions` tell for some of these where in the storage; one they do not name is touched anywhere.
    """

    name: str
    #: ``str(node.target)`` such as ``"aten.mm.default"``; ``"getitem"`` for tuple access.
    target: str
    unit: Unit
    #: Position in the graph as it was given.
    position: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    flops: int
    bytes_read: int
    bytes_written: int
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    read_regions: tuple[tuple[str, Region], ...] = ()
    write_regions: tuple[tuple[str, Region], ...] = ()
    module_path: str = ""
    source_line: str = ""
    scope: tuple[tuple[str, str], ...] = ()
    #: Process-group name of a collective, else None.
    group: str | None = None
    #: Ranks that take part in a collective, where the graph tells; else None.
    group_size: int | None = None
    #: True for a collective that is a kernel of the AI cores (dispatch and combine of experts), not of the communication library.
    in_kernel: bool = False
    #: True for a copy whose destination is a graph input itself, not a view of one.
    into_input: bool = False
    #: True if the operator table knows this target; an unknown one is estimated conservatively and reported.
    known: bool = True

    @property
    def on_comm_stream(self) -> bool:
        """Whether the engine runs it on its stream for communication where the user gives no label."""
        return self.unit is Unit.COMM and not self.in_kernel

    @property
    def stream(self) -> str | None:
        """The stream label the user's own scopes give this operator, or None."""
        return dict(self.scope).get("_user_stream_label")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operators:
    """The operators of a graph and the storages they work on, without what orders them."""

    #: Every operator by name, in graph order.
    ops: Mapping[str, Op]
    storages: Mapping[str, Storage]
    #: Storages behind the values that the graph returns: see `storages_behind`.
    returned: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpGraph:
    """The dependency DAG. Nodes of `dag` are operator names; every edge has ``why: frozenset[Why]``."""

    dag: nx.DiGraph
    #: Every operator by name, in the order of the given graph (a topological order of `dag`).
    ops: Mapping[str, Op]
    storages: Mapping[str, Storage]
    #: Names of the operators whose values the graph returns.
    outputs: tuple[str, ...]
    #: Why the graph must not be scheduled (dynamic shapes, hand-written record/wait ...); empty if it may be.
    refusals: tuple[str, ...] = ()
    #: Things worth telling the reader of a report (unknown operators, opaque custom operators ...).
    notes: tuple[str, ...] = field(default=())

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops.values())

    def __len__(self) -> int:
        return len(self.ops)

    def why(self, before: str, after: str) -> frozenset[Why]:
        """Return the reasons of one edge (empty if there is none)."""
        if not self.dag.has_edge(before, after):
            return frozenset()
        reasons: frozenset[Why] = self.dag.edges[before, after]["why"]
        return reasons

    def orders(self) -> Iterator[tuple[str, str, frozenset[Why]]]:
        """Yield the edges that no data edge enforces: (before, after, reasons), in graph order."""
        for before, after, reasons in self.dag.edges(data="why"):
            if Why.DATA not in reasons:
                yield before, after, reasons


def storages_behind(outputs: Iterable[str], ops: Mapping[str, Op], sources: Callable[[str], Iterable[str]]) -> tuple[str, ...]:
    """Return the storages behind the values of some operators, looking through views and tuple access.

    Of an operator with several results all count, even if only one of them is meant.

    Args:
        outputs: the operators.
        ops: every operator by name.
        sources: by name of one without a task: the operators whose values it gets.
    """
    found: dict[str, None] = {}
    stack = list(reversed(tuple(outputs)))
    seen = set(stack)
    while stack:
        op = ops[stack.pop()]
        if op.unit is not Unit.FREE:
            found.update(dict.fromkeys(op.writes))
            continue
        for source in sources(op.name):
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return tuple(found)
