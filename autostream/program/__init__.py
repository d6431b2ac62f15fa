"""Multi-stream programs as they will run: read back from emitted graphs, proved and simulated."""

from __future__ import annotations

from autostream.program.ascend_ir import read_ascend_ir
from autostream.program.execute import differs, execute, serial
from autostream.program.fx import read_fx, written_back
from autostream.program.happens import HappensBefore, happens_before
from autostream.program.lifetimes import Lifetime, Memory, Pool, lifetimes, peak_memory, returned_storages
from autostream.program.model import Edge, EdgeKind, Finding, Lost, Semantics, Severity, Slot, Step, StreamProgram, Timeline
from autostream.program.order import cross_edges
from autostream.program.ranks import verify_ranks
from autostream.program.reuse import Placement, growth_findings, memory_check, place, reuse_findings
from autostream.program.runner import Execution, ExecutionError
from autostream.program.simulate import simulate
from autostream.program.verify import verify

__all__ = [
    "Edge",
    "EdgeKind",
    "Execution",
    "ExecutionError",
    "Finding",
    "HappensBefore",
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
    "differs",
    "execute",
    "growth_findings",
    "happens_before",
    "lifetimes",
    "memory_check",
    "peak_memory",
    "place",
    "read_ascend_ir",
    "read_fx",
    "returned_storages",
    "reuse_findings",
    "serial",
    "simulate",
    "verify",
    "verify_ranks",
    "written_back",
]
