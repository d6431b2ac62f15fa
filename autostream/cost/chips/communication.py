"""Time of a collective: alpha + bytes x factor / rate, by its kind, the number of ranks and the network they share.

Bytes are those of the larger side of the operator on one rank. Within a node each collective has its published rate at a number
of ranks or, where none is published, follows from the links: in a full mesh every rank has a link of its own to each other one,
on a switch it has one port. Beyond the node the collective runs inside the nodes and between them, and the slower of the two
bounds it. All times are nanoseconds as floats.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from autostream.cost.chips.datafile import Count, Positive, PositiveCount, Quantity, Section
from autostream.cost.chips.factors import CommKind, Group
from autostream.graph.model import Op

#: How often the algorithm sends the (n - 1) / n of the larger side that a rank does not hold: all-reduce is reduce-scatter, then
#: all-gather; broadcast is scatter, then all-gather.
_PHASES: Mapping[CommKind, int] = {"all_reduce": 2, "broadcast": 2}
#: Collectives in which a rank sends something else to each peer: what goes to another node cannot be gathered on the way.
_ROUTED: frozenset[CommKind] = frozenset({"all_to_all", "dispatch", "combine"})


class Network(Section):
    """The links between the devices of one node."""

    #: Devices that reach each other over these links.
    devices: PositiveCount
    #: full_mesh: every pair has a link of its own; switch: every device has one port.
    shape: Literal["full_mesh", "switch"]
    #: Rate per direction of one link or port, as specified and as achieved.
    spec_gb_per_s: Positive
    gb_per_s: Positive


class BetweenNodes(Section):
    """The network between nodes, by device."""

    spec_gb_per_s: Positive
    gb_per_s: Positive
    #: Added to the alpha of a collective that leaves the node.
    extra_alpha_us: Quantity


class Collective(Section):
    """Time of a collective = alpha + bytes x factor / rate (see the functions of this module)."""

    alpha_us: Positive
    #: Published rates within a node by number of ranks: bytes of the larger side on one rank over the time without alpha. None:
    #: the links of the node say it.
    gb_per_s_by_ranks: Mapping[Annotated[int, Field(ge=2)], Positive] | None = None
    #: Vector cores it holds, all at once, while it runs (0: it runs on the communication engine alone).
    aiv_gang_cores: Count


class Comm(Section):
    """Communication: the networks, then the collectives by kind."""

    #: Ranks of a group whose size the graph does not tell: the devices of one server.
    default_ranks: PositiveCount
    #: Fewest vector cores the communication library needs where it runs on them.
    min_aiv_cores: PositiveCount
    node: Network
    between_nodes: BetweenNodes
    all_reduce: Collective
    all_gather: Collective
    reduce_scatter: Collective
    all_to_all: Collective
    broadcast: Collective
    send_recv: Collective
    #: Tokens to the ranks of their experts, and back.
    dispatch: Collective
    combine: Collective


def comm_term(op: Op, group: Group, comm: Comm, kind: CommKind) -> float:
    """Return the time of a collective, ns. Where the graph does not tell the number of ranks, those of one server are taken."""
    ranks = op.group_size or comm.default_ranks.value
    return comm_time(comm, kind, comm_bytes(op, group), ranks)


def comm_time(comm: Comm, kind: CommKind, nbytes: float, ranks: int) -> float:
    """Return the time (ns) of a collective with `nbytes` on the larger side of one rank, among `ranks` devices.

    Never falls with the bytes. A rank alone pays the alpha.
    """
    collective: Collective = getattr(comm, kind)
    alpha = collective.alpha_us.value * 1000
    nodes = math.ceil(ranks / comm.node.devices.value)
    if nodes == 1 or kind == "send_recv":
        return alpha + nbytes * _inside(comm, kind, ranks)
    local = math.ceil(ranks / nodes)
    if kind in _ROUTED:
        inside, between = local / ranks * _inside(comm, kind, local), (ranks - local) / ranks
    else:
        # Each device of a node carries its share of what the nodes exchange.
        inside, between = _inside(comm, kind, local), _PHASES.get(kind, 1) * (nodes - 1) / nodes / local
    slower = max(inside, between / comm.between_nodes.gb_per_s.value)
    return alpha + comm.between_nodes.extra_alpha_us.value * 1000 + nbytes * slower


def gang_cores(comm: Comm, kind: CommKind) -> int:
    """Return the vector cores a collective holds: none, or at least as many as the library needs to run on them."""
    wanted = getattr(comm, kind).aiv_gang_cores.value
    return max(wanted, comm.min_aiv_cores.value) if wanted else 0


def _inside(comm: Comm, kind: CommKind, ranks: int) -> float:
    """Return the time per byte (ns) within a node."""
    factor = _factor(comm.node, kind, ranks)
    measured: Mapping[int, Positive] | None = getattr(comm, kind).gb_per_s_by_ranks
    if not measured or ranks == 1:
        return factor / comm.node.gb_per_s.value
    if ranks in measured:
        return 1 / measured[ranks].value
    known = sorted(measured)
    place = bisect.bisect(known, ranks)
    if 0 < place < len(known):
        return _line(measured, known[place - 1], known[place], ranks)
    nearest = known[-1] if place else known[0]
    scaled = factor / _factor(comm.node, kind, nearest) / measured[nearest].value
    # Beyond the last figure the trend goes on where that is the slower answer.
    return max(scaled, _line(measured, known[-2], known[-1], ranks)) if place and len(known) > 1 else scaled


def _line(measured: Mapping[int, Positive], first: int, second: int, ranks: int) -> float:
    """Return the time per byte on the straight line over log2(ranks) through two figures."""
    slow = [1 / measured[first].value, 1 / measured[second].value]
    return slow[0] + (slow[1] - slow[0]) * math.log2(ranks / first) / math.log2(second / first)


def _factor(node: Network, kind: CommKind, ranks: int) -> float:
    """Return what one link must carry, as a share of the larger side."""
    if kind == "send_recv":
        return 1.0
    sent = _PHASES.get(kind, 1) * (ranks - 1) / ranks
    # In a full mesh the ranks - 1 links of a rank work at the same time.
    return sent / (ranks - 1) if node.shape == "full_mesh" and ranks > 1 else sent


def comm_bytes(op: Op, group: Group) -> int:
    """Return the bytes a collective is priced by: the larger of its two sides on this rank.

    A routed one (dispatch, combine) moves each token once per expert it goes to: tokens x hidden x top-k, where the buffer on
    the expert side is sized for the worst case and says nothing. One fused with a product moves its activation or its result,
    never its weights.
    """
    if group.comm in ("dispatch", "combine") and len(op.inputs) > 1 and op.outputs and op.inputs[1].shape:
        return min(op.inputs[0].nbytes, op.outputs[0].nbytes) * op.inputs[1].shape[-1]
    if group.product is not None and op.inputs and op.outputs:
        return max(op.inputs[0].nbytes, op.outputs[0].nbytes)
    inputs = sum(spec.nbytes for spec in op.inputs)
    outputs = sum(spec.nbytes for spec in op.outputs)
    return max(inputs, outputs)
