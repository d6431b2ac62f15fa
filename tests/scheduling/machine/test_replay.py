from __future__ import annotations

import pytest

from autostream.errors import InputError
from autostream.scheduling import MAIN, decode
from autostream.scheduling.problem import Mode, Placement, Problem, Task
from tests.scheduling.problems import comm, cube, problem, vector


def _times(placements: tuple[Placement, ...]) -> dict[str, tuple[int, int]]:
    return {placement.task: (placement.start, placement.end) for placement in placements}


def test_tasks_of_one_stream_follow_each_other_in_the_given_order() -> None:
    given = problem([cube("a", 10), vector("b", 5)])
    assert _times(decode(given, {"a": MAIN, "b": MAIN}, ["b", "a"])) == {"b": (0, 5), "a": (5, 15)}


def test_a_sync_is_charged_between_streams_only() -> None:
    given = problem([cube("a", 10), vector("b", 5), vector("c", 5)], ["a>b", "a>c"], sync=4)
    times = _times(decode(given, {"a": MAIN, "b": MAIN, "c": "s1"}, ["a", "b", "c"]))
    assert times == {"a": (0, 10), "b": (10, 15), "c": (15, 20)}  # the vector cores delay c beyond its sync at 14
    # b is ready first and gets the cores, whatever order is wished: nothing makes it wait for a task on another stream.
    assert _times(decode(given, {"a": MAIN, "b": MAIN, "c": "s1"}, ["a", "c", "b"])) == times


def test_a_task_asking_for_too_much_gets_all_there_is() -> None:
    given = problem([cube("a", 10, aic=1000), vector("b", 10)])
    assert _times(decode(given, {"a": MAIN, "b": "s1"}, ["a", "b"])) == {"a": (0, 10), "b": (0, 10)}


def test_a_short_task_uses_cores_left_idle_by_an_earlier_one() -> None:
    given = problem([cube("a", 10), comm("c", 20), cube("late", 5), cube("gap", 8)], ["a>c>late"], sync=0)
    times = _times(decode(given, {"a": MAIN, "c": "hccl", "late": MAIN, "gap": "s1"}, ["a", "c", "late", "gap"]))
    assert times["late"] == (30, 35)
    assert times["gap"] == (10, 18)


def test_placements_are_ordered_by_start_then_program_order() -> None:
    given = problem([cube("a", 10), vector("b", 10)])
    placements = decode(given, {"a": "s1", "b": MAIN}, ["b", "a"])
    assert [placement.task for placement in placements] == ["a", "b"]


def test_what_takes_no_time_is_placed_before_what_starts_with_it_on_its_stream() -> None:
    given = problem([cube("a", 10), Task(name="z", modes=(Mode(duration=0),)), vector("b", 10)], ["z>b"], sync=4)
    placements = decode(given, {"a": MAIN, "z": MAIN, "b": "s1"}, ["z", "a", "b"])
    assert [placement.task for placement in placements] == ["z", "a", "b"]
    assert decode(given, {"a": MAIN, "z": MAIN, "b": "s1"}, [placement.task for placement in placements]) == placements
    assert _times(placements)["b"] == (4, 14)


def test_modes_can_be_chosen() -> None:
    task = Task(name="a", modes=(Mode(duration=10, aic=24), Mode(duration=15, aic=12)))
    (placement,) = decode(problem([task]), {"a": MAIN}, ["a"], {"a": 1})
    assert (placement.mode, placement.end) == (1, 15)


@pytest.mark.parametrize(
    ("streams", "order", "message"),
    [
        ({"a": MAIN, "b": MAIN}, ["a"], "exactly once"),
        ({"a": MAIN, "b": MAIN}, ["b", "a"], "'a' must come before 'b'"),
        ({"a": MAIN, "b": "s9"}, ["a", "b"], "'b' is on 's9'; the streams are default, s1"),
        ({"a": MAIN}, ["a", "b"], "'b' is on ''"),
    ],
)
def test_a_wrong_wish_is_refused(streams: dict[str, str], order: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        decode(problem([cube("a", 1), cube("b", 1)], ["a>b"]), streams, order)


_TASKS = (cube("a", 1), cube("b", 1))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (problem([cube("a", 1), cube("a", 1)]), "same name"),
        (problem(_TASKS, ["b>a"]), "'b' must come before 'a'"),
        (problem(_TASKS, ["a>bb"]), r"unknown task 'bb' \(did you mean 'b'\?\)"),
        (problem([cube("a", 1, stream="x")]), "fixed to 'x'; the streams are"),
        (problem([cube("a", 1, stream=MAIN, cluster="c"), cube("b", 1, stream="s1", cluster="c")]), "several streams"),
        (problem([Task(name="a", modes=())]), "no mode"),
        (Problem(tasks=(), precedences=(), streams=("s1",), aic=1, aiv=1, sync=0), "first stream"),
    ],
)
def test_a_problem_that_contradicts_itself_is_refused(given: Problem, message: str) -> None:
    with pytest.raises(InputError, match=message):
        decode(given, {"a": MAIN, "b": MAIN}, ["a", "b"])
