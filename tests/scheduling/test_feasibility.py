"""`check` must see every kind of violation: each test breaks one thing in a schedule that is otherwise right."""

from __future__ import annotations

from dataclasses import replace

from autostream.scheduling import HCCL, MAIN, check
from autostream.scheduling.problem import Placement, Schedule
from tests.scheduling.problems import comm, cube, problem, vector

_PROBLEM = problem(
    [cube("a", 10), vector("b", 10), comm("c", 10), cube("d", 10, cluster="k"), vector("e", 10, cluster="k", stream=MAIN)],
    ["a>c>d>e"],
    sync=4,
)
_PLACES = {"a": (MAIN, 0), "b": ("s1", 0), "c": (HCCL, 14), "d": (MAIN, 28), "e": (MAIN, 38)}


def _schedule(**changes: tuple[str, int]) -> Schedule:
    places = _PLACES | changes
    order = sorted(places, key=lambda name: (places[name][1], name))
    placements = tuple(
        Placement(task=name, stream=stream, mode=0, start=start, end=start + 10)
        for name in order
        for stream, start in [places[name]]
    )
    makespan = max(placement.end for placement in placements)
    return Schedule(placements=placements, strategy="", status="feasible", makespan=makespan, lower_bound=0)


def test_a_right_schedule_has_no_violation() -> None:
    assert check(_PROBLEM, _schedule()) == ()


def test_missing_and_unknown_tasks() -> None:
    schedule = _schedule()
    assert check(_PROBLEM, replace(schedule, placements=schedule.placements[1:])) == ("task 'a' is placed 0 times",)
    assert check(replace(_PROBLEM, tasks=_PROBLEM.tasks[1:]), schedule) == ("unknown task 'a' is placed",)


def test_a_mode_that_does_not_exist_and_a_wrong_duration() -> None:
    first, *rest = _schedule().placements
    assert "task 'a' has no mode 1" in check(_PROBLEM, replace(_schedule(), placements=(replace(first, mode=1), *rest)))
    assert any("duration" in text for text in check(_PROBLEM, replace(_schedule(), placements=(replace(first, end=9), *rest))))


def test_streams_that_are_not_allowed() -> None:
    assert any("'a' is on 'hccl', allowed: default, s1, s2" in text for text in check(_PROBLEM, _schedule(a=(HCCL, 0))))
    assert any("'c' is on 's1', allowed: hccl" in text for text in check(_PROBLEM, _schedule(c=("s1", 14))))


def test_a_cluster_is_fixed_and_whole() -> None:
    texts = check(_PROBLEM, _schedule(d=("s1", 28), e=(MAIN, 42)))
    assert any("'d' is on 's1', allowed: default" in text for text in texts)
    assert any("cluster 'k' is spread over default, s1" in text for text in texts)


def test_a_precedence_with_its_sync() -> None:
    assert check(_PROBLEM, _schedule(c=(HCCL, 13))) == ("'c' starts at 13, before 'a' has ended at 10 + sync 4",)


def test_two_tasks_at_a_time_on_a_stream() -> None:
    assert check(_PROBLEM, _schedule(b=(MAIN, 5))) == ("'a' and 'b' overlap on 'default'",)


def test_cores_and_communication() -> None:
    given = problem([vector("a", 10), vector("b", 10, aiv=1), comm("c", 10), comm("d", 10)])
    placements = tuple(
        Placement(task=name, stream=stream, mode=0, start=start, end=start + 10)
        for name, stream, start in (("a", MAIN, 0), ("b", "s1", 9), ("c", HCCL, 20), ("d", HCCL, 30))
    )
    schedule = Schedule(placements=placements, strategy="", status="feasible", makespan=40, lower_bound=0)
    assert check(given, schedule) == ("at 9 the tasks a, b hold 49 of 48 aiv",)


def test_the_order_of_placements_and_the_makespan() -> None:
    schedule = _schedule()
    assert check(_PROBLEM, replace(schedule, placements=schedule.placements[::-1])) == (
        "the placements are not ordered by (start, end, program order)",
    )
    assert check(_PROBLEM, replace(schedule, makespan=1)) == ("the makespan 1 is not the last end",)
