"""Prefetches that cannot pay: issued twice, more than the cache is to hold, or longer than what hides them.

The engine runs a prefetch like any operator; whether the bytes arrive in time and stay until they are used is the author's
business. The graph is judged in the order it was given, which is the order in which an engine issues it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autostream.cost.model import Cost, Machine
from autostream.graph.model import Op, OpGraph, Unit
from autostream.program.model import Finding, Severity

_PREFETCH = "npu.npu_prefetch.default"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prefetch:
    """One prefetch; `storage` is what it brings, `consumer` the first operator behind it that uses that, if there is one."""

    op: Op
    storage: str
    consumer: Op | None

    @property
    def nbytes(self) -> int:
        """Bytes it brings; what it only waits for is read, too."""
        return max(0, self.op.bytes_read - sum(spec.nbytes for spec in self.op.inputs[1:]))


def prefetch_findings(graph: OpGraph, costs: Mapping[str, Cost], machine: Machine) -> Iterator[Finding]:
    """Yield a WARNING for every prefetch that cannot pay: ``duplicate-prefetch``, ``prefetch-over-cache``, ``prefetch-exposed``.

    Args:
        graph: of the graph as it was given.
        costs: by operator; a prefetch takes as long as its transfer.
        machine: with the bytes that may be in flight at once, if known.
    """
    found = _prefetches(graph)
    useful: list[_Prefetch] = []
    for prefetch in found:
        earlier = next((one for one in useful if _covers(one, prefetch)), None)
        if earlier is not None:
            yield _finding(
                "duplicate-prefetch", prefetch, f"fetches {prefetch.storage!r} again, which {earlier.op.name!r} has just fetched"
            )
            continue
        useful.append(prefetch)
        if machine.max_prefetch_bytes is not None:
            flying = [one for one in useful if _in_flight(one, prefetch)]
            total = sum(one.nbytes for one in flying)
            if total > machine.max_prefetch_bytes:
                text = f"{total} bytes are then fetched and not yet used; {machine.max_prefetch_bytes} may be"
                yield _finding("prefetch-over-cache", prefetch, text)
        yield from _exposed(graph, costs, prefetch)


def _prefetches(graph: OpGraph) -> list[_Prefetch]:
    ops = list(graph)
    found = []
    for op in ops:
        if op.target == _PREFETCH and op.reads:
            storage = op.reads[0]
            users = (one for one in ops[op.position + 1 :] if storage in one.reads and one.target != _PREFETCH)
            consumer = next((one for one in users if one.unit is not Unit.FREE), None)
            found.append(_Prefetch(op=op, storage=storage, consumer=consumer))
    return found


def _covers(earlier: _Prefetch, later: _Prefetch) -> bool:
    return earlier.storage == later.storage and earlier.nbytes >= later.nbytes and _in_flight(earlier, later)


def _in_flight(earlier: _Prefetch, now: _Prefetch) -> bool:
    return earlier.consumer is None or earlier.consumer.position > now.op.position


def _exposed(graph: OpGraph, costs: Mapping[str, Cost], prefetch: _Prefetch) -> Iterator[Finding]:
    """Yield a finding if the transfer takes longer than what runs between the prefetch and the operator that uses it."""
    if prefetch.consumer is None:
        yield _finding("prefetch-exposed", prefetch, f"fetches {prefetch.storage!r}, which nothing behind it uses")
        return
    between = list(graph)[prefetch.op.position + 1 : prefetch.consumer.position]
    shadow = sum(costs[op.name].duration for op in between if op.name in costs and op.target != _PREFETCH)
    transfer = costs[prefetch.op.name].duration if prefetch.op.name in costs else 0
    if shadow < transfer:
        text = f"takes {transfer} ns, and only {shadow} ns of other work run before {prefetch.consumer.name!r} uses the bytes"
        yield _finding("prefetch-exposed", prefetch, text)


def _finding(kind: str, prefetch: _Prefetch, what: str) -> Finding:
    return Finding(
        kind=kind,
        severity=Severity.WARNING,
        steps=(prefetch.op.name,),
        streams=(),
        explanation=f"{prefetch.op.name!r} {what} (predicted)" if kind == "prefetch-exposed" else f"{prefetch.op.name!r}: {what}",
        remedy=f"drop {prefetch.op.name!r}, fetch fewer bytes, or fetch them earlier",
    )
