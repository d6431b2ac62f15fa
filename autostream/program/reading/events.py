"""The capture modes' vocabulary of synchronisation: named events, waits between streams, and guards of memory.

``torch.ops.air`` has it for reduce-overhead, ``torch.ops.npugraph_ex`` for the backend of that name. An event is known by its
tag: a record marks everything issued so far on one stream, a wait makes everything issued later on another come after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from torch import fx

from autostream.program.model import Lost, Semantics

_NAMESPACES = ("air", "npugraph_ex")
#: TorchAir's spelling of "the stream the graph runs on" where a stream number is expected.
_DEFAULT_MARKERS = frozenset({"DEFAULT_STREAM_ID_MARKER", "default"})
_STREAM_ID = "_user_stream_id"
_LABEL = "_user_stream_label"

#: Operators that exist under a name and do nothing, or cannot be converted, by semantics.
_NOT_LOWERED: Mapping[Semantics, Mapping[str, str]] = {
    Semantics.CAPTURE: {
        "npugraph_ex.record.default": "npugraph_ex runs it as a no-op: it returns an empty tensor",
        "npugraph_ex.wait.default": "npugraph_ex runs it as a no-op: nothing waits",
        "air.wait_tensor.default": "the capture modes have no kernel for it",
    },
    Semantics.GE: {
        f"{space}.{name}": "max-autotune has no converter for it"
        for space in _NAMESPACES
        for name in (
            "tagged_event_record.default",
            "tagged_event_wait.default",
            "tagged_event_record_on_stream.default",
            "tagged_event_wait_on_stream.default",
            "tagged_stream_wait_stream.default",
            "record_tagged_stream.default",
            "record_tagged_on_stream.default",
        )
    }
    | {f"npugraph_ex.{name}.default": "max-autotune has no converter for it" for name in ("record", "wait")},
}


class Action(StrEnum):
    """What a node of the vocabulary does."""

    RECORD = "record"
    WAIT = "wait"
    WAIT_STREAM = "wait-stream"
    GUARD = "guard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """One node of the vocabulary.

    `tag` is the event's. `stream` is the stream that acts, as the node spells it (None: the current one); `other` the stream that
    is waited for; `tensor` what a guard keeps.
    """

    action: Action
    tag: str = ""
    stream: str | None = None
    other: str = ""
    tensor: fx.Node | None = None


def sync_of(node: fx.Node) -> Sync | None:
    """Return what a node does to events, streams or memory; None for every other node."""
    space, _, name = str(node.target).partition(".")
    if space not in _NAMESPACES:
        return None
    match name.removesuffix(".default"):
        case "tagged_event_record":
            return Sync(action=Action.RECORD, tag=_text(node, 0, "tag"))
        case "tagged_event_record_on_stream":
            return Sync(action=Action.RECORD, tag=_text(node, 0, "event_tag"), stream=_text(node, 1, "stream_id"))
        case "tagged_event_wait":
            return Sync(action=Action.WAIT, tag=_text(node, 0, "tag"))
        case "tagged_event_wait_on_stream":
            return Sync(action=Action.WAIT, tag=_text(node, 0, "event_tag"), stream=_text(node, 1, "stream_id"))
        case "tagged_stream_wait_stream":
            waiting, awaited = _text(node, 0, "stream_id"), _text(node, 3, "other_stream_id")
            return Sync(action=Action.WAIT_STREAM, stream=waiting, other=awaited)
        case "record_tagged_stream" | "record_tagged_stream_" | "record_tagged_on_stream" | "record_tagged_on_stream_" as guard:
            key = "stream_id" if "on_stream" in guard else "tag"
            tensor = node.args[0] if node.args else node.kwargs.get("input")
            given = tensor if isinstance(tensor, fx.Node) else None
            return Sync(action=Action.GUARD, stream=_text(node, 1, key), tensor=given)
    return None


def not_lowered(target: str, semantics: Semantics) -> str:
    """Return why the backend makes nothing of a synchronisation; empty if it does."""
    return _NOT_LOWERED[semantics].get(target, "")


def needs_capture(graph_module: fx.GraphModule) -> bool:
    """Return True if a graph synchronises in words that only the capture modes know."""
    return any(
        sync_of(node) is not None or str(node.target).startswith("npugraph_ex.")
        for node in graph_module.graph.nodes
        if node.op == "call_function"
    )


def streams_by_id(graph_module: fx.GraphModule) -> dict[str, str]:
    """Return the stream labels by the stream numbers that scopes give beside them."""
    found: dict[str, str] = {}
    for node in graph_module.graph.nodes:
        if str(node.target).endswith(".scope_enter.default") and len(node.args) > 1:
            keys, values = node.args[0], node.args[1]
            given: dict[Any, Any] = dict(zip(keys, values, strict=False)) if isinstance(keys, (list, tuple)) else {}
            if _STREAM_ID in given and _LABEL in given:
                found[str(given[_STREAM_ID])] = str(given[_LABEL])
    return found


def is_default_stream(name: str) -> bool:
    """Return True for a spelling of the stream the graph runs on."""
    return name in _DEFAULT_MARKERS


def _text(node: fx.Node, position: int, name: str) -> str:
    value = node.args[position] if position < len(node.args) else node.kwargs.get(name, "")
    return value.name if isinstance(value, fx.Node) else str(value)


@dataclass(slots=True)
class _Event:
    """What the graph does with one tag, as far as it has been walked."""

    records: list[str] = field(default_factory=list)
    #: (node, stream) of every wait, and of those that came before any record.
    waits: list[tuple[str, str]] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    #: Last task on the recording stream when it was recorded last, and that stream.
    before: str | None = None
    stream: str | None = None


class Events:
    """The named events of a graph while it is walked."""

    def __init__(self) -> None:
        self._events: dict[str, _Event] = {}

    def record(self, node: str, tag: str, stream: str | None, before: str | None) -> None:
        """Note that a stream records an event; `before` is its last task so far."""
        event = self._events.setdefault(tag, _Event())
        event.records.append(node)
        event.before, event.stream = before, stream

    def wait(self, node: str, tag: str, stream: str) -> tuple[str | None, str | None] | None:
        """Note that a stream waits for an event; return the task and the stream of its latest record, None if there is none."""
        event = self._events.setdefault(tag, _Event())
        event.waits.append((node, stream))
        if event.records:
            return event.before, event.stream
        event.early.append(node)
        return None

    def complaints(self, labels: set[str]) -> Iterator[Lost]:
        """Yield what is wrong with the events once the whole graph has been walked; `labels` are its streams."""
        for tag, event in self._events.items():
            for node in event.early:
                yield _early(node, tag, event, labels)
            if not event.waits:
                text = f"nothing waits for event {tag!r}, which {event.records[0]!r} records"
                yield Lost(kind="unused-record", step=event.records[-1], explanation=text)
            if len(event.records) > 1:
                names = ", ".join(repr(name) for name in event.records)
                text = f"event {tag!r} is recorded {len(event.records)} times ({names}): a wait means the latest record before it"
                yield Lost(kind="event-recorded-twice", step=event.records[-1], explanation=text)
            streams = tuple(dict.fromkeys(stream for _, stream in event.waits))
            if len(streams) > 1:
                text = f"event {tag!r} is waited for on {len(streams)} streams ({', '.join(streams)})"
                yield Lost(kind="event-awaited-twice", step=event.waits[-1][0], explanation=text)


def _early(node: str, tag: str, event: _Event, labels: set[str]) -> Lost:
    if event.records:
        text = f"{node!r} waits for event {tag!r}, which only {event.records[0]!r} records, later: it meets the replay before"
        return Lost(kind="event-recorded-later", step=node, explanation=text)
    if tag in labels:
        text = f"{node!r} waits for {tag!r}, which is a stream and no event that the graph records"
        return Lost(kind="stream-as-event", step=node, explanation=text)
    text = f"{node!r} waits for event {tag!r}, which nothing in the graph records"
    return Lost(kind="event-never-recorded", step=node, explanation=text)
