"""Fit a chip file to a user's profiles, and tell on rows kept aside how much better it predicts."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autostream.cost.analytic.roofline import RooflineModel
from autostream.cost.calibration.beside import Company, Observation, observe
from autostream.cost.calibration.fitting import Sample, fit
from autostream.cost.calibration.heldout import Errors, Row, band, errors, priced, rows_of, split_by_signature, split_rows
from autostream.cost.calibration.interference import Measured, applied, measure
from autostream.cost.calibration.transfers import read_transfers
from autostream.cost.chips.chip import Chip, ErrorBand, OperatorFactor, load_chip
from autostream.cost.chips.datafile import Positive, Quantity
from autostream.cost.chips.factors import load_factors
from autostream.cost.chips.identify import candidates, describe
from autostream.cost.measured.measured import MeasuredModel, family_factors
from autostream.cost.measured.scaled import FamilyFactor, ScaledModel
from autostream.cost.measured.signature import Signature
from autostream.cost.model import Cost, Tier
from autostream.errors import InputError
from autostream.profiles.clock import Clock, recover_clock
from autostream.profiles.model import Profile

#: Fewest held-out signatures of a class from which its error band is taken.
_ENOUGH = 8
#: A profile whose clock is further off than this may be of another chip.
_OTHER_CLOCK = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A fitted chip, and errors by class on rows that the numbers compared were not fitted to.

    `before` is the file as it was. `after`, on the same rows, is cross-validated: each half of the signatures is priced by what
    the other half teaches, so no shape is on both sides; what of the fit does not predict unseen shapes better is dropped.
    `measured` is of a random half of the rows, priced by the other half's medians where the same signature ran there: what a
    user sees who profiles one step and predicts the next. The chip itself is fitted to all rows.
    """

    chip: Chip
    base: Chip
    before: Mapping[str, Errors]
    after: Mapping[str, Errors]
    measured: Mapping[str, Errors]
    #: Rows with an operator and rows in all.
    used: int
    rows: int
    notes: tuple[str, ...]
    #: What the profiles say of kernels that run together; the chip has the factors that could be measured.
    interference: tuple[Measured, ...] = ()


def calibrate(profiles: Sequence[Profile], chip: str | None = None) -> Calibration:
    """Return the chip file fitted to profiles of one chip; the traces beside their files are read too.

    Args:
        profiles: taken on the same kind of chip, at level1 or above.
        chip: the chip file to start from; None = what the profiles' core counts and clock tell.

    Raises:
        InputError: no profile, profiles of different chips, no chip file that fits, or no kernel with shapes.
    """
    if not profiles:
        raise InputError("calibrate: at least one profile is needed")
    clock, notes = _one_clock(profiles)
    base, told = _base(clock, chip)
    # A kernel is identified by what it says, so one profile read twice would only count its rows double.
    kernels = list(dict.fromkeys(kernel for profile in profiles for kernel in profile.kernels))
    observed, unread = _observed(profiles)
    priceable = rows_of(kernels)
    rows = _undisturbed(priceable, observed)
    if not rows:
        names = ", ".join(profile.name for profile in profiles)
        raise InputError(f"{names}: no kernel with shapes that an operator could be read from; profile at level1 or above")
    known = _with_clock(base, clock, _source(profiles))
    choice = _choose(known, rows)
    chosen = _fitted(known, rows) if choice.rates else known
    bands = {row.signature.family: band(row.op) for row in rows}
    factors = family_factors(RooflineModel(chosen), [row.kernel for row in rows])
    kept = {family: one for family, one in factors.items() if bands[family] in choice.factors}
    together = measure(observed, ScaledModel(RooflineModel(chosen), kept))
    chosen = applied(chosen, together, _source(profiles))
    return Calibration(
        chip=_finished(chosen, base, kept, choice.errors, rows, profiles),
        base=base,
        before=errors(priced(RooflineModel(base), rows)),
        after=choice.errors,
        measured=_measured_errors(base, rows, profiles[0]),
        used=len(priceable),
        rows=sum(profile.rows for profile in profiles),
        notes=(*notes, *told, *_told_choice(choice), *_told_left_out(len(priceable) - len(rows)), *unread),
        interference=together,
    )


def _observed(profiles: Sequence[Profile]) -> tuple[list[list[Observation]], tuple[str, ...]]:
    """Return what ran beside the kernels of each profile, and which traces could not be read."""
    observed: list[list[Observation]] = []
    notes: list[str] = []
    # A profile read twice is one profile.
    for profile in {profile.kernels: profile for profile in profiles}.values():
        transfers = None
        try:
            transfers = read_transfers(profile)
        except InputError as error:
            notes.append(f"when collectives moved data is not known: {error}")
        observed.append(observe(profile, transfers))
    return observed, tuple(notes)


