"""When the collectives of a profile moved data, and when they only waited for their peers: the trace beside the kernel table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from autostream.errors import InputError
from autostream.profiles import Profile
from autostream.profiles.cells import nanoseconds, optional_count
from autostream.profiles.intervals import Interval, union
from autostream.profiles.table import decode

_TRACES = ("trace_view*.json", "msprof*.json")
#: Processes of a trace that hold collectives and their tasks.
_COLLECTIVES = ("hccl", "communication")
#: Bytes a task of a collective moves, in device memory or over a link; 0 for one that signals or waits.
_SIZE = "size(Byte)"


def read_transfers(profile: Profile) -> tuple[Interval, ...] | None:
    """Return when the collectives of a profile moved data, ns: disjoint, in order.

    None where that is not known: there is no trace (or not one only) among or beside the profile's files, or it holds no task of
    a collective (below level1, or collectives on vector cores). The trace is read whole, and may be large.

    Raises:
        InputError: the trace cannot be read.
    """
    trace = _trace(profile)
    if trace is None:
        return None
    try:
        # Numbers stay decimal text: a float cannot hold the nanoseconds of today.
        data = json.loads(decode(trace.read_bytes(), str(trace)), parse_float=Decimal)
    except OSError as error:
        raise InputError(f"{trace}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{trace}: not JSON: {error}") from error
    events = data.get("traceEvents") if isinstance(data, dict) else data
    if not isinstance(events, list):
        raise InputError(f"{trace}: not a Chrome trace (a list of events, or an object with 'traceEvents')")
    try:
        return _moving([event for event in events if isinstance(event, dict)])
    except ValueError as error:
        raise InputError(f"{trace}: a task of a collective: {error}") from error


def _trace(profile: Profile) -> Path | None:
    own = [path for path in profile.files if path.suffix.lower() == ".json"]
    if own or not profile.files or not profile.files[0].is_file():
        return own[0] if len(own) == 1 else None
    folder = profile.files[0].parent
    for pattern in _TRACES:
        found = sorted(folder.glob(pattern))
        if found:
            # Several may be slices, or of several devices.
            return found[0] if len(found) == 1 else None
    return None


def _moving(events: list[Mapping[str, Any]]) -> tuple[Interval, ...] | None:
    """Return the union of the tasks that have a size.

    Raises:
        ValueError: a time or a size that is no number.
    """
    processes = {event.get("pid") for event in events if event.get("name") == "process_name" and _of_collectives(event)}
    if len(processes) != 1:  # of several devices, nobody knows whose the profile is
        return None
    (process,) = processes
    tasks = [event for event in events if event.get("ph") == "X" and event.get("pid") == process and _SIZE in _arguments(event)]
    found: list[Interval] = []
    for event in tasks:
        if optional_count(str(_arguments(event)[_SIZE])):
            start, duration = (nanoseconds(str(event.get(key, ""))) for key in ("ts", "dur"))
            found.append((start, start + duration))
    return tuple(union(found)) if tasks else None


def _of_collectives(event: Mapping[str, Any]) -> bool:
    return str(_arguments(event).get("name", "")).strip().casefold().startswith(_COLLECTIVES)


def _arguments(event: Mapping[str, Any]) -> Mapping[str, Any]:
    arguments = event.get("args")
    return arguments if isinstance(arguments, dict) else {}
