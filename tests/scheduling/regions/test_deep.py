"""Deep programs: what is left out above `DEEP` tasks, and what holds all the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autostream.scheduling import check
from autostream.scheduling.lists import greedy
from autostream.scheduling.lists.greedy import Greedy
from autostream.scheduling.lists.serial import Serial
from autostream.scheduling.problem import Problem
from autostream.scheduling.regions import divided
from autostream.scheduling.regions.divided import Divided
from tests.scheduling.machine.test_division import layers
from tests.scheduling.problems import longer, problem, problems, vector


@settings(max_examples=25)
@given(problems(most=14, most_modes=2, shortest=0), st.sampled_from([1, 10_007]))
def test_never_worse_than_greedy_or_serial(drawn: Problem, times: int) -> None:
    given_problem = longer(drawn, times)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(greedy, "DEEP", 0)
        patch.setattr(divided, "DEEP", 0)
        schedule = Divided(budget=0.05, max_tasks=50).solve(given_problem)
        listed = Greedy().solve(given_problem)
    assert check(given_problem, schedule) == ()
    assert check(given_problem, listed) == ()
    assert schedule.lower_bound <= schedule.makespan <= listed.makespan <= Serial().solve(given_problem).makespan


@settings(max_examples=20)
@given(problems(most=12, most_modes=2))
def test_where_the_regions_reach_the_bound_nothing_is_lost(given_problem: Problem) -> None:
    """Rules and list schedules of the whole are left out there because no schedule is shorter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(divided, "DEEP", 0)
        deep = Divided(budget=0.05, max_tasks=50).solve(given_problem)
    if deep.status == "optimal":
        assert deep.makespan <= Divided(budget=0.05, max_tasks=50).solve(given_problem).makespan


def test_the_rules_are_not_tried_on_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the regions had them")

    monkeypatch.setattr(divided, "ruled", never)
    given_problem = layers(260)
    assert len(given_problem.tasks) > divided.DEEP
    schedule = Divided(budget=0.2, max_tasks=50).solve(given_problem)
    assert (schedule.makespan, schedule.status) == (260 * 80, "optimal")


def test_what_was_set_aside_hides_in_a_deep_program_too() -> None:
    given_problem = layers(260)
    writes = [vector(f"write{n}", 9) for n in range(0, 260, 10)]
    edges = [f"{edge.before}>{edge.after}" for edge in given_problem.precedences]
    edges += [f"vec{n}>write{n}" for n in range(0, 260, 10)]
    schedule = Divided(budget=0.2, max_tasks=50).solve(problem([*given_problem.tasks, *writes], edges))
    assert schedule.makespan == 260 * 80
    assert schedule.regions[-1].name == "set aside"
