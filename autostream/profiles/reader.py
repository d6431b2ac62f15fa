"""Read a profile: a file or a whole output folder becomes one `Profile`, in which every row is accounted for."""

from __future__ import annotations

import bisect
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autostream.errors import InputError, nearest
from autostream.profiles import folder as folders
from autostream.profiles.intervals import overlaps, union
from autostream.profiles.model import Core, Kernel, Profile
from autostream.profiles.table import WANTED, Table, decode, parse
from autostream.profiles.trace import parse_trace, streams

#: A collective and the kernel it ran as are rounded each by itself.
_ROUNDING_NS = 10


def read_profile(path: str | os.PathLike[str], *, device: str | int | None = None) -> Profile:
    """Return the profile in a file, or below a folder.

    Args:
        path: kernel_details.csv, op_summary*.csv, trace_view.json, msprof*.json, or a folder that holds them at any depth.
        device: rank or device to read where there are several.

    Raises:
        InputError: no such file, not a profile, no such device, or several devices and none is named.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"profile must be a path, not {type(path).__name__}; {WANTED}")
    where = Path(path)
    wanted = None if device is None else str(device)
    if where.is_dir():
        output = folders.choose(folders.find(where), wanted, where)
    elif where.is_file():
        output = folders.Output(device="", folder=where.parent, tables=(where,), trace=_beside(where))
    else:
        raise InputError(f"{where}: no such file or folder{_hint(where)}; {WANTED}")
    return _read(output, wanted)


def read_text(text: str, *, name: str = "kernel_details.csv", device: str | None = None) -> Profile:
    """Return the profile in a CSV text; `name` stands for the file in messages.

    Raises:
        InputError: it is no profile.
    """
    path = Path(name)
    return _assemble({path: parse(text, path)}, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(), device, "")


def _read(output: folders.Output, wanted: str | None) -> Profile:
    digest = hashlib.sha256()
    tables: dict[Path, Table] = {}
    for path in output.tables:
        raw = _bytes(path)
        digest.update(raw)
        is_trace = path.suffix.lower() == ".json"
        tables[path] = parse_trace(raw, path) if is_trace else parse(decode(raw, str(path)), path)
    profile = _assemble(tables, digest.hexdigest(), wanted, output.device)
    if output.trace is None or all(kernel.stream is not None for kernel in profile.kernels if not kernel.communicates):
        return profile
    return _with_streams(profile, output.trace)


def _assemble(tables: Mapping[Path, Table], digest: str, wanted: str | None, known: str) -> Profile:
    rows = [row for table in tables.values() for row in table.rows]
    rejected = tuple(reject for table in tables.values() for reject in table.rejected)
    named = sorted({row.device for row in rows if row.device}, key=lambda name: (len(name), name))
    device = _choose(named, wanted, known, ", ".join(str(path) for path in tables))
    own = [row for row in rows if not row.device or len(named) < 2 or row.device == device]
    kernels = sorted((row.kernel for row in own), key=lambda kernel: kernel.start)
    merged = merge(kernels)
    return Profile(
        kernels=tuple(merged.kernels),
        columns=tuple(dict.fromkeys(name for table in tables.values() for name in table.columns)),
        rows=len(rows) + len(rejected),
        rejected=rejected,
        duplicates=merged.dropped,
        other_devices=len(rows) - len(own),
        device=device,
        files=tuple(tables),
        digest=digest[:16],
    )


def _choose(named: list[str], wanted: str | None, known: str, where: str) -> str:
    if len(named) > 1:
        if wanted is None:
            listed = ", ".join(named)
            raise InputError(f"{where}: holds rows of {len(named)} devices: {listed}; choose one with device (--device)")
        if wanted not in named:
            raise InputError(f"{where}: no rows of device {wanted!r}{nearest(wanted, named)}; there are: {', '.join(named)}")
        return wanted
    found = known or (named[0] if named else "")
    if wanted is not None and wanted not in (known, *named):
        held = f"it holds device {found}" if found else "it does not name its device"
        raise InputError(f"{where}: no device {wanted!r}; {held}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """Kernels without second rows, and how many those were."""

    kernels: list[Kernel]
    dropped: int


def merge(kernels: Sequence[Kernel]) -> Merged:
    """Count every kernel once.

    A collective appears as a whole (``hcom_*``) and once more as the vector kernel it ran as: same start, same duration. The
    whole stays and takes over stream and blocks. A collective's AI CPU part includes waiting for the peers and goes too,
    where the whole is there. A row that is there twice counts once.
    """
    unique = dict.fromkeys(kernels)
    wholes = sorted((one.start, one.duration) for one in unique if one.core is Core.COMMUNICATION)
    busy = union((start, start + duration) for start, duration in wholes)
    kept: list[Kernel] = []
    parts: dict[tuple[int, int], Kernel] = {}
    for kernel in unique:
        whole = None if kernel.core is Core.COMMUNICATION else _whole(kernel, wholes)
        if whole is not None:
            parts.setdefault(whole, kernel)
        elif kernel.core is not Core.COMMUNICATION_AI_CPU or not overlaps(busy, (kernel.start, kernel.end)):
            kept.append(kernel)
    joined = [_joined(kernel, parts.get((kernel.start, kernel.duration))) for kernel in kept]
    return Merged(kernels=joined, dropped=len(kernels) - len(joined))


def _whole(kernel: Kernel, wholes: list[tuple[int, int]]) -> tuple[int, int] | None:
    """Return start and duration of the collective a kernel is the second row of, or None."""
    first = bisect.bisect_left(wholes, (kernel.start - _ROUNDING_NS,))
    for start, duration in wholes[first:]:
        if start > kernel.start + _ROUNDING_NS:
            return None
        if abs(duration - kernel.duration) <= _ROUNDING_NS:
            return start, duration
    return None


def _joined(kernel: Kernel, part: Kernel | None) -> Kernel:
    if part is None or kernel.core is not Core.COMMUNICATION:
        return kernel
    stream = part.stream if kernel.stream is None else kernel.stream
    return replace(kernel, stream=stream, blocks=kernel.blocks or part.blocks)


def _with_streams(profile: Profile, trace: Path) -> Profile:
    """Fill in the streams of rows that name none (level0) from the trace beside them; without a readable one, say so."""
    try:
        known = streams(parse_trace(_bytes(trace), trace))
    except InputError as error:
        return replace(profile, notes=(*profile.notes, f"no streams from the trace: {error}"))
    kernels = tuple(
        replace(kernel, stream=known.get((kernel.name, kernel.start))) if kernel.stream is None else kernel
        for kernel in profile.kernels
    )
    found = sum(1 for new, old in zip(kernels, profile.kernels, strict=True) if new.stream != old.stream)
    note = f"streams of {found} kernels from {trace.name}"
    files = (*profile.files, trace) if found else profile.files
    return replace(profile, kernels=kernels, files=files, notes=(*profile.notes, note))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def _beside(path: Path) -> Path | None:
    trace = path.parent / "trace_view.json"
    return trace if trace != path and trace.is_file() else None


def _hint(path: Path) -> str:
    parent = path.parent
    if not parent.is_dir():
        return f" (there is no folder {str(parent)!r})"
    return nearest(path.name, sorted(entry.name for entry in parent.iterdir()))
