"""Why a plan is not faster: where the time on its critical path goes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from autostream.program.simulation.critical import Cause
from autostream.report.schema import CriticalRow, Document, OpRow
from autostream.report.wording import operator

#: What one operator's time goes to, in the order that charts show.
TERMS = {
    "launch": "launch and tail",
    "cube": "cube compute",
    "vector": "vector compute",
    "hbm": "device memory",
    "l2": "cache",
    "comm": "communication",
    "sharing": "sharing the chip",
    "sync": "waits between streams",
    "other": "other",
}
WAITED = {
    Cause.START: "nothing",
    Cause.DEPENDENCY: "a value, or an order between operators",
    Cause.STREAM: "its place on the stream alone",
    Cause.RESOURCE: "cores or the communication engine, held by another stream",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Heavy:
    """Operators of one kind on the critical path of one stream."""

    target: str
    stream: str
    times: int
    ns: int


def by_term(document: Document) -> dict[str, int]:
    """Return the ns of the critical path by key of `TERMS`; they add up to the length of the path.

    An operator's time is its launch, the largest term of its cost, and what sharing the chip adds to that.
    """
    rows = {row.name: row for row in document.ops}
    spent = dict.fromkeys(TERMS, 0)
    for link in document.critical:
        spent["sync"] += link.sync_ns
        for term, ns in _terms(rows.get(link.op), link):
            spent[term] += ns
    return {term: ns for term, ns in spent.items() if ns}


def _terms(row: OpRow | None, link: CriticalRow) -> Iterable[tuple[str, int]]:
    took = link.end_ns - link.start_ns
    terms = asdict(row.breakdown) if row is not None else {}
    launch = terms.pop("launch", 0)
    largest = max(terms, key=lambda term: terms[term], default="other")
    busy = terms.get(largest, 0)
    if not launch + busy:
        return [("other", took)]
    # A measured time may differ from the sum of the modelled terms: keep their proportion.
    alone = min(took, row.duration_ns) if row is not None else took
    launched = round(alone * launch / (launch + busy))
    return [("launch", launched), (largest, alone - launched), ("sharing", took - alone)]


def waited_for(document: Document) -> dict[Cause, int]:
    """Return how many operators of the critical path had to wait for what."""
    counts = dict.fromkeys(Cause, 0)
    for link in document.critical:
        counts[link.cause] += 1
    return {cause: count for cause, count in counts.items() if count}


def heaviest(document: Document) -> tuple[Heavy, ...]:
    """Return the kinds of operator on the critical path, the longest in all first."""
    rows = {row.name: row for row in document.ops}
    found: dict[tuple[str, str], list[int]] = {}
    for link in document.critical:
        row = rows.get(link.op)
        key = (operator(row.target) if row else link.op, (row.stream or row.before_stream or "") if row else "")
        found.setdefault(key, []).append(link.end_ns - link.start_ns)
    kinds = [Heavy(target=key[0], stream=key[1], times=len(spent), ns=sum(spent)) for key, spent in found.items()]
    return tuple(sorted(kinds, key=lambda kind: (-kind.ns, kind.target, kind.stream)))
