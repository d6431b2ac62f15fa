"""Schedules with no more waits than allowed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from autostream.scheduling import HCCL, Capped, capped, check, crossings
from autostream.scheduling.lists.greedy import Greedy
from autostream.scheduling.lists.serial import Serial
from autostream.scheduling.plans import Kept
from autostream.scheduling.problem import Problem, Schedule
from autostream.scheduling.regions.divided import Divided
from tests.scheduling.local.test_climb import interfering
from tests.scheduling.machine.test_division import layers
from tests.scheduling.problems import comm, cube, problem, problems, vector

_BUDGET = 0.02


def within(given_problem: Problem, schedule: Schedule, most: int) -> Schedule:
    return Capped(schedule, _BUDGET).solve(replace(given_problem, max_waits=most))


@settings(max_examples=20)
@given(problems(most=12, most_modes=2))
def test_never_more_waits_nor_longer_than_in_order_and_never_longer_where_more_are_allowed(plain: Problem) -> None:
    given_problem = interfering(plain)
    schedule = Divided(budget=_BUDGET, max_tasks=50).solve(given_problem)
    in_order = Serial().solve(given_problem)
    fewest, times = crossings(given_problem, in_order), []
    for most in sorted({fewest, fewest + 1, fewest + 3, max(fewest, crossings(given_problem, schedule))}):
        found = within(given_problem, schedule, most)
        assert check(replace(given_problem, max_waits=most), found) == ()
        assert found.lower_bound == schedule.lower_bound <= found.makespan <= in_order.makespan
        times.append(found.makespan)
    assert times == sorted(times, reverse=True)
    assert times[-1] <= max(schedule.makespan, in_order.makespan)


def test_layers_keep_as_many_branches_as_have_their_waits() -> None:
    given_problem = layers(6)
    schedule = Divided(budget=_BUDGET, max_tasks=50).solve(given_problem)
    assert (schedule.makespan, crossings(given_problem, schedule)) == (6 * 80, 12)
    for most in range(13):
        found = within(given_problem, schedule, most)
        assert found.makespan == 6 * 120 - most // 2 * 40
        statuses = [region.status for region in found.regions]
        assert statuses.count("optimal") == most // 2 and statuses.count("serial") == 6 - most // 2
        assert sum(region.crossings for region in found.regions) == crossings(given_problem, found)


def test_without_a_limit_it_is_the_schedule_that_was_given() -> None:
    schedule = Greedy().solve(layers(2))
    assert Capped(schedule, _BUDGET).solve(layers(2)) is schedule


def test_a_schedule_without_regions_stays_without() -> None:
    found = within(layers(3), Greedy().solve(layers(3)), 2)
    assert found.regions == () and found.strategy == "greedy"
    assert crossings(layers(3), found) == 2


def test_fewer_than_the_fixed_tasks_need_is_the_fewest_there_are() -> None:
    given_problem = problem([cube("a", 10), comm("c", 20), vector("v", 30), cube("b", 10)], ["a>c>b", "v>b"], fixed=(HCCL,))
    found = within(given_problem, Greedy().solve(given_problem), 1)
    assert crossings(given_problem, found) == 2
    (wrong,) = check(replace(given_problem, max_waits=1), found)
    assert wrong == "2 precedences change streams, allowed: 1"


def test_answers_are_kept_for_each_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given_problem = layers(3)
    schedule = Greedy().solve(given_problem)
    solver = Kept(Capped(schedule, _BUDGET), tmp_path, identity="x")
    solved = [solver.solve(replace(given_problem, max_waits=most)) for most in (2, 4)]
    assert len(list(tmp_path.glob("*.json"))) == 2
    monkeypatch.setattr(capped, "searched_frontier", lambda *_: pytest.fail("searched again"))
    assert [solver.solve(replace(given_problem, max_waits=most)) for most in (2, 4)] == solved
