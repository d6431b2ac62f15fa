"""The memory of several graphs of one process: captured graphs take it from one pool per stream label, in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autostream.program.checks.lifetimes import Memory, Pool
from autostream.program.checks.reuse import GROWTH
from autostream.program.model import Finding, Severity


def shared_pools(memories: Mapping[str, Memory]) -> tuple[Pool, ...]:
    """Return the pools that several graphs need together, which never run at the same time, by label in the order of first use.

    Graphs share the pool of a label and nothing else: it is as large as the most that one of them takes from it, and `at` is
    ``"graph:step"``.

    Args:
        memories: of every graph, by name.
    """
    found: dict[str, Pool] = {}
    for graph, memory in memories.items():
        for pool in memory.pools:
            if pool.stream not in found or found[pool.stream].peak < pool.peak:
                found[pool.stream] = Pool(stream=pool.stream, peak=pool.peak, at=f"{graph}:{pool.at}")
    return tuple(found.values())


def pool_findings(memories: Mapping[str, Memory], factor: float = GROWTH) -> Iterator[Finding]:
    """Yield a NOTE ``memory-growth`` if the pools of all graphs are more than `factor` times what their largest graph takes.

    That happens where graphs use labels of their own: what one stream gave back, another does not get.
    """
    pools = shared_pools(memories)
    total, largest = sum(pool.peak for pool in pools), max((memory.peak for memory in memories.values()), default=0)
    if total <= factor * largest:
        return
    listed = ", ".join(f"{pool.stream!r} ({pool.peak} bytes)" for pool in sorted(pools, key=lambda pool: -pool.peak)[:3])
    yield Finding(
        kind="memory-growth",
        severity=Severity.NOTE,
        steps=(),
        streams=tuple(pool.stream for pool in pools),
        explanation=f"the pools of {len(pools)} stream labels take {total} bytes over {len(memories)} graphs, "
        f"{total / largest:.2f} times the {largest} bytes of the largest graph; the largest pools: {listed}",
        remedy="give the streams of all graphs the same few labels",
    )
