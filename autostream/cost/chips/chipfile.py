"""Write a chip as the text of a chip file: one number a line, in the order of the schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from autostream.cost.chips.chip import Chip
from autostream.cost.chips.datafile import Quantity, Section

_LEGEND = """\
# Every number: value, public source, confidence (S: agreeing sources or recovered from real profiles; L: one credible source;
# U: conflicting, carried over from another chip, or assumed). Units are in the keys.
"""


def to_yaml(chip: Chip, heading: str) -> str:
    """Return the YAML text of a chip under a comment of one or more lines; `load_chip` reads it back as an equal chip."""
    comment = "".join(f"# {line}".rstrip() + "\n" for line in heading.splitlines())
    return comment + _LEGEND + "\n".join(_lines(chip, "")) + "\n"


def _lines(items: Section | Mapping[Any, Any], indent: str) -> Iterator[str]:
    for key, value in items.items() if isinstance(items, Mapping) else items:
        if value is None or (isinstance(value, Mapping) and not value):
            continue
        name = key if isinstance(key, int) else key if str(key).isidentifier() else json.dumps(key)
        if isinstance(value, Quantity):
            yield f"{indent}{name}: {_number(value)}"
        elif isinstance(value, (Section, Mapping)):
            yield f"{indent}{name}:"
            yield from _lines(value, indent + "  ")
        elif isinstance(value, tuple):
            yield f"{indent}{name}: [{', '.join(_text(item) for item in value)}]"
        else:
            yield f"{indent}{name}: {_text(value)}"


def _number(quantity: Quantity) -> str:
    given = ((key, value) for key, value in quantity if value is not None)
    parts = (f"{key}: {_number(value) if isinstance(value, Quantity) else _text(value)}" for key, value in given)
    return f"{{{', '.join(parts)}}}"


def _text(value: Any) -> str:
    """Return a scalar as YAML: JSON is YAML, but for the float without a point before its exponent, which YAML takes for text."""
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("e", ".0e", 1) if isinstance(value, float) and "e" in text and "." not in text else text
