"""How much of an expert-parallel layer's shapes is filled: what operators behind a dispatch can expect to work on.

`npu_moe_distribute_dispatch*` returns tensors with one row for every token a card could receive at worst. With balanced experts
it receives as many as it sends, one per token and chosen expert; the operators behind it skip the rest. Prices should rest on
what is expected, or a decode layer looks many times slower than it is.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from autostream.graph.model import Op, OpGraph, TensorSpec, Why

_DISPATCH = "npu.npu_moe_distribute_dispatch"
_COMBINE = "npu.npu_moe_distribute_combine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Operators with the shapes, bytes and flop they can expect, and what to tell the reader about it."""

    ops: Mapping[str, Op]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Rows:
    capacity: int
    expected: int


def expected_load(graph: OpGraph) -> Load:
    """Return every operator of a graph as it can expect to be filled; those not behind a dispatch as they are."""
    #: By operator: the rows of what it gets.
    given: dict[str, _Rows] = {}
    ops: dict[str, Op] = {}
    notes: dict[str, None] = {}
    for op in graph:
        found = _dispatched(op) or given.get(op.name)
        if found is None or not any(_has(spec, found) for spec in (*op.inputs, *op.outputs)):
            ops[op.name] = op
            continue
        ops[op.name] = _filled(op, found)
        notes[f"rows behind {_DISPATCH}* priced at balanced load: {found.expected} of {found.capacity}"] = None
        if not op.target.startswith(_COMBINE) and any(_has(spec, found) for spec in op.outputs):
            for after in graph.dag.successors(op.name):
                if Why.DATA in graph.why(op.name, after):
                    given.setdefault(after, found)
    return Load(ops=ops, notes=tuple(notes))


def _dispatched(op: Op) -> _Rows | None:
    """Return the rows a dispatch produces, if `op` is one: (tokens, hidden) and (tokens, experts per token) come in."""
    if not op.target.startswith(_DISPATCH) or len(op.inputs) < 2 or not op.outputs or len(op.inputs[1].shape) != 2:
        return None
    tokens, chosen = op.inputs[1].shape
    capacity = op.outputs[0].shape[0] if op.outputs[0].shape else 0
    return _Rows(capacity, tokens * chosen) if 0 < tokens * chosen < capacity else None


def _has(spec: TensorSpec, rows: _Rows) -> bool:
    return bool(spec.shape) and spec.shape[0] == rows.capacity


def _filled(op: Op, rows: _Rows) -> Op:
    inputs, outputs = _all_shrunk(op.inputs, rows), _all_shrunk(op.outputs, rows)
    return op._replace(
        inputs=inputs,
        outputs=outputs,
        flops=op.flops * rows.expected // rows.capacity,
        bytes_read=max(0, op.bytes_read - _saved(op.inputs, inputs)),
        bytes_written=max(0, op.bytes_written - _saved(op.outputs, outputs)),
    )


@functools.lru_cache(maxsize=1024)  # the layers of a deep model are alike
def _all_shrunk(specs: tuple[TensorSpec, ...], rows: _Rows) -> tuple[TensorSpec, ...]:
    return tuple(_shrunk(spec, rows) for spec in specs)


def _shrunk(spec: TensorSpec, rows: _Rows) -> TensorSpec:
    return spec._replace(shape=(rows.expected, *spec.shape[1:])) if _has(spec, rows) else spec


def _saved(before: tuple[TensorSpec, ...], after: tuple[TensorSpec, ...]) -> int:
    return sum(spec.nbytes for spec in before) - sum(spec.nbytes for spec in after)
