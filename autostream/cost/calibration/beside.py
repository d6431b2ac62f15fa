"""What ran beside every kernel of a profile: who was alone, and whose time can tell a slowdown."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from autostream.profiles.intervals import Interval, common, length, union
from autostream.profiles.model import Kernel, Profile
from autostream.profiles.reading import unit

#: A kernel counts as alone, or free of one kind of company, where that is below this share of its time.
_NOTHING = 0.01
#: It counts as beside others from this share of its time on.
_BESIDE = 0.5
_CORES = ("cube", "vector", "mixed")
_OPPOSITE = {"cube": "vector", "vector": "cube"}


class Company(StrEnum):
    """What a kernel had beside it."""

    ALONE = "alone"
    #: A kernel of cube cores beside kernels of vector cores, or the other way round: they never wait for each other's cores.
    OTHER_UNIT = "cube beside vector"
    #: A collective that moved data, on no core.
    TRANSFER = "compute beside collectives"
    #: A collective that moved nothing at that time: it waited for its peers.
    WAITING = "compute beside waiting collectives"
    #: A collective of which nobody knows when it moved data.
    UNTOLD = "compute beside collectives without a trace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A kernel on cores and its company."""

    kernel: Kernel
    company: Company
    #: Time it had that company, ns.
    together: int = 0
    #: The kernels on other cores and the time with each, ns; for `OTHER_UNIT` alone.
    partners: tuple[tuple[Kernel, int], ...] = ()


def observe(profile: Profile, transfers: Sequence[Interval] | None = None) -> list[Observation]:
    """Return the kernels on cores that were alone, or had company of one kind for at least half of their time.

    Left out is what another reason may have slowed down: beside a kernel of the same unit or a mixed one, or beside a collective
    that runs on vector cores, it may have waited for cores inside its own duration; beside company of two kinds, or of several
    kernels at once, the causes cannot be told apart. Collectives are never observed: they wait for their peers inside their own
    duration.

    Args:
        profile: kernels of one device.
        transfers: when its collectives moved data (`calibration.transfers`); None: not known.
    """
    busy = [kernel for kernel in profile.kernels if kernel.duration and (kernel.communicates or unit(kernel) in _COUNTED)]
    found = (_observed(kernel, beside, transfers) for kernel, beside in _neighbours(busy))
    return [observation for observation in found if observation is not None]


#: Units whose kernels count as company. A file that does not say (level0) may mean cores.
_COUNTED = (*_CORES, "not said")


def _neighbours(kernels: Sequence[Kernel]) -> Iterator[tuple[Kernel, list[Kernel]]]:
    """Yield every kernel on cores with all that ran on other streams during its time; `kernels` are ordered by start."""
    beside: list[list[Kernel]] = [[] for _ in kernels]
    active: list[int] = []
    for place, kernel in enumerate(kernels):
        active = [other for other in active if kernels[other].end > kernel.start]
        for other in active:
            if _lane(kernels[other]) != _lane(kernel):
                beside[place].append(kernels[other])
                beside[other].append(kernel)
        active.append(place)
    for kernel, others in zip(kernels, beside, strict=True):
        if not kernel.communicates and unit(kernel) in _CORES:
            yield kernel, others


def _lane(kernel: Kernel) -> tuple[bool, int | None]:
    """Return the stream; a collective that names none has one of its own."""
    return (kernel.communicates and kernel.stream is None, kernel.stream)


def _observed(kernel: Kernel, beside: Sequence[Kernel], transfers: Sequence[Interval] | None) -> Observation | None:
    collectives = [other for other in beside if other.communicates]
    others = [other for other in beside if not other.communicates]
    computing, communicating = (union(_clipped(kernel, group)) for group in (others, collectives))
    near = _NOTHING * kernel.duration
    if length(computing) <= near and length(communicating) <= near:
        return Observation(kernel=kernel, company=Company.ALONE)
    if length(computing) <= near:
        return _beside_collectives(kernel, collectives, length(communicating), transfers)
    if length(communicating) <= near:
        return _beside_kernels(kernel, others, length(computing))
    return None


def _beside_kernels(kernel: Kernel, others: Sequence[Kernel], together: int) -> Observation | None:
    wanted = _OPPOSITE.get(unit(kernel))
    partners = tuple((other, length(_clipped(kernel, [other]))) for other in others)
    at_once = sum(time for _, time in partners) > together
    if together < _BESIDE * kernel.duration or at_once or any(unit(other) != wanted for other in others):
        return None
    return Observation(kernel=kernel, company=Company.OTHER_UNIT, together=together, partners=partners)


def _beside_collectives(
    kernel: Kernel, collectives: Sequence[Kernel], together: int, transfers: Sequence[Interval] | None
) -> Observation | None:
    if any(collective.blocks for collective in collectives):
        return None
    moving = _moving(kernel, transfers or ())
    if moving >= _BESIDE * kernel.duration:
        return Observation(kernel=kernel, company=Company.TRANSFER, together=moving)
    if moving > _NOTHING * kernel.duration or together < _BESIDE * kernel.duration:
        return None
    # Every collective moves something at some time: where the trace shows nothing of one, it does not tell when.
    told = all(_moving(collective, transfers or ()) for collective in collectives)
    return Observation(kernel=kernel, company=Company.WAITING if told else Company.UNTOLD, together=together)


def _moving(kernel: Kernel, transfers: Sequence[Interval]) -> int:
    """Return the time in which data moved while a kernel or a collective ran, ns."""
    first = max(0, bisect.bisect_right(transfers, (kernel.start, 0)) - 1)
    last = bisect.bisect_left(transfers, (kernel.end, 0))
    return common(list(transfers[first:last]), [(kernel.start, kernel.end)])


def _clipped(kernel: Kernel, others: Iterable[Kernel]) -> list[Interval]:
    return [(max(kernel.start, other.start), min(kernel.end, other.end)) for other in others]
