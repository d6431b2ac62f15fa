"""How times, shares and verdicts are put into words, the same in the terminal, in logs and in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autostream.errors import percentage, plural

if TYPE_CHECKING:
    from autostream.report.schema import Document  # which shows itself by way of this module

__all__ = ["change", "duration", "operator", "percent", "percentage", "plural", "verdict_line"]


def duration(ns: int) -> str:
    """Return a time in microseconds (milliseconds from 10 ms on, seconds from 10 s on): ``"412.3 us"``."""
    if ns >= 10_000_000_000:
        return f"{ns / 1e9:.2f} s"
    return f"{ns / 1e6:.2f} ms" if ns >= 10_000_000 else f"{ns / 1e3:.1f} us"


def percent(share: float) -> str:
    """Return a share as a whole percentage; ``"<1 %"`` for what is little but not nothing."""
    return "<1 %" if 0 < share < 0.005 else f"{share * 100:.0f} %"


def change(gain: float) -> str:
    """Return a gain as the change of the time it means: a gain of 0.1 is ``"-10.0 %"``, a loss ``"+1.0 %"``."""
    value = round(-gain * 100, 1)
    return f"{value:+.1f} %" if value else "0.0 %"


def operator(target: str) -> str:
    """Return an operator's short name: ``"npu.npu_swiglu.default"`` is ``"npu_swiglu"``, ``"aten.add.Tensor"`` stays."""
    return target.removesuffix(".default").removeprefix("npu.")


def verdict_line(document: Document) -> str:
    """Return the decision and the numbers it rests on, in one line."""
    verdict = document.verdict
    numbers = _numbers(document)
    bound = _bound(document)
    if verdict.accepted:
        return "ACCEPTED: " + ", ".join(part for part in (numbers, bound, f"on {verdict.chip}") if part)
    if verdict.code == "as-written":
        return f"AS WRITTEN: {duration(verdict.serial_ns)} simulated on {verdict.chip}"
    reason = verdict.reason.rstrip(".")
    told = ", ".join(part for part in (numbers, bound) if part)
    return f"DECLINED: {reason}, on {verdict.chip}" + (f" ({told})" if told else "")


def _bound(document: Document) -> str:
    verdict = document.verdict
    if not verdict.lower_bound_ns:
        return ""
    time = verdict.scheduled_ns if document.shows in ("scheduled", "refused") else verdict.serial_ns
    gap = max(0.0, time / verdict.lower_bound_ns - 1)
    return f"lower bound {duration(verdict.lower_bound_ns)} (gap {percentage(gap)})"


def _numbers(document: Document) -> str:
    verdict = document.verdict
    if not verdict.serial_ns:
        return ""
    if document.shows not in ("scheduled", "refused"):
        return f"{duration(verdict.serial_ns)} simulated as it is"
    band = f"between {change(verdict.gain_low)} and {change(verdict.gain_high)} within the model's error"
    return f"{duration(verdict.serial_ns)} -> {duration(verdict.scheduled_ns)} simulated ({change(verdict.gain)}, {band})"
