"""Which of the plans that take about as long is chosen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autostream.scheduling.baselines.rules import ruled
from autostream.scheduling.exact.depth_first import searched
from autostream.scheduling.lists.greedy import greedy
from autostream.scheduling.lists.serial import serial
from autostream.scheduling.local.joining import joined
from autostream.scheduling.machine.division import divide
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import Plan, replay
from autostream.scheduling.problem import MAIN, Problem
from autostream.scheduling.regions.divided import Divided
from autostream.scheduling.tolerance import tolerated
from autostream.scheduling.waits import thrift
from autostream.scheduling.waits.thrift import rank, thrifty, worth
from tests.scheduling.local.test_climb import feasible, interfering
from tests.scheduling.local.test_joining import run
from tests.scheduling.machine.test_division import layers
from tests.scheduling.problems import cube, longer, optimum, problem, problems, vector

_SYNC = 450


def branches(short: int, end: int) -> Instance:
    """A short task that may go on either of two streams, and costs what it takes on the one with fewer crossings."""
    tasks = [cube("short", short, aic=1), cube("long", 201_000, aic=1, stream=MAIN), vector("beside", 200_000)]
    tasks.append(cube("join", end, aic=1, stream=MAIN))
    return Instance.of(problem(tasks, ["short>join", "long>join", "beside>join"], sync=_SYNC, side=1))


def chosen(instance: Instance, before: Plan, rivals: list[Plan]) -> Plan:
    return thrifty(instance, divide(instance), before, rivals, 10_000)


@pytest.mark.parametrize(
    ("short", "end", "crossings"),
    [
        (300, 100_000, 1),
        pytest.param(310, 100_000, 2, id="more than a thousandth"),
        (_SYNC, 1_000_000, 1),
        pytest.param(_SYNC + 1, 1_000_000, 2, id="more than a sync"),
    ],
)
def test_fewer_crossings_within_a_thousandth_and_a_sync(
    monkeypatch: pytest.MonkeyPatch, short: int, end: int, crossings: int
) -> None:
    monkeypatch.setattr(thrift, "ruled", lambda _: iter(()))
    instance = branches(short, end)
    before = run(instance, {"short": 1, "beside": 1})
    assert (before.makespan, before.crossings) == (201_000 + end, 2)
    after = chosen(instance, before, [])
    assert after.crossings == crossings
    assert after.makespan == before.makespan + (short if crossings == 1 else 0)


def test_a_part_gets_no_longer_than_is_tolerated_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows takes so long that the whole could bear more."""
    monkeypatch.setattr(thrift, "ruled", lambda _: iter(()))
    for short, crossings in ((300, 1), (310, 2)):
        tasks = [cube("short", short, aic=1), cube("long", 201_000, aic=1, stream=MAIN), vector("beside", 200_000)]
        tasks += [cube("join", 100_000, aic=1, stream=MAIN), cube("behind", 9_000_000)]
        edges = ["short>join", "long>join", "beside>join", "join>behind"]
        instance = Instance.of(problem(tasks, edges, sync=_SYNC, side=1))
        before = run(instance, {"short": 1, "beside": 1})
        assert chosen(instance, before, []).crossings == crossings


