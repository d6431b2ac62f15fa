"""Crossings shared out among segments."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from autostream.scheduling.capped import plan_of
from autostream.scheduling.machine.division import divide
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan
from autostream.scheduling.problem import Problem
from autostream.scheduling.regions.divided import Divided
from autostream.scheduling.waits.portions import best_choices, shared_out
from tests.scheduling.local.test_climb import feasible, interfering
from tests.scheduling.local.test_joining import run
from tests.scheduling.machine.test_division import layers
from tests.scheduling.problems import cube, optimum, problem, problems, vector
from tests.scheduling.waits.test_descent import branched

#: Points by crossings, ever shorter.
_rows = st.lists(
    st.dictionaries(st.integers(0, 6), st.integers(0, 40), min_size=1, max_size=4).map(
        lambda row: list(zip(sorted(row), sorted(set(row.values()), reverse=True), strict=False))
    ),
    min_size=1,
    max_size=4,
)


@given(_rows)
def test_every_choice_is_the_best_for_its_number_of_crossings(rows: list[list[tuple[int, int]]]) -> None:
    best: dict[int, int] = {}
    for choice in itertools.product(*rows):
        crossings, time = sum(one[0] for one in choice), sum(one[1] for one in choice)
        best[crossings] = min(time, best.get(crossings, time))
    shorter = [crossings for crossings in sorted(best) if all(best[crossings] < best[one] for one in best if one < crossings)]
    found = [[row[one] for row, one in zip(rows, choice, strict=True)] for choice in best_choices(rows)]
    assert [(sum(one[0] for one in choice), sum(one[1] for one in choice)) for choice in found] == [
        (crossings, best[crossings]) for crossings in shorter
    ]


def shared(given_problem: Problem, effort: int = 100_000) -> tuple[Instance, Plan, list[Plan]]:
    instance = Instance.of(given_problem)
    before = plan_of(instance, Divided(budget=0.05, max_tasks=50).solve(given_problem))
    return instance, before, shared_out(instance, divide(instance), before, 0.05, effort).plans


def test_the_segments_that_gain_most_have_the_crossings() -> None:
    instance, streams = branched([40, 10, 30, 20])
    division = divide(instance)
    assert len(division.regions) == 4
    found = shared_out(instance, division, run(instance, streams), 0.1, 10_000).plans
    assert {plan.crossings: plan.makespan for plan in found} == {8: 480, 6: 490, 4: 510, 2: 540, 0: 580}


def test_equal_layers_lose_one_branch_after_the_other() -> None:
    _, before, found = shared(layers(12))
    assert (before.makespan, before.crossings) == (12 * 80, 24)
    assert {plan.crossings: plan.makespan for plan in found} == {2 * n: 12 * 120 - 40 * n for n in range(13)}


def test_little_effort_takes_some_of_the_choices() -> None:
    _, _, every = shared(layers(12))
    _, _, few = shared(layers(12), 4 * 12 * 6)
    assert 0 < len(few) < len(every)
    assert {plan.crossings for plan in few} < {plan.crossings for plan in every}
    assert few[0].crossings == 24  # the shortest of all is among them


def test_what_was_set_aside_stays_or_goes_back() -> None:
    given_problem = layers(4)
    edges = [f"{edge.before}>{edge.after}" for edge in given_problem.precedences]
    instance, _, found = shared(problem([*given_problem.tasks, vector("write", 9)], [*edges, "vec0>write"]))
    assert {plan.stream[instance.names.index("write")] for plan in found if plan.crossings} >= {0}
    assert min(plan.crossings for plan in found) == 0


@settings(max_examples=30)
@given(st.lists(st.integers(1, 30), min_size=5, max_size=5), st.integers(0, 31), st.integers(0, 5))
def test_what_is_proved_of_the_whole_is_true(durations: list[int], kinds: int, sync: int) -> None:
    """Two segments around a cut, each with two tasks that may run at once or not."""
    tasks = [(cube, vector)[kinds >> n & 1](name, time) for n, (name, time) in enumerate(zip("abcde", durations, strict=True))]
    given_problem = interfering(problem(tasks, ["a>c>d", "b>c>e"], sync=sync, side=1))
    instance = Instance.of(given_problem)
    plan = plan_of(instance, Divided(budget=0.05, max_tasks=50).solve(given_problem))
    proven = shared_out(instance, divide(instance), plan, 1.0, 10_000).proven
    best = [optimum(given_problem, most) for most in range(max(proven) + 1)]
    assert all(proven[most] <= best[most] for most in proven)
    assert list(proven) == sorted(proven) and list(proven.values()) == sorted(proven.values(), reverse=True)


def test_what_segments_prove_adds_up() -> None:
    instance, streams = branched([40, 10, 30, 20])
    shares = shared_out(instance, divide(instance), run(instance, streams), 1.0, 10_000)
    times = {plan.crossings: plan.makespan for plan in shares.plans}
    rounded = len(divide(instance).regions) // 2
    assert {most: shares.proven[most] + rounded for most in times} == times


@settings(max_examples=20)
@given(problems(most=12, most_modes=2))
def test_the_plans_are_feasible(given_problem: Problem) -> None:
    instance, _, found = shared(given_problem)
    assert found
    assert all(feasible(given_problem, instance, plan) for plan in found)
