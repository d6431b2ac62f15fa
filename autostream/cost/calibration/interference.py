"""What kernels cost each other while they run together, measured in a user's profiles.

A kernel beside others is compared with the same kernel (type, shapes, data types, formats, blocks) alone in the same profile, by
the rule the simulator applies: while it has company its work goes on at 1 / factor. Of its duration d, t beside others, and its
duration a alone, follows factor = t / (a - (d - t)); where two kernels share the device memory, t is first divided by what the
simulator takes for that, so that nothing is counted twice. Per shape the median is taken, over shapes the median weighted by the
time together, in which no shape counts for more than twice its share.

What this cannot do: a kernel that has company may differ in more than that. It may belong to the backward pass, read other data
that are or are not in the cache, or follow another kernel. The same shape does not remove that. For collectives there is a check:
beside a collective that waits for its peers and moves nothing, a kernel must take as long as alone; where it does not, something
else slows these kernels, and nothing is claimed. For cube beside vector no such check is known. A memory-bound kernel also pays a
collective's traffic, which the simulator adds once more: the factor is then too high rather than too low.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from autostream.cost.calibration.beside import Company, Observation
from autostream.cost.chips.chip import Chip
from autostream.cost.chips.datafile import Quantity, Slowdown
from autostream.cost.measured.signature import kernel_op
from autostream.cost.model import CostModel
from autostream.graph.model import Op
from autostream.profiles.model import Kernel

#: Factors of a chip file's `interference` by the company they describe.
FACTORS: Mapping[Company, str] = {Company.OTHER_UNIT: "cube_vector_slowdown", Company.TRANSFER: "compute_comm_slowdown"}
#: Kernels whose median alone is shorter are left out: a timestamp is 20 ns coarse, and mostly their launch is timed.
_SHORTEST_NS = 2_000
#: A shape is left out where half of its kernels alone scatter over more than this share of their median: what they do depends on
#: more than shapes (lengths of a cache, tokens of an expert).
_SCATTER = 0.2
#: How far from 1 the check may be.
_CHECK = 0.05
#: Largest factor a chip file takes.
_LARGEST = 10.0
_WHOLE = 1000

#: By what two kernels side by side are stretched because they share the device memory; None = not known.
Memory = Callable[[Kernel, Kernel], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The least from which a factor is taken."""

    #: Kernels of one shape alone, and beside others.
    repeats: int = 3
    shapes: int = 8
    kernels: int = 40
    #: Time together, ns.
    time: int = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What profiles say of one kind of company."""

    company: Company
    #: All kernels seen in that company, and their time in it, ns.
    seen: int
    seen_time: int
    #: Those of them that could be compared with the same shape alone.
    kernels: int
    shapes: int
    time: int
    #: Time beside others over time alone: weighted median and 75th percentile of the shapes. None = nothing is claimed.
    factor: float | None = None
    p75: float | None = None
    #: 75th percentile of how far single shapes are from `factor`, relative.
    spread: float | None = None
    #: Why there is no factor.
    why: str = ""

    @property
    def value(self) -> float | None:
        """The factor for a chip file: nothing runs faster in company, so never below 1."""
        return None if self.factor is None else min(_LARGEST, max(1.0, self.factor))


def measure(
    observed: Iterable[Sequence[Observation]], model: CostModel, least: Evidence | None = None
) -> tuple[Measured, Measured, Measured]:
    """Return what profiles of one chip say of cube beside vector, compute beside collectives, and the check of the latter.

    Args:
        observed: the kernels of each profile with their company. Kernels are compared within one profile.
        model: prices kernels of the chip; tells their shares of the memory rate.
        least: evidence that is asked for.
    """
    least = least or Evidence()
    observed = list(observed)
    memory = _memory(model)
    between, beside, check = (
        _measured(company, observed, memory, least) for company in (Company.OTHER_UNIT, Company.TRANSFER, Company.WAITING)
    )
    return between, _checked(beside, check, [one for of_profile in observed for one in of_profile]), check


def _checked(beside: Measured, check: Measured, observed: Iterable[Observation]) -> Measured:
    """Return what was measured beside collectives, without its factor where the check fails; too little is explained."""
    untold = sum(1 for one in observed if one.company is Company.UNTOLD)
    if beside.factor is None:
        parts = [beside.why]
        parts += [f"{check.seen} more beside collectives that moved nothing"] if check.seen else []
        parts += [f"{untold} more beside collectives of which no trace tells when they moved data"] if untold else []
        return replace(beside, why="; ".join(parts))
    if check.factor is None:
        return replace(beside, why=f"not checked against collectives that moved nothing: {check.why}")
    if abs(check.factor - 1) <= _CHECK:
        return beside
    why = (
        f"x {beside.factor:.2f} is not claimed: beside collectives that moved nothing, the same comparison gives "
        f"x {check.factor:.2f} ({check.kernels} kernels of {check.shapes} shapes)"
    )
    return replace(beside, factor=None, p75=None, spread=None, why=why)


def applied(chip: Chip, measured: Sequence[Measured], source: str) -> Chip:
    """Return the chip with the factors that were measured; the others stay as they are.

    The shared error is that of the factors measured. While a factor that could be measured is still assumed, it is not below
    the error that was assumed with it.
    """
    found = {FACTORS[one.company]: one for one in measured if one.company in FACTORS and one.value is not None}
    if not found:
        return chip
    before = chip.interference
    changes: dict[str, Quantity] = {
        name: Slowdown(value=round(one.value or 1.0, 4), source=source, confidence="L", note=_note(one))
        for name, one in found.items()
    }
    spread = round(max(one.spread or 0.0 for one in found.values()), 4)
    if len(found) == len(FACTORS) or spread > before.relative_error.value:
        note = f"p75 over shapes of {' and '.join(found)}; hbm_contention is not measured"
        changes["relative_error"] = Quantity(value=spread, source=source, confidence="L", note=note)
    return chip.model_copy(update={"interference": before.model_copy(update=changes)})


def _note(one: Measured) -> str:
    factor = one.factor or 1.0
    told = f"{one.kernels} kernels of {one.shapes} shapes, p75 {one.p75:.3g}; those alone may differ from them in other ways too"
    return told if factor >= 1 else f"measured {factor:.3g}, taken as 1; {told}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """One shape of one profile: what its work goes on at beside others (1 = as alone), kernels and time beside others, ns."""

    pace: float
    kernels: int
    time: int


def _measured(company: Company, observed: Sequence[Sequence[Observation]], memory: Memory, least: Evidence) -> Measured:
    seen = [one for of_profile in observed for one in of_profile if one.company is company]
    shapes: list[_Shape] = []
    different: set[object] = set()
    for of_profile in observed:
        for key, group in _by_shape(of_profile).items():
            found = _shape(company, group, memory, least)
            if found is not None:
                shapes.append(found)
                different.add(key)
    result = Measured(
        company=company,
        seen=len(seen),
        seen_time=sum(one.together for one in seen),
        kernels=sum(shape.kernels for shape in shapes),
        shapes=len(different),
        time=sum(shape.time for shape in shapes),
    )
    if result.kernels < least.kernels or result.shapes < least.shapes or result.time < least.time:
        return replace(result, why=_too_few(result, least))
    return _with_factor(result, shapes)


def _too_few(found: Measured, least: Evidence) -> str:
    seen = f"{found.seen} kernels in {found.seen_time / 1e6:.1f} ms, {found.kernels} of {found.shapes} shapes comparable"
    return f"too few: {seen} (needed: {least.kernels} kernels of {least.shapes} shapes, {least.time / 1e6:g} ms)"


def _with_factor(result: Measured, shapes: Sequence[_Shape]) -> Measured:
    most = 2 * sum(shape.time for shape in shapes) / len(shapes)
    factors = [(1 / max(shape.pace, 1 / _LARGEST), min(most, shape.time)) for shape in shapes]
    middle = _quantile(factors, 0.5)
    spread = _quantile([(abs(factor / middle - 1), weight) for factor, weight in factors], 0.75)
    return replace(result, factor=middle, p75=_quantile(factors, 0.75), spread=spread)


def _by_shape(observed: Iterable[Observation]) -> dict[object, list[Observation]]:
    """Return the observations of kernels that do the same; those without shapes say nothing about what they do."""
    found: dict[object, list[Observation]] = defaultdict(list)
    for one in observed:
        kernel = one.kernel
        if any(tensor.shape for tensor in (*kernel.inputs, *kernel.outputs)):
            key = (kernel.type, kernel.core, kernel.blocks, kernel.mix_blocks, kernel.inputs, kernel.outputs)
            found[key].append(one)
    return found


def _shape(company: Company, group: Sequence[Observation], memory: Memory, least: Evidence) -> _Shape | None:
    alone = sorted(one.kernel.duration for one in group if one.company is Company.ALONE)
    if len(alone) < least.repeats:
        return None
    middle = statistics.median(alone)
    quarter = len(alone) // 4
    if middle < _SHORTEST_NS or alone[-1 - quarter] - alone[quarter] > _SCATTER * middle:
        return None
    paces: list[float] = []
    time = 0
    for one in group:
        work = _work(one, memory) if one.company is company else None
        if work:
            # The part without company goes on as alone.
            paces.append((middle - (one.kernel.duration - one.together)) / work)
            time += one.together
    return _Shape(pace=statistics.median(paces), kernels=len(paces), time=time) if len(paces) >= least.repeats else None


def _work(one: Observation, memory: Memory) -> float | None:
    """Return how much of its time alone a kernel would have done in company, were the memory all they share; None: not known."""
    if not one.partners:
        return one.together
    stretches = [(time, memory(one.kernel, other)) for other, time in one.partners]
    if any(stretch is None for _, stretch in stretches):
        return None
    return sum(time / stretch for time, stretch in stretches if stretch)


def _memory(model: CostModel) -> Memory:
    """Return the simulator's rule for two kernels: where both use the memory, what they want together over what it gives them."""
    contention = model.machine.hbm_contention
    shares: dict[int, tuple[Op, int]] = {}  # kernels that repeat share one operator

    def share(kernel: Kernel) -> int | None:
        op = kernel_op(kernel)
        if op is None:
            return None
        if id(op) not in shares:
            shares[id(op)] = (op, model.estimate(op).resources.hbm)
        return shares[id(op)][1]

    def stretch(one: Kernel, other: Kernel) -> float | None:
        wanted = (share(one), share(other))
        if wanted[0] is None or wanted[1] is None:
            return None
        together = (wanted[0] + wanted[1]) * contention / _WHOLE if all(wanted) else 0
        return max(1.0, together / _WHOLE)

    return stretch


def _quantile(weighted: Iterable[tuple[float, float]], share: float) -> float:
    """Return the smallest value that values of at least this share of the weight do not exceed."""
    ordered = sorted(weighted)
    wanted = share * sum(weight for _, weight in ordered)
    passed = 0.0
    for value, weight in ordered:
        passed += weight
        if passed >= wanted:
            return value
    return ordered[-1][0]
