"""A short reading of a profile: chip, streams, overlap, units, biggest kernels, gaps. All times are nanoseconds."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autostream.errors import InputError
from autostream.profiles.clock import Clock, recover_clock
from autostream.profiles.intervals import Interval, common, covered_at_least, length, union
from autostream.profiles.model import Core, Kernel, Profile

#: Gaps from here on are the host's: between kernels that are already queued they are around a microsecond.
HOST_BOUND_NS = 20_000

_UNITS = {
    Core.AI_CORE: "cube",
    Core.AI_VECTOR_CORE: "vector",
    Core.MIX_AIC: "mixed",
    Core.MIX_AIV: "mixed",
    Core.FFTS_PLUS: "mixed",
    Core.COMMUNICATION: "communication",
    Core.COMMUNICATION_AI_CPU: "communication",
    Core.AI_CPU: "AI CPU",
    Core.DSA: "other",
    Core.DVPP: "other",
    Core.UNKNOWN: "not said",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLoad:
    """One stream: its number, or what stands for one where rows name none."""

    stream: str
    kernels: int
    busy: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """How the time from the first kernel to the end of the last is spent; the middle four in Ascend's words."""

    span: int
    computing: int
    communication: int
    communication_not_overlapped: int
    free: int
    #: Time in which at least two streams are busy.
    two_streams: int
    #: Kernel time behind other kernels: the sum of all streams' busy time less the time any is busy.
    hidden: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitLoad:
    """Kernels of one unit, and its share of the device time."""

    unit: str
    kernels: int
    time: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Biggest:
    """All kernels of one type and one set of shapes."""

    type: str
    unit: str
    shapes: str
    kernels: int
    time: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """Times in which the device runs nothing, and those long enough to be the host's."""

    count: int
    total: int
    largest: int
    host_bound: int
    host_bound_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a profile says by itself."""

    clock: Clock
    steps: tuple[int, ...]
    kernels: int
    device_time: int
    streams: tuple[StreamLoad, ...]
    overlap: Overlap
    units: tuple[UnitLoad, ...]
    biggest: tuple[Biggest, ...]
    gaps: Gaps


def of_step(profile: Profile, step: int | None) -> tuple[Kernel, ...]:
    """Return the kernels of one step (None: all).

    Raises:
        InputError: the profile has no such step; lists those it has.
    """
    if step is None:
        return profile.kernels
    if step not in profile.steps:
        known = ", ".join(map(str, profile.steps[:20])) or "none (its rows name no step)"
        raise InputError(f"{profile.name}: no step {step}; steps: {known}")
    return tuple(kernel for kernel in profile.kernels if kernel.step == step)


def read(profile: Profile, *, step: int | None = None, top: int = 10) -> Reading:
    """Return the reading of a profile, or of one step of it, with the `top` biggest kinds of kernels.

    Raises:
        InputError: no such step.
    """
    kernels = of_step(profile, step)
    by_stream = streams(kernels)
    unions = {name: union(_interval(kernel) for kernel in members) for name, members in by_stream.items()}
    return Reading(
        clock=recover_clock(kernels),
        steps=tuple(sorted({kernel.step for kernel in kernels if kernel.step is not None})),
        kernels=len(kernels),
        device_time=sum(kernel.duration for kernel in kernels),
        streams=tuple(
            StreamLoad(stream=name, kernels=len(by_stream[name]), busy=length(unions[name]))
            for name in sorted(unions, key=_order)
        ),
        overlap=_overlap(kernels, list(unions.values())),
        units=_units(kernels),
        biggest=_biggest(kernels)[: max(0, top)],
        gaps=_gaps(kernels),
    )


def streams(kernels: Iterable[Kernel]) -> Mapping[str, Sequence[Kernel]]:
    """Return the kernels by stream. Collectives whose rows name no stream count as one of their own."""
    found: dict[str, list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        unnamed = "communication" if kernel.communicates else "not said"
        found[unnamed if kernel.stream is None else str(kernel.stream)].append(kernel)
    return found


def _order(name: str) -> tuple[bool, int, str]:
    return (not name.isdigit(), int(name) if name.isdigit() else 0, name)


def _overlap(kernels: Sequence[Kernel], unions: list[list[Interval]]) -> Overlap:
    computing = union(_interval(kernel) for kernel in kernels if not kernel.communicates)
    communication = union(_interval(kernel) for kernel in kernels if kernel.communicates)
    busy = union([*computing, *communication])
    span = busy[-1][1] - busy[0][0] if busy else 0
    return Overlap(
        span=span,
        computing=length(computing),
        communication=length(communication),
        communication_not_overlapped=length(communication) - common(communication, computing),
        free=span - length(busy),
        two_streams=covered_at_least(unions, 2),
        hidden=sum(length(one) for one in unions) - length(busy),
    )


def _units(kernels: Sequence[Kernel]) -> tuple[UnitLoad, ...]:
    found: dict[str, list[int]] = defaultdict(list)
    for kernel in kernels:
        found[unit(kernel)].append(kernel.duration)
    total = sum(map(sum, found.values()))
    loads = [
        UnitLoad(unit=name, kernels=len(times), time=sum(times), share=_share(sum(times), total)) for name, times in found.items()
    ]
    return tuple(sorted(loads, key=lambda load: (-load.time, load.unit)))


def unit(kernel: Kernel) -> str:
    """Return the unit of the chip a kernel ran on, told by its counters where files of 2023 call everything AI_CORE."""
    if kernel.core is Core.AI_CORE and kernel.aiv_cycles and not kernel.aic_cycles:
        return "vector"
    return _UNITS[kernel.core]


def _biggest(kernels: Sequence[Kernel]) -> tuple[Biggest, ...]:
    found: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for kernel in kernels:
        shapes = " ".join("x".join(map(str, tensor.shape)) or "-" for tensor in kernel.inputs)
        found[kernel.type, unit(kernel), shapes].append(kernel.duration)
    total = sum(map(sum, found.values()))
    rows = [
        Biggest(type=key[0], unit=key[1], shapes=key[2], kernels=len(times), time=sum(times), share=_share(sum(times), total))
        for key, times in found.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.time, row.type, row.shapes)))


def _gaps(kernels: Sequence[Kernel]) -> Gaps:
    busy = union(_interval(kernel) for kernel in kernels)
    gaps = [after[0] - before[1] for before, after in itertools.pairwise(busy)]
    long = [gap for gap in gaps if gap >= HOST_BOUND_NS]
    return Gaps(count=len(gaps), total=sum(gaps), largest=max(gaps, default=0), host_bound=len(long), host_bound_total=sum(long))


def _interval(kernel: Kernel) -> Interval:
    return kernel.start, kernel.end


def _share(part: int, total: int) -> float:
    return round(part / total, 6) if total else 0.0
