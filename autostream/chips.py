"""Which chip a graph is scheduled for, and its cost model."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Mapping

from autostream.cost import CostModel, RooflineModel, detect_chip, load_chip
from autostream.cost.chips.chip import OperatorFactor
from autostream.cost.chips.identify import candidates, describe
from autostream.cost.measured.measured import MeasuredModel
from autostream.cost.measured.scaled import FamilyFactor, ScaledModel
from autostream.errors import InputError
from autostream.profiles import Profile, read_profile
from autostream.profiles.clock import Clock, recover_clock

logger = logging.getLogger(__name__)

#: Assumed where no device tells: the 64 GB Atlas A2 part most decode services run on.
DEFAULT_CHIP = "910B2"


def cost_model(chip: str | None, profile: Profile | str | os.PathLike[str] | None = None) -> CostModel:
    """Return the cost model of a chip: by name, by path of a chip file, or of the device at hand (None).

    A device that no chip file describes gets one warning and is passed over.

    With a profile (or the file or folder that holds one), operators that ran there have their measured price. Without a chip
    and a device it also tells the chip.

    Raises:
        InputError: unknown name, a chip file or profile that cannot be read, or a profile of a larger chip than the one named.
    """
    if profile is None:
        return _analytic(chip or _known(detect_chip()) or DEFAULT_CHIP)
    read = profile if isinstance(profile, Profile) else read_profile(profile)
    clock = recover_clock(read.kernels)
    base = _analytic(chip or _known(detect_chip()) or _told(clock) or DEFAULT_CHIP)
    _check_cores(base, clock, read)
    model = MeasuredModel(base, read)
    if not model.measured:
        logger.warning(
            "%s prices no operator: no kernel with shapes that an operator could be read from; profile at level1 or above",
            read.name,
        )
    return model


@functools.cache
def _known(device: str | None) -> str | None:
    """Return the name of the device at hand if there is a chip file for it."""
    if device is None:
        return None
    try:
        load_chip(device)
    except InputError as error:
        logger.warning(
            "the device at hand is passed over: %s. Give --chip (in Python: chip=) the name of the nearest chip, or make a chip "
            "file with 'autostream chips --from-ini'",
            error,
        )
        return None
    return device


@functools.lru_cache(maxsize=16)
def _analytic(name: str) -> CostModel:
    chip = load_chip(name)
    return ScaledModel(RooflineModel(chip), _factors(chip.calibration)) if chip.calibration else RooflineModel(chip)


def _factors(calibration: Mapping[str, OperatorFactor]) -> dict[str, FamilyFactor]:
    return {family: FamilyFactor(factor=one.factor.value, error=one.relative_error.value) for family, one in calibration.items()}


def _told(clock: Clock) -> str | None:
    found = candidates(clock)
    if not found:
        return None
    logger.info("the profile shows %s: taken for a %s", describe(clock), found[0].name)
    return found[0].name


def _check_cores(model: CostModel, clock: Clock, profile: Profile) -> None:
    machine = model.machine
    if clock.aic > machine.aic or clock.aiv > machine.aiv:
        fitting = ", ".join(candidate.name for candidate in candidates(clock)) or "none that is known"
        raise InputError(
            f"{profile.name}: not a profile of chip {machine.name!r} ({machine.aic} cube and {machine.aiv} vector cores): "
            f"it shows {describe(clock)}; chips that fit: {fitting}"
        )
