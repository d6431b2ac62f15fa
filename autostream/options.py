"""Options of autostream: frozen, validated, with a fingerprint that identifies them in caches and reports."""

from __future__ import annotations

import hashlib
import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from autostream.errors import InputError, nearest


class Options(BaseModel):
    """What a user may set. Every field has a default that is right for most models.

    Raises:
        InputError: through `Options.of`, for an unknown key or a value out of range.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    strategy: Literal["auto", "serial", "greedy", "cpsat"] = Field(
        default="auto",
        description=(
            "how to solve: `serial`, `greedy`, `cpsat`; `auto` cuts the graph into regions, searches the small ones "
            "exactly, and solves or improves the others with CP-SAT and local search"
        ),
    )
    side_streams: int = Field(
        default=2,
        ge=0,
        le=8,
        description="streams that may be opened beside the default one",
    )
    min_gain: float = Field(
        default=0.01,
        ge=0.0,
        lt=1.0,
        description="smallest simulated gain worth a rewrite, as a share of the serial time",
    )
    solver_budget: float = Field(
        default=2.0,
        gt=0.0,
        le=600.0,
        description=(
            "effort of the solver, about seconds on one core, up to four times that where many regions stay open; "
            "deterministic, not a time limit"
        ),
    )
    solver_max_tasks: int = Field(
        default=150,
        ge=1,
        description="tasks of one CP-SAT model; larger regions are improved window by window",
    )
    same_unit_overlap: bool = Field(
        default=False,
        description="credit two Cube or two Vector kernels with running at once where their cores suffice",
    )
    core_limits: bool = Field(
        default=False,
        description="split the cores between two branches that need the same kind, where their kernels keep such a limit",
    )
    side_collectives: bool = Field(
        default=False,
        description="allow collectives on side streams",
    )
    stream_budget: int | None = Field(
        default=None,
        ge=1,
        description="streams of all graphs compiled in one process; None = what the chip file says",
    )
    event_budget: int | None = Field(
        default=None,
        ge=0,
        description="events of all graphs compiled in one process; None = what the chip file says",
    )
    max_waits: int | None = Field(
        default=None,
        ge=0,
        description=(
            "waits between two streams in the scheduled graph, those of collectives included: the shortest plan "
            "found with no more of them; None = as many as pay"
        ),
    )
    max_extra_bytes: int | None = Field(
        default=None,
        ge=0,
        description="bytes of intermediate buffers a plan may take beyond the graph as given; None = no cap",
    )
    wanted: tuple[str, ...] = Field(
        default=(),
        description=(
            "modules (`layers.0.shared_expert`, or an end of such a path) that are meant to run beside the rest: the "
            "report says what became of each; with `strict` a missing one is an error"
        ),
    )
    plan_cache: bool = Field(
        default=True,
        description=(
            "keep the solver's answers on disk (in `$AUTOSTREAM_CACHE`, else `~/.cache/autostream`) for the next compilation"
        ),
    )
    rank_timeout: float = Field(
        default=300.0,
        gt=0.0,
        le=86_400.0,
        description="seconds a rank waits for the plans of the others where torch.distributed is initialised",
    )
    strict: bool = Field(
        default=False,
        description="raise instead of falling back to the original graph",
    )
    label_prefix: str = Field(
        default="autostream_",
        min_length=1,
        pattern=r"^[A-Za-z0-9_\-]+$",
        description="prefix of the stream labels that are opened",
    )

    @field_validator("*", mode="before")
    @classmethod
    def _none(cls, value: Any, info: ValidationInfo) -> Any:
        """Take the word ``none`` for None where that is the default, as a command line gives it."""
        default = cls.model_fields[str(info.field_name)].default
        return None if default is None and isinstance(value, str) and value.lower() == "none" else value

    @field_validator("wanted", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """Take ``"a,b"`` for two modules, as a command line gives them."""
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @classmethod
    def of(cls, options: Options | Mapping[str, Any] | None) -> Options:
        """Return Options from None (defaults), a mapping, or Options.

        Raises:
            InputError: names the option, what was given and what is allowed.
        """
        if options is None:
            return cls()
        if isinstance(options, Options):
            return options
        if not isinstance(options, Mapping):
            raise InputError(f"options must be an Options object, a mapping or None, not {type(options).__name__}")
        try:
            return cls(**options)
        except (ValidationError, TypeError) as error:
            raise InputError(_explain(error, cls)) from error

    def fingerprint(self) -> str:
        """Return a short stable hash of every option."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What there is to know of one option, for people."""

    name: str
    #: As Python writes it.
    default: str
    #: Values or range that it may have.
    allowed: str
    #: What it is for, and the unit of its values.
    meaning: str


def described() -> tuple[Described, ...]:
    """Return every option: what help texts, errors and README.md say of it comes from here."""
    return tuple(
        Described(name=name, default=repr(field.default), allowed=_allowed(field), meaning=str(field.description))
        for name, field in Options.model_fields.items()
    )


def _allowed(field: FieldInfo) -> str:
    """Return what a field may hold, from its type and its limits."""
    kinds: dict[Any, str] = {
        bool: "True or False",
        int: "a whole number",
        float: "a number",
        tuple[str, ...]: "names, separated by commas",
    }
    known = [kind for kind in (get_args(field.annotation) or (field.annotation,)) if kind is not type(None)]
    if isinstance(field.default, str):
        words = [repr(word) for word in known if isinstance(word, str)]
        return ", ".join(words) or "letters, digits, '_' and '-', at least one"
    bounds = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    limits = [f"{bounds[key]} {getattr(limit, key)}" for limit in field.metadata for key in bounds if hasattr(limit, key)]
    text = " ".join((kinds.get(field.annotation) or kinds[known[0]], " and ".join(limits))).strip()
    return f"{text}, or None" if field.default is None else text


def _help() -> str:
    """Return the options as a list, for the documentation of the class."""
    told = ((f"{option.name} = {option.default}", f"{option.meaning}. Allowed: {option.allowed}.") for option in described())
    return "\n".join(f"    {head}\n{textwrap.indent(textwrap.fill(text, 100), ' ' * 8)}" for head, text in told)


def _explain(error: Exception, model: type[BaseModel]) -> str:
    if not isinstance(error, ValidationError):
        return f"options: {error}"
    parts = []
    allowed = sorted(model.model_fields)
    for item in error.errors():
        key = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            parts.append(f"unknown option {key!r}{nearest(key, allowed)}; allowed: {', '.join(allowed)}")
        else:
            known = next((option for option in described() if option.name == str(item["loc"][0])), None)
            told = f" (allowed: {known.allowed}; {known.meaning})" if known else ""
            parts.append(f"option {key!r} = {item['input']!r}: {item['msg']}{told}")
    return "; ".join(parts)


Options.__doc__ = f"{Options.__doc__}\n    Options:\n\n{_help()}\n"
