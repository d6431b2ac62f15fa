"""Multi-stream programs as they will run: read back from emitted graphs, proved and simulated.

What needs torch is not here and is imported by name: the reader of FX graphs (`fx`, `writeback`) and the executor (`execute`,
`runner`).
"""

from __future__ import annotations

from autostream.program.ascend_ir import read_ascend_ir
from autostream.program.happens import HappensBefore, happens_before
from autostream.program.lifetimes import Lifetime, Memory, Pool, lifetimes, peak_memory, returned_storages
from autostream.program.model import Edge, EdgeKind, Finding, Lost, Semantics, Severity, Slot, Step, StreamProgram, Timeline
from autostream.program.order import cross_edges
from autostream.program.oversync import Intended
from autostream.program.pools import pool_findings, shared_pools
from autostream.program.prefetch import prefetch_findings
from autostream.program.ranks import verify_ranks
from autostream.program.reuse import Placement, growth_findings, memory_check, place, reuse_findings
from autostream.program.simulate import simulate
from autostream.program.verify import verify

__all__ = [
    "Edge",
    "EdgeKind",
    "Finding",
    "HappensBefore",
    "Intended",
    "Lifetime",
    "Lost",
    "Memory",
    "Placement",
    "Pool",
    "Semantics",
    "Severity",
    "Slot",
    "Step",
    "StreamProgram",
    "Timeline",
    "cross_edges",
    "growth_findings",
    "happens_before",
    "lifetimes",
    "memory_check",
    "peak_memory",
    "place",
    "pool_findings",
    "prefetch_findings",
    "read_ascend_ir",
    "returned_storages",
    "reuse_findings",
    "shared_pools",
    "simulate",
    "verify",
    "verify_ranks",
]
