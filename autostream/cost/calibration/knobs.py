"""The numbers that are fitted: where each stands, within which bounds, and which measured kernels say something of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autostream.cost.chips.factors import Group
from autostream.graph.model import Op, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One number: where it stands, its bounds, where it starts when nothing is to be taken over, and the rows it matters to."""

    path: str
    low: float
    high: float
    neutral: float
    concerns: Callable[[Op, Group], bool]


def _is_cube(dtypes: tuple[str, ...]) -> Callable[[Op, Group], bool]:
    def concerns(op: Op, group: Group) -> bool:
        if group.band != "matmul" or op.unit is Unit.COMM:
            return False
        return not dtypes or any(spec.dtype in dtypes for spec in op.inputs[:2])

    return concerns


def _is_elementwise(_op: Op, group: Group) -> bool:
    return group.band == "elementwise"


#: Float32 products come out far below the memory rate of the others; they must not pull it.
_NARROW = ("float16", "bfloat16", "int8")
#: Numbers of a chip file, each the same for all chips that are fitted together.
CHIP_KNOBS = (
    Knob(path="launch.aic.base_us", low=0.5, high=12, neutral=5, concerns=_is_cube(())),
    Knob(path="launch.aic.full_chip_us", low=0.3, high=12, neutral=2, concerns=_is_cube(())),
    Knob(path="cube.fp16.efficiency", low=0.4, high=1, neutral=0.8, concerns=_is_cube(("float16", "bfloat16"))),
    Knob(path="cube.int8.efficiency", low=0.4, high=1, neutral=0.7, concerns=_is_cube(("int8",))),
    Knob(path="cube.int8.extra_launch_us", low=0.1, high=12, neutral=2, concerns=_is_cube(("int8",))),
    Knob(path="hbm.aic_efficiency", low=0.7, high=1, neutral=0.85, concerns=_is_cube(_NARROW)),
    Knob(path="launch.aiv.base_us", low=0.5, high=5, neutral=1.5, concerns=_is_elementwise),
    Knob(path="launch.aiv.full_chip_us", low=0.3, high=12, neutral=2, concerns=_is_elementwise),
    Knob(path="hbm.aiv_efficiency", low=0.7, high=1, neutral=0.85, concerns=_is_elementwise),
)

#: Numbers of an operator group, and their bounds.
GROUP_KNOBS: Mapping[str, tuple[float, float]] = {
    "vector_passes": (1, 1000),
    "launch_factor": (1, 10),
    "cube_efficiency": (0.05, 1),
}
VECTOR_KEYS = ("vector_passes", "launch_factor")
#: Where groups start when nothing is to be taken over.
NEUTRAL: Mapping[str, float] = {"vector_passes": 15, "launch_factor": 2, "cube_efficiency": 0.4}