def _undisturbed(rows: Sequence[Row], observed: Iterable[Sequence[Observation]]) -> list[Row]:
    """Return the rows to fit: those of kernels that had company go where the same shape also ran alone.

    What company costs is a factor of its own, and must not be in the price of a kernel too.
    """
    companies = {one.kernel: one.company for of_profile in observed for one in of_profile}
    alone = {row.signature for row in rows if companies.get(row.kernel) is Company.ALONE}
    with_company = (Company.OTHER_UNIT, Company.TRANSFER)
    return [row for row in rows if row.signature not in alone or companies.get(row.kernel) not in with_company]


def _told_left_out(count: int) -> tuple[str, ...]:
    return (f"{count:,} kernels beside others are left out of the fit: the same shapes also ran alone",) if count else ()


def _told_choice(choice: _Choice) -> tuple[str, ...]:
    if not choice.errors:
        return ("all rows are of one half: nothing could be kept aside, so no error is told",)
    rates = (
        "fitted rates are kept" if choice.rates else "fitted rates predict unseen shapes no better than the file's, which stay"
    )
    kept = f"factors by operator are kept for {', '.join(sorted(choice.factors)) or 'no class: they do not carry over'}"
    return (f"{rates}; {kept}",)


def _one_clock(profiles: Sequence[Profile]) -> tuple[Clock, tuple[str, ...]]:
    clocks = [(profile, recover_clock(profile.kernels)) for profile in profiles]
    known = [(profile, clock) for profile, clock in clocks if clock.mhz]
    for profile, clock in known[1:]:
        first, of_first = known[0]
        if abs(clock.mhz / of_first.mhz - 1) > 0.01:
            raise InputError(
                f"the profiles are of different chips: {_told(first)} ran at {of_first.mhz:g} MHz, "
                f"{_told(profile)} at {clock.mhz:g} MHz"
            )
    if not known:
        return clocks[0][1], (describe(clocks[0][1]),)
    widest = replace(known[0][1], aic=max(clock.aic for _, clock in known), aiv=max(clock.aiv for _, clock in known))
    return widest, (describe(widest),)


def _base(clock: Clock, chip: str | None) -> tuple[Chip, tuple[str, ...]]:
    found = candidates(clock)
    if chip is None:
        if not found:
            raise InputError(f"which chip the profile is of cannot be told ({describe(clock)}); name it with chip (--chip)")
        others = ", ".join(candidate.name for candidate in found[1:] if candidate.exact == found[0].exact)
        told = f"starts from {found[0].name}" + (f" ({found[0].remark})" if found[0].remark else "")
        return load_chip(found[0].name), (told + (f"; {others} would fit as well, choose with chip (--chip)" if others else ""),)
    base = load_chip(chip)
    if clock.aic > base.aic_cores.value or clock.aiv > base.aiv_cores.value:
        raise InputError(
            f"chip {base.name!r} has {base.aic_cores.value} cube and {base.aiv_cores.value} vector cores, but the profile shows "
            f"{describe(clock)}; chips that fit: {', '.join(candidate.name for candidate in found) or 'none that is known'}"
        )
    shipped = base.clock_mhz.value
    if not clock.mhz or abs(shipped / clock.mhz - 1) <= _OTHER_CLOCK or base.name in [one.name for one in found if one.exact]:
        return base, ()
    return base, (f"chip {base.name} runs at {shipped:g} MHz, the profile at {clock.mhz:g}: is it of this chip?",)


def _with_clock(chip: Chip, clock: Clock, source: str) -> Chip:
    """Return the chip at the clock of the profile. Core counts stay: a profile of narrow kernels does not show them all."""
    if not clock.mhz or clock.mhz == chip.clock_mhz.value:
        return chip
    note = f"cycles / (blocks x time) of {clock.agreeing} kernels; {chip.clock_mhz.value:g} before"
    told = Positive(value=clock.mhz, source=source, confidence="S", note=note)
    return chip.model_copy(update={"clock_mhz": told})


