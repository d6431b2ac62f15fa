"""What is said of the regions: equal ones are looked at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autostream.scheduling.lists.greedy import greedy
from autostream.scheduling.machine.division import divide, part
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.paths import topological
from autostream.scheduling.machine.replay import replay
from autostream.scheduling.problem import Problem
from autostream.scheduling.regions import describe
from autostream.scheduling.regions.describe import ASIDE, described
from tests.scheduling.machine.test_division import layers
from tests.scheduling.problems import problem, problems, vector


@settings(max_examples=60)
@given(problems(most=16, most_modes=2, shortest=0), st.data())
def test_a_region_takes_what_its_tasks_take_alone(given_problem: Problem, data: st.DataObject) -> None:
    """The residual connections of its kind change nothing, whatever the streams and the order are."""
    instance = Instance.of(given_problem)
    unit_stream = [data.draw(st.sampled_from(allowed)) for allowed in instance.allowed]
    key = [data.draw(st.integers(0, 9)) for _ in instance.names]
    order = topological(instance.before, instance.after, key)
    plan = replay(instance, [unit_stream[unit] for unit in instance.unit], order, [0] * len(instance))
    division = divide(instance)
    regions = described(instance, division, plan, [0] * len(division.regions))
    place = {task: number for number, task in enumerate(plan.order())}
    for segment, region in zip(division.regions, regions, strict=False):
        tasks = segment.tasks
        alone = replay(
            part(instance, tasks),
            [plan.stream[task] for task in tasks],
            sorted(range(len(tasks)), key=lambda number, tasks=tasks: place[tasks[number]]),
            [plan.mode[task] for task in tasks],
        )
        assert region.makespan == alone.makespan - segment.cut_time(instance)


def test_equal_regions_are_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    original = describe.replay
    monkeypatch.setattr(describe, "replay", lambda alone, *rest: ran.append(len(alone)) or original(alone, *rest))
    instance = Instance.of(layers(40))
    regions = described(instance, divide(instance), greedy(instance), [60] * 40)
    assert {(region.makespan, region.reason) for region in regions} == {(60, "no schedule is faster: bound by critical path")}
    assert len(ran) <= 5


def test_what_was_set_aside_takes_what_it_adds_to_the_rest() -> None:
    given_problem = layers(4)
    edges = [f"{edge.before}>{edge.after}" for edge in given_problem.precedences]
    beside = problem([*given_problem.tasks, vector("write", 9)], [*edges, "vec0>write"])
    instance = Instance.of(beside)
    division = divide(instance)
    core = [task for task in range(len(instance)) if instance.names[task] != "write"]
    stream = [int(name.startswith("vec")) for name in instance.names]
    late = replay(instance, stream, [*core, instance.names.index("write")], [0] * len(instance))
    alone = replay(part(instance, core), [stream[task] for task in core], range(len(core)), [0] * len(core))
    assert late.makespan == alone.makespan + 9
    for whole, lower in ((0, 0), (late.makespan - 2, 7), (late.makespan + 5, 9)):
        region = described(instance, division, late, [60] * 4, whole)[-1]
        assert (region.name, region.makespan, region.lower_bound, region.status) == (ASIDE, 9, lower, "serial")
