"""The fewest crossings of a region."""

from __future__ import annotations

from hypothesis import given, settings

from autostream.scheduling.baselines.rules import ruled
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.problem import Problem
from autostream.scheduling.waits.fewest import least_crossed
from tests.scheduling.local.test_climb import feasible, interfering
from tests.scheduling.local.test_joining import run
from tests.scheduling.problems import cube, optimum, problem, problems, vector


@settings(max_examples=25)
@given(problems(most=5))
def test_no_plan_of_a_small_problem_is_as_short_with_fewer_crossings(plain: Problem) -> None:
    given_problem = interfering(plain)
    instance = Instance.of(given_problem)
    plan = min(ruled(instance), key=lambda one: one.rank)
    found = least_crossed(instance, plan, 1.0, 100)
    assert found.rank <= plan.rank
    assert feasible(given_problem, instance, found)
    if found.crossings:
        assert optimum(given_problem, found.crossings - 1) > found.makespan


def test_a_detour_over_a_third_stream_is_taken_back() -> None:
    tasks = [cube("a", 10), cube("b", 30), vector("c", 10), vector("d", 10), cube("e", 10)]
    instance = Instance.of(problem(tasks, ["a>b>e", "a>c>d>e"], sync=1))
    plan = run(instance, {"c": 1, "d": 2})
    assert plan.rank == (50, 3, 3)
    found = least_crossed(instance, plan, 1.0, 100)
    assert (found.crossings, len(set(found.stream))) == (2, 2)
    assert found.makespan <= plan.makespan
