"""Find the files of one device below a profiler's output folder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from autostream.errors import InputError, nearest, plural
from autostream.profiles.table import WANTED

_KERNELS = "kernel_details*.csv"
_SUMMARY = "op_summary*.csv"
_TIMELINES = ("trace_view*.json", "msprof*.json")
_RANK = re.compile(r"^profiler_info_(\d+)\.json$")
_DEVICE = re.compile(r"^device_(\d+)$")
#: ``op_summary_0_1_20240101.csv`` of older msprof: device, model, iteration.
_SUMMARY_DEVICE = re.compile(r"^op_summary_(\d+)_\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The files of one device: tables of kernels (or a trace where there is no table), and the trace beside them."""

    #: Rank or device number, or the folder's name; what `--device` chooses by.
    device: str
    folder: Path
    tables: tuple[Path, ...]
    trace: Path | None


def find(folder: Path) -> tuple[Output, ...]:
    """Return what each device below a folder left there, ordered by device.

    A framework profiler's folder holds msprof's own output too: there its `kernel_details.csv` is taken alone.

    Raises:
        InputError: nothing a profiler writes is below the folder.
    """
    places = _places(folder, _KERNELS) or _places(folder, _SUMMARY)
    if not places:
        places = {path.parent: (path,) for pattern in _TIMELINES for path in sorted(folder.rglob(pattern))}
    if not places:
        held = sorted(path.name for path in folder.rglob("*") if path.is_file())
        hint = nearest("kernel_details.csv", held)
        raise InputError(f"{folder}: no profiler output in this folder or below ({plural(len(held), 'file')}){hint}; {WANTED}")
    found = [
        Output(device=device, folder=place, tables=tables, trace=_trace(place, tables))
        for place, files in places.items()
        for device, tables in _by_device(folder, place, files).items()
    ]
    return tuple(sorted(_distinct(found, folder), key=lambda output: (len(output.device), output.device, str(output.folder))))


def choose(outputs: tuple[Output, ...], device: str | None, where: Path) -> Output:
    """Return the output of a device, which need not be named where there is one only.

    Raises:
        InputError: no such device, or several and none is named; lists them.
    """
    names = [output.device for output in outputs]
    listed = ", ".join(f"{output.device} ({_below(where, output.folder)})" for output in outputs)
    if device is None:
        if len(outputs) > 1:
            raise InputError(f"{where}: holds profiles of {len(outputs)} devices: {listed}; choose one with device (--device)")
        return outputs[0]
    for output in outputs:
        if output.device == device:
            return output
    if len(outputs) == 1:
        return outputs[0]  # its rows may name the device
    raise InputError(f"{where}: no device {device!r}{nearest(device, names)}; there are: {listed}")


def _places(folder: Path, pattern: str) -> dict[Path, tuple[Path, ...]]:
    found: dict[Path, tuple[Path, ...]] = {}
    for path in sorted(folder.rglob(pattern)):
        if path.is_file():
            found[path.parent] = (*found.get(path.parent, ()), path)
    return found


def _by_device(root: Path, place: Path, files: tuple[Path, ...]) -> dict[str, tuple[Path, ...]]:
    """Return the tables of one folder by device: slices of one table belong together, tables of two devices do not."""
    known = _device(root, place)
    grouped: dict[str, tuple[Path, ...]] = {}
    for path in files:
        named = _SUMMARY_DEVICE.match(path.name)
        device = known or (named.group(1) if named else "")
        grouped[device] = (*grouped.get(device, ()), path)
    return grouped


def _device(root: Path, place: Path) -> str:
    """Return rank or device number from the files and folders around a table, or an empty string."""
    for folder in (place, *place.parents):
        ranks = sorted(found.group(1) for path in folder.glob("profiler_info_*.json") if (found := _RANK.match(path.name)))
        if len(ranks) == 1:
            return ranks[0]
        devices = sorted(found.group(1) for path in folder.glob("device_*") if (found := _DEVICE.match(path.name)))
        if len(devices) == 1:
            return devices[0]
        if folder == root:
            break
    return ""


def _distinct(outputs: list[Output], root: Path) -> list[Output]:
    """Name outputs after their folders where their device is unknown, or not unique among several."""
    count: dict[str, int] = {}
    for output in outputs:
        count[output.device] = count.get(output.device, 0) + 1
    if len(outputs) == 1:
        return outputs
    short = [_short(output.folder) for output in outputs]
    return [
        Output(device=_name(output.folder, root, short), folder=output.folder, tables=output.tables, trace=output.trace)
        if not output.device or count[output.device] > 1
        else output
        for output in outputs
    ]


def _name(folder: Path, root: Path, short: list[str]) -> str:
    name = _short(folder)
    return name if short.count(name) == 1 else _below(root, folder)


def _short(folder: Path) -> str:
    parts = [part for part in folder.parts if part not in ("ASCEND_PROFILER_OUTPUT", "mindstudio_profiler_output")]
    return parts[-1] if parts else str(folder)


def _trace(place: Path, tables: tuple[Path, ...]) -> Path | None:
    found = [path for pattern in _TIMELINES for path in sorted(place.glob(pattern)) if path not in tables]
    return found[0] if found else None


def _below(root: Path, folder: Path) -> str:
    return str(folder.relative_to(root)) if folder.is_relative_to(root) else str(folder)
