"""What ``autostream profile`` shows: what a profile says by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autostream.cost.chips.identify import candidates, describe
from autostream.errors import percentage
from autostream.profiles import Profile
from autostream.profiles.extras import read_step_times
from autostream.profiles.reading import Reading

FORMAT = "autostream-profile"
VERSION = 1


def as_data(profile: Profile, reading: Reading) -> dict[str, Any]:
    """Return the reading as JSON data; times are nanoseconds."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "files": [path.name for path in profile.files],
        "digest": profile.digest,
        "device": profile.device,
        "columns": list(profile.columns),
        "rows": {
            "read": profile.rows,
            "kernels": len(profile.kernels),
            "duplicates": profile.duplicates,
            "other_devices": profile.other_devices,
            "rejected": [asdict(row) for row in profile.rejected],
        },
        "notes": list(profile.notes),
        "chips": [asdict(candidate) for candidate in candidates(reading.clock)],
        "reading": asdict(reading),
        "profiler_steps": [asdict(step) for step in _step_times(profile)],
    }


def show(profile: Profile, reading: Reading, console: Console) -> None:
    """Print the reading."""
    _head(profile, reading, console)
    console.print()
    console.print(_streams(reading))
    console.print()
    console.print(_time(profile, reading))
    console.print()
    console.print(_table("Device time by unit", ("Unit",), ("Kernels", "Time", "Share"), _unit_cells(reading)))
    if reading.biggest:
        console.print()
        rows = [
            (one.type, one.unit, one.shapes, str(one.kernels), _ms(one.time), percentage(one.share)) for one in reading.biggest
        ]
        console.print(_table("Biggest kernels", ("Type", "Unit", "Input shapes"), ("Kernels", "Time", "Share"), rows))


def _head(profile: Profile, reading: Reading, console: Console) -> None:
    device = f", device {profile.device}" if profile.device else ""
    lines = [f"{profile.name}{device}: {_count(reading.kernels)} kernels, {_ms(reading.device_time)} device time"]
    lines.append(f"Chip: {_chip(reading)}")
    if reading.steps:
        shown = ", ".join(map(str, reading.steps[:12])) + (", ..." if len(reading.steps) > 12 else "")
        lines.append(f"{'Step' if len(reading.steps) == 1 else 'Steps'}: {shown}")
    account = [f"{_count(profile.rows)} rows read"]
    if profile.duplicates:
        account.append(f"{_count(profile.duplicates)} second rows of one kernel counted once")
    if profile.other_devices:
        account.append(f"{_count(profile.other_devices)} of other devices")
    if profile.rejected:
        account.append(f"{_count(len(profile.rejected))} rejected")
    lines.append(", ".join(account))
    lines += [f"  rejected, {number} x: {reason}{_where(profile, reason)}" for reason, number in profile.rejections().items()]
    lines += profile.notes
    for line in lines:
        console.print(Text(line))


def _where(profile: Profile, reason: str) -> str:
    lines = [str(row.line) for row in profile.rejected if row.reason == reason]
    return f" (line {', '.join(lines[:5])}{', ...' if len(lines) > 5 else ''})"


def _chip(reading: Reading) -> str:
    found = candidates(reading.clock)
    evidence = describe(reading.clock)
    if not found:
        return f"not told: {evidence}" if not reading.clock.mhz else f"none that is known has these cores: {evidence}"
    best = [candidate.name for candidate in found if candidate.exact] or [candidate.name for candidate in found]
    remark = f"; {found[0].name}: {found[0].remark}" if found[0].remark else ""
    return f"{' or '.join(best)}: {evidence}{remark}"


def _streams(reading: Reading) -> Table:
    span = reading.overlap.span
    rows = [
        (one.stream, _count(one.kernels), _ms(one.busy), percentage(one.busy / span if span else 0.0)) for one in reading.streams
    ]
    return _table("Streams", ("Stream",), ("Kernels", "Busy", "Of the span"), rows)


def _time(profile: Profile, reading: Reading) -> Table:
    one, gaps = reading.overlap, reading.gaps
    parts = (
        ("Computing", one.computing),
        ("Communication", one.communication),
        ("Communication(Not Overlapped)", one.communication_not_overlapped),
        ("Free", one.free),
        ("At least two streams busy", one.two_streams),
        ("Hidden behind other kernels", one.hidden),
        (f"{_count(gaps.count)} gaps, the longest {_ms(gaps.largest)}", gaps.total),
        (f"{_count(gaps.host_bound)} gaps of 20 us and more (host)", gaps.host_bound_total),
    )
    rows = [(name, _ms(time), percentage(time / one.span if one.span else 0.0)) for name, time in parts]
    rows += [
        (f"step_trace_time.csv, step {step.step}: Computing, Overlapped", f"{_ms(step.computing)}, {_ms(step.overlapped)}", "")
        for step in _step_times(profile)
    ]
    return _table(f"Span {_ms(one.span)}, first kernel to last", ("",), ("Time", "Share"), rows)


def _unit_cells(reading: Reading) -> Iterable[Sequence[str]]:
    return [(one.unit, _count(one.kernels), _ms(one.time), percentage(one.share)) for one in reading.units]


def _step_times(profile: Profile) -> tuple[Any, ...]:
    """Return what the profiler itself says of the steps, where it left that beside the table."""
    path = profile.files[0].parent / "step_trace_time.csv" if profile.files else None
    return read_step_times(path) if path is not None and path.is_file() else ()


def _table(title: str, names: Sequence[str], numbers: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in names:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _ms(nanoseconds: int) -> str:
    if nanoseconds < 1_000_000:
        return f"{nanoseconds / 1000:,.1f} us"
    return f"{nanoseconds / 1_000_000:,.3f} ms"


def _count(number: int) -> str:
    return f"{number:,}"
