"""The operator table: which unit of the chip an operator runs on, and what its schema does not say. The data is `ops.yaml`."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

import yaml

from autostream.graph.model import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class OpInfo:
    """What the table says of one operator; the fields are explained at the top of `ops.yaml`."""

    #: The entry of the table that matched.
    pattern: str
    unit: Unit
    flops: str = "none"
    per: int = 1
    traffic: str = "dense"
    update: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    aliases: bool = False
    order: tuple[str, ...] = ()
    in_kernel: bool = False
    workspace: str = ""


@functools.cache
def classify(target: str) -> OpInfo | None:
    """Return what the table says of an operator, or None if it does not know it.

    `target` is ``str(node.target)``, such as ``"aten.mm.default"`` or ``"npu.npu_swiglu.default"``, or ``"getitem"``.
    """
    table = _table()
    for name in _candidates(target):
        if name in table.exact:
            return table.exact[name]
    packet = _packet(target)
    for prefix, info in table.prefixes:
        if packet.startswith(prefix):
            return info
    return None


def patterns() -> tuple[str, ...]:
    """Return every pattern of the table, in file order."""
    return tuple(name for name, _ in _entries())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    exact: dict[str, OpInfo]
    #: Longest prefix first.
    prefixes: tuple[tuple[str, OpInfo], ...]


@functools.cache
def _table() -> _Table:
    exact = {name: info for name, info in _entries() if not name.endswith("*")}
    prefixes = [(name[:-1], info) for name, info in _entries() if name.endswith("*")]
    return _Table(exact=exact, prefixes=tuple(sorted(prefixes, key=lambda item: (-len(item[0]), item[0]))))


def _entries() -> Iterator[tuple[str, OpInfo]]:
    text = resources.files("autostream.graph").joinpath("ops.yaml").read_text(encoding="utf-8")
    for entry in yaml.safe_load(text):
        for name in entry["ops"].split():
            yield (
                name,
                OpInfo(
                    pattern=name,
                    unit=Unit(entry["unit"]),
                    flops=entry.get("flops", "none"),
                    per=entry.get("per", 1),
                    traffic=entry.get("traffic", "dense"),
                    update=tuple(entry.get("update", ())),
                    writes=tuple(entry.get("writes", ())),
                    aliases=entry.get("aliases", False),
                    order=tuple(entry.get("order", ())),
                    in_kernel=entry.get("in_kernel", False),
                    workspace=entry.get("workspace", ""),
                ),
            )


def _packet(target: str) -> str:
    """Drop the overload: ``"aten.add.Tensor"`` -> ``"aten.add"``."""
    return target.rpartition(".")[0] if target.count(".") > 1 else target


def _candidates(target: str) -> Iterator[str]:
    """Yield the names to look up, most specific first: overload, packet, and the base of an in-place or functional variant."""
    yield target
    packet = _packet(target)
    yield packet
    if packet.endswith("_") and not packet.endswith("__"):
        yield packet[:-1]
    if packet.endswith("_functional"):
        yield packet.removesuffix("_functional")
