"""Kernels of profiles as rows that prices are compared with: halves to learn from and to predict, errors by class."""

from __future__ import annotations

import hashlib
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from autostream.cost.chips.factors import load_factors
from autostream.cost.measured.signature import Signature, kernel_op, kernel_signature
from autostream.cost.model import Cost, CostModel
from autostream.graph.model import Op, Unit
from autostream.profiles.model import Core, Kernel

_SEED = 0
#: Share of the kernels to come that an error band covers, and that the spread of single operators covers.
BAND, SPREAD = Fraction(4, 5), Fraction(9, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A kernel and the operator that would have launched it."""

    kernel: Kernel
    op: Op
    signature: Signature


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """abs(predicted / measured - 1) over some rows; `band` and `spread` are factors less one (see `off`), each signature once."""

    rows: int
    signatures: int
    median: float
    p75: float
    p90: float
    #: What covers `BAND` and `SPREAD` of the kernels to come; None: too few signatures to say.
    band: float | None = None
    spread: float | None = None


def rows_of(kernels: Iterable[Kernel]) -> list[Row]:
    """Return a row for each kernel that took time and has an operator; one of the AI CPU is not what the model prices."""
    rows: list[Row] = []
    for kernel in kernels:
        op, key = kernel_op(kernel), kernel_signature(kernel)
        if kernel.duration and kernel.core is not Core.AI_CPU and op is not None and key is not None:
            rows.append(Row(kernel=kernel, op=op, signature=key))
    return rows


def band(op: Op) -> str:
    """Return the class whose error band an operator shares."""
    group = load_factors().find(op.target)
    if group is not None:
        return group.band
    return {Unit.CUBE: "matmul", Unit.VECTOR: "vector", Unit.MIXED: "unknown"}.get(op.unit, "unknown")


def split_by_signature(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Return two halves of the signatures; the same shapes are never on both sides. Depends on the signatures alone."""
    halves: tuple[list[Row], list[Row]] = ([], [])
    for row in rows:
        halves[_side(row.signature)].append(row)
    return halves


def split_rows(rows: Sequence[Row], seed: int = _SEED) -> tuple[list[Row], list[Row]]:
    """Return two random halves of the rows, in order: one step to learn from and the next one to predict."""
    places = list(range(len(rows)))
    random.Random(seed).shuffle(places)
    first = sorted(places[: len(places) // 2])
    second = sorted(places[len(places) // 2 :])
    return [rows[place] for place in first], [rows[place] for place in second]


def priced(model: CostModel, rows: Iterable[Row]) -> list[tuple[Row, Cost]]:
    """Return each row with the model's price."""
    known: dict[int, Cost] = {}  # kernels that repeat share one operator
    pairs: list[tuple[Row, Cost]] = []
    for row in rows:
        if id(row.op) not in known:
            known[id(row.op)] = model.estimate(row.op)
        pairs.append((row, known[id(row.op)]))
    return pairs


def errors(prices: Iterable[tuple[Row, Cost]]) -> dict[str, Errors]:
    """Return the errors of priced rows by class."""
    found: dict[str, list[float]] = defaultdict(list)
    kinds: dict[str, dict[Signature, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row, cost in prices:
        found[band(row.op)].append(abs(cost.duration / row.kernel.duration - 1))
        kinds[band(row.op)][row.signature].append(off(cost.duration, row.kernel.duration))
    told: dict[str, Errors] = {}
    for name, values in sorted(found.items()):
        once = [statistics.median(of_kind) for of_kind in kinds[name].values()]
        covers, spreads = covering(once, BAND), covering(once, SPREAD)
        told[name] = Errors(
            rows=len(values),
            signatures=len(once),
            median=round(statistics.median(values), 6),
            p75=round(quantile(values, 0.75), 6),
            p90=round(quantile(values, 0.9), 6),
            band=None if covers is None else round(covers, 6),
            spread=None if spreads is None else round(spreads, 6),
        )
    return told


def off(predicted: float, measured: float) -> float:
    """Return the factor between two times, less one: 0.5 where one is half as long again as the other, whichever it is."""
    return max(predicted, measured) / max(1, min(predicted, measured)) - 1


def covering(values: Iterable[float], share: Fraction) -> float | None:
    """Return what the next error exceeds no more often than in 1 - share of cases; None where these are too few to say.

    That is the ceil((n + 1) x share)-th smallest of n (split conformal prediction): it holds at any n and for any distribution if
    the next error is of the same kind as these. Few errors give a wide band, their largest; fewer than four give none of 80 %.
    """
    ordered = sorted(values)
    place = math.ceil((len(ordered) + 1) * share)
    return ordered[place - 1] if place <= len(ordered) else None


def covering_next_group(groups: Iterable[Sequence[float]], share: Fraction) -> float | None:
    """Return what an error in a group that was never seen exceeds no more often than in 1 - share of cases, or None.

    As `covering`, with groups for errors: each weighs 1, however many errors it has, and the next one weighs 1 beyond them all.
    """
    known = [list(group) for group in groups if group]
    weighed = sorted((value, Fraction(1, len(group))) for group in known for value in group)
    total = Fraction(0)
    for value, weight in weighed:
        total += weight
        if total >= (len(known) + 1) * share:
            return value
    return None


def quantile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that at least this share of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _side(key: Signature) -> int:
    return hashlib.sha256(repr(key).encode()).digest()[0] % 2
