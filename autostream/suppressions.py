"""Findings that somebody has accepted: a YAML file that says which, and why.

.. code-block:: yaml

    - kind: race
      steps: ["relu", "mm_*"]
      streams: ["1"]
      reason: the cache row of this token is written by nobody else
      expires: 2027-06-30

`kind`, `steps` and `streams` may be globs. An entry means a finding of its kind whose steps and streams all match one of the
entry's, and that has some where the entry names any; without `steps` or `streams` it means any.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from autostream.errors import InputError, nearest
from autostream.program import Finding, Severity

_TODO = "TODO"


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text.strip()


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_Text = Annotated[str, AfterValidator(_not_blank)]
_Patterns = Annotated[tuple[_Text, ...], BeforeValidator(_as_list)]


class Suppression(BaseModel):
    """One accepted sort of finding."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: _Text
    steps: _Patterns = ()
    streams: _Patterns = ()
    reason: _Text
    #: Last day on which it holds.
    expires: date | None = None

    def matches(self, finding: Finding) -> bool:
        """Return True if the entry means this finding."""
        return fnmatchcase(finding.kind, self.kind) and all(
            not patterns or (names and all(any(fnmatchcase(name, pattern) for pattern in patterns) for name in names))
            for names, patterns in ((finding.steps, self.steps), (finding.streams, self.streams))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppressed:
    """A finding that does not count, and why."""

    finding: Finding
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Findings that count, with those about the suppressions themselves at the end, and findings that do not."""

    findings: tuple[Finding, ...]
    suppressed: tuple[Suppressed, ...]


def load_suppressions(path: str | Path) -> tuple[Suppression, ...]:
    """Return the entries of a file, in order; an empty file has none.

    Raises:
        InputError: the file cannot be read or says something that is not understood; names file, line, entry and key.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the suppressions {str(path)!r}: {getattr(error, 'strerror', None) or error}") from error
    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise InputError(f"{where}: not YAML: {getattr(error, 'problem', None) or error}") from error
    except ValueError as error:  # a date such as 2026-13-45
        raise InputError(f"{path}: not YAML: {error}") from error
    if data is None:
        return ()
    if not isinstance(data, list):
        raise InputError(f"{path}:1: expected a list of entries with the keys {', '.join(Suppression.model_fields)}")
    _refuse_twice(path, tree)
    try:
        return TypeAdapter(tuple[Suppression, ...]).validate_python(data)
    except ValidationError as error:
        # A key that is spelled wrongly is missing too, but the spelling is what to mend.
        worst = min(error.errors(), key=lambda one: (one["loc"][0], one["type"] != "extra_forbidden"))
        raise InputError(_told(path, tree, worst)) from error


def _refuse_twice(path: Path, tree: Any) -> None:
    """Refuse a key that one entry gives twice: YAML itself would keep the last one silently."""
    for number, entry in enumerate(tree.value, start=1):
        seen: set[str] = set()
        for key, _ in entry.value if isinstance(entry, yaml.MappingNode) else ():
            if key.value in seen:
                raise InputError(f"{path}:{key.start_mark.line + 1}: entry {number} gives {key.value!r} twice")
            seen.add(str(key.value))


def _told(path: Path, tree: Any, error: Any) -> str:
    """Return what is wrong, with the line of the entry or of the key."""
    number, *keys = error["loc"]
    entry = tree.value[number]
    line = entry.start_mark.line + 1
    key = str(keys[0]) if keys else ""
    for node, _ in entry.value if isinstance(entry, yaml.MappingNode) else ():
        if node.value == key:
            line = node.start_mark.line + 1
    where = f"{path}:{line}: entry {number + 1}"
    allowed = tuple(Suppression.model_fields)
    if error["type"] == "extra_forbidden":
        return f"{where}: unknown key {key!r}{nearest(key, allowed)}; allowed: {', '.join(allowed)}"
    if error["type"] == "missing":
        return f"{where}: {key!r} is missing; every entry needs a kind and a reason"
    if not key:
        return f"{where}: expected a mapping with the keys {', '.join(allowed)}"
    return f"{where}: {key!r}: {error['msg'].removeprefix('Value error, ')}"


def judge(findings: Iterable[Finding], entries: Sequence[Suppression], *, today: date | None = None) -> Judged:
    """Take out the findings that entries mean, and warn of entries that mean none, have expired or tell no reason.

    Args:
        findings: all of them.
        entries: the first one that means a finding gives the reason.
        today: the day an entry's `expires` is compared with; None is the day it is.
    """
    now = today or date.today()
    used: set[int] = set()
    counted: list[Finding] = []
    suppressed: list[Suppressed] = []
    for finding in findings:
        meaning = [position for position, entry in enumerate(entries) if entry.matches(finding)]
        used.update(meaning)
        valid = [entries[position] for position in meaning if not _expired(entries[position], now)]
        if valid:
            suppressed.append(Suppressed(finding=finding, reason=valid[0].reason))
        else:
            counted.append(finding)
    notices = []
    for position, entry in enumerate(entries):
        if position not in used:
            notices.append(_notice("stale-suppression", position, entry, "means no finding", "drop it"))
        elif _expired(entry, now):
            remedy = "mend what it means, or set a new day"
            notices.append(_notice("expired-suppression", position, entry, f"expired on {entry.expires}", remedy))
        elif entry.reason == _TODO:
            remedy = "say why it is accepted, or mend what it means and drop it"
            notices.append(_notice("unexplained-suppression", position, entry, "tells no reason", remedy))
    return Judged(findings=(*counted, *notices), suppressed=tuple(suppressed))


def _expired(entry: Suppression, now: date) -> bool:
    return entry.expires is not None and entry.expires < now


def _notice(kind: str, position: int, entry: Suppression, fault: str, remedy: str) -> Finding:
    names = ", ".join((*entry.steps, *(f"stream {stream}" for stream in entry.streams)))
    what = f"{entry.kind} ({names})" if names else entry.kind
    reason = "" if entry.reason == _TODO else f"; its reason was: {entry.reason}"
    return Finding(
        kind=kind,
        severity=Severity.WARNING,
        steps=(),
        streams=(),
        explanation=f"suppression {position + 1}, {what}, {fault}" + reason,
        remedy=remedy,
    )


def as_yaml(findings: Iterable[Finding]) -> str:
    """Return the text of a file that accepts these findings, each with its explanation as a comment and a reason to fill in."""
    parts = ["# Accepted findings of 'autostream check'. Say why each is accepted, or mend it and drop the entry.\n"]
    seen: set[tuple[object, ...]] = set()
    for finding in findings:
        entry = {"kind": finding.kind, "steps": list(finding.steps), "streams": list(finding.streams), "reason": _TODO}
        key = (finding.kind, finding.steps, finding.streams)
        if key in seen or finding.kind.endswith("-suppression"):
            continue
        seen.add(key)
        exact = {
            name: [_literally(text) for text in value] if isinstance(value, list) else value for name, value in entry.items()
        }
        text = yaml.safe_dump([{name: value for name, value in exact.items() if value}], sort_keys=False, allow_unicode=True)
        parts.append(f"# {' '.join(finding.explanation.split())}\n{text}")
    return "".join(parts) if seen else parts[0] + "[]\n"


def _literally(text: str) -> str:
    """Return a glob that matches the text alone."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in text)
