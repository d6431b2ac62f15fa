"""What an operator type means for a program: whether it has a task, shares memory, communicates. See ge_ops.yaml."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files

import yaml

#: Stream of unlabelled work, and of unlabelled collectives (the same names as in `autostream.scheduling.problem`).
DEFAULT = "default"
HCCL = "hccl"


@dataclass(frozen=True, slots=True)
class Patterns:
    """A set of operator types; an entry that ends in ``*`` is a prefix."""

    exact: frozenset[str]
    prefixes: tuple[str, ...]

    @classmethod
    def of(cls, entries: Iterable[str]) -> Patterns:
        """Return the patterns of a list of entries."""
        entries = tuple(entries)
        return cls(
            exact=frozenset(entry for entry in entries if not entry.endswith("*")),
            prefixes=tuple(entry[:-1] for entry in entries if entry.endswith("*")),
        )

    def __contains__(self, kind: str) -> bool:
        return kind in self.exact or kind.startswith(self.prefixes)

    def among(self, types: Iterable[str]) -> frozenset[str]:
        """Return those of some operator types that are in the set."""
        return frozenset(kind for kind in types if kind in self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """The tables of ge_ops.yaml."""

    no_task: Patterns
    constants: Patterns
    folded: Patterns
    views: Patterns
    may_alias: Patterns
    overwrites: Patterns
    broadcasts: Patterns
    shapes: Patterns
    control_flow: Patterns
    sinks: Patterns
    hccl: Patterns
    collectives: Patterns
    communicators: Patterns
    #: Fewest vector cores that a communicator in AIV mode accepts.
    communicator_min_aiv: int
    all_core: Patterns
    host_updated: Patterns
    #: (GE operator types, operator that stands for them where costs are asked for).
    priced_as: tuple[tuple[Patterns, str], ...]
    fx_deferred: Patterns
    fx_no_task: Patterns
    fx_nothing: Patterns
    vanishing: Patterns


@functools.cache
def kinds() -> Kinds:
    """Return the tables, read once per process."""
    data = yaml.safe_load(files("autostream.program").joinpath("ge_ops.yaml").read_text(encoding="utf-8"))
    collectives, fx = data["collectives"], data["fx"]
    return Kinds(
        no_task=Patterns.of(data["no_task"]),
        constants=Patterns.of(data["constants"]),
        folded=Patterns.of(data["folded"]),
        views=Patterns.of(data["views"]),
        may_alias=Patterns.of(data["may_alias"]),
        overwrites=Patterns.of(data["overwrites"]),
        broadcasts=Patterns.of(data["broadcasts"]),
        shapes=Patterns.of(data["shapes"]),
        control_flow=Patterns.of(data["control_flow"]),
        sinks=Patterns.of(data["sinks"]),
        hccl=Patterns.of(collectives["hccl"]),
        collectives=Patterns.of(entry for entries in collectives.values() for entry in entries),
        communicators=Patterns.of(data["communicators"]),
        communicator_min_aiv=data["communicator_min_aiv"],
        all_core=Patterns.of(data["all_core"]),
        host_updated=Patterns.of(data["host_updated"]),
        priced_as=tuple((Patterns.of([types]), target) for types, target in data["priced_as"].items()),
        fx_deferred=Patterns.of(fx["deferred"]),
        fx_no_task=Patterns.of(fx["no_task"]),
        fx_nothing=Patterns.of(fx["nothing"]),
        vanishing=Patterns.of([*data["may_alias"], *fx["identity"]]),
    )


@functools.lru_cache(maxsize=4096)
def ge_stream(op_type: str, label: str | None) -> str | None:
    """Return the stream GE runs an operator of the Ascend IR on, or None if it emits no task."""
    if op_type in kinds().no_task:
        return None
    if label:
        return label
    return HCCL if op_type in kinds().hccl else DEFAULT


@functools.lru_cache(maxsize=4096)
def may_vanish(kind: str) -> bool:
    """True for an operator (GE type or FX target) that GE may remove, handing its waits on to its consumers."""
    return kind in kinds().vanishing


@functools.lru_cache(maxsize=4096)
def is_collective(kind: str) -> bool:
    """True for an operator (GE type or FX target) that communicates with other ranks."""
    return kind in kinds().collectives
