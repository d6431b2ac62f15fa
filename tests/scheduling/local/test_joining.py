"""Crossings that go because work joins its neighbours, or because two streams take each other's work."""

from __future__ import annotations

from hypothesis import given, settings

from autostream.scheduling.baselines.rules import ruled
from autostream.scheduling.local.joining import joined
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan, replay
from autostream.scheduling.problem import MAIN, Problem
from tests.scheduling.local.test_climb import feasible, interfering
from tests.scheduling.problems import cube, problem, problems, vector
from tests.scheduling.solver.test_windows import weave


def run(instance: Instance, streams: dict[str, int]) -> Plan:
    """Program order on the given streams, 0 for tasks that are not named."""
    count = len(instance)
    return replay(instance, [streams.get(name, 0) for name in instance.names], range(count), [0] * count)


@settings(max_examples=25)
@given(problems(most=14, most_modes=2))
def test_it_is_feasible_with_no_more_crossings_within_the_limit_and_the_same_again(plain: Problem) -> None:
    given_problem = interfering(plain)
    instance = Instance.of(given_problem)
    for before in ruled(instance):
        limit = before.makespan + 3
        after = joined(instance, before, limit, 500)
        assert feasible(given_problem, instance, after)
        assert after.makespan <= limit
        assert after.crossings < before.crossings or after == before
        assert joined(instance, before, limit, 500) == after


def test_a_chain_that_was_dealt_out_comes_together() -> None:
    tasks = [cube("a", 10), cube("b", 10), cube("c", 10), vector("v", 25)]
    instance = Instance.of(problem(tasks, ["a>b>c"], sync=0))
    before = run(instance, {"b": 1, "v": 2})
    assert (before.makespan, before.crossings) == (30, 2)
    after = joined(instance, before, 30, 1000)
    assert (after.makespan, after.crossings) == (30, 0)


def test_two_chains_that_change_places_change_back() -> None:
    """Both are longer than what moves at once, so only an exchange of all that follows helps."""
    length = 10
    cubes, vectors = [f"c{n}" for n in range(2 * length)], [f"v{n}" for n in range(2 * length)]
    tasks = [task for one, other in zip(cubes, vectors, strict=True) for task in (cube(one, 10), vector(other, 10))]
    instance = Instance.of(problem(tasks, [">".join(cubes), ">".join(vectors)], side=1))
    before = run(instance, dict.fromkeys([*cubes[length:], *vectors[:length]], 1))
    assert before.crossings == 2
    after = joined(instance, before, before.makespan, 100_000)
    assert (after.makespan, after.crossings) == (200, 0)


def test_a_crossing_may_cost_one_sync() -> None:
    """The short task costs what it takes where it joins the longer branch."""
    for short, crossings in ((4, 1), (5, 2)):
        tasks = [cube("short", short, aic=1), cube("long", 60, aic=1, stream=MAIN), vector("beside", 40)]
        tasks.append(cube("join", 10, aic=1, stream=MAIN))
        instance = Instance.of(problem(tasks, ["short>join", "long>join", "beside>join"], sync=4))
        before = run(instance, {"short": 1, "beside": 1})
        assert (before.makespan, before.crossings) == (70, 2)
        assert joined(instance, before, 100, 1000).crossings == crossings
        assert joined(instance, before, 70, 1000) == before


def test_a_long_program_is_tried_in_stretches() -> None:
    given_problem = interfering(weave(140))
    instance = Instance.of(given_problem)
    before = min(ruled(instance), key=lambda plan: plan.rank)
    after = joined(instance, before, before.makespan, 20_000)
    assert feasible(given_problem, instance, after)
    assert after.makespan <= before.makespan
    assert after.crossings < before.crossings


def test_without_effort_nothing_changes() -> None:
    instance = Instance.of(problem([cube("a", 10), cube("b", 10)], ["a>b"]))
    before = run(instance, {"b": 1})
    assert joined(instance, before, 1000, 0) == before
    assert joined(instance, before, 1000, 2).crossings == 0
