"""The search over the orders of tasks that exclude each other."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from autostream.scheduling.bounds.lower import best_bound
from autostream.scheduling.bounds.orders import ordered_bound
from autostream.scheduling.machine.division import part
from autostream.scheduling.machine.granting import PS
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.problem import Problem
from tests.scheduling.problems import comm, cube, optimum, problem, problems, vector

_NEVER = 1 << 60


@settings(max_examples=40)
@given(problems(most=5, side=1, most_modes=2), st.sampled_from([1000, 1100, 1300]), st.data())
def test_no_run_beats_it_even_if_other_tasks_run_beside(drawn: Problem, slower: int, data: st.DataObject) -> None:
    given_problem = replace(drawn, cube_vector_slowdown=slower, hbm_contention=1100)
    instance = Instance.of(given_problem)
    best = optimum(given_problem)
    some = sorted(data.draw(st.sets(st.sampled_from(range(len(instance))), min_size=1)))
    for tasks in (range(len(instance)), some):
        assert (ordered_bound(part(instance, tasks), _NEVER, 64) + PS // 2) // PS <= best


def test_bounds_that_allow_interruptions_get_better() -> None:
    """The long cube could be interrupted by the short one, which is ready later and more urgent, if kernels could be."""
    tasks = [cube("a", 40), cube("b", 55, aic=0), cube("e", 10, aic=0), cube("c", 20), cube("d", 60, aic=0)]
    given_problem = problem(tasks, ["a>b", "e>c>d"], sync=0)
    instance = Instance.of(given_problem)
    assert (best_bound(instance).time, ordered_bound(instance, _NEVER, 64) // PS) == (115, 120)
    assert optimum(given_problem) == 120


def test_what_a_better_plan_rules_out_is_the_limit() -> None:
    instance = Instance.of(problem([cube("a", 40), cube("b", 30)], sync=0))
    assert ordered_bound(instance, 50 * PS, 64) == 50 * PS


def test_an_order_asks_for_no_sync() -> None:
    """The two collectives are on different streams and exclude each other; the second may follow at once."""
    instance = Instance.of(problem([comm("a", 30), comm("b", 10, stream=None), cube("c", 20)], ["b>c"], sync=5))
    assert ordered_bound(instance, _NEVER, 64) == 40 * PS


def test_too_large_instances_are_left_alone() -> None:
    assert ordered_bound(Instance.of(problem([vector(f"v{n}", 5) for n in range(300)])), _NEVER, 64) == 0
    assert ordered_bound(Instance.of(problem([])), _NEVER, 64) == 0
