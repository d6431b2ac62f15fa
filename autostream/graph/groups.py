"""Which ranks take part in a collective, and how many: from its own arguments, else from another one of the same group."""

from __future__ import annotations

from collections.abc import Mapping

from autostream.graph.calls import Facts
from autostream.graph.model import Op

_NAMES = ("group_name", "group_ep", "hcom", "group", "tag")
#: Arguments that hold the number of ranks. In torch_npu's operators `group_size` is something else (a quantisation group).
_COUNTS = {"npu": ("ep_world_size", "world_size")}
_COUNTS_ELSEWHERE = ("group_size",)
#: Lists with one entry per rank.
_PER_RANK = ("ranks", "rank_list", "output_split_sizes", "recv_counts")


def group_name(item: Facts) -> str | None:
    """Return what names the process group of a collective, with its ranks where they are listed; None for other operators."""
    if item.info is None or "collective" not in item.info.order:
        return None
    name = next((item.argument(argument) for argument in _NAMES if item.argument(argument)), "")
    ranks = item.arguments.get("ranks") or item.arguments.get("rank_list")
    return f"{name}{list(ranks)}" if ranks else str(name)


def group_size(item: Facts) -> int | None:
    """Return the number of ranks that a collective's arguments tell, or None."""
    if item.info is None or "collective" not in item.info.order:
        return None
    for name in _COUNTS.get(item.target.partition(".")[0], _COUNTS_ELSEWHERE):
        value = item.argument(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    # Two ranks talk in a send or a receive, however many their group has.
    if item.target.startswith(("npu_define._send", "npu_define._recv")):
        return 2
    lists = (item.arguments.get(name) for name in _PER_RANK)
    return next((len(ranks) for ranks in lists if isinstance(ranks, (list, tuple)) and ranks), None)


def share_sizes(ops: Mapping[str, Op]) -> dict[str, Op]:
    """Return the operators with the sizes of their groups, as far as any collective of the group tells it.

    Where two disagree about a group, as a send and a broadcast do, the larger one holds for those that do not say.
    """
    sizes: dict[str, int] = {}
    for op in ops.values():
        if op.group and op.group_size is not None:
            sizes[op.group] = max(op.group_size, sizes.get(op.group, 0))
    return {
        name: op._replace(group_size=sizes[op.group]) if op.group in sizes and op.group_size is None else op
        for name, op in ops.items()
    }
