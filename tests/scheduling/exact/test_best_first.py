"""The search forward, against enumeration of every plan, wherever it stops."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autostream.scheduling.bounds.rest import Rest
from autostream.scheduling.exact.best_first import BestFirst
from autostream.scheduling.lists.serial import serial
from autostream.scheduling.local.kinds import by_kind, evolved
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import replay
from autostream.scheduling.problem import MAIN, Problem
from tests.scheduling.problems import comm, cube, optimum, problem, problems, tangle, vector

_ENOUGH = 100_000
_factors = st.tuples(st.sampled_from([1000, 1100, 1237]), st.sampled_from([1000, 1100, 1900]), st.sampled_from([1000, 1200]))


def interfering(plain: Problem, factors: tuple[int, int, int]) -> Problem:
    hbm, kernels, collectives = factors
    return replace(plain, hbm_contention=hbm, cube_vector_slowdown=kernels, compute_comm_slowdown=collectives)


def forward(instance: Instance) -> BestFirst:
    rest = Rest.of(instance)
    assert rest is not None
    return BestFirst(instance, rest)


@settings(max_examples=40)
@given(problems(most=5, side=2, shortest=0), _factors, st.sampled_from([1, 7, 40, _ENOUGH]))
def test_nothing_false_is_proven_wherever_it_stops(plain: Problem, factors: tuple[int, int, int], moments: int) -> None:
    given_problem = interfering(plain, factors)
    instance, best = Instance.of(given_problem), optimum(given_problem)
    known = serial(instance)
    found = forward(instance).found(known.makespan, moments)
    assert found.proven is not None
    assert found.proven <= best <= (found.plan or known).makespan
    if found.plan is not None:
        assert found.plan == replay(instance, found.plan.stream, found.plan.order(), found.plan.mode)


@pytest.mark.parametrize("number", range(40))
def test_what_it_proves_of_kernels_is_true_and_mostly_everything(number: int) -> None:
    dice = random.Random(number)
    kinds = [cube, vector, vector, comm]
    tasks = [dice.choice(kinds)(f"t{n}", 10 * dice.randint(3, 30) + n) for n in range(5)]
    edges = [f"t{before}>t{after}" for after in range(5) for before in range(after) if dice.random() < 0.3]
    given_problem = interfering(problem(tasks, edges, sync=7, side=1 + number % 2), (1100, 1100, 1200))
    instance, best = Instance.of(given_problem), optimum(given_problem)
    found = forward(instance).found(serial(instance).makespan, _ENOUGH)
    assert found.proven is not None
    # A walk need not respect who is ready first: what is proven may be short of the best plan, never beyond it.
    assert 0.9 * best <= found.proven <= best
    assert (found.plan or serial(instance)).makespan == best or found.proven < best


def _wide() -> Instance:
    """Four chains of a cube and a vector kernel between one in front and one behind."""
    tasks, chains = [cube("in", 9)], []
    for number in range(4):
        tasks += [cube(f"c{number}", 20 + number), vector(f"v{number}", 31 - 3 * number)]
        chains.append(f"in>c{number}>v{number}>out")
    return Instance.of(interfering(problem([*tasks, vector("out", 4)], chains, sync=2), (1100, 1100, 1200)))


def test_it_goes_on_where_it_stopped_and_proves_more() -> None:
    instance = _wide()
    known = serial(instance).makespan
    search, proven, plans = forward(instance), [], []
    for _ in range(12):
        found = search.found(known, 60)
        assert found.proven is not None
        proven.append(found.proven)
        plans.append(found.plan.makespan if found.plan else known)
        if not search.open:
            break
    assert proven == sorted(proven)
    assert proven[-1] <= plans[-1] < known
    assert plans == sorted(plans, reverse=True)
    again = forward(instance)
    assert [again.found(known, 60).proven for _ in proven] == proven


def test_one_moment_that_very_many_can_follow_does_not_hold_up_the_search() -> None:
    """Of 14 tasks that take no time any three may start first: 470 moments could follow the first one."""
    tasks = [cube(f"z{number}", 0, aic=0) for number in range(14)] + [vector(f"v{number}", 100) for number in range(2)]
    search, proven = forward(Instance.of(problem(tasks))), []
    for _ in range(3):
        proven.append(search.found(230, 40).proven)
        assert search.open <= 2 * 40 + 1
    assert proven == [200, 200, 200]


def test_plans_within_reach_of_what_is_known_are_left_out() -> None:
    instance = _wide()
    best = forward(instance).found(serial(instance).makespan, _ENOUGH).plan
    assert best is not None
    assert forward(instance).found(best.makespan, _ENOUGH).plan is None
    goal = best.makespan - 5
    assert forward(instance).found(goal, _ENOUGH).proven in (goal, best.makespan)


def test_fixed_streams_and_clusters_stay_where_they_must_be() -> None:
    tasks = [vector("a", 30, stream=MAIN), cube("b", 40), vector("c", 25), cube("d", 35), vector("e", 20, stream=MAIN)]
    tasks = [replace(task, cluster="pair") if task.name in ("b", "c") else task for task in tasks]
    instance = Instance.of(problem(tasks, ["a>b>e", "a>c>e", "d>e"], sync=3))
    plan = forward(instance).found(serial(instance).makespan, _ENOUGH).plan or serial(instance)
    assert plan.stream[0] == plan.stream[4] == 0
    assert plan.stream[1] == plan.stream[2]


def test_a_genetic_search_orders_what_is_on_one_stream_for_each_kind() -> None:
    instance = Instance.of(interfering(tangle(), (1100, 1100, 1200)))
    plan = evolved(instance, 3000)
    assert list(plan.stream) == list(by_kind(instance))
    assert plan == evolved(instance, 3000)
    assert plan.makespan <= serial(instance).makespan
