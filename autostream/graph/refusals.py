"""Why a graph must not be scheduled, and which of its operators are treated with more care than they may need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import torch
from torch import fx

from autostream.graph.calls import Facts, Kind, per_form
from autostream.graph.values import MISSING, is_symbolic, value_of


def shape_refusals(facts: Mapping[fx.Node, Facts]) -> list[str]:
    """Refuse values whose shape is not known, or not a number."""
    asked = (node for node, item in facts.items() if not item.static and item.kind not in (Kind.OUTPUT, Kind.MARK))
    values = {node.name: value_of(node) for node in asked}
    missing = [name for name, value in values.items() if value is MISSING]
    dynamic = [name for name, value in values.items() if is_symbolic(value)]
    refusals = []
    if missing:
        advice = "run it through autostream.schedule(model, inputs) or fake tensor propagation"
        refusals.append(f"no-shapes: node {missing[0]} has no shape{_more(missing)}; {advice}")
    if dynamic:
        advice = "capture the model with static shapes"
        refusals.append(f"dynamic-shape: node {dynamic[0]} has a symbolic shape or value{_more(dynamic)}; {advice}")
    return refusals


def _more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


def sync_refusals(operators: Mapping[fx.Node, Facts]) -> list[str]:
    """Refuse a graph that synchronises streams by hand."""
    names = [node.name for node, item in operators.items() if item.hand_written_sync]
    if not names:
        return []
    shown = ", ".join(names[:3]) + (" ..." if len(names) > 3 else "")
    return [f"hand-written-sync: the graph already synchronises streams by hand ({shown})"]


def memory_refusals(operators: Mapping[fx.Node, Facts]) -> list[str]:
    """Refuse operators that give a tensor another shape or other memory: every access before and after means something else."""
    found = [item for item in operators.values() if _changes_shape(item)]
    return [
        f"unsupported: {item.node.name} ({item.target}) changes the shape or the memory of a tensor in place"
        for item in found[:1]
    ]


@per_form
def _changes_shape(item: Facts) -> bool:
    return item.overload is not None and torch.Tag.inplace_view in item.overload.tags


def operator_notes(operators: Mapping[fx.Node, Facts]) -> list[str]:
    """Name, once per target, the operators that are treated with more care than they may need."""
    schemas = (item for item in operators.values() if item.overload is not None and not item.custom)
    unknown = Counter(item.target for item in schemas if item.info is None)
    opaque = Counter(item.target for item in operators.values() if item.custom)
    barriers = Counter(item.target for item in operators.values() if item.kind is Kind.BARRIER)
    cpu_only = Counter(item.target for item in operators.values() if "_for_cpu" in item.target)
    return [
        *(f"{name} ({count} x) exists on CPUs only: an NPU runs and pays another" for name, count in cpu_only.items()),
        *(f"unknown operator {name} ({count} x): taken to use every core" for name, count in unknown.items()),
        *(f"custom operator {name} ({count} x): taken to read and write all its tensors" for name, count in opaque.items()),
        *(f"{name} ({count} x) is no ATen operator: nothing moves across it" for name, count in barriers.items()),
    ]
