"""Which chip a profile was taken on: core counts and clock of the profile against those of the chip files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autostream.cost.chips.chip import Chip, chip_names, load_chip
from autostream.profiles.clock import Clock

#: Clocks (MHz) seen in public profiles of a chip where CANN's platform_config says otherwise (910B4: 1500).
_SEEN_MHZ: Mapping[str, tuple[float, ...]] = {"910B4": (1650.0,)}
_SAME = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A chip file that may describe the chip of a profile."""

    name: str
    #: Core counts and clock agree, not only the core counts.
    exact: bool
    remark: str = ""


def candidates(clock: Clock) -> tuple[Candidate, ...]:
    """Return the shipped chips whose core counts are those of the widest kernels, the nearest clock first.

    Several chips may have the same figures; a profile without counters (level0), or of narrow kernels alone, names none.
    """
    if not clock.mhz or not clock.aic or not clock.aiv:
        return ()
    chips = map(load_chip, chip_names())
    fitting = [chip for chip in chips if (chip.aic_cores.value, chip.aiv_cores.value) == (clock.aic, clock.aiv)]
    return tuple(_candidate(chip, clock) for chip in sorted(fitting, key=lambda chip: (_distance(chip, clock), chip.name)))


def describe(clock: Clock) -> str:
    """Return the evidence in words."""
    if not clock.mhz:
        return "no cycle counters (level0, or counters switched off): clock and core counts cannot be told"
    return (
        f"at least {clock.aic} cube and {clock.aiv} vector cores at {clock.mhz:g} MHz "
        f"({clock.agreeing} of {clock.asked} counters of kernels over 20 us agree)"
    )


def _candidate(chip: Chip, clock: Clock) -> Candidate:
    shipped = chip.clock_mhz.value
    if _off(shipped, clock.mhz) <= _SAME:
        return Candidate(name=chip.name, exact=True)
    seen = _distance(chip, clock) <= _SAME
    remark = f"its chip file says {shipped:g} MHz, as platform_config does"
    if seen:
        remark += "; a public profile of this class ran at the clock seen here"
    return Candidate(name=chip.name, exact=seen, remark=remark)


def _distance(chip: Chip, clock: Clock) -> float:
    return min(_off(mhz, clock.mhz) for mhz in (chip.clock_mhz.value, *_SEEN_MHZ.get(chip.name, ())))


def _off(mhz: float, measured: float) -> float:
    return abs(mhz / measured - 1)
