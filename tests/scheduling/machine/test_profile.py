"""Free cores over time and the gaps of a stream, against a second-by-second model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autostream.scheduling.machine.profile import Lane, Profile
from autostream.scheduling.machine.resources import Packing

_CAPACITY = (2, 3, 10, 1)
_PACKING = Packing(_CAPACITY)
_REQUESTS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 6), st.tuples(*(st.integers(0, most) for most in _CAPACITY))), max_size=12
)


@given(_REQUESTS)
def test_profile_gives_the_first_time_with_room(requests: list[tuple[int, int, tuple[int, int, int, int]]]) -> None:
    profile = Profile(_PACKING)
    used = [[0, 0, 0, 0] for _ in range(200)]
    for ready, duration, demand in requests:
        start = profile.earliest(ready, duration, _PACKING.pack(demand))
        expected = next(
            time
            for time in range(ready, 200)
            if all(used[now][kind] + demand[kind] <= _CAPACITY[kind] for now in range(time, time + duration) for kind in range(4))
        )
        assert start == expected
        profile.hold(start, start + duration, _PACKING.pack(demand))
        for now in range(start, start + duration):
            used[now] = [held + more for held, more in zip(used[now], demand, strict=True)]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6)), max_size=15))
def test_lane_gives_the_first_gap_that_is_long_enough(requests: list[tuple[int, int]]) -> None:
    lane = Lane()
    busy: set[int] = set()
    for ready, duration in requests:
        start = lane.earliest(ready, duration)
        assert start == next(time for time in range(ready, 200) if busy.isdisjoint(range(time, time + duration)))
        lane.hold(start, start + duration)
        busy |= set(range(start, start + duration))
    assert lane.used == bool(requests)


def test_touching_stretches_are_one_step() -> None:
    profile, lane = Profile(_PACKING), Lane()
    for number in range(100):
        profile.hold(number, number + 1, _PACKING.pack((2, 0, 0, 0)))
        lane.hold(number, number + 1)
    assert len(profile._times) == 2
    assert len(lane._starts) == 1
