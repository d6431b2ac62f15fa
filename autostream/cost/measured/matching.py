"""Which kernels of a profile belong to which operators of a graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autostream.cost.measured.kernels import find_kernel, kernels_of
from autostream.cost.measured.signature import Signature, family, kernel_signature, signature
from autostream.graph.model import Op, OpGraph, Unit
from autostream.profiles.model import Kernel, Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """An operator and its kernels: one for each step, or each time, the profile saw the graph run."""

    op: str
    kernels: tuple[Kernel, ...]
    #: What told this operator from others of the same signature: ``"signature"`` (there is no other), ``"name"`` or ``"order"``.
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """What was matched, in graph order, and why the rest was not: by operator name; by kernel type, with how many there are."""

    matches: tuple[Match, ...]
    unmatched_ops: Mapping[str, str]
    unmatched_kernels: Mapping[str, tuple[int, str]]


def match(graph: OpGraph, profile: Profile) -> Matching:
    """Match operators to kernels by signature, then by name, then by order.

    A kernel whose name holds the operator's goes to it. The others of one signature are dealt out in the order they ran to the
    operators in graph order, round after round, step by step: repeated layers are told apart by their order alone.
    """
    found: dict[Signature, list[Kernel]] = defaultdict(list)
    strange: list[Kernel] = []
    for kernel in profile.kernels:
        key = kernel_signature(kernel)
        if key is None:
            strange.append(kernel)
        else:
            found[key].append(kernel)
    wanted: dict[Signature, list[Op]] = defaultdict(list)
    for op in graph:
        if op.unit is not Unit.FREE:
            wanted[signature(op)].append(op)
    matches: dict[str, Match] = {}
    surplus: dict[Signature, list[Kernel]] = {}
    for key, kernels in found.items():
        dealt, surplus[key] = _deal(wanted.get(key, []), kernels)
        matches |= dealt
    families = {key.family for key in found}
    return Matching(
        matches=tuple(matches[op.name] for op in graph if op.name in matches),
        unmatched_ops={
            op.name: _why_op(op, families, found.get(key)) for key, ops in wanted.items() for op in ops if op.name not in matches
        },
        unmatched_kernels=_why_kernels(strange, surplus, {key.family for key in wanted}, set(wanted)),
    )


def _deal(ops: Sequence[Op], kernels: Sequence[Kernel]) -> tuple[dict[str, Match], list[Kernel]]:
    """Share out the kernels of one signature; return the matches and the kernels left over."""
    got: dict[str, list[Kernel]] = {op.name: [] for op in ops}
    rest: list[Kernel] = []
    names = sorted(got, key=len, reverse=True)  # mm_12 before mm_1
    for kernel in kernels:
        owner = next((name for name in names if _named(kernel.name, name)), None)
        (rest if owner is None else got[owner]).append(kernel)
    by_name = {name for name, members in got.items() if members}
    others = [op.name for op in ops if op.name not in by_name]
    left: list[Kernel] = []
    for group in _by_step(rest):
        rounds = len(group) // len(others) if others else 0
        whole = rounds * len(others) if rounds else min(len(group), len(others))
        for place, kernel in enumerate(group[:whole]):
            got[others[place % len(others)]].append(kernel)
        left += group[whole:]
    how = "signature" if len(ops) == 1 else "order"
    matches = {
        name: Match(op=name, kernels=tuple(members), by="name" if name in by_name else how)
        for name, members in got.items()
        if members
    }
    return matches, left


def _named(kernel: str, op: str) -> bool:
    """Whether an operator's name stands in a kernel's as whole words (GE puts the scope in front, split by ``/``)."""
    return op in (kernel, *kernel.split("/"))


def _by_step(kernels: Iterable[Kernel]) -> list[list[Kernel]]:
    steps: dict[int | None, list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        steps[kernel.step].append(kernel)
    return list(steps.values())


def _why_op(op: Op, families: set[str], kernels: list[Kernel] | None) -> str:
    if kernels:
        return f"only {len(kernels)} kernels of its shapes ran, fewer than there are operators of them"
    if op.unit is Unit.COMM:
        return "a collective: a profile gives it no shapes to be known by"
    if family(op.target) in families:
        return "its kernel type ran, but with other shapes or data types"
    known = kernels_of(family(op.target))
    return f"none of its kernels ran ({', '.join(known)})" if known else f"no kernel type is known for {op.target}"


def _why_kernels(
    strange: Sequence[Kernel], surplus: Mapping[Signature, Sequence[Kernel]], families: set[str], keys: set[Signature]
) -> dict[str, tuple[int, str]]:
    reasons: dict[str, list[str]] = defaultdict(list)
    for kernel in strange:
        reasons[kernel.type].append(_why_strange(kernel))
    for key, kernels in surplus.items():
        why = "no operator of the graph launches it"
        if key in keys:
            why = "more of these shapes ran than the graph has operators"
        elif key.family in families:
            why = "no operator of the graph has its shapes and data types"
        for kernel in kernels:
            reasons[kernel.type].append(why)
    return {name: (len(whys), "; ".join(dict.fromkeys(whys))) for name, whys in sorted(reasons.items())}


def _why_strange(kernel: Kernel) -> str:
    if kernel.communicates:
        return "a collective: its row has no shapes"
    if find_kernel(kernel.type) is None:
        return "the type is not in the table of kernels"
    return "its shapes are not those of its type, or the profile has none (level0)"
