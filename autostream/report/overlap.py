"""Read a simulated timeline: how busy each stream is, and what runs beside what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from autostream.program.model import Slot, Timeline
from autostream.report.schema import OpRow, Overlap, OverlapRow, StreamRow

#: Kinds of overlap a document keeps.
LONGEST = 50
#: Unit name of a step that is none of the graph's operators.
OTHER = "other"


def unit_of(row: OpRow | None) -> str:
    """Return the unit an operator is counted under."""
    return row.unit.value if row is not None and row.unit is not None else OTHER


def stream_rows(timeline: Timeline, rows: Mapping[str, OpRow]) -> tuple[StreamRow, ...]:
    """Return one row per stream that is ever busy, in order of first use; `rows` maps a step to its operator."""
    lanes: dict[str, list[Slot]] = {}
    for slot in timeline.slots:
        if slot.end > slot.start:
            lanes.setdefault(slot.stream, []).append(slot)
    return tuple(_stream_row(name, lane, timeline.makespan, rows) for name, lane in lanes.items())


def _stream_row(name: str, lane: Sequence[Slot], makespan: int, rows: Mapping[str, OpRow]) -> StreamRow:
    units: dict[str, int] = {}
    for slot in lane:
        unit = unit_of(rows.get(slot.step))
        units[unit] = units.get(unit, 0) + slot.end - slot.start
    busy = sum(units.values())
    return StreamRow(
        name=name,
        ops=len(lane),
        start_ns=min(slot.start for slot in lane),
        end_ns=max(slot.end for slot in lane),
        busy_ns=busy,
        share=round(busy / makespan, 6) if makespan else 0.0,
        units=units,
    )


def overlap(timeline: Timeline, rows: Mapping[str, OpRow]) -> Overlap:
    """Return what runs beside what; `rows` maps a step to its operator."""
    units: dict[str, int] = {}
    kinds: dict[tuple[tuple[str, str], ...], list[tuple[Slot, Slot]]] = {}
    for pair in _concurrent(timeline.slots):
        # Name the same pair of kinds the same way whichever of the two started first.
        ordered = sorted(pair, key=lambda slot: (_target(slot, rows), slot.stream, slot.step))
        key = " + ".join(sorted(unit_of(rows.get(slot.step)) for slot in ordered))
        units[key] = units.get(key, 0) + _shared(*pair)
        kind = tuple((_target(slot, rows), slot.stream) for slot in ordered)
        kinds.setdefault(kind, []).append((ordered[0], ordered[1]))
    table = sorted((_overlap_row(pairs, rows) for pairs in kinds.values()), key=lambda row: (-row.ns, row.targets, row.streams))
    return Overlap(total_ns=_busy_together(timeline.slots), units=units, rows=tuple(table[:LONGEST]))


def _overlap_row(pairs: Sequence[tuple[Slot, Slot]], rows: Mapping[str, OpRow]) -> OverlapRow:
    first, second = max(pairs, key=lambda pair: _shared(*pair))
    return OverlapRow(
        targets=(_target(first, rows), _target(second, rows)),
        units=(unit_of(rows.get(first.step)), unit_of(rows.get(second.step))),
        streams=(first.stream, second.stream),
        example=(_name(first, rows), _name(second, rows)),
        times=len(pairs),
        ns=sum(_shared(*pair) for pair in pairs),
    )


def _concurrent(slots: Sequence[Slot]) -> Iterator[tuple[Slot, Slot]]:
    """Yield the pairs of slots on different streams that share some time."""
    running: list[Slot] = []
    for slot in sorted(slots, key=lambda slot: slot.start):
        if slot.end == slot.start:
            continue
        running = [other for other in running if other.end > slot.start]
        yield from ((other, slot) for other in running if other.stream != slot.stream)
        running.append(slot)


def _busy_together(slots: Sequence[Slot]) -> int:
    """Return the time during which at least two streams are busy."""
    changes = sorted(change for slot in slots for change in ((slot.start, 1), (slot.end, -1)))
    total, busy, since = 0, 0, 0
    for time, step in changes:
        if busy > 1:
            total += time - since
        busy, since = busy + step, time
    return total


def _shared(one: Slot, two: Slot) -> int:
    return min(one.end, two.end) - max(one.start, two.start)


def _target(slot: Slot, rows: Mapping[str, OpRow]) -> str:
    row = rows.get(slot.step)
    return row.target if row is not None else OTHER


def _name(slot: Slot, rows: Mapping[str, OpRow]) -> str:
    row = rows.get(slot.step)
    return row.name if row is not None else slot.step
