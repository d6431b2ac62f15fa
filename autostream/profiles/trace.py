"""Device tasks of a Chrome trace: `trace_view.json` of the framework profiler, `msprof*.json` of msprof."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from autostream.errors import InputError
from autostream.profiles import cells
from autostream.profiles.model import Core, Kernel, Rejected
from autostream.profiles.table import WANTED, Row, Table, decode

#: Processes of the trace that hold device tasks, and those that hold collectives as a whole.
_DEVICE = ("ascend hardware",)
_COLLECTIVES = ("hccl", "communication")


def parse_trace(raw: bytes, path: Path) -> Table:
    """Return the kernels and collectives of a trace, in the order of its events; every device task is a row.

    Raises:
        InputError: it is not a Chrome trace, or holds no task of an Ascend device.
    """
    events = _events(raw, path)
    processes = {event.get("pid"): _label(event) for event in events if event.get("name") == "process_name"}
    threads = {(event.get("pid"), event.get("tid")): _label(event) for event in events if event.get("name") == "thread_name"}
    rows: list[Row] = []
    rejected: list[Rejected] = []
    for position, event in enumerate(events, start=1):
        if event.get("ph") != "X":
            continue
        process = processes.get(event.get("pid"), "")
        thread = threads.get((event.get("pid"), event.get("tid")), "")
        if process.startswith(_COLLECTIVES) and thread.endswith("communication"):
            task = "COMMUNICATION"
        elif process.startswith(_DEVICE):
            task = str(_arguments(event).get("Task Type", ""))
        else:
            continue
        found = _kernel(event, task)
        if isinstance(found, Kernel):
            rows.append(Row(kernel=found, line=position, device=""))
        else:
            rejected.append(Rejected(file=path.name, line=position, reason=found))
    if not rows and not rejected:
        raise InputError(f"{path}: a trace without any task of an Ascend device (level1 and above record them); {WANTED}")
    return Table(columns=("name", "ts", "dur", "tid", "Task Type"), rows=tuple(rows), rejected=tuple(rejected))


def streams(table: Table) -> dict[tuple[str, int], int]:
    """Return the stream of each kernel by (name, start ns): how rows without a stream find theirs."""
    found = (row.kernel for row in table.rows)
    return {(kernel.name, kernel.start): kernel.stream for kernel in found if kernel.stream is not None}


def _events(raw: bytes, path: Path) -> list[Mapping[str, Any]]:
    try:
        # Numbers stay decimal text: a float cannot hold the nanoseconds of today.
        data = json.loads(decode(raw, str(path)), parse_float=Decimal)
    except (json.JSONDecodeError, RecursionError, ValueError) as error:
        raise InputError(f"{path}: not JSON: {error}; {WANTED}") from error
    events = data.get("traceEvents") if isinstance(data, dict) else data
    if not isinstance(events, list):
        raise InputError(f"{path}: not a Chrome trace (a list of events, or an object with 'traceEvents'); {WANTED}")
    return list(_mappings(events))


def _mappings(events: list[Any]) -> Iterator[Mapping[str, Any]]:
    # A place is kept for what is no event, so that positions stay those of the file.
    return (event if isinstance(event, dict) else {} for event in events)


def _kernel(event: Mapping[str, Any], task: str) -> Kernel | str:
    """Return the kernel of a device task, or why it is none."""
    kind = cells.core(task)
    if kind is Core.UNKNOWN:
        return f"no kernel: task type {task or 'missing'}"
    name = str(event.get("name", "")).strip()
    try:
        return Kernel(
            name=name,
            type=cells.operator_type("", name),
            core=kind,
            start=cells.nanoseconds(str(event.get("ts", ""))),
            duration=cells.nanoseconds(str(event.get("dur", ""))),
            stream=None if kind is Core.COMMUNICATION else cells.optional_count(str(event.get("tid", ""))),
        )
    except ValueError as error:
        return f"event: {error}"


def _label(event: Mapping[str, Any]) -> str:
    return str(_arguments(event).get("name", "")).strip().casefold()


def _arguments(event: Mapping[str, Any]) -> Mapping[str, Any]:
    arguments = event.get("args")
    return arguments if isinstance(arguments, dict) else {}
