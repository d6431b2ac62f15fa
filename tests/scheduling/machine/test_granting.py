"""What is planned is what `autostream.program.simulate` says of the program made of the plan."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from autostream.cost.model import Breakdown, Cost, Machine, Resources, Tier
from autostream.program import Edge, EdgeKind, Semantics, Step, StreamProgram, Timeline, simulate
from autostream.scheduling import HCCL, MAIN, check, decode
from autostream.scheduling.lists.greedy import Greedy
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.paths import topological
from autostream.scheduling.problem import Mode, Placement, Problem, Schedule
from autostream.scheduling.regions.divided import Divided
from tests.scheduling.problems import comm, cube, problem, problems, vector


def interfering(given_problem: Problem, hbm: int, kernels: int, comm_: int) -> Problem:
    return replace(given_problem, hbm_contention=hbm, cube_vector_slowdown=kernels, compute_comm_slowdown=comm_)


def simulated(given_problem: Problem, placements: tuple[Placement, ...]) -> Timeline:
    modes = {task.name: task.modes for task in given_problem.tasks}
    costs = {placement.task: _cost(modes[placement.task][placement.mode]) for placement in placements}
    machine = Machine(
        name="test",
        aic=given_problem.aic,
        aiv=given_problem.aiv,
        sync=given_problem.sync,
        sync_error=0.0,
        hbm_contention=given_problem.hbm_contention,
        cube_vector_slowdown=given_problem.cube_vector_slowdown,
        compute_comm_slowdown=given_problem.compute_comm_slowdown,
    )
    program = StreamProgram(
        semantics=Semantics.GE,
        steps=tuple(Step(name=placement.task, kind="task", stream=placement.stream) for placement in placements),
        edges=tuple(Edge(before=p.before, after=p.after, kind=EdgeKind.DATA) for p in given_problem.precedences),
        in_order=True,
    )
    return simulate(program, costs, machine)


def _cost(mode: Mode) -> Cost:
    held = Resources(aic=mode.aic, aiv=mode.aiv, hbm=mode.hbm, comm=mode.comm)
    return Cost(duration=mode.duration, breakdown=Breakdown(), resources=held, tier=Tier.MEASURED, error=0.0)


def times(placements: tuple[Placement, ...]) -> dict[str, tuple[int, int]]:
    return {placement.task: (placement.start, placement.end) for placement in placements}


_factor = st.sampled_from([1000, 1100, 1237])


@settings(max_examples=150)
@given(problems(most=16, side=3, most_modes=2), st.tuples(_factor, _factor, _factor), st.data())
def test_any_plan_runs_as_the_simulator_says(plain: Problem, factors: tuple[int, int, int], data: st.DataObject) -> None:
    given_problem = interfering(plain, *factors)
    instance = Instance.of(given_problem)
    unit_stream = [data.draw(st.sampled_from(allowed)) for allowed in instance.allowed]
    stream = {instance.names[task]: instance.streams[unit_stream[unit]] for task, unit in enumerate(instance.unit)}
    key = [data.draw(st.integers(0, 9)) for _ in instance.names]
    order = [instance.names[task] for task in topological(instance.before, instance.after, key)]
    mode = {task.name: data.draw(st.integers(0, len(task.modes) - 1)) for task in given_problem.tasks}
    placements = decode(given_problem, stream, order, mode)
    timeline = simulated(given_problem, placements)
    assert times(placements) == {slot.step: (slot.start, slot.end) for slot in timeline.slots}
    whole = Schedule(placements=placements, strategy="", status="feasible", makespan=timeline.makespan, lower_bound=0)
    assert check(given_problem, whole) == ()


@settings(max_examples=15)
@given(problems(most=14, most_modes=2), st.tuples(_factor, _factor, _factor))
def test_what_the_strategies_promise_is_what_runs(plain: Problem, factors: tuple[int, int, int]) -> None:
    given_problem = interfering(plain, *factors)
    for strategy in (Greedy(), Divided(budget=0.05, max_tasks=50)):
        schedule = strategy.solve(given_problem)
        assert check(given_problem, schedule) == ()
        assert schedule.lower_bound <= schedule.makespan == simulated(given_problem, schedule.placements).makespan


def test_a_later_stream_does_not_overtake_on_cores_that_both_need() -> None:
    """`wide` was ready first and waits for `half`; `small` would fit beside `half`, but wants the same kind of cores."""
    tasks = [cube("half", 10, aic=12), cube("wide", 5), vector("lead", 1), cube("small", 3, aic=4)]
    given_problem = problem(tasks, ["lead>small"], sync=0)
    placed = times(
        decode(given_problem, {"half": MAIN, "wide": "s1", "lead": "s2", "small": "s2"}, ["half", "wide", "lead", "small"])
    )
    assert placed == {"half": (0, 10), "wide": (10, 15), "small": (15, 18), "lead": (0, 1)}


def test_users_of_the_memory_share_it_and_what_runs_at_once_interferes() -> None:
    """700 + 800 thousandths take 1.5 times as long, times 1.1 for two users, times 1.2 for two kernels."""
    wide = replace(cube("a", 100), modes=(Mode(duration=100, aic=24, hbm=700),))
    other = replace(vector("b", 100), modes=(Mode(duration=100, aiv=48, hbm=800),))
    given_problem = interfering(problem([wide, other]), 1100, 1200, 1000)
    assert times(decode(given_problem, {"a": MAIN, "b": "s1"}, ["a", "b"])) == {"a": (0, 198), "b": (0, 198)}


def test_a_collective_and_a_kernel_slow_each_other_down() -> None:
    given_problem = interfering(problem([cube("a", 100), comm("c", 50)]), 1000, 1000, 1200)
    assert times(decode(given_problem, {"a": MAIN, "c": HCCL}, ["a", "c"])) == {"a": (0, 110), "c": (0, 60)}


def test_interference_is_weighed_against_overlap() -> None:
    """Two kernels that would take twice as long beside each other stay on one stream."""
    tasks = [cube("a", 100), vector("b", 100)]
    assert Greedy().solve(interfering(problem(tasks), 1000, 1900, 1000)).makespan == 190
    assert Greedy().solve(interfering(problem(tasks), 1000, 2100, 1000)).makespan == 200
