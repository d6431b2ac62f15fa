"""Kernel rows of one CSV file, `kernel_details.csv` or `op_summary*.csv` of any year."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from autostream.errors import InputError, nearest
from autostream.profiles import cells
from autostream.profiles.model import Kernel, Rejected, Tensor

Number = TypeVar("Number", int, int | None)

WANTED = "allowed: kernel_details.csv, op_summary*.csv, trace_view.json, or a folder that holds them"

#: Our name of a column -> the names it has had. Case, blanks and underscores do not matter.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "name": ("Name", "Op Name"),
    "type": ("Type", "OP Type"),
    "core": ("Accelerator Core", "Task Type"),
    "start": ("Start Time(us)", "Task Start Time(us)"),
    "duration": ("Duration(us)", "Task Duration(us)"),
    "wait": ("Wait Time(us)", "Task Wait Time(us)"),
    "blocks": ("Block Dim", "Block Num"),
    "mix_blocks": ("Mix Block Dim", "Mix Block Num"),
    "stream": ("Stream ID",),
    "step": ("Step Id",),
    "device": ("Device_id",),
    "input_shapes": ("Input Shapes",),
    "input_dtypes": ("Input Data Types",),
    "input_formats": ("Input Formats",),
    "output_shapes": ("Output Shapes",),
    "output_dtypes": ("Output Data Types",),
    "output_formats": ("Output Formats",),
    "aic_time": ("aicore_time(us)", "aic_time(us)"),
    "aic_cycles": ("aic_total_cycles", "total_cycles"),
    "aiv_time": ("aiv_time(us)",),
    "aiv_cycles": ("aiv_total_cycles",),
}
#: A kernel over thousands of tensors lists thousands of shapes.
_LONGEST_CELL = 2**24
_REQUIRED = ("name", "start", "duration", "core")
_PLAIN = re.compile(r"[\s_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A kernel, where it stands, and the device its row names (empty if it names none)."""

    kernel: Kernel
    line: int
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What one file holds: every row is in `rows` or in `rejected`."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    rejected: tuple[Rejected, ...]


def decode(raw: bytes, where: str) -> str:
    """Return the text of a profiler file: UTF-8 with or without BOM, or GBK.

    Raises:
        InputError: neither.
    """
    for encoding in ("utf-8-sig", "gb18030"):
        try:
            text = raw.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" in text:
            break
        return text
    raise InputError(f"{where}: not a text file in UTF-8 or GBK, so not a profiler CSV")


def parse(text: str, path: Path) -> Table:
    """Return the kernels of a CSV text; `path` names it in messages.

    Raises:
        InputError: it is not CSV, or lacks a column without which there are no kernels.
    """
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""))
    rows: list[Row] = []
    rejected: list[Rejected] = []
    limit = csv.field_size_limit(_LONGEST_CELL)
    try:
        header = next((line for line in reader if any(cell.strip() for cell in line)), None)
        if header is None:
            raise InputError(f"{path}: empty; {WANTED}")
        columns = tuple(cell.strip().strip('"') for cell in header)
        index = _index(columns, path)
        for line in reader:
            if not any(cell.strip() for cell in line):
                continue  # a blank line is no row
            found = _row(line, index, len(columns))
            if isinstance(found, str):
                rejected.append(Rejected(file=path.name, line=reader.line_num, reason=found))
            else:
                kernel, device = found
                rows.append(Row(kernel=kernel, line=reader.line_num, device=device))
    except csv.Error as error:
        raise InputError(f"{path}: line {reader.line_num}: not CSV: {error}") from error
    finally:
        csv.field_size_limit(limit)
    return Table(columns=columns, rows=tuple(rows), rejected=tuple(rejected))


def _index(columns: tuple[str, ...], path: Path) -> dict[str, int]:
    """Return the position of each column we know.

    Raises:
        InputError: names the columns that are missing and the nearest that are there.
    """
    at: dict[str, int] = {}
    for position, name in enumerate(columns):
        at.setdefault(_key(name), position)
    index = {ours: at[_key(name)] for ours, names in COLUMNS.items() for name in reversed(names) if _key(name) in at}
    missing = [ours for ours in _REQUIRED if ours not in index]
    if missing:
        names = [" or ".join(repr(name) for name in COLUMNS[ours]) for ours in missing]
        hints = [nearest(COLUMNS[ours][0], [name for name in columns if name]) for ours in missing]
        lacking = "; ".join(f"no column {name}{hint}" for name, hint in zip(names, hints, strict=True))
        shown = ", ".join(name[:30] for name in columns[:12]) + (", ..." if len(columns) > 12 else "")
        raise InputError(f"{path}: not a kernel table: {lacking}; its columns: {shown}; {WANTED}")
    return index


def _key(name: str) -> str:
    return _PLAIN.sub("", name).casefold()


def _row(line: list[str], index: Mapping[str, int], width: int) -> tuple[Kernel, str] | str:
    """Return the kernel of a row and its device, or why there is none."""
    if len(line) != width:
        return f"{len(line)} fields where the header has {width}"
    cell = {ours: line[position] for ours, position in index.items()}
    name = cells.plain(cell["name"])
    if not name:
        return "no name"
    try:
        return _kernel(cell, name), cells.plain(cell.get("device", ""))
    except _CellError as error:
        return str(error)


class _CellError(Exception):
    """A cell that cannot be read, with the column it stands in."""


def _kernel(cell: Mapping[str, str], name: str) -> Kernel:
    return Kernel(
        name=name,
        type=cells.operator_type(cell.get("type", ""), name),
        core=cells.core(cell["core"], name),
        start=_read(cell, "start", cells.nanoseconds),
        duration=_read(cell, "duration", cells.nanoseconds),
        wait=_read(cell, "wait", cells.optional_nanoseconds),
        blocks=_read(cell, "blocks", cells.count),
        mix_blocks=_read(cell, "mix_blocks", cells.count),
        stream=_read(cell, "stream", cells.optional_count),
        step=_read(cell, "step", cells.optional_count),
        inputs=_operands(cell, "input"),
        outputs=_operands(cell, "output"),
        aic_time=_read(cell, "aic_time", cells.optional_nanoseconds),
        aic_cycles=_read(cell, "aic_cycles", cells.count),
        aiv_time=_read(cell, "aiv_time", cells.optional_nanoseconds),
        aiv_cycles=_read(cell, "aiv_cycles", cells.count),
    )


def _read(cell: Mapping[str, str], column: str, reader: Callable[[str], Number]) -> Number:
    try:
        return reader(cell.get(column, ""))
    except ValueError as error:
        raise _CellError(f"column {COLUMNS[column][0]!r}: {error}") from None


def _operands(cell: Mapping[str, str], side: str) -> tuple[Tensor, ...]:
    try:
        return cells.tensors(*(cell.get(f"{side}_{what}", "") for what in ("shapes", "dtypes", "formats")))
    except ValueError as error:
        raise _CellError(f"column {COLUMNS[f'{side}_shapes'][0]!r}: {error}") from None
