"""Guards of memory in the capture modes: what a program says another stream uses too, so that it is not given back too early."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autostream.program.model import Lost, Step

#: Operators whose result is a copy: the copy may be guarded where the original was meant.
_COPIES = frozenset({"aten.clone.default", "aten.copy.default", "aten._to_copy.default", "aten.lift_fresh_copy.default"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """One ``record_stream``: the memory of a value is used on `stream` too.

    `producer` is the node that computes the value, `copied` the storages it gets its data from.
    """

    node: str
    stream: str
    producer: str
    storages: tuple[str, ...]
    copied: tuple[str, ...]


def guard_complaints(guards: Sequence[Guard], steps: Sequence[Step]) -> Iterator[Lost]:
    """Yield the guards that keep nothing: on the stream the memory belongs to, on a copy, or where the stream does not use it."""
    by_name = {step.name: step for step in steps}
    for guard in guards:
        producer = by_name.get(guard.producer)
        if producer is None:
            continue  # an input of the graph: its memory is not the graph's to give back
        if producer.stream == guard.stream:
            text = f"{guard.node!r} guards a value of {guard.producer!r} for stream {guard.stream!r}, where it was made"
            yield Lost(kind="guard-on-own-stream", step=guard.node, before=guard.producer, explanation=text)
        elif not _uses(steps, guard.stream, guard.storages):
            on_copy = producer.kind in _COPIES and _uses(steps, guard.stream, guard.copied)
            what = "a copy that" if on_copy else f"a value of {guard.producer!r} that"
            text = f"{guard.node!r} guards {what} stream {guard.stream!r} does not use"
            text += f"; it uses what {guard.producer!r} copies, which stays unguarded" if on_copy else ""
            kind = "guard-on-copy" if on_copy else "guard-without-use"
            yield Lost(kind=kind, step=guard.node, before=guard.producer, explanation=text)


def _uses(steps: Sequence[Step], stream: str, storages: Sequence[str]) -> bool:
    wanted = set(storages)
    return any(step.stream == stream and not wanted.isdisjoint((*step.reads, *step.writes)) for step in steps)