def test_no_plan_gets_longer_than_a_rule_or_a_rival(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = branches(300, 100_000)
    before = run(instance, {"short": 1, "beside": 1})
    monkeypatch.setattr(thrift, "ruled", lambda _: iter([before]))
    assert chosen(instance, before, []) == before
    monkeypatch.setattr(thrift, "ruled", lambda _: iter(()))
    assert chosen(instance, before, [before]) == before


def test_a_rival_is_chosen_that_has_fewer_crossings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without effort to search, so that the rival alone can be the answer."""
    instance = branches(300, 100_000)
    before, rival = run(instance, {"short": 1, "beside": 1}), run(instance, {"beside": 1})
    monkeypatch.setattr(thrift, "ruled", lambda _: iter(()))
    assert thrifty(instance, divide(instance), before, [rival], 0) == rival


def test_equal_segments_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(instance: Instance, plan: Plan, limit: int, effort: int) -> Plan:
        calls.append(len(instance))
        return joined(instance, plan, limit, effort)

    monkeypatch.setattr(thrift, "joined", counted)
    known = []
    for count in (6, 30):
        calls.clear()
        instance = Instance.of(layers(count))
        scattered = dealt_out(instance)
        after = chosen(instance, scattered, [])
        assert after.makespan <= scattered.makespan
        assert after.crossings * 2 <= scattered.crossings
        known.append(list(calls))
    assert known[0] == known[1] != []


def dealt_out(instance: Instance) -> Plan:
    """Layers with the tasks between their cuts on two streams by turns."""
    division = divide(instance)
    stream = [0] * len(instance)
    for segment in division.regions:
        for number, task in enumerate(segment.inner):
            stream[task] = 1 + number % 2
    return replay(instance, stream, range(len(instance)), [0] * len(instance))


@settings(max_examples=30)
@given(problems(most=14, most_modes=2))
def test_the_choice_keeps_its_rule(plain: Problem) -> None:
    given_problem = interfering(plain)
    instance = Instance.of(given_problem)
    rivals = [serial(instance), greedy(instance), *ruled(instance)]
    before = min(rivals, key=lambda plan: plan.rank)
    after = thrifty(instance, divide(instance), before, rivals, 2000)
    assert feasible(given_problem, instance, after)
    assert rank(after) <= rank(before)
    assert after.makespan <= max(before.makespan, min(tolerated(before.makespan), *(rival.makespan for rival in rivals)))
    assert worth(instance, before, after)
    assert all(rank(after)[:2] <= rank(one)[:2] for one in rivals if one.makespan == before.makespan)


@settings(max_examples=15)
@given(problems(most=10, most_modes=2))
def test_the_schedule_of_the_whole_is_never_longer_than_a_rule(plain: Problem) -> None:
    given_problem = interfering(plain)
    instance = Instance.of(given_problem)
    schedule = Divided(budget=0.02, max_tasks=50).solve(given_problem)
    assert schedule.makespan <= min(plan.makespan for plan in (greedy(instance), *ruled(instance)))


def test_what_is_tolerated() -> None:
    assert [tolerated(time) for time in (0, 999, 1000, 2_500_000)] == [0, 999, 1001, 2_502_500]


@settings(max_examples=25)
@given(problems(most=5).map(lambda plain: longer(plain, 1000)))
def test_no_plan_as_short_as_the_shortest_has_fewer_crossings(given_problem: Problem) -> None:
    instance = Instance.of(given_problem)
    plan = min(ruled(instance), key=lambda one: one.rank)
    plan = searched(instance, plan.makespan, 10_000).plan or plan
    found = chosen(instance, plan, [])
    if found.crossings:
        assert optimum(given_problem, found.crossings - 1) > plan.makespan


def test_what_no_single_move_reaches_an_exact_search_finds() -> None:
    tasks = [cube("a", 1000, aic=0), cube("b", 1000), cube("c", 1000, aic=0), cube("d", 2000, aic=8)]
    instance = Instance.of(problem(tasks, ["a>c", "b>c"], sync=0))
    plan = min(ruled(instance), key=lambda one: one.rank)
    assert plan.crossings == 1
    found = chosen(instance, plan, [])
    assert (found.makespan, found.crossings) == (plan.makespan, 0)


@settings(max_examples=25)
@given(problems(most=5).map(lambda plain: longer(plain, 100)), st.integers(0, 3))
def test_what_is_settled_is_settled(plain: Problem, syncs: int) -> None:
    """No plan that is worth its time has fewer crossings, also where each two crossings cost more than one sync."""
    given_problem = replace(plain, sync=300)
    instance = Instance.of(given_problem)
    for plan in ruled(instance):
        limit = plan.makespan + syncs * instance.sync
        found, settled = thrift._exactly(instance, plan, limit, 100_000)
        assert settled
        assert found.makespan <= limit and (found is plan or worth(instance, plan, found))
        for fewer in range(found.crossings):
            most = min(limit, plan.makespan + instance.sync * (plan.crossings - fewer))
            assert optimum(given_problem, fewer) > most
        break
