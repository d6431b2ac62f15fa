"""All ranks that compile a graph together run the same plan, or none does.

Ranks that order their collectives differently wait for each other for ever, so plans are compared before one is used: each rank
puts the digest of its own into the store that torch.distributed was started with, and the first rank that knows enough decides
for all. Nothing is launched on a device. A rank waits for the others at most `timeout` seconds, and the decision it then reads
is the one that every other rank reads.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from autostream.graph.model import OpGraph
from autostream.outcome import Outcome

#: What a rank reports that leaves its graph as it is.
DECLINED = "declined"

_lock = threading.Lock()
#: By ranks: how many graphs they have compiled together. They compile in the same order, which is what makes this a name.
_compiled: Counter[tuple[int, ...]] = Counter()


def digest(outcome: Outcome | None) -> str:
    """Return what identifies a plan: what runs on which stream in which order, and every wait."""
    if outcome is None or not outcome.verdict.accepted or outcome.program is None:
        return DECLINED
    steps = [f"{step.name} {step.stream}" for step in outcome.program.steps]
    edges = sorted(f"{edge.before} {edge.after} {edge.kind}" for edge in outcome.program.edges)
    return hashlib.sha256("\n".join([*steps, "", *edges]).encode()).hexdigest()


def refusal(plan: str, graph: OpGraph | None, *, timeout: float) -> str | None:
    """Compare `plan` (see `digest`) with the other ranks' and return why no rank may use its own, or None.

    The ranks asked are those of the process groups of the graph's collectives, or all where it has none. Every rank must call
    this for every graph it compiles, also where it declined.

    Args:
        plan: digest of this rank's plan.
        graph: the graph as it was given, None if it could not be captured.
        timeout: seconds to wait for the other ranks.
    """
    distributed = _distributed()
    if distributed is None:
        return None
    ranks = _ranks(distributed, graph)
    me = distributed.get_rank()
    if len(ranks) < 2 or me not in ranks:
        return None
    with _lock:
        number = _compiled[ranks]
        _compiled[ranks] += 1
    store = distributed.PrefixStore("autostream/plans", distributed.distributed_c10d._get_default_store())
    name = f"{'-'.join(map(str, ranks))}/{number}"
    store.set(f"{name}/{me}", plan)
    proposal = _proposal(store, name, ranks, timeout)
    # The store decides once: whoever comes first speaks for all. An empty text is "nobody has spoken".
    decided: bytes = store.compare_set(f"{name}/decision", "", f"+{proposal}")
    return decided.decode()[1:] or None


def _proposal(store: Any, name: str, ranks: tuple[int, ...], timeout: float) -> str:
    keys = [f"{name}/{rank}" for rank in ranks]
    try:
        store.wait(keys, timedelta(seconds=timeout))
    except RuntimeError:  # DistStoreError is one
        late = [rank for rank, key in zip(ranks, keys, strict=True) if not store.check([key])]
        if late:
            return f"{_named(late)} did not report a plan within {timeout:g} s"
    plans = {rank: store.get(key).decode() for rank, key in zip(ranks, keys, strict=True)}
    others = [rank for rank in ranks if plans[rank] != plans[ranks[0]]]
    return f"{_named(others)} planned otherwise than rank {ranks[0]}; give all ranks the same costs and options" if others else ""


def _named(ranks: Iterable[int]) -> str:
    listed = list(ranks)
    some = ", ".join(map(str, listed[:8])) + (f" and {len(listed) - 8} more" if len(listed) > 8 else "")
    return f"rank {some}" if len(listed) == 1 else f"ranks {some}"


def _distributed() -> Any:
    import torch.distributed as distributed

    return distributed if distributed.is_available() and distributed.is_initialized() else None


def _ranks(distributed: Any, graph: OpGraph | None) -> tuple[int, ...]:
    """Return the ranks of the graph's process groups, ascending; every rank where there is none, or one is not known here."""
    found: set[int] = set()
    for name in sorted({op.group for op in graph or () if op.group}):
        try:
            found |= set(distributed.get_process_group_ranks(distributed.distributed_c10d._resolve_process_group(name)))
        except (RuntimeError, ValueError, KeyError):
            return tuple(range(distributed.get_world_size()))
    return tuple(sorted(found)) or tuple(range(distributed.get_world_size()))
