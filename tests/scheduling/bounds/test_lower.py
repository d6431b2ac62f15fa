from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from autostream.scheduling import critical_path, explained_bound, lower_bound
from autostream.scheduling.bounds.lower import whole_bound
from autostream.scheduling.lists.greedy import Greedy
from autostream.scheduling.machine.division import divide_around
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.problem import MAIN, Mode, Problem, Task
from autostream.scheduling.regions.divided import Divided
from tests.scheduling.problems import comm, cube, optimum, problem, problems, vector


def test_a_chain_is_bounded_by_its_length() -> None:
    given = problem([cube("a", 10), vector("b", 20), cube("free", 15)], ["a>b"])
    assert lower_bound(given) == 30
    assert critical_path(given) == ("a", "b")


def test_syncs_that_nothing_avoids_count() -> None:
    given = problem([cube("a", 10), comm("c", 20), cube("b", 5)], ["a>c>b"], sync=4)
    assert lower_bound(given) == 10 + 4 + 20 + 4 + 5
    assert critical_path(given) == ("a", "c", "b")


def test_cores_bound_independent_tasks() -> None:
    assert lower_bound(problem([cube(f"c{n}", 10) for n in range(3)])) == 30
    assert lower_bound(problem([cube(f"c{n}", 10, aic=12) for n in range(4)])) == 20


def test_tasks_of_more_than_half_the_cores_exclude_each_other() -> None:
    assert lower_bound(problem([vector(f"v{n}", 10, aiv=25) for n in range(3)])) == 30


def test_work_behind_a_head_and_before_a_tail() -> None:
    given = problem([vector("h", 7), cube("a", 10), cube("b", 10), vector("t", 5)], ["h>a>t", "h>b>t"])
    assert lower_bound(given) == 7 + 20 + 5


def test_streams_bound_tasks_without_resources() -> None:
    tasks = [cube(f"c{n}", 10, aic=0) for n in range(6)]
    assert lower_bound(problem(tasks, side=1)) == 30
    assert lower_bound(problem([cube(f"c{n}", 10, aic=0, stream=MAIN) for n in range(6)])) == 60


def test_communication_is_one_resource() -> None:
    assert lower_bound(problem([comm("a", 10), comm("b", 15)])) == 25


def test_an_empty_problem() -> None:
    assert lower_bound(problem([])) == 0
    assert critical_path(problem([])) == ()


@settings(max_examples=40)
@given(problems(most=5, side=1, most_modes=2))
def test_no_schedule_beats_the_bound(given: Problem) -> None:
    assert lower_bound(given) <= optimum(given)


@settings(max_examples=60)
@given(problems(most=5, side=1, most_modes=2), st.sampled_from([1100, 1300]), st.sampled_from([1000, 1200]))
def test_no_schedule_beats_the_bound_where_kernels_interfere(given: Problem, kernels: int, comm_: int) -> None:
    given = replace(given, cube_vector_slowdown=kernels, hbm_contention=1100, compute_comm_slowdown=comm_)
    assert lower_bound(given) <= optimum(given)


@st.composite
def kernels(draw: st.DrawFn, *, most: int = 5) -> Problem:
    """Kernels that hold all cores of their kind, in a chain or beside it, now and then a collective or a task without cores."""
    tasks, edges, last = [], [], ""
    for number in range(draw(st.integers(2, most))):
        name, time = f"t{number}", draw(st.integers(1, 30))
        kind = draw(st.sampled_from(["cube", "vector"] * 3 + ["comm", "free"]))
        tasks.append(
            comm(name, time, stream=None)
            if kind == "comm"
            else cube(name, time, aic=0)
            if kind == "free"
            else cube(name, time)
            if kind == "cube"
            else vector(name, time)
        )
        if draw(st.booleans()):
            edges += [f"{last}>{name}"] if last else []
            last = name
        elif number and draw(st.booleans()):
            edges.append(f"t{draw(st.integers(0, number - 1))}>{name}")
    return problem(tasks, edges, sync=draw(st.sampled_from([0, 1, 5])), side=1)


@settings(max_examples=40)
@given(kernels(), st.sampled_from([1100, 1300, 1500, 1900]), st.data())
def test_no_schedule_beats_the_bound_whatever_is_set_aside(drawn: Problem, slower: int, data: st.DataObject) -> None:
    given = replace(drawn, cube_vector_slowdown=slower, compute_comm_slowdown=1200)
    instance = Instance.of(given)
    aside = data.draw(st.sets(st.sampled_from(range(len(instance)))))
    assert whole_bound(instance, divide_around(instance, aside)).time <= optimum(given)


def test_what_is_set_aside_slows_down_what_it_runs_beside() -> None:
    """A tenth of its work is lost, as nothing pauses."""
    given = replace(problem([cube("a", 60), cube("b", 40), vector("c", 50)], ["a>b"], sync=0), cube_vector_slowdown=1100)
    instance = Instance.of(given)
    assert whole_bound(instance, divide_around(instance, [2])) == (105, "critical path")
    assert optimum(given) == 105


def test_what_runs_beside_a_row_of_kernels_slows_it_down() -> None:
    given = problem([cube("a", 60), cube("b", 40), vector("c", 50)], ["a>b"])
    assert lower_bound(given) == 100
    slower = replace(given, cube_vector_slowdown=1100)
    assert lower_bound(slower) == 100 + 5 == Greedy().solve(slower).makespan
    # Where the row waits for a collective, the rest may run without delaying it.
    paused = problem([cube("a", 60), comm("c", 50), cube("b", 40), vector("d", 50)], ["a>c>b"], sync=0)
    assert lower_bound(replace(paused, cube_vector_slowdown=1100)) == 150


@given(problems(most=10))
def test_the_critical_path_is_a_chain_of_the_problem(given: Problem) -> None:
    path = critical_path(given)
    edges = {(precedence.before, precedence.after) for precedence in given.precedences}
    assert path
    assert all(pair in edges for pair in itertools.pairwise(path))


def test_work_that_shares_the_memory_may_end_within_a_nanosecond() -> None:
    """Two tasks of 101 ns that want 0.7 of the bandwidth take 141.4 ns, which is told as 141."""
    tasks = [Task(name=name, modes=(Mode(duration=101, aiv=24, hbm=700),)) for name in ("a", "b")]
    given = replace(problem(tasks, sync=0), aiv=48)
    assert explained_bound(given).time <= Divided(budget=0.1, max_tasks=50).solve(given).makespan == 141


def test_a_bound_by_several_things_is_not_named_after_one_of_them() -> None:
    """The chain takes 50 ns. All four kernels take 80: at half their pace two at once are no faster than one after the other."""
    tasks = [cube("a", 10), vector("b", 20), cube("c", 30), vector("d", 20)]
    given = replace(problem(tasks, ["a>d"], sync=0), cube_vector_slowdown=2000)
    assert explained_bound(given) == (80, "everything together")
