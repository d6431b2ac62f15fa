"""What the kinder machine proves, against enumeration of every plan where bandwidth is shared and kernels interfere."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autostream.scheduling.exact.relaxed import Relaxation, Relaxed, Way
from autostream.scheduling.lists.greedy import greedy
from autostream.scheduling.lists.serial import serial
from autostream.scheduling.machine.granting import PS
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan, replay
from autostream.scheduling.problem import MAIN, Mode, Problem, Task
from autostream.scheduling.regions.alone import solve
from tests.scheduling.problems import cube, optimum, problem, problems, tangle, vector

_WAYS = [Way(strong, pairs) for strong in (True, False) for pairs in (True, False)]
_factors = st.tuples(st.sampled_from([1000, 1100, 1300]), st.sampled_from([1000, 1100, 1900]), st.sampled_from([1000, 1200]))


def interfering(plain: Problem, factors: tuple[int, int, int]) -> Problem:
    hbm, kernels, collectives = factors
    return replace(plain, hbm_contention=hbm, cube_vector_slowdown=kernels, compute_comm_slowdown=collectives)


def relaxed(instance: Instance, plan: Plan | None = None) -> list[Relaxed]:
    """What the solver makes of an instance in every way."""
    relaxation = Relaxation.of(instance)
    assert relaxation is not None
    return [relaxation.solved(plan or serial(instance), 0.5, way) for way in _WAYS]


def _any(dice: random.Random) -> Problem:
    """Up to five tasks with whatever the machine knows: parts of cores, bandwidth, collectives, pins, clusters, no work."""
    demands = [(24, 0, 0), (24, 0, 0), (0, 48, 0), (0, 48, 0), (12, 0, 0), (0, 16, 0), (12, 24, 0), (0, 0, 1), (0, 0, 0)]
    tasks = []
    for number in range(dice.choice((3, 4, 5))):
        aic, aiv, comm = dice.choice(demands)
        duration = dice.choice((0, dice.randint(1, 9), dice.randint(10, 60), dice.randint(20, 300)))
        hbm = dice.choice((0, 0, dice.randint(1, 200), dice.randint(300, 1000)))
        mode = Mode(duration=duration, aic=aic, aiv=aiv, hbm=hbm, comm=comm)
        tasks.append(Task(name=f"t{number}", modes=(mode,), stream=MAIN if dice.random() < 0.1 else None))
    one, other = dice.sample(range(len(tasks)), 2)
    if dice.random() < 0.3 and tasks[one].stream == tasks[other].stream:
        tasks = [replace(task, cluster="c") if number in (one, other) else task for number, task in enumerate(tasks)]
    edges = [f"t{before}>t{after}" for after in range(len(tasks)) for before in range(after) if dice.random() < 0.3]
    plain = problem(tasks, edges, sync=dice.choice((0, 1, 7, 60)), side=dice.choice((1, 2)))
    return interfering(plain, (dice.choice((1000, 1300)), dice.choice((1000, 1100, 1900)), dice.choice((1000, 1350))))


@pytest.mark.parametrize("number", range(60))
def test_no_bound_is_above_what_enumeration_finds(number: int) -> None:
    given_problem = _any(random.Random(number))
    instance, best = Instance.of(given_problem), optimum(given_problem)
    for plan in (serial(instance), greedy(instance)):
        assert all(found.makespan <= best for found in relaxed(instance, plan))
    solution = solve(instance, 0.1, 50)
    assert solution.proven <= best <= solution.plan.makespan
    assert solution.beside <= best * PS + PS // 2


@settings(max_examples=20)
@given(problems(most=12), _factors, st.data())
def test_no_bound_is_above_any_plan(plain: Problem, factors: tuple[int, int, int], data: st.DataObject) -> None:
    instance = Instance.of(interfering(plain, factors))
    stream = [data.draw(st.sampled_from(instance.allowed[unit])) for unit in range(len(instance.members))]
    plan = replay(instance, [stream[unit] for unit in instance.unit], range(len(instance)), [0] * len(instance))
    assert all(found.makespan <= plan.makespan for found in relaxed(instance, plan))


@settings(max_examples=20)
@given(problems(most=5, side=1), _factors, st.integers(1, 40))
def test_the_bound_holds_whatever_runs_beside(plain: Problem, factors: tuple[int, int, int], duration: int) -> None:
    """The last task stands for what comes from elsewhere: the others take at least what is proven of them without it."""
    tasks = plain.tasks[:-1]
    if not tasks:
        return
    inside = {task.name for task in tasks}
    edges = tuple(one for one in plain.precedences if one.before in inside and one.after in inside)
    part = Instance.of(interfering(replace(plain, tasks=tasks, precedences=edges), factors))
    other = vector("beside", duration, aiv=16)
    whole = Instance.of(interfering(replace(plain, tasks=(*tasks, other), precedences=edges), factors))
    least = max(found.least for found in relaxed(part))
    for stream in whole.allowed[whole.unit[-1]]:
        start = serial(part)
        plan = replay(whole, [*start.stream, stream], [len(tasks), *start.order()], [0] * len(whole))
        assert least <= (max(plan.end[:-1]) - min(plan.start[:-1]) + 1) * PS


def test_two_kinds_of_cores_are_closed_exactly_where_simple_bounds_stop() -> None:
    """Three branches of a cube and a vector kernel as in a module of GoogLeNet."""
    tasks, chains = [vector("in", 190)], []
    for number, (first, second, third) in enumerate([(99, 77, 0), (91, 54, 117), (87, 34, 83)]):
        names = f"a{number}", f"b{number}", f"c{number}"
        tasks += [cube(names[0], first), vector(names[1], second)]
        tasks += [cube(names[2], third)] if third else []
        chains.append(">".join(["in", *names[: 3 if third else 2], "out"]))
    instance = Instance.of(interfering(problem([*tasks, vector("out", 68)], chains, sync=4), (1100, 1100, 1200)))
    solution = solve(instance, 0.5, 50)
    assert solution.optimal
    assert solution.beside > 0
    assert max(found.makespan for found in relaxed(instance)) == solution.plan.makespan


def test_overlaps_that_share_the_memory_are_charged() -> None:
    """Run at once the first two take 1.1 x 1.1 x 1.8 times as long, so each runs beside one that needs no bandwidth."""
    tasks = [
        Task(name="a", modes=(Mode(duration=100, aic=24, hbm=900),)),
        Task(name="b", modes=(Mode(duration=90, aiv=48, hbm=900),)),
    ]
    tasks += [cube("c", 50), vector("d", 40)]
    instance = Instance.of(interfering(problem(tasks, sync=1), (1100, 1100, 1200)))
    relaxation = Relaxation.of(instance)
    assert relaxation is not None
    with_pairs = relaxation.solved(serial(instance), 0.5, Way(strong=True, pairs=True))
    without = relaxation.solved(serial(instance), 0.5, Way(strong=True, pairs=False))
    assert relaxation.ways[-1].pairs
    assert without.makespan < with_pairs.makespan == optimum(interfering(problem(tasks, sync=1), (1100, 1100, 1200)))


def test_the_order_it_would_like_is_topological_and_the_same_every_time() -> None:
    instance = Instance.of(interfering(tangle(), (1100, 1100, 1200)))
    first, again = relaxed(instance), relaxed(instance)
    assert first == again
    for found in first:
        place = {task: number for number, task in enumerate(found.order)}
        assert sorted(place) == list(range(len(instance)))
        assert all(place[before] < place[after] for before, after in instance.edges())


def test_there_is_none_where_tasks_have_several_modes() -> None:
    modes = Task(name="a", modes=(Mode(duration=5, aic=24), Mode(duration=9, aic=12)))
    assert Relaxation.of(Instance.of(problem([modes, vector("b", 5)]))) is None
    assert Relaxation.of(Instance.of(problem([]))) is None
