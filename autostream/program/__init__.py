"""Multi-stream programs as they will run: read back from emitted graphs, proved and simulated."""

from __future__ import annotations

from autostream.program.ascend_ir import read_ascend_ir
from autostream.program.fx import read_fx, written_back
from autostream.program.happens import HappensBefore, happens_before
from autostream.program.model import Edge, EdgeKind, Finding, Lost, Semantics, Severity, Slot, Step, StreamProgram, Timeline
from autostream.program.order import cross_edges
from autostream.program.simulate import simulate
from autostream.program.verify import verify

__all__ = [
    "Edge",
    "EdgeKind",
    "Finding",
    "HappensBefore",
    "Lost",
    "Semantics",
    "Severity",
    "Slot",
    "Step",
    "StreamProgram",
    "Timeline",
    "cross_edges",
    "happens_before",
    "read_ascend_ir",
    "read_fx",
    "simulate",
    "verify",
    "written_back",
]
