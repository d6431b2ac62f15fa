"""Which kernels of a profile belong to which nodes of a dump, and the prices that follow from that."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autostream.cost.analytic.fused import fused_activations
from autostream.cost.measured.kernels import find_kernel
from autostream.cost.measured.measured import measured_price
from autostream.cost.measured.signature import kernel_op, kernel_signature, signature
from autostream.cost.model import FREE, Cost, CostModel, Machine, Tier
from autostream.dumps.graph import DumpGraph
from autostream.errors import InputError
from autostream.graph.model import Op, Unit
from autostream.profiles.model import Kernel, Profile

#: What an aclgraph or a tiling appends to a node's name.
_SUFFIX = re.compile(r"(?:_(?:[0-9a-f]{8,}|ND|NZ|NDNZ|NZND|NDND|high_performance|mix_ai[cv]))+$", re.IGNORECASE)
_VERSION = re.compile(r"v\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelGroup:
    """Kernels of one type that belong to no node; `time` in ns, `share` of the device time of the profile."""

    type: str
    kernels: int
    time: int
    share: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMatch:
    """What a profile says of a dump. Kernels by node; nodes without an entry are priced by shape or not measured."""

    by_name: Mapping[str, tuple[Kernel, ...]] = field(default_factory=dict)
    #: Collectives, whose rows have neither the node's name nor shapes: told apart by the order in which they ran.
    by_order: Mapping[str, tuple[Kernel, ...]] = field(default_factory=dict)
    #: Nodes that kernels of the same type, shapes and data types ran for, which bear other names.
    by_shape: tuple[str, ...] = ()
    #: Largest time first.
    unmatched: tuple[KernelGroup, ...] = ()
    #: Kernels that were matched, and all of them.
    matched_kernels: int = 0
    kernels: int = 0
    #: Share of the device time that the matched kernels took.
    matched_share: float = 0.0


def match_nodes(dump: DumpGraph, profile: Profile) -> NodeMatch:
    """Match the nodes of a dump with the kernels of a profile: by name, collectives also by order, then by type and shapes.

    A kernel has the name of a node if it is of the node's type and, where both tell, of the size of its result: nodes of
    different models share names such as ``MatMul_1``.
    """
    tasks = {op.name: op for op in dump.graph if op.unit is not Unit.FREE}
    by_name: dict[str, list[Kernel]] = defaultdict(list)
    rest: list[Kernel] = []
    for kernel in profile.kernels:
        owner = next((name for name in _names(kernel) if name in tasks and _fits(tasks[name], dump.types[name], kernel)), None)
        if owner is not None and kernel.duration:
            by_name[owner].append(kernel)
        else:
            rest.append(kernel)
    by_order = _by_order(dump, tasks, set(by_name), rest)
    ordered = {id(kernel) for members in by_order.values() for kernel in members}
    rest = [kernel for kernel in rest if id(kernel) not in ordered]
    wanted: dict[object, list[str]] = defaultdict(list)
    for op in tasks.values():
        if op.unit is not Unit.COMM and op.known:
            wanted[signature(op)].append(op.name)
    ran = {key for kernel in rest if kernel.duration and (key := kernel_signature(kernel)) in wanted}
    lost = [kernel for kernel in rest if kernel_signature(kernel) not in ran]
    shaped = {name for key in ran for name in wanted[key] if name not in by_name}
    total = profile.device_time
    return NodeMatch(
        by_name={name: tuple(by_name[name]) for name in tasks if name in by_name},
        by_order=by_order,
        by_shape=tuple(name for name in tasks if name in shaped),
        unmatched=_groups(lost, total, {dump.types[name] for name in tasks}),
        matched_kernels=len(profile.kernels) - len(lost),
        kernels=len(profile.kernels),
        matched_share=round(1 - sum(kernel.duration for kernel in lost) / total, 6) if total else 0.0,
    )


def refuse_foreign(match: NodeMatch, dump: DumpGraph, *, profile: str, where: str) -> None:
    """Refuse a profile of which nothing belongs to the dump.

    Raises:
        InputError: names both, what each holds and what would fit.
    """
    if match.by_name or match.by_order or match.by_shape:
        return
    kernels = ", ".join(f"{group.type} ({group.kernels})" for group in match.unmatched[:5]) or "no kernel at all"
    nodes = list(dict.fromkeys(dump.types[op.name] for op in dump.graph if op.unit is not Unit.FREE))
    raise InputError(
        f"profile {profile}: none of its {match.kernels} kernels belongs to a node of {where}, by name or by type and shapes; it "
        f"holds {kernels}, the dump {', '.join(nodes[:5]) or 'no node with a task'}. Give a profile of a run of this very graph, "
        "or none: the prices are then analytic"
    )


class NodePrices:
    """A cost model of the nodes of one dump: what a node's own kernels took, else what the model behind it says.

    A ReLU that GE makes part of the convolution before it is free, unless the profile shows a kernel of its own.

    The scheduler asks with shapes as filled as they can be expected to be; kernels of a profile show them as the dump does, so
    what was measured for these holds.
    """

    def __init__(self, base: CostModel, dump: DumpGraph, match: NodeMatch) -> None:
        self._base = base
        self._ops = dump.graph.ops
        self._kernels = {**match.by_order, **match.by_name}
        fused = (name for name in fused_activations(dump.graph, base.machine) if dump.types[name] == "Relu")
        self._inside = frozenset(name for name in fused if name not in self._kernels)

    @property
    def machine(self) -> Machine:
        """The chip the prices are for."""
        return self._base.machine

    def fingerprint(self) -> str:
        """Return the fingerprint of the model behind it: the matching follows from the dump and the profile alone."""
        return self._base.fingerprint()

    def estimate(self, op: Op) -> Cost:
        """Return the cost of a node; one without a task, or inside another's kernel, is free."""
        if op.name in self._inside:
            return FREE
        if op.unit is Unit.FREE:
            return self._base.estimate(op)
        given = self._base.estimate(self._ops[op.name]) if op.name in self._ops else None
        kernels = self._kernels.get(op.name)
        if kernels and given is not None:
            return measured_price(op, given, kernels, self.machine)
        if given is not None and given.tier is Tier.MEASURED:
            return given
        return self._base.estimate(op)


