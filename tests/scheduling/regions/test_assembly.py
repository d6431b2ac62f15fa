"""Solved regions one after the other, and what was set aside."""

from __future__ import annotations

from hypothesis import given, settings

from autostream.scheduling import MAIN, check
from autostream.scheduling.lists.greedy import greedy
from autostream.scheduling.machine.division import divide
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.problem import Problem
from autostream.scheduling.regions.alone import Solution
from autostream.scheduling.regions.assembly import assembled
from autostream.scheduling.regions.divided import Divided
from tests.scheduling.machine.test_division import layers
from tests.scheduling.problems import cube, problem, problems, stream_of, vector


@settings(max_examples=60)
@given(problems(most=16, most_modes=2, shortest=0))
def test_any_solutions_of_the_regions_make_a_plan(given_problem: Problem) -> None:
    instance = Instance.of(given_problem)
    division = divide(instance)
    solutions = [Solution(plan=greedy(division.parts[kind]), proven=0) for kind in division.kinds]
    # Regions that were solved apart may put the parts of a cluster on different streams; nothing else ties them.
    plans = assembled(instance, division, solutions)
    assert plans[0].rank == min(plan.rank for plan in plans)
    if all(len(members) == 1 for members in instance.members):
        for plan in plans:
            assert check(given_problem, plan.schedule(instance, strategy="", bound=0, seconds=0.0)) == ()


def test_what_was_set_aside_runs_on_a_stream_of_its_own_where_that_is_faster() -> None:
    """Behind a row of kernels on each of two streams there is no room; on the third stream it runs as soon as it may."""
    given_problem = layers(6)
    edges = [f"{edge.before}>{edge.after}" for edge in given_problem.precedences]
    beside = problem(
        [cube("rope", 3, aic=0), *given_problem.tasks, vector("write", 4, aiv=0)],
        [*edges, *(f"rope>vec{n}" for n in range(6)), "cube0>write"],
    )
    schedule = Divided(budget=0.1, max_tasks=50).solve(beside)
    assert check(beside, schedule) == ()
    assert schedule.makespan == 6 * 80
    assert stream_of(schedule)["write"] != MAIN
