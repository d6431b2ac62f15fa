"""Clock and core counts of the chip a profile was taken on, recovered from its cycle counters."""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autostream.profiles.model import Core, Kernel

#: Kernels shorter than this say little: the profiler rounds times to a nanosecond or worse, counters start and stop late.
_SHORTEST_NS = 20_000
#: Two kernels agree on the clock if their cycles per block and time differ by no more than this share.
_AGREE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """What the counters say; 0 where they say nothing.

    clock = cycles / (blocks x time), which holds for kernels whose blocks run at once. Cores = the largest number of blocks
    that agrees with the clock: with more blocks than cores they take turns, and the quotient is a fraction of the clock.
    """

    mhz: float
    #: Cube cores and vector cores at work in the widest kernels; the chip has at least as many.
    aic: int
    aiv: int
    #: Kernels that agree on the clock, and kernels with counters that were long enough to ask.
    agreeing: int
    asked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    is_cube: bool
    blocks: int
    mhz: float


def recover_clock(kernels: Iterable[Kernel]) -> Clock:
    """Return clock and core counts."""
    samples = [sample for kernel in kernels for sample in _samples(kernel)]
    if not samples:
        return Clock(mhz=0.0, aic=0, aiv=0, agreeing=0, asked=0)
    centre = _most_agreed(sorted(sample.mhz for sample in samples))
    agreeing = [sample for sample in samples if _agree(sample, centre)]
    return Clock(
        mhz=round(statistics.median(sample.mhz for sample in agreeing), 1),
        aic=max((sample.blocks for sample in agreeing if sample.is_cube), default=0),
        aiv=max((sample.blocks for sample in agreeing if not sample.is_cube), default=0),
        agreeing=len(agreeing),
        asked=len(samples),
    )


def _most_agreed(ordered: Sequence[float]) -> float:
    """Return the clock that most others agree with; of several the fastest."""

    def agreeing(mhz: float) -> int:
        return bisect.bisect_right(ordered, mhz * (1 + _AGREE)) - bisect.bisect_left(ordered, mhz * (1 - _AGREE))

    return max(ordered, key=lambda mhz: (agreeing(mhz), mhz))


def _samples(kernel: Kernel) -> Iterable[_Sample]:
    """Yield what the leading counters of a kernel say.

    Which counter ran tells the kind of core: files of 2023 label vector kernels AI_CORE. Of a MIX kernel only the leading side
    has its own number of blocks; the other side's counters are summed differently from release to release.
    """
    sides = ((True, kernel.aic_time, kernel.aic_cycles), (False, kernel.aiv_time, kernel.aiv_cycles))
    for is_cube, time, cycles in sides:
        leads = kernel.core is not (Core.MIX_AIV if is_cube else Core.MIX_AIC)
        if leads and kernel.blocks and cycles and time >= _SHORTEST_NS:
            yield _Sample(is_cube=is_cube, blocks=kernel.blocks, mhz=cycles * 1000 / (kernel.blocks * time))


def _agree(sample: _Sample, mhz: float) -> bool:
    return abs(sample.mhz - mhz) <= _AGREE * mhz
