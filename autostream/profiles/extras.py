"""What else a profiler leaves beside its kernel table: step times, operator totals, collectives."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autostream.errors import InputError, nearest
from autostream.profiles.cells import plain
from autostream.profiles.table import decode


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """One step as `step_trace_time.csv` divides it, ns."""

    step: str
    computing: int
    communication: int
    communication_not_overlapped: int
    overlapped: int
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTotal:
    """One operator type of `op_statistic.csv`; `total` is ns."""

    type: str
    core: str
    count: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTime:
    """One collective of `communication.json`: elapsed, and the parts that moved data or waited for peers, ns."""

    name: str
    step: str
    elapsed: int
    transit: int
    wait: int
    #: Bytes sent over all links of this rank.
    nbytes: int


_STEP = {
    "computing": "Computing",
    "communication": "Communication",
    "communication_not_overlapped": "Communication(Not Overlapped)",
    "overlapped": "Overlapped",
    "free": "Free",
}


def read_step_times(path: Path) -> tuple[StepTime, ...]:
    """Return the rows of step_trace_time.csv.

    Raises:
        InputError: not such a file.
    """
    rows = _rows(path, ("Step", *_STEP.values()))
    return tuple(
        StepTime(step=plain(row["Step"]), **{ours: _time(row[theirs], path) for ours, theirs in _STEP.items()}) for row in rows
    )


def read_op_totals(path: Path) -> tuple[OpTotal, ...]:
    """Return the rows of op_statistic.csv.

    Raises:
        InputError: not such a file.
    """
    rows = _rows(path, ("OP Type", "Core Type", "Count", "Total Time(us)"))
    return tuple(
        OpTotal(
            type=plain(row["OP Type"]),
            core=plain(row["Core Type"]),
            count=round(_number(row["Count"], path)),
            total=_time(row["Total Time(us)"], path),
        )
        for row in rows
    )


def read_collectives(path: Path) -> tuple[CollectiveTime, ...]:
    """Return the collectives of communication.json, without the totals it adds.

    Raises:
        InputError: not such a file.
    """
    try:
        data = json.loads(decode(_bytes(path), str(path)))
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    found = []
    for step, kinds in _mapping(data, path).items():
        for ops in _mapping(kinds, path).values():
            for name, entry in _mapping(ops, path).items():
                if not name.startswith("Total"):
                    found.append(_collective(name, step, _mapping(entry, path), path))
    return tuple(found)


def _collective(name: str, step: str, entry: Mapping[str, Any], path: Path) -> CollectiveTime:
    times = _mapping(entry.get("Communication Time Info"), path)
    links = _mapping(entry.get("Communication Bandwidth Info"), path)
    # SDMA sums up the links within a server; RDMA is those between servers.
    moved = sum(_number(_mapping(links.get(link, {}), path).get("Transit Size(MB)", 0), path) for link in ("SDMA", "RDMA"))
    milliseconds = {
        key: round(_number(times.get(f"{key} Time(ms)", 0), path) * 1_000_000) for key in ("Elapse", "Transit", "Wait")
    }
    return CollectiveTime(
        name=name.partition("@")[0],
        step=step,
        elapsed=milliseconds["Elapse"],
        transit=milliseconds["Transit"],
        wait=milliseconds["Wait"],
        nbytes=round(moved * 1_000_000),
    )


def _rows(path: Path, wanted: tuple[str, ...]) -> list[dict[str, str]]:
    reader = csv.DictReader(io.StringIO(decode(_bytes(path), str(path)), newline=""), restval="")
    try:
        columns = list(reader.fieldnames or ())
        for name in wanted:
            if name not in columns:
                raise InputError(f"{path}: no column {name!r}{nearest(name, columns)}; needed: {', '.join(wanted)}")
        return list(reader)
    except csv.Error as error:
        raise InputError(f"{path}: line {reader.line_num}: not CSV: {error}") from error


def _time(cell: str, path: Path) -> int:
    return round(_number(cell, path) * 1000)


def _number(cell: Any, path: Path) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        raise InputError(f"{path}: {cell!r:.60} is no number") from None


def _mapping(value: Any, path: Path) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{path}: not a communication.json: an object is expected where {value!r:.60} stands")
    return value


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
