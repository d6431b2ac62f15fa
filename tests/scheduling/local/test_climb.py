"""Local search under the rule of the machine, and the rules it begins with."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from autostream.scheduling import check
from autostream.scheduling.baselines import BASELINES
from autostream.scheduling.baselines.rules import ruled
from autostream.scheduling.lists.serial import serial
from autostream.scheduling.local import climb as climbing
from autostream.scheduling.local.climb import climb, climb_in_windows, hinges, uncrossed
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan, replay
from autostream.scheduling.problem import Problem
from autostream.scheduling.regions.divided import Divided
from tests.scheduling.problems import cube, optimum, problem, problems, tangle, vector
from tests.scheduling.solver.test_windows import weave


def feasible(given_problem: Problem, instance: Instance, plan: Plan) -> bool:
    return check(given_problem, plan.schedule(instance, strategy="", bound=0, seconds=0.0)) == ()


def interfering(given_problem: Problem) -> Problem:
    return replace(given_problem, hbm_contention=1100, cube_vector_slowdown=1100, compute_comm_slowdown=1200)


@settings(max_examples=40)
@given(problems(most=14, most_modes=2))
def test_it_is_feasible_never_worse_and_the_same_again(plain: Problem) -> None:
    given_problem = interfering(plain)
    instance = Instance.of(given_problem)
    before = serial(instance)
    after = climb(instance, before, 0, 1500)
    assert feasible(given_problem, instance, after)
    assert after.rank <= before.rank
    assert climb(instance, before, 0, 1500) == after


@settings(max_examples=15)
@given(problems(most=5, side=1))
def test_on_a_few_tasks_it_finds_the_optimum(given_problem: Problem) -> None:
    instance = Instance.of(given_problem)
    assert climb(instance, serial(instance), 0, 5000).makespan == optimum(given_problem)


def test_it_goes_most_of_the_way_from_one_stream() -> None:
    """Two thirds of what lies between the program as it is and what no plan of these tasks can beat, 153."""
    instance = Instance.of(tangle())
    before = serial(instance)
    after = climb(instance, before, 0, 24 * 1500)
    assert 3 * (before.makespan - after.makespan) >= 2 * (before.makespan - 153)


def test_windows_improve_a_long_program() -> None:
    given_problem = interfering(weave(160))
    instance = Instance.of(given_problem)
    before = min(ruled(instance), key=lambda plan: plan.rank)
    after = climb_in_windows(instance, before, 0, 40_000)
    assert feasible(given_problem, instance, after)
    assert after.makespan < before.makespan


def test_crossings_go_where_they_gain_nothing() -> None:
    """A chain dealt out to two streams gains nothing from it, but for the one task that runs beside it."""
    tasks = [cube("a", 10), cube("b", 10), cube("c", 10), vector("v", 25)]
    instance = Instance.of(problem(tasks, ["a>b>c"], sync=0))
    scattered = climb(instance, serial(instance), 30, 1000)
    assert scattered.makespan == 30
    assert uncrossed(instance, scattered, 2000).crossings == 0


def test_the_end_hangs_on_the_chain_and_on_who_held_its_cores() -> None:
    given_problem = problem([cube("x", 7), vector("a", 5), cube("b", 4), vector("idle", 1)], ["a>b"], sync=0)
    instance = Instance.of(given_problem)
    plan = serial(instance)
    assert [instance.names[task] for task in hinges(instance, plan)] == ["idle", "b", "a", "x"]


@pytest.mark.parametrize("name", BASELINES)
@settings(max_examples=12)
@given(plain=problems(most=12, side=3))
def test_no_published_rule_is_better_on_as_many_streams(name: str, plain: Problem) -> None:
    given_problem = interfering(plain)
    ours = Divided(budget=0.02, max_tasks=50).solve(given_problem)
    assert ours.makespan <= BASELINES[name]().solve(given_problem).makespan


@settings(max_examples=15)
@given(problems(most=8, most_modes=2))
def test_remembering_what_was_run_changes_nothing(plain: Problem) -> None:
    instance = Instance.of(interfering(plain))
    ran: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(climbing, "replay", lambda *arguments: ran.append(1) or replay(*arguments))
        after = climb(instance, serial(instance), 0, 3000)
        few = len(ran)
        patch.setattr(climbing.Climb, "_ran", lambda self, *step: climbing.replay(self.instance, *step))
        assert climb(instance, serial(instance), 0, 3000) == after
    assert few <= len(ran) - few
