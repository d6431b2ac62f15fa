"""Limits on the cores of single operators, as scopes and the operators of a converted graph spell them."""

from __future__ import annotations

from collections.abc import Mapping

#: Attributes that limit the cube and the vector cores, in TorchAir's order.
CORE_LIMITS = ("_op_aicore_num", "_op_vectorcore_num")


def core_limit(attributes: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the cube and vector cores that attributes allow, or None: one kind without the other is no limit we can read."""
    aic, aiv = (attributes.get(key, "") for key in CORE_LIMITS)
    return (int(aic), int(aiv)) if aic.isdecimal() and aiv.isdecimal() else None
