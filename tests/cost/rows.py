"""Public kernel measurements as samples: each row of a CSV file becomes the operator that would have launched that kernel.

Columns as in ``shared/data/measurements.csv``. Needed: chip, op, dtype, shapes (inputs, ``;`` between them), us. Used where
present: bi and bo (bytes of all inputs and outputs), out_shapes, mhz (the clock of the profile), cls, blk.
"""

from __future__ import annotations

import csv
import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autostream.cost import Chip, chip_names, load_chip
from autostream.cost.calibration.fitting import Sample
from autostream.cost.measured.kernels import find_kernel, normal_dtype, op_from_kernel
from autostream.errors import InputError
from autostream.graph.model import Op

FILE = Path(__file__).resolve().parents[3] / "shared" / "data" / "measurements.csv"

_NEEDED = ("chip", "op", "dtype", "shapes", "us")
_BY_SIZE = {1: "int8", 2: "float16", 4: "float32", 8: "int64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measurement; `sample.chip` is the key of its chip in `Rows.chips`."""

    line: int
    #: The chip as the file names it.
    chip: str
    kernel: str
    cls: str
    sample: Sample
    #: Blocks the profiler saw, 0 where it says nothing.
    blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows of a file, the chips they ran on, and why the others could not be read."""

    rows: tuple[Row, ...]
    chips: Mapping[str, Chip]
    refused: Mapping[str, int]
    #: The lines of the file that were refused, by reason.
    refused_lines: Mapping[str, tuple[int, ...]]


class _RefusedError(Exception):
    """Why a row cannot be priced."""


def read_rows(path: Path = FILE) -> Rows:
    """Return the rows of a file.

    Raises:
        InputError: the file cannot be read as CSV, or lacks a needed column.
    """
    rows: list[Row] = []
    chips: dict[str, Chip] = {}
    refused: dict[str, list[int]] = {}
    for number, line in enumerate(_lines(path), start=2):
        try:
            rows.append(_row(number, line, chips))
        except _RefusedError as reason:
            refused.setdefault(str(reason), []).append(number)
    lines = {reason: tuple(numbers) for reason, numbers in sorted(refused.items())}
    return Rows(
        rows=tuple(rows),
        chips=chips,
        refused={reason: len(numbers) for reason, numbers in lines.items()},
        refused_lines=lines,
    )


def _lines(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as handle:
            reader = csv.DictReader(handle, restkey="_more", restval="")
            missing = [name for name in _NEEDED if name not in (reader.fieldnames or ())]
            if missing:
                raise InputError(f"{path}: no column {', '.join(missing)}; needed: {', '.join(_NEEDED)}")
            return list(reader)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a CSV file in UTF-8: {error}") from error


def _row(number: int, line: Mapping[str, str], chips: dict[str, Chip]) -> Row:
    microseconds = _number(line, "us")
    if microseconds is None or microseconds <= 0:
        raise _RefusedError("no duration above zero")
    chip = _chip(line)
    op = _op(line)
    key = (line["chip"] or "").strip()
    if _impossible(op, chip, microseconds):
        raise _RefusedError("its flop would need more than the peak of the chip")
    known = chips.setdefault(key, chip)
    if known.clock_mhz.value != chip.clock_mhz.value:
        # The same chip at another clock.
        key = f"{key} at {chip.clock_mhz.value:g} MHz"
        chips[key] = chip
    return Row(
        line=number,
        chip=(line["chip"] or "").strip(),
        kernel=line["op"],
        cls=line.get("cls") or "",
        sample=Sample(chip=key, op=op, duration=max(1, round(microseconds * 1000))),
        blocks=int(_number(line, "blk") or 0),
    )


def _number(line: Mapping[str, str], column: str) -> float | None:
    try:
        value = float(line.get(column) or "nan")
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def _chip(line: Mapping[str, str]) -> Chip:
    """Return the chip file of a row, at the clock its profile ran at."""
    chip = _shipped((line["chip"] or "").strip(), _number(line, "aic"), _number(line, "mhz"))
    clock = _number(line, "mhz")
    if not clock or clock <= 0:
        return chip
    return chip.model_copy(update={"clock_mhz": chip.clock_mhz.model_copy(update={"value": clock})})


@functools.cache
def _shipped(name: str, aic: float | None, mhz: float | None) -> Chip:
    """Return the chip by its name, the SoC named in a longer label, or for an "A3" one with its cores and clock."""
    named = re.search(r"(?:Ascend)?(910B\d(?:-\d|C)?|910_\d{4}|310P\d|950\w*)", name, re.IGNORECASE)
    for candidate in (name, named.group(1) if named else name):
        try:
            return load_chip(candidate)
        except InputError:
            continue
    if "A3" not in name.upper():
        raise _RefusedError("unknown chip")
    family = [chip for chip in map(load_chip, chip_names()) if chip.name.startswith("910_93")]
    return min(family, key=lambda chip: (abs(chip.aic_cores.value - (aic or 24)), abs(chip.clock_mhz.value - (mhz or 1800))))


def _op(line: Mapping[str, str]) -> Op:
    entry = find_kernel(line["op"] or "")
    if entry is None:
        raise _RefusedError("no operator for this kernel type")
    inputs = [_shape(part) for part in (line["shapes"] or "").split(";")]
    dtypes = _dtypes(line["dtype"] or "", len(inputs))
    outputs = _outputs(line, inputs, dtypes[0])
    op = op_from_kernel(line["op"], inputs, dtypes, outputs[0], outputs[1])
    if op is None:
        raise _RefusedError("shapes do not fit the kernel type")
    if not entry.dense or entry.multiplies:
        return op
    read, written = _number(line, "bi"), _number(line, "bo")
    # The CSV knows the dtype of each tensor, of which the column gives only the first.
    return op._replace(bytes_read=int(read or op.bytes_read), bytes_written=int(op.bytes_written if written is None else written))


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(size) for size in text.strip().strip('"[]()').split(",") if size.strip())
    except ValueError:
        raise _RefusedError("a shape is not a list of whole numbers") from None
    if any(size < 0 for size in shape):
        raise _RefusedError("a shape has a negative size")
    return shape


def _dtypes(text: str, inputs: int) -> list[str]:
    dtypes = [part.strip() for part in text.split(";")]
    if normal_dtype(dtypes[0]) is None:
        raise _RefusedError("unknown dtype")
    return dtypes if len(dtypes) > 1 else dtypes * inputs


def _outputs(line: Mapping[str, str], inputs: Sequence[tuple[int, ...]], dtype: str) -> tuple[list[tuple[int, ...]], list[str]]:
    """Return shapes and dtypes of the outputs, as far as a shape column or their bytes tell."""
    if line.get("out_shapes"):
        shapes = [_shape(part) for part in line["out_shapes"].split(";")]
        return shapes, [dtype] * len(shapes)
    written = _number(line, "bo")
    if not written:
        return [], []
    named = normal_dtype(dtype)
    itemsize = named[1] if named else 2
    if itemsize == 1:
        # The scales of a quantised product bring its result back to 16 bits.
        return [(int(written) // 2,)], ["bfloat16"]
    return [(int(written) // itemsize,)], [dtype]


def _impossible(op: Op, chip: Chip, microseconds: float) -> bool:
    """A few rows carry garbled shapes."""
    peak_per_us = chip.aic_cores.value * chip.clock_mhz.value * chip.cube.int8.flop_per_cycle_per_core.value
    return op.flops > 1.1 * peak_per_us * microseconds
