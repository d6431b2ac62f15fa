"""Multi-stream patterns that serving engines write by hand, as an assignment of operators to two streams.

Each says which operators run on the side stream; the engine waits wherever data crosses. Core limits, which some of the
originals set as well, are not part of the form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autostream.graph import Op, OpGraph, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One published pattern, and the model of the zoo that it is written for."""

    name: str
    model: str
    #: True for the operators that the pattern puts on the side stream.
    on_side: Callable[[Op], bool]
    #: Whether what feeds nothing but the side stream goes there too.
    with_feeders: bool = True
    #: What its authors measured, where they say.
    published: str = ""

    def side(self, graph: OpGraph) -> frozenset[str]:
        """Return the names of the operators on the side stream: those named, and their feeders."""
        chosen: set[str] = set()
        for op in reversed(graph.ops.values()):
            consumers = set(graph.dag.successors(op.name))
            if self.on_side(op) or (self.with_feeders and consumers and consumers <= chosen):
                chosen.add(op.name)
        return frozenset(name for name in chosen if graph.ops[name].unit is not Unit.FREE)


def _reads(op: Op, weight: str) -> bool:
    """True if the operator reads a weight with this in its name."""
    return any(weight in storage for storage in op.reads)


def _prolog_vectors(op: Op) -> bool:
    """Vector work in front of sparse attention, but for the normalisation that both streams begin with."""
    inside = op.module_path.endswith((".attention", ".indexer"))
    return inside and op.unit is Unit.VECTOR


def _shared_expert(op: Op) -> bool:
    return _reads(op, "shared_")


def _cache_path(op: Op) -> bool:
    return _reads(op, "cache_down") or "kv_rmsnorm_rope_cache" in op.target


def _indexer(op: Op) -> bool:
    return "indexer" in op.module_path and "lightning_indexer" not in op.target


def _shortcut(op: Op) -> bool:
    return "moe" in op.module_path.split(".")


#: By name.
PATTERNS: Mapping[str, Pattern] = {
    pattern.name: pattern
    for pattern in (
        *(
            Pattern(name=f"shared-beside-routed-{kind}", model=f"npu/moe-{kind}", on_side=_shared_expert)
            for kind in ("w8a8-ep16-b64", "w8a8-ep1-b64", "bf16-ep16-b64")
        ),
        Pattern(name="mla-prolog", model="npu/mla-parts", on_side=_cache_path),
        Pattern(name="dsa-cube-vector", model="npu/dsa", on_side=_prolog_vectors, with_feeders=False),
        Pattern(name="dsa-indexer-prolog", model="npu/dsa", on_side=_indexer),
        Pattern(
            name="longcat-two-streams",
            model="npu/longcat-14l",
            on_side=_shortcut,
            published="step 7.67 -> 6.62 ms (-14 %) on 8 x A3, batch 8, cores split 16c/32v + 8c/16v",
        ),
    )
}
