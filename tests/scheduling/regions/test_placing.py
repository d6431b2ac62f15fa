"""What was set aside is put where it delays least."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from autostream.scheduling import check
from autostream.scheduling.lists.greedy import greedy
from autostream.scheduling.machine.division import divide_around
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import replay
from autostream.scheduling.problem import Problem
from autostream.scheduling.regions.placing import placed
from tests.scheduling.problems import cube, problem, problems, vector


def chain() -> Problem:
    """A chain of vector and cube kernels in turn, and a vector task that only the last one needs."""
    names = [f"t{n}" for n in range(8)]
    tasks = [cube(name, 60) if n % 2 else vector(name, 20) for n, name in enumerate(names)]
    given_problem = problem([*tasks[:-1], vector("mask", 30), tasks[-1]], [">".join(names), "mask>t7"], sync=4)
    return replace(given_problem, cube_vector_slowdown=1100)


def test_it_runs_beside_work_that_leaves_its_cores_idle() -> None:
    instance = Instance.of(chain())
    mask = instance.names.index("mask")
    stream = [int(task == mask) for task in range(len(instance))]
    first = replay(instance, stream, [mask, *(task for task in range(len(instance)) if task != mask)], [0] * len(instance))
    # It could run at once, takes the vector cores, and the chain waits.
    assert first.start[mask] == 0 and first.makespan >= 4 * 80 + 20
    found = placed(instance, divide_around(instance, [mask]), [first], 0, 10_000)
    beside = [
        task for task in range(len(instance)) if found.start[task] < found.end[mask] and found.start[mask] < found.end[task]
    ]
    assert [instance.names[task] for task in beside if task != mask] in (["t1"], ["t3"], ["t5"])
    # A tenth of it is the price, and one sync for what goes on elsewhere.
    assert found.makespan == 4 * 80 + 3 + instance.sync


def test_nothing_runs_where_no_effort_is_left_or_nothing_is_to_gain() -> None:
    instance = Instance.of(chain())
    division = divide_around(instance, [instance.names.index("mask")])
    plan = greedy(instance)
    assert placed(instance, division, [plan], 0, 0) is plan
    assert placed(instance, division, [plan, plan], plan.makespan, 10_000) is plan


@settings(max_examples=40)
@given(problems(most=12, most_modes=2, shortest=0), st.data())
def test_plans_are_valid_and_never_worse(given_problem: Problem, data: st.DataObject) -> None:
    instance = Instance.of(given_problem)
    units = data.draw(st.sets(st.sampled_from(range(len(instance.members))), min_size=1))
    division = divide_around(instance, [task for unit in units for task in instance.members[unit]])
    plan = greedy(instance)
    found = placed(instance, division, [plan], 0, 40 * len(instance))
    assert found.rank <= plan.rank
    assert check(given_problem, found.schedule(instance, strategy="", bound=0, seconds=0.0)) == ()
