"""The solver on its own: hinted with the serial plan, so that no search before it hides what it does."""

from __future__ import annotations

from hypothesis import given, settings

from autostream.scheduling.bounds.lower import bound, bound_at_rest
from autostream.scheduling.feasibility import check
from autostream.scheduling.lists.serial import serial
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan, followers
from autostream.scheduling.machine.times import Times
from autostream.scheduling.problem import Problem
from autostream.scheduling.regions.alone import _refined
from autostream.scheduling.solver.project import Project
from autostream.scheduling.solver.timing import exclusive, refine
from tests.scheduling.problems import cube, optimum, problem, problems, tangle, vector


def _solved(given: Problem) -> tuple[Plan, int]:
    """The solver's plan and its proven bound."""
    instance = Instance.of(given)
    plan, proven = _refined(instance, serial(instance), bound_at_rest(instance), budget=2.0)
    schedule = plan.schedule(instance, strategy="", bound=proven, seconds=0.0)
    assert check(given, schedule) == ()
    return plan, proven


@settings(max_examples=30)
@given(problems(most=5, side=1, most_modes=2, shortest=5))
def test_the_bound_is_true(given: Problem) -> None:
    plan, proven = _solved(given)
    assert proven <= optimum(given) <= plan.makespan


def test_it_finds_and_proves_an_optimum_that_simple_bounds_do_not() -> None:
    """What the model promises is more than the machine keeps, which gives cores to whoever is ready first."""
    instance = Instance.of(tangle())
    hint = serial(instance)
    found = refine(Project.of(instance), Times(mode=hint.mode, start=hint.start, end=hint.end), followers(hint), 131, 0.4)
    plan, proven = _solved(tangle())
    assert found.times.makespan == proven == 153
    assert proven < plan.makespan < serial(instance).makespan
    assert bound_at_rest(instance) == 131
    assert bound(instance) == 153
    assert serial(instance).makespan > 200


def test_a_bound_is_not_claimed_where_the_model_overcharges_syncs() -> None:
    """Two short successors on one stream: the second continues nothing, yet pays no sync."""
    given = problem([cube("a", 5), cube("b", 1), cube("c", 1)], ["a>b", "a>c"], sync=4)
    instance = Instance.of(given)
    _, proven = _refined(instance, serial(instance), bound(instance), budget=2.0)
    assert proven == bound(instance) == 7


def test_a_bound_is_not_claimed_where_a_task_takes_no_time() -> None:
    """`b` is over when it begins, so the machine could grant it the cores of `a` at any instant; the solver rules that out."""
    given = problem([cube("a", 10), vector("x", 5, aiv=0), cube("b", 0), vector("y", 5, aiv=0)], ["x>b>y"], sync=0)
    instance = Instance.of(given)
    _, proven = _refined(instance, serial(instance), bound(instance), budget=2.0)
    assert proven == bound(instance) == 10


def test_cliques_cover_the_pairs_that_do_not_fit() -> None:
    given = problem([vector("a", 1, aiv=30), vector("b", 1, aiv=30), vector("c", 1, aiv=10), cube("d", 1), cube("e", 1, aic=1)])
    assert exclusive(Project.of(Instance.of(given))) == [[0, 1], [3, 4]]
