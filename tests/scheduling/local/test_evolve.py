"""The genetic search over orders, beyond what `test_windows` asks of every search on projects."""

from __future__ import annotations

from autostream.scheduling.local.evolve import evolve
from autostream.scheduling.local.projects import project_bound
from autostream.scheduling.machine.resources import NumberedMode
from autostream.scheduling.solver.project import Link, Project, project
from tests.scheduling.solver.test_windows import violations


def lanes(*durations: int, links: list[Link] | None = None) -> Project:
    """Tasks of which two run at a time."""
    return project([[NumberedMode(duration, (1,))] for duration in durations], links or [], (2,))


def woven(count: int) -> Project:
    """Tasks of many lengths and demands, each after two of the eight before it."""
    modes = [[NumberedMode(1 + task * 13 % 17, (1 + task * 5 % 4, task * 3 % 5))] for task in range(count)]
    links = [Link(task - 1 - task * k % 8, task, task % 2) for task in range(8, count) for k in (3, 5)]
    return project(modes, links, (5, 6))


def test_it_leaves_the_rule_that_it_begins_with() -> None:
    """Longest first is 7, as the textbooks say; 3 + 3 beside 2 + 2 + 2 is 6."""
    given = lanes(3, 3, 2, 2, 2)
    assert evolve(given, 0, 1).makespan == 7
    found = evolve(given, project_bound(given), 2_000)
    assert found.makespan == 6
    assert violations(given, found) == []


def test_a_schedule_that_was_built_backwards_is_turned_round() -> None:
    given = woven(40)
    first = evolve(given, 0, 1)
    found = evolve(given, project_bound(given), 20_000)
    assert violations(given, found) == []
    assert project_bound(given) <= found.makespan < first.makespan


def test_it_is_the_same_every_time() -> None:
    assert evolve(woven(30), 0, 10_000) == evolve(woven(30), 0, 10_000)


def test_it_stops_at_the_bound() -> None:
    """The first rule is optimal, so that more effort changes nothing."""
    given = lanes(2, 2, 2, 2, links=[Link(0, 2)])
    assert evolve(given, 4, 1) == evolve(given, 4, 10**9)


def test_it_takes_projects_of_no_task_and_of_one() -> None:
    assert evolve(project([], [], (1,)), 0, 1_000).makespan == 0
    assert evolve(lanes(5), 0, 1_000).makespan == 5
