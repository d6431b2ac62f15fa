"""Prices from a user's profile: measured where the same operator ran, scaled where its family did, else the base model's."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from autostream.cost.measured.scaled import FamilyFactor, ScaledModel, floor, limited, times
from autostream.cost.measured.signature import Signature, kernel_op, kernel_signature, signature
from autostream.cost.model import Cost, CostModel, Machine, Tier
from autostream.graph.model import Op, Unit
from autostream.profiles.model import Core, Kernel, Profile

#: A factor counts as if so many kernels had agreed with the base model: few measurements move it little.
_PRIOR_WEIGHT = 2
#: Raise when a rule of this file changes: together with profile and base model it identifies every price.
_REVISION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """Kernels of one signature: median time (ns), half-width of their scatter (a factor less one), blocks of the middle one."""

    duration: int
    spread: float
    blocks: int


class MeasuredModel:
    """Three tiers, most trusted first.

    measured: an operator of the same family, sizes and data types ran; the median of its kernels (those that read plain layouts
    where there are some). scaled: others of its family ran; the base price times their robust factor. analytic: the base price.
    """

    def __init__(self, base: CostModel, profile: Profile) -> None:
        self._base = base
        self._digest = profile.digest
        kernels = _by_signature(profile.kernels)
        self._measured = {key: _measure(members) for key, members in kernels.items()}
        self._scaled = ScaledModel(base, family_factors(base, profile.kernels))

    @property
    def machine(self) -> Machine:
        """The chip the prices are for."""
        return self._base.machine

    @property
    def measured(self) -> int:
        """How many different operators have a measured price."""
        return len(self._measured)

    def fingerprint(self) -> str:
        """Return a stable text that changes whenever a price could change."""
        return f"measured-{_REVISION}-{self._digest}/{self._base.fingerprint()}"

    def estimate(self, op: Op) -> Cost:
        """Return the cost of the most trusted tier that knows the operator; one without a task is free."""
        scaled = self._scaled.estimate(op)
        found = self._find(op)
        return scaled if found is None else _priced(op, scaled, found, self.machine)

    def limited(self, op: Op, *, aic: int, aiv: int) -> Cost:
        """Return the cost on a part of the chip; see `CoreLimited`.

        What was measured on no more cores costs what it took. Otherwise nobody measured it on fewer: the measured time grows as
        the base model's does.
        """
        found = self._find(op)
        if found is None:
            return self._scaled.limited(op, aic=aic, aiv=aiv)
        whole, part = self._base.estimate(op), limited(self._base, op, aic=aic, aiv=aiv)
        measured = _priced(op, self._scaled.estimate(op), found, self.machine)
        fits = measured.resources.aic <= aic and measured.resources.aiv <= aiv
        if fits or part == whole or not whole.duration or not part.duration:
            return measured
        error = max(part.error, measured.error)
        return replace(times(part, found.duration / whole.duration), tier=Tier.SCALED, error=error)

    def _find(self, op: Op) -> _Measured | None:
        return None if op.unit in (Unit.FREE, Unit.COMM) else self._measured.get(signature(op))


def family_factors(base: CostModel, kernels: Iterable[Kernel]) -> dict[str, FamilyFactor]:
    """Return measured over predicted time, and the error that remains, for each family of operators that ran.

    Each signature counts once, with its median: a layer that is repeated forty times is one piece of evidence. The factor is the
    median of the logarithms, shrunk towards 1 as if some more signatures had agreed with the base model. It is 1 where the sizes
    of a family do not share a factor: one must bring the signatures nearer, in the median, when learnt from the others alone.
    """
    logs: dict[str, list[float]] = defaultdict(list)
    errors: dict[str, float] = {}
    for key, members in _by_signature(kernels).items():
        op = kernel_op(members[0])
        if members[0].core is Core.AI_CPU:  # slow for another reason than its size
            continue
        predicted = base.estimate(op) if op is not None else None
        if op is None or predicted is None or not predicted.duration or predicted.tier is Tier.UNKNOWN:
            continue
        logs[key.family].append(math.log(_measure(members).duration / predicted.duration))
        errors[key.family] = max(floor(op), predicted.error)
    return {name: _factor(values, errors[name]) for name, values in sorted(logs.items())}


def _factor(logs: Sequence[float], base_error: float) -> FamilyFactor:
    weight = len(logs) / (len(logs) + _PRIOR_WEIGHT)
    shift = _shift(logs) if _helps(logs) else 0.0
    off = sorted(math.expm1(abs(shift - value)) for value in logs)
    spread = off[max(0, math.ceil(0.75 * len(off)) - 1)]
    return FamilyFactor(factor=round(math.exp(shift), 6), error=round(weight * spread + (1 - weight) * base_error, 6))


def _shift(logs: Sequence[float]) -> float:
    return statistics.median(logs) * len(logs) / (len(logs) + _PRIOR_WEIGHT)


def _helps(logs: Sequence[float]) -> bool:
    if len(logs) == 1:
        return True  # nothing contradicts it, and it moves the price by a third of the way only
    others = [_shift([*logs[:place], *logs[place + 1 :]]) for place in range(len(logs))]
    left = statistics.median(abs(value - shift) for value, shift in zip(logs, others, strict=True))
    return left < statistics.median(map(abs, logs))


def _by_signature(kernels: Iterable[Kernel]) -> dict[Signature, list[Kernel]]:
    """Return the kernels that took time by signature; of one signature in plain and blocked layouts, the plain ones."""
    found: dict[Signature, list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        key = kernel_signature(kernel) if kernel.duration else None
        if key is not None:
            found[key].append(kernel)
    return {key: [one for one in members if _is_plain(one)] or members for key, members in found.items()}


def _is_plain(kernel: Kernel) -> bool:
    return not any(tensor.format.startswith(("FRACTAL", "NC1HWC0")) for tensor in (*kernel.inputs, *kernel.outputs))


def _measure(kernels: Sequence[Kernel]) -> _Measured:
    durations = sorted(kernel.duration for kernel in kernels)
    middle = statistics.median_low(durations)
    low, high = durations[len(durations) // 10], durations[-1 - len(durations) // 10]
    return _Measured(
        duration=middle,
        spread=max(high / middle, middle / low) - 1,
        blocks=statistics.median_low(sorted(kernel.blocks for kernel in kernels)),
    )


def _error(op: Op, found: _Measured) -> float:
    return max(floor(op), min(1.0, found.spread))


def measured_price(op: Op, cost: Cost, kernels: Sequence[Kernel], machine: Machine) -> Cost:
    """Return what an operator costs that launched these kernels (one or more that took time); `cost` is the base model's."""
    return _priced(op, cost, _measure(kernels), machine)


def _priced(op: Op, cost: Cost, found: _Measured, machine: Machine) -> Cost:
    """Return the measured time, in the proportions and on the resources of the base model; the cores are those that ran it."""
    if not cost.duration:
        return cost
    measured = times(cost, found.duration / cost.duration)
    held = measured.resources
    if found.blocks and op.unit is Unit.CUBE:
        held = replace(held, aic=min(found.blocks, machine.aic))
    elif found.blocks and op.unit is Unit.VECTOR:
        held = replace(held, aiv=min(found.blocks, machine.aiv))
    # Nine of ten runs of this very kernel stay within that too: the scatter of its class is no longer the question.
    error = _error(op, found)
    return replace(measured, resources=held, tier=Tier.MEASURED, error=error, spread=error)
