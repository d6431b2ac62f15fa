"""What is proven about segments, alone and with other tasks beside them."""

from __future__ import annotations

from dataclasses import replace

from autostream.scheduling.exact.depth_first import searched
from autostream.scheduling.lists.greedy import greedy
from autostream.scheduling.machine.division import divide, divide_around, part
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.problem import Mode, Problem, Task
from autostream.scheduling.regions.alone import solve
from autostream.scheduling.regions.proofs import proven, proven_whole
from tests.scheduling.machine.test_division import layers
from tests.scheduling.problems import cube, problem, vector


def anomaly() -> Problem:
    """Five tasks, and one more that holds the vector cores for a while at the right time."""
    mixed = Task(name="b", modes=(Mode(duration=12, aic=8, aiv=16),))
    tasks = [cube("a", 3), mixed, cube("c", 4), cube("d", 7), vector("e", 9), vector("more", 3)]
    return replace(problem(tasks, ["a>b>d"], sync=8), cube_vector_slowdown=1100)


def test_with_one_task_more_a_plan_may_be_shorter_than_any_without() -> None:
    """So an exact search of a segment bounds no program in which something else may run beside it."""
    whole = Instance.of(anomaly())
    alone = part(whole, range(5))
    assert searched(alone, greedy(alone).makespan, 30_000).proven == 29
    better = searched(whole, 29, 30_000).plan
    assert better is not None and better.makespan == 27
    division = divide_around(whole, [5])
    (kind,) = proven(division, [solve(division.parts[0], 0.1, 50)])
    assert kind.alone == 29
    assert kind.anyway.time <= proven_whole(whole, division, [kind]).time <= 27


def test_without_anything_beside_what_was_searched_adds_up() -> None:
    given = layers(5)
    instance = Instance.of(given)
    division = divide(instance)
    kinds = proven(division, [solve(segment.part(instance), 0.1, 50) for segment in division.segments])
    assert len(kinds) == len(division.parts)
    assert proven_whole(instance, division, kinds).time == 5 * 80
