from __future__ import annotations

from autostream.graph import Storage
from autostream.program import Memory, Semantics, Severity, peak_memory
from autostream.program.checks.pools import pool_findings, shared_pools
from tests.program.programs import program, step


def _graph(label: str, nbytes: int) -> Memory:
    """A side stream makes one buffer that the default stream reads."""
    steps = [step("start", writes=["x"]), step("side", label, reads=["x"], writes=["y"]), step("end", reads=["y"])]
    storages = {name: Storage(name=name, nbytes=nbytes, kind="intermediate") for name in ("x", "y")}
    captured = program(steps, event=["start>side", "side>end"], semantics=Semantics.CAPTURE)
    return peak_memory(captured, storages)


def test_graphs_share_the_pool_of_a_label() -> None:  # A40
    sizes = {f"batch {size}": _graph("as1", size) for size in (8, 64, 16)}
    assert [(pool.stream, pool.peak, pool.at) for pool in shared_pools(sizes)] == [
        ("default", 64, "batch 64:start"),
        ("as1", 64, "batch 64:side"),
    ]
    assert list(pool_findings(sizes)) == []


def test_a_label_per_graph_strands_memory_in_every_pool() -> None:  # A40, G31
    sizes = {f"batch {number}": _graph(f"as{number}", 64) for number in range(8)}
    assert sum(pool.peak for pool in shared_pools(sizes)) == 64 * (1 + 8)
    (finding,) = pool_findings(sizes)
    assert (finding.kind, finding.severity) == ("memory-growth", Severity.NOTE)
    assert len(finding.streams) == 9 and "576 bytes over 8 graphs, 4.50 times the 128 bytes" in finding.explanation
    assert list(pool_findings(sizes, factor=5.0)) == []


def test_no_graph_takes_no_memory() -> None:
    assert shared_pools({}) == () and list(pool_findings({})) == []
