"""Options of autostream: frozen, validated, with a fingerprint that identifies them in caches and reports."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from autostream.errors import InputError, nearest


class Options(BaseModel):
    """What a user may set. Every field has a default that is right for most models.

    Raises:
        InputError: through `Options.of`, for an unknown key or a value out of range.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: How to solve: ``auto`` and ``cpsat`` = greedy, improved by CP-SAT region by region.
    strategy: Literal["auto", "serial", "greedy", "cpsat"] = "auto"
    #: Side streams the scheduler may open beside the default one.
    side_streams: int = Field(default=2, ge=0, le=8)
    #: Smallest simulated gain (share of the serial time) worth a rewrite.
    min_gain: float = Field(default=0.01, ge=0.0, lt=1.0)
    #: CP-SAT's deterministic time budget (its own unit, about a second on one core).
    solver_budget: float = Field(default=2.0, gt=0.0, le=600.0)
    #: Largest number of tasks of one CP-SAT model; larger regions are improved in windows of at most so many.
    solver_max_tasks: int = Field(default=150, ge=1)
    #: Credit two kernels of one kind (both Cube, or both Vector) with running at once where their cores suffice. No public
    #: profile shows that; by default they take turns, as kernels that ask for every core do.
    same_unit_overlap: bool = False
    #: Let operators of one kind run at once on parts of the chip, by explicit limits on their cores, where their kernels are
    #: known to keep a limit. Off by default: no public profile shows how much two such kernels slow each other down.
    core_limits: bool = False
    #: Allow collectives on side streams (off: they stay on the engine's own communication stream).
    side_collectives: bool = False
    #: Streams and events that all graphs compiled in one process may take together; None = what the chip file says.
    stream_budget: int | None = Field(default=None, ge=1)
    event_budget: int | None = Field(default=None, ge=0)
    #: Waits between two streams that the scheduled graph may have, those of its collectives included; None = as many as pay.
    #: Of the plans with no more, the shortest that is found is taken.
    max_waits: int | None = Field(default=None, ge=0)
    #: Bytes of intermediate buffers that the schedule may take at its peak beyond the graph as given; None = no cap.
    max_extra_bytes: int | None = Field(default=None, ge=0)
    #: Modules (``layers.0.shared_expert``, or an end of such a path) that are meant to run beside the rest: the report says for
    #: each what became of it, and with `strict` one that is not in the graph is an error.
    wanted: tuple[str, ...] = ()
    #: Keep the solver's answers on disk (in ``$AUTOSTREAM_CACHE``, else ``~/.cache/autostream``) for the next compilation.
    plan_cache: bool = True
    #: Seconds that a rank waits for the plans of the ranks it compiles a graph with, where torch.distributed is initialised.
    rank_timeout: float = Field(default=300.0, gt=0.0, le=86_400.0)
    #: Raise instead of falling back to the original graph when anything fails.
    strict: bool = False
    #: Prefix of the stream labels autostream opens.
    label_prefix: str = Field(default="autostream_", min_length=1, pattern=r"^[A-Za-z0-9_\-]+$")

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
            parts.append(f"option {key!r} = {item['input']!r}: {item['msg']}")
    return "; ".join(parts)
