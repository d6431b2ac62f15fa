from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autostream.scheduling.bounds.crossings import fewest_crossings
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import replay
from autostream.scheduling.problem import Precedence, Problem
from tests.scheduling.problems import cube, problem, problems, vector


def test_a_fork_crosses_twice_unless_nothing_overlaps() -> None:
    instance = Instance.of(problem([cube("a", 10), cube("b", 20), vector("c", 20), cube("d", 5)], ["a>b>d", "a>c>d"]))
    assert fewest_crossings(instance, 54) == 2
    assert fewest_crossings(instance, 55) == 0


def test_two_ends_need_not_cross_back() -> None:
    instance = Instance.of(problem([cube("a", 10), cube("b", 20), vector("c", 20)], ["a>b", "a>c"]))
    assert fewest_crossings(instance, 30) == 0


def _between_two(given_problem: Problem) -> Problem:
    """The problem between a task that is before all others and one that is behind them."""
    names = [task.name for task in given_problem.tasks]
    edges = [*(Precedence(before="first", after=name) for name in names), *(Precedence(before=n, after="last") for n in names)]
    return replace(
        given_problem,
        tasks=(cube("first", 3), *given_problem.tasks, vector("last", 3)),
        precedences=(*edges, Precedence(before="first", after="last"), *given_problem.precedences),
    )


@given(problems().map(_between_two), st.data())
def test_no_plan_that_is_as_short_crosses_less(given_problem: Problem, data: st.DataObject) -> None:
    instance = Instance.of(given_problem)
    units = [data.draw(st.sampled_from(allowed)) for allowed in instance.allowed]
    plan = replay(instance, [units[unit] for unit in instance.unit], range(len(instance)), [0] * len(instance))
    assert plan.crossings >= fewest_crossings(instance, plan.makespan)