def _fitted(chip: Chip, rows: Sequence[Row]) -> Chip:
    """Return the chip with fitted rates; every signature counts once, with its median."""
    by_signature: dict[Signature, list[Row]] = defaultdict(list)
    for row in rows:
        by_signature[row.signature].append(row)
    samples = [
        Sample(chip=chip.name, op=members[0].op, duration=statistics.median_low(sorted(row.kernel.duration for row in members)))
        for members in by_signature.values()
    ]
    return fit(samples, {chip.name: chip}, load_factors(), groups=False).chips[chip.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """What of the fit predicts shapes it did not see better than the file as it was: the rates, the factors of which classes.

    `errors` are those of the chosen: slightly flattering, as one of few variants was chosen by them.
    """

    rates: bool
    factors: frozenset[str]
    errors: Mapping[str, Errors]


def _choose(chip: Chip, rows: Sequence[Row]) -> _Choice:
    """Cross-validate: each half of the signatures is priced by what the other half teaches."""
    halves = split_by_signature(rows)
    if not all(halves):
        return _Choice(rates=True, factors=frozenset(band(row.op) for row in rows), errors={})
    folds = (halves, halves[::-1])
    fitted = [_fitted(chip, train) for train, _ in folds]
    plain = [pair for _, test in folds for pair in priced(RooflineModel(chip), test)]
    with_rates = [pair for (_, test), half in zip(folds, fitted, strict=True) for pair in priced(RooflineModel(half), test)]
    rates = _mean(_off(with_rates)) < _mean(_off(plain))
    without = with_rates if rates else plain
    scaled: list[tuple[Row, Cost]] = []
    for (train, test), half in zip(folds, fitted, strict=True):
        base = RooflineModel(half if rates else chip)
        scaled += priced(ScaledModel(base, family_factors(base, [row.kernel for row in train])), test)
    before, after = _off(without), _off(scaled)
    helped = frozenset(kind for kind in before if after[kind] < before[kind])
    pairs = zip(without, scaled, strict=True)
    return _Choice(rates=rates, factors=helped, errors=errors(new if band(old[0].op) in helped else old for old, new in pairs))


def _off(prices: Iterable[tuple[Row, Cost]]) -> dict[str, float]:
    """Return by class how far prices are off: the mean size of the logarithm of predicted over measured."""
    found: dict[str, list[float]] = defaultdict(list)
    for row, cost in prices:
        found[band(row.op)].append(abs(math.log(max(1, cost.duration) / row.kernel.duration)))
    return {kind: statistics.fmean(values) for kind, values in sorted(found.items())}


def _mean(by_class: Mapping[str, float]) -> float:
    return statistics.fmean(by_class.values())


def _measured_errors(base: Chip, rows: Sequence[Row], profile: Profile) -> dict[str, Errors]:
    train, test = split_rows(rows)
    model = MeasuredModel(RooflineModel(base), replace(profile, kernels=tuple(row.kernel for row in train)))
    return errors((row, cost) for row, cost in priced(model, test) if cost.tier is Tier.MEASURED)


def _source(profiles: Sequence[Profile]) -> str:
    return "profile " + "; ".join(map(_told, profiles))


def _told(profile: Profile) -> str:
    return f"{profile.name} (sha256 {profile.digest})"


def _finished(
    chip: Chip,
    base: Chip,
    factors: Mapping[str, FamilyFactor],
    held_out: Mapping[str, Errors],
    rows: Sequence[Row],
    profiles: Sequence[Profile],
) -> Chip:
    """Return the chip under its own name, with factors and error bands, every changed number naming the profiles."""
    source = _source(profiles)
    counted: dict[str, set[Signature]] = defaultdict(set)
    for row in rows:
        counted[row.signature.family].add(row.signature)
    calibration = {
        name: OperatorFactor(
            factor=Positive(value=one.factor, source=source, confidence="L", note=f"{len(counted[name])} different kernels"),
            relative_error=Quantity(value=one.error, source=source, confidence="L"),
        )
        for name, one in factors.items()
    }
    bands = {
        name: ErrorBand(
            value=found.band,
            source=source,
            confidence="L",
            note=f"covers 80 % of kernels like {found.signatures} kept aside",
            p90=None if found.spread is None else Quantity(value=found.spread, source=source, confidence="L"),
        )
        for name, found in held_out.items()
        if found.band is not None and found.signatures >= _ENOUGH
    }
    data = _resourced(chip.model_dump(), base.model_dump(), source)
    data |= {
        "name": f"{base.name}-calibrated",
        "aliases": (),
        "sources": (*base.sources, source),
        "calibration": calibration,
        "relative_error": base.relative_error.model_copy(update=bands),
    }
    return Chip.model_validate(data)


def _resourced(part: Any, before: Any, source: str) -> Any:
    """Return a dumped section in which every number that is no longer the one before names its new source."""
    if not isinstance(part, dict) or not isinstance(before, dict):
        return part
    if "value" in part and "source" in part:
        same = part["value"] == before.get("value")
        if same or part["source"] == source:
            return part
        return {**part, "source": source, "confidence": "L", "note": f"{before.get('value'):.6g} before"}
    return {key: _resourced(value, before.get(key), source) for key, value in part.items()}
