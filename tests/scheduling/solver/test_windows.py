"""Large-neighbourhood search over windows, on projects and on programs too large for one model."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from autostream.scheduling.bounds.lower import bound
from autostream.scheduling.feasibility import check
from autostream.scheduling.lists.greedy import greedy
from autostream.scheduling.local.evolve import evolve, tightened
from autostream.scheduling.local.projects import project_bound, solve_project
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.resources import NumberedMode
from autostream.scheduling.machine.times import Times
from autostream.scheduling.problem import Problem
from autostream.scheduling.solver.project import Link, Project, project
from autostream.scheduling.solver.sgs import early
from autostream.scheduling.solver.windows import improve_in_windows, solve_window
from tests.scheduling.problems import cube, problem, vector


def weave(count: int) -> Problem:
    """A program without cuts: cube and vector tasks of many lengths, each after two of the eight before it."""
    tasks = [
        cube(f"t{n}", 5 + n * 13 % 17, aic=(24, 10, 14)[n % 3]) if n * 7 % 5 < 3 else vector(f"t{n}", 5 + n * 13 % 17, aiv=30)
        for n in range(count)
    ]
    edges = [f"t{n - 1 - n * k % 8}>t{n}" for n in range(8, count) for k in (3, 5)]
    return problem(tasks, edges, sync=2)


@st.composite
def projects(draw: st.DrawFn) -> Project:
    """Random projects with three resources, lags and one or two modes."""
    count, capacity = draw(st.integers(2, 14)), (4, 7, 1)
    mode = st.builds(NumberedMode, st.integers(1, 9), st.tuples(*(st.integers(0, most) for most in capacity)))
    modes = [draw(st.lists(mode, min_size=1, max_size=2)) for _ in range(count)]
    links = [
        Link(before, after, draw(st.integers(0, 3)))
        for after in range(1, count)
        for before in draw(st.lists(st.integers(max(0, after - 4), after - 1), max_size=2, unique=True))
    ]
    return project(modes, links, capacity)


def violations(given: Project, times: Times) -> list[str]:
    """What is wrong with the times, instant by instant."""
    modes = [row[number] for row, number in zip(given.modes, times.mode, strict=True)]
    wrong = [
        f"task {task}"
        for task, mode in enumerate(modes)
        if times.start[task] < 0 or times.end[task] != times.start[task] + mode.duration
    ]
    wrong += [str(link) for link in given.links if times.start[link.after] < times.end[link.before] + link.lag]
    for now in range(times.makespan):
        running = [mode for mode, start, end in zip(modes, times.start, times.end, strict=True) if start <= now < end]
        held = [sum(mode.demand[kind] for mode in running) for kind in range(len(given.capacity))]
        wrong += [f"resource at {now}" for used, limit in zip(held, given.capacity, strict=True) if used > limit]
    return wrong


def in_program_order(given: Project) -> Times:
    return early(given, range(len(given)), [[(link.before, link.lag) for link in links] for links in given.before])


@settings(max_examples=40)
@given(projects(), st.integers(0, 13), st.integers(1, 14))
def test_a_window_keeps_the_rest_feasible_and_is_never_worse(given: Project, first: int, size: int) -> None:
    times = in_program_order(given)
    order = sorted(range(len(given)), key=lambda task: (times.start[task], task))
    free: Sequence[int] = order[first % len(given) :][:size]
    found, spent = solve_window(given, times, {}, free, project_bound(given))
    assert spent >= 0
    assert violations(given, found) == []
    assert found.makespan <= times.makespan


def test_a_window_closes_a_gap() -> None:
    """In the given order the two tasks that fit beside each other are apart."""
    unit = [NumberedMode(10, (demand,)) for demand in (2, 3, 2)]
    given = project([[mode] for mode in unit], [], (4,))
    times = Times(mode=(0, 0, 0), start=(0, 10, 20), end=(10, 20, 30))
    found, _ = solve_window(given, times, {}, [0, 1, 2], project_bound(given))
    assert found.makespan == 20


@settings(max_examples=25)
@given(projects())
def test_the_search_over_orders_is_feasible_and_never_worse_than_its_first_rule(given: Project) -> None:
    lower = project_bound(given)
    short, long = evolve(given, lower, 3 * len(given)), evolve(given, lower, 120 * len(given))
    assert violations(given, short) == violations(given, long) == []
    assert lower <= long.makespan <= short.makespan
    again = tightened(given, in_program_order(given))
    assert violations(given, again) == []
    assert again.makespan <= in_program_order(given).makespan


@settings(max_examples=20)
@given(projects())
def test_a_project_is_solved_within_its_bounds(given: Project) -> None:
    solved = solve_project(given, 0.02)
    assert violations(given, solved.times) == []
    assert project_bound(given) <= solved.bound <= solved.times.makespan


def test_windows_improve_a_program_that_is_too_large_for_one_model() -> None:
    given = weave(80)
    instance = Instance.of(given)
    before = greedy(instance)
    after = improve_in_windows(instance, before, bound(instance), 1.0, 24)
    schedule = after.schedule(instance, strategy="", bound=0, seconds=0.0)
    assert check(given, schedule) == ()
    assert after.makespan < before.makespan
