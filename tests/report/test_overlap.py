from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from autostream.program.model import Slot, Timeline
from autostream.report.overlap import overlap, stream_rows
from autostream.report.schema import OpRow
from tests.report import samples


def rows(timeline: Timeline, targets: dict[str, str] | None = None) -> dict[str, OpRow]:
    return {slot.step: OpRow(name=slot.step, target=(targets or {}).get(slot.step, slot.step)) for slot in timeline.slots}


def test_overlap_of_the_sample() -> None:
    found = samples.document().overlap
    assert found.total_ns == 190_000
    assert found.units == {"cube + vector": 190_000}
    longest, second = found.rows
    assert longest.targets == ("aten.exp.default", "aten.mm.default")
    assert (longest.units, longest.streams) == (("vector", "cube"), (samples.SIDE, "default"))
    assert (longest.example, longest.times, longest.ns) == (("exp", "mm_1"), 2, 130_000)
    assert (second.targets, second.ns) == (("aten.mm.default", "aten.mul.Tensor"), 60_000)


def test_operators_that_only_touch_do_not_overlap() -> None:
    timeline = samples.timeline(("a", "s", 0, 10), ("b", "t", 10, 20), ("c", "u", 10, 10))
    assert overlap(timeline, rows(timeline)).total_ns == 0
    assert overlap(timeline, rows(timeline)).rows == ()


def test_three_streams_at_once_count_once_in_total_and_pair_by_pair_in_units() -> None:
    timeline = samples.timeline(("a", "s", 0, 10), ("b", "t", 0, 10), ("c", "u", 0, 10))
    found = overlap(timeline, rows(timeline))
    assert (found.total_ns, found.units) == (10, {"other + other": 30})


def test_the_same_pair_is_one_row_whichever_starts_first() -> None:
    timeline = samples.timeline(("a0", "s", 0, 10), ("b0", "t", 5, 15), ("b1", "t", 20, 30), ("a1", "s", 22, 30))
    targets = {"a0": "A", "a1": "A", "b0": "B", "b1": "B"}
    (row,) = overlap(timeline, rows(timeline, targets)).rows
    assert (row.targets, row.times, row.ns, row.example) == (("A", "B"), 2, 13, ("a1", "b1"))


lanes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 6)), max_size=20)


@given(lanes)
@settings(max_examples=60, deadline=None)
def test_agrees_with_counting_every_nanosecond(drawn: list[tuple[int, int, int]]) -> None:
    ends: dict[int, int] = {}
    slots = []
    for number, (lane, gap, length) in enumerate(drawn):
        start = ends.get(lane, 0) + gap
        ends[lane] = start + length
        slots.append(Slot(step=f"n{number}", stream=f"s{lane}", start=start, end=start + length))
    makespan = max(ends.values(), default=0)
    timeline = Timeline(slots=tuple(sorted(slots, key=lambda slot: slot.start)), makespan=makespan, crossings=0)
    busy = [[slot for slot in slots if slot.start <= now < slot.end] for now in range(makespan)]
    found = overlap(timeline, rows(timeline))
    assert found.total_ns == sum(len(running) > 1 for running in busy)
    assert sum(found.units.values()) == sum(len(running) * (len(running) - 1) // 2 for running in busy)
    assert sum(row.busy_ns for row in stream_rows(timeline, {})) == sum(map(len, busy))
