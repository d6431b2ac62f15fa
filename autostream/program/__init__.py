"""Multi-stream programs as they will run: read back from emitted graphs, proved and simulated.

What needs torch is not here and is imported by name: the reader of FX graphs (`fx`, `writeback`) and the executor (`execute`,
`runner`).
"""

from __future__ import annotations

from autostream.program.checks.happens import HappensBefore, happens_before
from autostream.program.checks.lifetimes import Lifetime, Memory, Pool, lifetimes, peak_memory, returned_storages
from autostream.program.checks.oversync import Intended
from autostream.program.checks.pools import pool_findings, shared_pools
from autostream.program.checks.prefetch import prefetch_findings
from autostream.program.checks.ranks import verify_ranks
from autostream.program.checks.reuse import Placement, growth_findings, memory_check, place, reuse_findings
from autostream.program.checks.verify import verify
from autostream.program.model import Edge, EdgeKind, Finding, Lost, Semantics, Severity, Slot, Step, StreamProgram, Timeline
from autostream.program.order import cross_edges
from autostream.program.reading.ascend_ir import read_ascend_ir
from autostream.program.simulation.simulate import simulate

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
