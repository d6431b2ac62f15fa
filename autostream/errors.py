"""Every error autostream raises on purpose; catch `AutostreamError` to catch them all."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AutostreamError(Exception):
    """Base class of the errors autostream raises on purpose."""


class InputError(AutostreamError):
    """The caller's input (option, file, graph, chip name) cannot be used; the text says what, where and what is allowed."""


class CaptureError(InputError):
    """The program could not be captured as an ATen graph with static shapes."""


class OfflineError(AutostreamError):
    """The real torch_npu or TorchAir cannot be brought up on this machine."""


class ConversionError(OfflineError):
    """TorchAir is there but cannot convert the graph: an operator has no converter, or its converter failed."""


class RewriteError(AutostreamError):
    """A schedule could not be emitted; the user's graph is untouched."""


class VerificationError(AutostreamError):
    """The emitted program failed a proof obligation; the user's graph is untouched."""


def plural(count: int, noun: str) -> str:
    """Return ``"1 edge"``, ``"2 edges"``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def percentage(share: float) -> str:
    """Return a share with one decimal and as people read it: 0.076 is ``"7.6 %"``."""
    return f"{100 * share:.1f} %"


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the closest allowed word, or an empty string."""
    match = difflib.get_close_matches(word, list(allowed), n=1)
    return f" (did you mean {match[0]!r}?)" if match else ""
