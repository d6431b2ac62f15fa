"""What a profile says by itself: intervals, overlap, clock, units, gaps."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autostream.errors import InputError
from autostream.profiles import Core, Kernel
from autostream.profiles.clock import recover_clock
from autostream.profiles.intervals import common, covered_at_least, length, overlaps, union, without
from autostream.profiles.reader import read_text
from autostream.profiles.reading import read
from tests.profiles.files import ADD, HCOM, MATMUL, at, table

_intervals = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=8)


def points(intervals: list[tuple[int, int]]) -> set[int]:
    return {at for start, end in intervals for at in range(start, end)}


@given(_intervals, _intervals, _intervals)
def test_interval_arithmetic_is_that_of_sets_of_points(
    first: list[tuple[int, int]], second: list[tuple[int, int]], third: list[tuple[int, int]]
) -> None:
    groups = (first, second, third)
    unions = [union(group) for group in groups]
    sets = [points(group) for group in groups]
    for merged, members in zip(unions, sets, strict=True):
        assert length(merged) == len(members)
        assert all(before[1] < after[0] for before, after in itertools.pairwise(merged))
    assert common(unions[0], unions[1]) == len(sets[0] & sets[1])
    assert points(without(unions[0], unions[1])) == sets[0] - sets[1]
    for times in (1, 2, 3):
        counted = [sum(at in members for members in sets) for at in range(60)]
        assert covered_at_least(unions, times) == sum(number >= times for number in counted)
    for one in groups[1]:
        if one[1] > one[0]:
            assert overlaps([each for each in unions[0] if each[1] > each[0]], one) == bool(points([one]) & sets[0])


def profile_of_three_streams() -> str:
    return table(
        [
            at(MATMUL, "100", "50", Stream_ID="2"),
            at(ADD, "120", "10", Stream_ID="3"),
            at(HCOM, "140", "40"),
            at(MATMUL, "300", "20", Stream_ID="2"),
            at(ADD, "320.5", "1", Stream_ID="2", Step_Id="2"),
        ]
    )


def test_overlap_in_ascends_words() -> None:
    reading = read(read_text(profile_of_three_streams()))
    assert {one.stream: one.busy for one in reading.streams} == {"2": 71_000, "3": 10_000, "communication": 40_000}
    overlap = reading.overlap
    assert overlap.span == 221_500
    assert overlap.computing == 71_000
    assert overlap.communication == 40_000
    assert overlap.communication_not_overlapped == 30_000
    assert overlap.free == 221_500 - 101_000
    assert overlap.two_streams == 20_000  # the addition and the start of the collective beside the product
    assert overlap.hidden == 20_000
    assert (reading.gaps.count, reading.gaps.largest, reading.gaps.total) == (2, 120_000, 120_500)
    assert (reading.gaps.host_bound, reading.gaps.host_bound_total) == (1, 120_000)
    assert {one.unit: one.time for one in reading.units} == {"cube": 70_000, "communication": 40_000, "vector": 11_000}
    assert sum(one.share for one in reading.units) == pytest.approx(1, abs=1e-5)


def test_one_step_and_the_biggest_kernels() -> None:
    profile = read_text(profile_of_three_streams())
    assert read(profile, step=2).kernels == 1
    (biggest,) = read(profile, top=1).biggest
    assert (biggest.type, biggest.kernels, biggest.time, biggest.shapes) == ("MatMulV3", 2, 70_000, "128x64 64x256")
    assert read(profile, top=0).biggest == ()
    with pytest.raises(InputError, match="no step 3; steps: 1, 2"):
        read(profile, step=3)


def test_an_empty_table_reads_as_nothing() -> None:
    reading = read(read_text(table([])))
    assert (reading.kernels, reading.overlap.span, reading.streams, reading.gaps.count) == (0, 0, (), 0)
    assert reading.clock.mhz == 0


def kernel(core: Core, blocks: int, *, mhz: float, cube: bool, cores: int = 10_000, ns: int = 40_000) -> Kernel:
    """Return a kernel whose counters are those of `blocks` blocks, at most `cores` at once."""
    waves = -(-blocks // cores)
    cycles = round(mhz * ns / 1000 * blocks / waves)
    counters = {"aic_time": ns, "aic_cycles": cycles} if cube else {"aiv_time": ns, "aiv_cycles": cycles}
    return Kernel(name="k", type="K", core=core, start=0, duration=ns, blocks=blocks, **counters)


def test_clock_and_cores() -> None:
    kernels = [
        kernel(Core.AI_CORE, 24, mhz=1800, cube=True),
        kernel(Core.AI_CORE, 16, mhz=1800, cube=True),
        kernel(Core.AI_VECTOR_CORE, 48, mhz=1801, cube=False),
        # More blocks than cores: they take turns, and the quotient is a fraction of the clock.
        kernel(Core.AI_VECTOR_CORE, 256, mhz=1800, cube=False, cores=48),
        # Too short to ask.
        kernel(Core.AI_VECTOR_CORE, 99, mhz=700, cube=False, ns=2_000),
    ]
    clock = recover_clock(kernels)
    assert (clock.mhz, clock.aic, clock.aiv) == (1800, 24, 48)
    assert (clock.agreeing, clock.asked) == (3, 4)


def test_vector_kernels_of_2023_are_labelled_ai_core() -> None:
    clock = recover_clock([kernel(Core.AI_CORE, 48, mhz=1850, cube=False), kernel(Core.AI_CORE, 24, mhz=1850, cube=True)])
    assert (clock.aic, clock.aiv) == (24, 48)
    reading = read(read_text(table([{**ADD, "Accelerator Core": "AI_CORE"}])))
    assert [one.unit for one in reading.units] == ["vector"]


def test_of_a_mixed_kernel_only_the_leading_side_is_asked() -> None:
    mixed = Kernel(
        name="fa",
        type="FlashAttentionScore",
        core=Core.MIX_AIC,
        start=0,
        duration=40_000,
        blocks=24,
        mix_blocks=48,
        aic_time=40_000,
        aic_cycles=24 * 40 * 1850,
        aiv_time=40_000,
        aiv_cycles=2 * 48 * 40 * 1850,
    )
    clock = recover_clock([mixed])
    assert (clock.mhz, clock.aic, clock.aiv, clock.asked) == (1850, 24, 0, 1)