def _names(kernel: Kernel) -> list[str]:
    """Return the node names a kernel may stand for, the likeliest first: GE puts scopes in front, split by ``/``."""
    plain = _SUFFIX.sub("", kernel.name)
    return list(dict.fromkeys((kernel.name, plain, kernel.name.rpartition("/")[2], plain.rpartition("/")[2])))


def _fits(op: Op, node_type: str, kernel: Kernel) -> bool:
    """Whether a kernel is of a node's type and nothing speaks against it."""
    entry, known = find_kernel(kernel.type), find_kernel(node_type)
    same = entry == known if entry is not None and known is not None else _plain(kernel.type) == _plain(node_type)
    if not same:
        return False
    ran = kernel_op(kernel)
    if ran is None or not ran.outputs or not op.outputs or not op.known:
        return True
    return ran.outputs[0].numel == op.outputs[0].numel and ran.flops == op.flops


def _plain(kind: str) -> str:
    return _VERSION.sub("", kind.casefold().replace("_", ""))


def _by_order(
    dump: DumpGraph, tasks: Mapping[str, Op], named: set[str], kernels: Sequence[Kernel]
) -> dict[str, tuple[Kernel, ...]]:
    """Deal the rows of collectives out to the nodes of their type, where every step has as many rows as there are nodes."""
    rows: dict[str, dict[int | None, list[Kernel]]] = defaultdict(lambda: defaultdict(list))
    for kernel in kernels:
        if kernel.communicates and kernel.duration:
            rows[_plain(kernel.type)][kernel.step].append(kernel)
    nodes: dict[str, list[str]] = defaultdict(list)
    for name, op in tasks.items():
        if op.unit is Unit.COMM and name not in named:
            nodes[_plain(dump.types[name])].append(name)
    found: dict[str, list[Kernel]] = defaultdict(list)
    for kind, names in nodes.items():
        steps = rows.get(kind, {})
        if steps and all(len(members) % len(names) == 0 for members in steps.values()):
            for members in steps.values():
                for place, kernel in enumerate(members):
                    found[names[place % len(names)]].append(kernel)
    return {name: tuple(found[name]) for name in tasks if name in found}


def _groups(kernels: Sequence[Kernel], total: int, types: set[str]) -> tuple[KernelGroup, ...]:
    members: dict[str, list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        members[kernel.type].append(kernel)
    plain = {_plain(kind) for kind in types}
    groups = []
    for kind, group in members.items():
        time = sum(kernel.duration for kernel in group)
        reason = "no node of this type"
        if _plain(kind) in plain:
            reason = "nodes of this type have other names, shapes or data types"
        share = round(time / total, 6) if total else 0.0
        groups.append(KernelGroup(type=kind, kernels=len(group), time=time, share=share, reason=reason))
    return tuple(sorted(groups, key=lambda group: (-group.time, group.type)))
