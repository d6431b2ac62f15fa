"""The way down to the fewest crossings."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings

from autostream.scheduling.baselines.rules import ruled
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.problem import Problem
from autostream.scheduling.waits.descent import descent
from tests.scheduling.local.test_climb import feasible, interfering
from tests.scheduling.local.test_joining import run
from tests.scheduling.problems import cube, problem, problems, vector


@settings(max_examples=20)
@given(problems(most=14, most_modes=2))
def test_every_plan_on_the_way_is_feasible_and_has_fewer_crossings_than_the_one_before(plain: Problem) -> None:
    given_problem = interfering(plain)
    instance = Instance.of(given_problem)
    for before in ruled(instance):
        passed = descent(instance, before, 20_000, instance.sync)
        assert passed[0] == before
        assert all(feasible(given_problem, instance, plan) for plan in passed)
        counts = [plan.crossings for plan in passed]
        assert counts == sorted(set(counts), reverse=True)


def branched(gains: list[int]) -> tuple[Instance, dict[str, int]]:
    """A chain with a branch on a side stream beside each of its tasks, which saves so many ns there."""
    tasks, edges = [], []
    for n, gain in enumerate(gains):
        tasks += [cube(f"fork{n}", 10), cube(f"main{n}", 100), vector(f"side{n}", gain), cube(f"join{n}", 10)]
        edges += [f"fork{n}>main{n}>join{n}", f"fork{n}>side{n}>join{n}", *([f"join{n - 1}>fork{n}"] if n else [])]
    return Instance.of(problem(tasks, edges, sync=1)), {f"side{n}": 1 for n in range(len(gains))}


def test_side_branches_go_one_by_one_the_least_useful_first() -> None:
    gains = [40, 10, 30, 20]
    instance, streams = branched(gains)
    passed = descent(instance, run(instance, streams), 100_000, 1)
    least = 4 * 120
    assert [(plan.crossings, plan.makespan) for plan in passed] == [
        (8, least),
        (6, least + 10),
        (4, least + 10 + 20),
        (2, least + 10 + 20 + 30),
        (0, least + 10 + 20 + 30 + 40),
    ]


def test_a_branch_is_undone_where_the_streams_take_each_others_place_behind_it() -> None:
    """The join goes on on the stream of the branch each time, so that neither stream's work is one piece per branch."""
    count, tasks, edges, streams, here = 6, [], [], {}, 0
    for n in range(count):
        rows = [f"a{n}.{k}" for k in range(8)], [f"b{n}.{k}" for k in range(8)]
        tasks += [cube(f"fork{n}", 10), *(cube(name, 10) for name in rows[0]), *(vector(name, 10 + n) for name in rows[1])]
        edges += [f"fork{n}>{'>'.join(row)}" for row in rows]
        edges += [f"{row[-1]}>fork{n + 1}" for row in rows if n + 1 < count]
        streams |= {f"fork{n}": here} | dict.fromkeys(rows[0], here) | dict.fromkeys(rows[1], 1 - here)
        here = 1 - here
    instance = Instance.of(problem(tasks, edges, sync=1, side=1))
    before = run(instance, streams)
    counts = [plan.crossings for plan in descent(instance, before, 10**6, 1)]
    assert before.crossings == 2 * count - 1
    assert counts[-1] == 0 and max(one - other for one, other in pairwise(counts)) <= 2


def test_without_effort_or_crossings_there_is_no_way() -> None:
    instance, streams = branched([40, 10])
    before = run(instance, streams)
    assert descent(instance, before, 0, 1) == [before]
    assert descent(instance, run(instance, {}), 1000, 1) == [run(instance, {})]
