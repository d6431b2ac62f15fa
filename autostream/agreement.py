"""All ranks that compile a graph together run the same plan, or none does.

Ranks that order their collectives differently wait for each other for ever, so plans are compared before one is used: each rank
puts the digest of its own into the store that torch.distributed was started with, and the first rank that knows enough decides
for all. Nothing is launched on a device. A rank waits for the others at most `timeout` seconds, and the decision it then reads
is the one that every other rank reads.

A store may outlive the processes (a file, or a rank that is started again): a decision names the processes whose plans it
compared, and one that does not know this process is not followed.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
import weakref
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from torch import fx

from autostream.graph import Op
from autostream.graph.calls import look
from autostream.graph.groups import group_name
from autostream.outcome import Outcome

#: What a rank reports that leaves its graph as it is.
DECLINED = "declined"

_lock = threading.Lock()
#: By store and ranks: how many graphs they have compiled together. They compile in the same order, which makes this a name.
_compiled: weakref.WeakKeyDictionary[Any, Counter[tuple[int, ...]]] = weakref.WeakKeyDictionary()
#: Tells this process from an earlier one of the same rank; no plan depends on it.
_process = uuid.uuid4().hex
#: How a decision begins: a reason to decline follows, or the processes whose plans are equal.
_NO, _YES = "-", "+"


def digest(outcome: Outcome | None) -> str:
    """Return what identifies a plan: what runs on which stream in which order, and every wait."""
    if outcome is None or not outcome.verdict.accepted or outcome.program is None:
        return DECLINED
    steps = [f"{step.name} {step.stream}" for step in outcome.program.steps]
    edges = sorted(f"{edge.before} {edge.after} {edge.kind}" for edge in outcome.program.edges)
    return hashlib.sha256("\n".join([*steps, "", *edges]).encode()).hexdigest()


def refusal(plan: str, graph: Iterable[Op] | fx.Graph, *, timeout: float) -> str | None:
    """Compare `plan` (see `digest`) with the other ranks' and return why no rank may use its own, or None.

    Every rank must call this for every graph it compiles, also where it declined or failed; see `_ranks` for whom it asks.

    Args:
        plan: digest of this rank's plan.
        graph: operators of the graph as it was given, or the FX graph where it was not captured: both name the same groups.
        timeout: seconds to wait for the other ranks.
    """
    distributed = _distributed()
    if distributed is None:
        return None
    ranks = _ranks(distributed, graph)
    me = distributed.get_rank()
    if len(ranks) < 2 or me not in ranks:
        return None
    default = distributed.distributed_c10d._get_default_store()
    with _lock:
        compiled = _compiled.setdefault(default, Counter())
        number = compiled[ranks]
        compiled[ranks] += 1
    store = distributed.PrefixStore("autostream/plans", default)
    name = f"{'-'.join(map(str, ranks))}/{number}"
    try:
        store.set(f"{name}/{me}", f"{plan} {_process}")
        proposal = _proposal(store, name, ranks, timeout)
        # The store decides once: whoever comes first speaks for all. An empty text is "nobody has spoken".
        decided = store.compare_set(f"{name}/decision", "", proposal).decode()
    except RuntimeError as error:  # without the store there is no decision for anybody who has not read it
        return f"the store of torch.distributed cannot be reached: {error}"
    if decided.startswith(_NO):
        return str(decided[len(_NO) :])
    if _process not in decided[len(_YES) :].split():
        return "the store of torch.distributed holds the plans of earlier processes; give every run a store of its own"
    return None


def _proposal(store: Any, name: str, ranks: tuple[int, ...], timeout: float) -> str:
    keys = [f"{name}/{rank}" for rank in ranks]
    try:
        store.wait(keys, timedelta(seconds=timeout))
    except RuntimeError:  # DistStoreError is one
        late = [rank for rank, key in zip(ranks, keys, strict=True) if not store.check([key])]
        if late:
            return f"{_NO}{_named(late)} did not report a plan within {timeout:g} s"
    reports = [store.get(key).decode().partition(" ") for key in keys]
    others = [rank for rank, (plan, _, _) in zip(ranks, reports, strict=True) if plan != reports[0][0]]
    if others:
        return f"{_NO}{_named(others)} planned otherwise than rank {ranks[0]}; give all ranks the same costs and options"
    return _YES + " ".join(process for _, _, process in reports)


def _named(ranks: Iterable[int]) -> str:
    listed = list(ranks)
    some = ", ".join(map(str, listed[:8])) + (f" and {len(listed) - 8} more" if len(listed) > 8 else "")
    return f"rank {some}" if len(listed) == 1 else f"ranks {some}"


def _distributed() -> Any:
    import torch.distributed as distributed

    return distributed if distributed.is_available() and distributed.is_initialized() else None


def _groups(graph: Iterable[Op] | fx.Graph) -> list[str]:
    named = (group_name(look(node)) for node in graph.nodes) if isinstance(graph, fx.Graph) else (op.group for op in graph)
    return sorted({group for group in named if group})


def _ranks(distributed: Any, graph: Iterable[Op] | fx.Graph) -> tuple[int, ...]:
    """Return the ranks that must agree, ascending: those of the graph's largest process group if it holds the other groups.

    Every rank otherwise, and where there is no group or one is not known here. With groups that cross (rows and columns of a
    mesh), each rank sees others than its neighbours do, and only all together have the same name for what they compare.
    """
    everyone = tuple(range(distributed.get_world_size()))
    groups: list[set[int]] = []
    for name in _groups(graph):
        try:
            group = distributed.distributed_c10d._resolve_process_group(name)
            groups.append(set(distributed.get_process_group_ranks(group)))
        except (RuntimeError, ValueError, KeyError):
            return everyone
    largest = max(groups, key=len, default=set())
    return tuple(sorted(largest)) if largest and all(group <= largest for group in groups) else everyone
