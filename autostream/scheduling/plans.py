"""Schedules kept on disk, so that a graph that was solved once is not solved again.

A problem holds everything a strategy looks at, so its text, the options and our version identify an answer. A file is only a
hint: what it holds is checked against the problem before it is used, and anything that does not fit is solved anew.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
import threading
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from autostream.scheduling.feasibility import check
from autostream.scheduling.problem import Problem, Schedule, Strategy

logger = logging.getLogger(__name__)

#: Raise when the meaning of a stored schedule changes.
_FORMAT = 1
#: Files a folder may hold; the oldest go first.
KEPT = 512

_schedules = TypeAdapter(Schedule)


class Kept:
    """A strategy that looks into a folder first. Several processes may share the folder."""

    def __init__(self, strategy: Strategy, folder: Path, *, identity: str) -> None:
        """Wrap `strategy`; `identity` names it with everything but the problem that its answers depend on."""
        self._strategy = strategy
        self._folder = folder
        self._identity = identity

    def solve(self, problem: Problem) -> Schedule:
        """Return the kept schedule if there is a valid one, else solve and keep the answer."""
        file = self._folder / f"{self._key(problem)}.json"
        known = _read(file, problem)
        if known is not None:
            return known
        schedule = self._strategy.solve(problem)
        _write(file, schedule)
        return schedule

    def _key(self, problem: Problem) -> str:
        text = json.dumps([_FORMAT, self._identity, asdict(problem)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def code_digest() -> str:
    """Return a hash of the code that solves: a plan of other code is another plan, whatever the version says."""
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _read(file: Path, problem: Problem) -> Schedule | None:
    try:
        schedule = _schedules.validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        logger.info("kept plan %s is not used: %s", file.name, str(error).splitlines()[0])
        return None
    wrong = check(problem, schedule)
    if wrong:
        logger.info("kept plan %s is not used: %s", file.name, wrong[0])
        return None
    return schedule


def _write(file: Path, schedule: Schedule) -> None:
    """Keep a schedule; a folder that cannot be written costs a line in the log, not the plan."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(_schedules.dump_json(schedule))
            os.replace(temporary, file)
        finally:
            temporary.unlink(missing_ok=True)
        _prune(file.parent)
    except OSError as error:
        logger.info("the plan is not kept: cannot write %s: %s", file, error.strerror or error)


def _prune(folder: Path) -> None:
    files = []
    for path in folder.glob("*.json"):
        with contextlib.suppress(FileNotFoundError):  # another process prunes too
            files.append((path.stat().st_mtime_ns, path.name, path))
    for _, _, path in sorted(files)[: max(0, len(files) - KEPT)]:
        path.unlink(missing_ok=True)
