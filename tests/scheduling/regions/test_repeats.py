"""Windows of a deep plan: equal ones are searched once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autostream.scheduling import check
from autostream.scheduling.lists.serial import serial
from autostream.scheduling.machine.division import divide
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.paths import topological
from autostream.scheduling.machine.replay import Plan, replay
from autostream.scheduling.problem import Problem
from autostream.scheduling.regions import repeats
from autostream.scheduling.regions.repeats import climb_repeats
from tests.scheduling.machine.test_division import layers
from tests.scheduling.problems import problems


def feasible(given_problem: Problem, instance: Instance, plan: Plan) -> bool:
    return check(given_problem, plan.schedule(instance, strategy="", bound=0, seconds=0.0)) == ()


@settings(max_examples=40)
@given(problems(most=16, most_modes=2), st.integers(0, 4000), st.data())
def test_it_is_feasible_never_worse_and_the_same_again(given_problem: Problem, effort: int, data: st.DataObject) -> None:
    instance = Instance.of(given_problem)
    unit_stream = [data.draw(st.sampled_from(allowed)) for allowed in instance.allowed]
    stream = [unit_stream[unit] for unit in instance.unit]
    key = [data.draw(st.integers(0, 9)) for _ in instance.names]
    before = replay(instance, stream, topological(instance.before, instance.after, key), [0] * len(instance))
    cuts = data.draw(st.sets(st.integers(0, len(instance) - 1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats, "_FEWEST", 3)
        after = climb_repeats(instance, before, cuts, effort)
        assert climb_repeats(instance, before, cuts, effort) == after
    assert after.rank <= before.rank
    assert feasible(given_problem, instance, after)
    assert after == before or effort > len(instance)


@pytest.mark.parametrize("count", [60, 240])
def test_equal_windows_are_searched_once(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    original = repeats.climb
    monkeypatch.setattr(repeats, "climb", lambda alone, *rest: searched.append(len(alone)) or original(alone, *rest))
    instance = Instance.of(layers(count))
    cuts = [segment.entry for segment in divide(instance).segments if segment.entry is not None]
    before = serial(instance)
    after = climb_repeats(instance, before, cuts, 10**6)
    # In each of two rounds the first window, those in the middle, and a shorter one at the end.
    assert len(searched) <= 6
    # All of them gained, not only those that were searched: 40 ns of overlap a layer, but for syncs.
    assert after.makespan < before.makespan - count * 25


def test_windows_begin_at_cuts_or_where_none_is_near() -> None:
    fewest = repeats._FEWEST
    order = list(range(5 * fewest))
    assert repeats._borders(order, {1, fewest + 3, fewest + 5}, 0) == [0, fewest + 3, 3 * fewest + 3, 5 * fewest]
    assert repeats._borders(order, {1, fewest + 3, fewest - 5}, 8)[:2] == [0, fewest - 5]
