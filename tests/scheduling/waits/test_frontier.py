"""How short a plan can be with how few crossings: against enumeration, the published rules and itself."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autostream.scheduling import HCCL
from autostream.scheduling.baselines import BASELINES
from autostream.scheduling.exact.depth_first import searched
from autostream.scheduling.lists.serial import serial
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan
from autostream.scheduling.problem import Problem
from autostream.scheduling.waits.frontier import Frontier, frontier
from tests.scheduling.local.test_climb import feasible, interfering
from tests.scheduling.problems import comm, cube, optimum, printed, problem, problems, vector

_ENOUGH = 100_000


def at(crossings: int, makespan: int, *streams: int) -> Plan:
    return Plan(stream=streams or (0,), mode=(0,), start=(0,), end=(makespan,), crossings=crossings)


def test_the_points_are_those_that_more_crossings_make_shorter() -> None:
    found = Frontier()
    assert found.points() == [] and found.within(9) is None
    found.add([at(4, 80), at(0, 100), at(2, 100), at(3, 90), at(3, 95), at(6, 80)])
    assert [(plan.crossings, plan.makespan) for plan in found.points()] == [(0, 100), (3, 90), (4, 80)]
    assert [found.within(most) for most in (0, 2, 3, 9)] == [at(0, 100), at(0, 100), at(3, 90), at(4, 80)]


def test_of_equally_long_plans_the_one_on_fewer_streams_is_kept_then_the_first() -> None:
    found = Frontier()
    found.add([at(2, 50, 0, 1, 2), at(2, 50, 0, 1), at(2, 50, 0, 2)])
    assert found.within(2) == at(2, 50, 0, 1)


def searched_for(plain: Problem, budget: float = 0.02) -> tuple[Problem, Instance, Frontier]:
    given_problem = interfering(plain)
    instance = Instance.of(given_problem)
    return given_problem, instance, frontier(instance, [], budget)


@settings(max_examples=40)
@given(problems(most=12, most_modes=2))
def test_no_more_crossings_than_allowed_and_never_longer_where_more_are(plain: Problem) -> None:
    given_problem, instance, found = searched_for(plain)
    in_order, points = serial(instance), found.points()
    assert points[0].crossings <= in_order.crossings
    for most in range(points[0].crossings, points[-1].crossings + 2):
        plan = found.within(most)
        assert plan is not None and plan.crossings <= most
        assert feasible(replace(given_problem, max_waits=most), instance, plan)
        assert most < in_order.crossings or plan.makespan <= in_order.makespan
    assert all(one.crossings < other.crossings and one.makespan > other.makespan for one, other in pairwise(points))


@settings(max_examples=20)
@given(problems(most=12))
def test_as_good_as_every_rule_whose_waits_are_allowed(plain: Problem) -> None:
    given_problem, _, found = searched_for(plain)
    for name, rule in BASELINES.items():
        schedule = rule().solve(given_problem)
        stream = {placement.task: placement.stream for placement in schedule.placements}
        waits = sum(stream[one.before] != stream[one.after] for one in given_problem.precedences)
        plan = found.within(waits)
        assert plan is not None and plan.makespan <= schedule.makespan, name


@settings(max_examples=8)
@given(problems(most=12))
def test_the_same_again(plain: Problem) -> None:
    assert searched_for(plain)[2] == searched_for(plain)[2]


@settings(max_examples=40)
@given(problems(most=5, side=1, shortest=0))
def test_what_is_proved_for_a_number_of_crossings_is_true(plain: Problem) -> None:
    given_problem, _, found = searched_for(plain, 0.2)
    for most, lower in found.proven.items():
        plan = found.within(most)
        assert plan is not None
        assert lower <= optimum(given_problem, most) <= plan.makespan


@settings(max_examples=25)
@given(problems(most=5, side=1), st.integers(0, 4))
def test_the_exact_search_keeps_to_the_most_crossings(plain: Problem, most: int) -> None:
    given_problem = interfering(plain)
    instance = Instance.of(given_problem)
    known = serial(instance)
    found = searched(instance, known.makespan + 1, _ENOUGH, most)
    assert found.proven is not None
    if found.plan is not None:
        assert found.plan.crossings <= most
        assert found.proven <= optimum(given_problem, most) <= found.plan.makespan
    elif known.crossings <= most:
        assert found.proven == known.makespan + 1 == optimum(given_problem, most) + 1


def test_every_number_of_crossings_is_proved() -> None:
    """With two crossings the longest branch leaves the others behind, with four nothing waits for a sync."""
    tasks = [cube("in", 10), cube("main", 90), vector("long", 40), vector("short", 30), cube("out", 10)]
    given_problem = problem(tasks, [f"in>{name}>out" for name in ("main", "long", "short")], sync=1)
    found = frontier(Instance.of(given_problem), [], 0.1)
    assert [(plan.crossings, plan.makespan) for plan in found.points()] == [(0, 180), (2, 112), (3, 111), (4, 110)]
    assert found.proven == {0: 180, 1: 180, 2: 112, 3: 111, 4: 110}


def test_the_waits_of_collectives_cannot_be_saved() -> None:
    tasks = [cube("a", 10), comm("gather", 20), vector("beside", 30), cube("b", 10)]
    given_problem = problem(tasks, ["a>gather>b", "beside>b"], sync=1, fixed=(HCCL,))
    found = frontier(Instance.of(given_problem), [], 0.1)
    assert found.points()[0].crossings == 2 and found.within(1) is None


_PROGRAM = """
import hashlib
from autostream.scheduling.waits.frontier import frontier
from autostream.scheduling.machine.instance import Instance
from tests.scheduling.solver.test_windows import weave
found = frontier(Instance.of(weave(20)), [], 0.02)
print(hashlib.sha256(repr((sorted(found.plans.items()), found.proven)).encode()).hexdigest())
"""


def test_the_answer_does_not_depend_on_the_hash_seed() -> None:
    assert len(printed(_PROGRAM)) == 1


@pytest.mark.parametrize("budget", [0.001, 0.01])
def test_little_effort_is_enough_for_an_answer(budget: float) -> None:
    tasks = [task for n in range(20) for task in (cube(f"c{n}", 10), vector(f"v{n}", 10))]
    edges = [f"{kind}{n}>c{n + 1}" for n in range(19) for kind in "cv"]
    found = frontier(Instance.of(problem(tasks, edges, sync=1)), [], budget)
    assert found.points()[0].crossings == 0
    assert found.points()[-1].makespan < found.points()[0].makespan
