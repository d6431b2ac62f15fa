"""Divide and solve."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autostream.scheduling import Capped, check, explained_bound, lower_bound
from autostream.scheduling.capped import crossings
from autostream.scheduling.lists.greedy import DEEP, Greedy
from autostream.scheduling.lists.serial import Serial
from autostream.scheduling.machine import division
from autostream.scheduling.problem import Mode, Precedence, Problem, Schedule, Task
from autostream.scheduling.regions import divided
from autostream.scheduling.regions.divided import Divided
from autostream.scheduling.tolerance import tolerated
from tests.scheduling.local.test_climb import interfering
from tests.scheduling.machine.test_division import layers, written
from tests.scheduling.problems import cube, longer, optimum, printed, problem, problems, vector


def solve(given: Problem, *, max_tasks: int = 150, budget: float = 0.05) -> Schedule:
    schedule = Divided(budget=budget, max_tasks=max_tasks).solve(given)
    assert check(given, schedule) == ()
    return schedule


def test_equal_regions_are_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    original = divided.solve
    monkeypatch.setattr(divided, "solve", lambda part, *rest: calls.append(part) or original(part, *rest))
    solve(layers(4))
    few = len(calls)
    solve(layers(40))
    assert len(calls) - few == few
    assert few <= 5


def test_many_layers_are_optimal_and_bounded_layer_by_layer() -> None:
    schedule = solve(layers(12))
    assert schedule.status == "optimal"
    assert schedule.makespan == 12 * (10 + 60 + 10)
    assert explained_bound(layers(12)) == (schedule.makespan, "critical path")
    assert [region.number for region in schedule.regions] == list(range(12))
    assert {(region.serial, region.makespan, region.lower_bound, region.status) for region in schedule.regions} == {
        (100, 60, 60, "optimal")
    }
    assert all(region.gain == 40 and region.side_streams == ("s1",) for region in schedule.regions)


@settings(max_examples=25)
@given(problems(most=4), st.lists(st.integers(0, 3), min_size=1, max_size=2))
def test_no_schedule_beats_the_bound_where_idle_ends_of_clusters_are_set_aside(plain: Problem, writers: list[int]) -> None:
    count = len(plain.tasks)
    ends = {f"end{number}": plain.tasks[writer % count] for number, writer in enumerate(writers)}
    tasks = [replace(task, cluster=task.cluster or task.name) if task in ends.values() else task for task in plain.tasks]
    streams = {task.name: (task.cluster, task.stream) for task in tasks}
    for name, writer in ends.items():
        cluster, stream = streams[writer.name]
        tasks.append(Task(name=name, modes=(Mode(duration=1),), cluster=cluster, stream=stream))
    given_problem = interfering(
        replace(
            plain,
            tasks=tuple(tasks),
            precedences=(*plain.precedences, *(Precedence(before=one.name, after=end) for end, one in ends.items())),
        )
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(division, "_CLOSED", 0)
        schedule = solve(given_problem)
    assert schedule.lower_bound <= optimum(given_problem) <= schedule.makespan


def test_clusters_stay_together_when_their_ends_are_set_aside() -> None:
    schedule = solve(written(6))
    # Each end takes a nanosecond on the stream of the layers.
    assert 6 * 80 == schedule.lower_bound <= schedule.makespan <= 6 * 81
    on = {placement.task: placement.stream for placement in schedule.placements}
    assert all(on[f"cube{n}"] == on[f"write{n}"] for n in range(6))
    for most in range(0, 13, 4):
        capped = replace(written(6), max_waits=most)
        assert check(capped, Capped(schedule, 0.02).solve(capped)) == ()


def test_what_bounds_a_program_is_named() -> None:
    assert explained_bound(problem([cube("a", 10), cube("b", 10)])).by == "cube cores"
    assert explained_bound(problem([vector("a", 10), vector("b", 10)])).by == "vector cores"
    assert explained_bound(problem([cube(f"c{n}", 10, aic=0) for n in range(9)])).by == "streams"
    assert explained_bound(problem([cube("a", 10), vector("b", 10)], ["a>b"])).by == "critical path"


def test_what_was_set_aside_hides_and_is_a_region_too() -> None:
    given = layers(4)
    edges = [f"{edge.before}>{edge.after}" for edge in given.precedences]
    beside = problem([*given.tasks, vector("write", 9)], [*edges, "vec0>write"])
    schedule = solve(beside)
    assert schedule.makespan == solve(given).makespan
    last = schedule.regions[-1]
    assert (last.name, last.tasks, last.makespan) == ("set aside", ("write",), 0)


def test_a_program_with_a_prologue_and_dead_ends_is_closed() -> None:
    """What has to come first is solved with the first layer; what may come later costs a tenth of its work beside the cubes."""
    layer = layers(12)
    edges = [f"{edge.before}>{edge.after}" for edge in layer.precedences]
    tasks = [vector("mask", 25_000), *longer(layer, 1000).tasks, vector("write", 12_000)]
    beside = problem(tasks, [*edges, *(f"mask>vec{n}" for n in range(12)), "vec0>write"], sync=450)
    given = replace(beside, cube_vector_slowdown=1100)
    schedule = solve(given, budget=0.5)
    first, last = schedule.regions[0], schedule.regions[-1]
    assert first.tasks[0] == "mask" and first.status in ("optimal", "near-optimal")
    assert last.tasks == ("write",) and last.makespan <= 1_200 + 450
    assert schedule.status in ("optimal", "near-optimal")


def test_a_cut_may_change_streams_where_that_is_faster() -> None:
    """The join continues the branch that ends last, wherever that runs; the next layer goes on from there."""
    tasks, edges = [], []
    for n in range(3):
        tasks += [vector(f"in{n}", 10), cube(f"a{n}", 40), vector(f"b{n}", 38), cube(f"c{n}", 20), vector(f"out{n}", 10)]
        edges += [f"in{n}>a{n}>c{n}>out{n}", f"in{n}>b{n}>out{n}", *([f"out{n - 1}>in{n}"] if n else [])]
    given = problem(tasks, edges)
    schedule = solve(given)
    assert (schedule.makespan, schedule.status) == (3 * 80, "optimal")


def test_a_deep_program_takes_no_waits_for_what_nobody_could_measure() -> None:
    """Each of 300 forks saves something; the whole becomes shorter by a five-thousandth."""
    tasks, edges = [], []
    for n in range(300):
        tasks += [cube(f"fork{n}", 1_000), cube(f"cube{n}", 3_000), vector(f"vec{n}", 2_000), vector(f"join{n}", 1_000)]
        edges += [f"fork{n}>cube{n}>join{n}", f"fork{n}>vec{n}>join{n}", *([f"join{n - 1}>fork{n}"] if n else [])]
    alone = problem(tasks, edges, sync=800)
    beside = problem([*tasks, cube("giant", 2_000_000_000)], [*edges, "join299>giant"], sync=800)
    assert len(beside.tasks) > DEEP
    assert crossings(alone, solve(alone)) == 600
    assert crossings(beside, solve(beside)) == 0


@settings(max_examples=30)
@given(problems(most=14, most_modes=2, shortest=0), st.sampled_from([1, 10_007]))
def test_never_worse_than_greedy_or_serial(drawn: Problem, times: int) -> None:
    given = longer(drawn, times)  # so long that a thousandth counts
    whole = solve(given)
    windows = solve(given, max_tasks=4)
    greedy = Greedy().solve(given)
    assert max(whole.makespan, windows.makespan) <= greedy.makespan <= Serial().solve(given).makespan
    assert lower_bound(given) <= whole.lower_bound <= whole.makespan
    assert lower_bound(given) <= windows.lower_bound <= windows.makespan


@settings(max_examples=25)
@given(problems(most=5, side=1, most_modes=2), st.sampled_from([1, 10_007]))
def test_bounds_are_true_and_what_is_called_optimal_is(drawn: Problem, times: int) -> None:
    given = longer(drawn, times)
    best = optimum(given)
    schedule = solve(given)
    assert schedule.lower_bound <= best <= schedule.makespan
    assert schedule.status != "optimal" or schedule.makespan == best
    assert schedule.status != "near-optimal" or best < schedule.makespan <= tolerated(best)


_PROGRAM = """
import hashlib
from autostream.scheduling.regions.divided import Divided
from tests.scheduling.solver.test_windows import weave
schedule = Divided(budget=0.2, max_tasks=20).solve(weave(40))
print(hashlib.sha256(repr((schedule.placements, schedule.regions)).encode()).hexdigest())
"""


def test_every_process_finds_the_same_schedule() -> None:
    (output,) = printed(_PROGRAM)
    assert output


def test_solving_twice_gives_the_same() -> None:
    given = layers(3)
    assert solve(given) == solve(replace(given))
    assert all(one.start <= other.start for one, other in itertools.pairwise(solve(given).placements))
