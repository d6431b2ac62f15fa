"""Data files of the cost room: YAML whose every number says where it comes from and how sure it is."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from autostream.errors import InputError, nearest

Model = TypeVar("Model", bound="Section")

#: The safe loader, in C where PyYAML was built with it (ten times as fast).
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Section(BaseModel):
    """A mapping of a data file: frozen, no unknown key, no silent conversion (a quoted number is not a number)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Quantity(Section):
    """A number that is not negative. The key it stands under carries its unit."""

    value: float = Field(ge=0)
    #: Public document or data set the number comes from.
    source: str = Field(min_length=1)
    #: S: two or more agreeing public sources, or recovered from real profiles; L: one credible source; U: conflicting or assumed.
    confidence: Literal["S", "L", "U"]
    note: str | None = None


class Positive(Quantity):
    """A number above zero."""

    value: float = Field(gt=0)


class Share(Quantity):
    """A number above 0 and at most 1."""

    value: float = Field(gt=0, le=1)


class Slowdown(Quantity):
    """A factor on a time: 1 changes nothing, 10 is surely a slip."""

    value: float = Field(ge=1, le=10)


class Count(Quantity):
    """A whole number that is not negative."""

    value: int = Field(ge=0)


class PositiveCount(Quantity):
    """A whole number above zero."""

    value: int = Field(gt=0)


def read(path: Path, model: type[Model]) -> tuple[Model, str]:
    """Return the validated content of a YAML file and the hash of its bytes.

    Raises:
        InputError: the file cannot be read, is not YAML, or breaks the schema; names the file, the key and what is allowed.
    """
    try:
        raw = path.read_bytes()
        data = yaml.load(raw.decode("utf-8"), Loader=_LOADER)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start})") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise InputError(f"{path}: a mapping with the keys {', '.join(model.model_fields)} is expected, not {_kind(data)}")
    try:
        content = model.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{path}: {explain(error, model)}") from error
    return content, hashlib.sha256(raw).hexdigest()[:16]


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the problems of a validation error as one line: each key, what is wrong, what is allowed."""
    parts = []
    for item in error.errors(include_url=False):
        key = ".".join(str(part) for part in item["loc"])
        allowed = _keys_at(model, item["loc"][:-1])
        if item["type"] == "extra_forbidden":
            hint = nearest(str(item["loc"][-1]), allowed)
            parts.append(f"unknown key {key!r}{hint}; allowed: {', '.join(allowed)}")
        elif item["type"] == "missing":
            parts.append(f"missing key {key!r}; needed here: {', '.join(allowed)}")
        elif item["type"] in ("model_type", "model_attributes_type"):
            wanted = _keys_at(model, item["loc"])
            parts.append(f"key {key!r} must be a mapping with {', '.join(wanted)}, not {_kind(item['input'])}")
        else:
            where = f"key {key!r} = {item['input']!r}: " if key else ""
            parts.append(f"{where}{item['msg']}")
    return "; ".join(parts)


def _kind(data: Any) -> str:
    return "an empty file" if data is None else f"{type(data).__name__} {data!r:.60}"


def _keys_at(model: type[BaseModel], location: tuple[int | str, ...]) -> tuple[str, ...]:
    """Return the keys of the mapping at a location of the schema (empty where it is no mapping of ours)."""
    at: Any = model
    for part in location:
        if isinstance(at, type) and issubclass(at, BaseModel):
            field = at.model_fields.get(str(part))
            at = field.annotation if field else None
        else:
            # Into the values of a dict or the members of an optional: the one model class among the arguments.
            at = _model_among(at)
    at = at if isinstance(at, type) and issubclass(at, BaseModel) else _model_among(at)
    return tuple(at.model_fields) if at is not None else ()


def _model_among(annotation: Any) -> type[BaseModel] | None:
    for argument in getattr(annotation, "__args__", ()):
        if isinstance(argument, type) and issubclass(argument, BaseModel):
            return argument
    return None
