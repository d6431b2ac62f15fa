"""Which chip a graph is scheduled for, and its cost model."""

from __future__ import annotations

import functools
import logging

from autostream.cost import CostModel, RooflineModel, detect_chip, load_chip

logger = logging.getLogger(__name__)

#: Assumed where no device tells: the 64 GB Atlas A2 part most decode services run on.
DEFAULT_CHIP = "910B2"


def cost_model(chip: str | None) -> CostModel:
    """Return the analytic cost model of a chip: by name, by path of a chip file, or of the device at hand (None).

    Raises:
        InputError: unknown name, or a chip file that cannot be read.
    """
    return _roofline(chip or detect_chip() or DEFAULT_CHIP)


@functools.lru_cache(maxsize=16)
def _roofline(chip: str) -> CostModel:
    return RooflineModel(load_chip(chip))
