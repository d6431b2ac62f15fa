"""The exact search and the bound it rests on, against enumeration of every plan, where what runs at once interferes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autostream.scheduling.bounds.lower import bound
from autostream.scheduling.bounds.prices import ONE, Prices
from autostream.scheduling.bounds.rest import Rest
from autostream.scheduling.exact.depth_first import Found, searched
from autostream.scheduling.lists.greedy import greedy
from autostream.scheduling.lists.serial import serial
from autostream.scheduling.machine.division import divide
from autostream.scheduling.machine.granting import PS
from autostream.scheduling.machine.instance import Instance
from autostream.scheduling.machine.replay import replay
from autostream.scheduling.problem import MAIN, Mode, Problem, Task
from autostream.scheduling.regions.alone import Solution
from autostream.scheduling.regions.assembly import assembled
from autostream.scheduling.regions.divided import Divided, _Chain
from autostream.scheduling.tolerance import tolerated
from tests.scheduling.problems import AIC, AIV, comm, cube, optimum, problem, problems, tangle, vector

_ENOUGH = 100_000
_factors = st.tuples(st.sampled_from([1000, 1100, 1237]), st.sampled_from([1000, 1100, 1900]), st.sampled_from([1000, 1200]))


def interfering(plain: Problem, factors: tuple[int, int, int]) -> Problem:
    hbm, kernels, collectives = factors
    return replace(plain, hbm_contention=hbm, cube_vector_slowdown=kernels, compute_comm_slowdown=collectives)


def _kernels(dice: random.Random, side: int) -> Problem:
    """Five tasks as programs have them: most on all cores of a kind, a few on both kinds, on part of one, or communication."""
    kinds = [cube, vector, comm, _mixed, lambda name, duration: vector(name, duration, aiv=dice.choice((12, 20, 32)))]
    tasks = [dice.choices(kinds, (4, 4, 1, 1, 1))[0](f"t{n}", 10 * dice.randint(3, 30) + n) for n in range(5)]
    edges = [f"t{before}>t{after}" for after in range(5) for before in range(after) if dice.random() < 0.3]
    return problem(tasks, edges, sync=7, side=side)


def _mixed(name: str, duration: int) -> Task:
    return Task(name=name, modes=(Mode(duration=duration, aic=AIC, aiv=AIV, hbm=600),))


@pytest.mark.parametrize("number", range(24))
def test_it_finds_and_proves_what_enumeration_finds(number: int) -> None:
    dice = random.Random(number)
    factors = dice.choice((1000, 1100)), dice.choice((1100, 1237, 1900)), dice.choice((1000, 1200))
    given_problem = interfering(_kernels(dice, 1 + number % 2), factors)
    instance = Instance.of(given_problem)
    known = serial(instance)
    found = searched(instance, known.makespan, _ENOUGH)
    plan = found.plan or known
    assert found.proven == plan.makespan == optimum(given_problem)
    assert plan == replay(instance, plan.stream, plan.order(), plan.mode)


@settings(max_examples=70)
@given(problems(most=5, side=1, shortest=0), _factors)
def test_nothing_false_is_proven(plain: Problem, factors: tuple[int, int, int]) -> None:
    """Where tasks become ready at the same time, or take none, a walk may be no run of a plan: less is proven than is true."""
    given_problem = interfering(plain, factors)
    instance, best = Instance.of(given_problem), optimum(given_problem)
    known = serial(instance)
    found = searched(instance, known.makespan, _ENOUGH)
    assert found.proven is not None
    assert max(found.proven, bound(instance)) <= best <= (found.plan or known).makespan


@settings(max_examples=25)
@given(problems(most=5, side=1), _factors)
def test_a_divided_program_promises_no_more_than_enumeration_finds(plain: Problem, factors: tuple[int, int, int]) -> None:
    given_problem = interfering(plain, factors)
    best = optimum(given_problem)
    schedule = Divided(budget=0.05, max_tasks=50).solve(given_problem)
    assert schedule.lower_bound <= best <= schedule.makespan
    assert (schedule.status == "optimal") == (schedule.makespan <= schedule.lower_bound)


@settings(max_examples=40)
@given(problems(most=9), _factors, st.data())
def test_whatever_runs_at_once_earns_at_most_its_time(plain: Problem, factors: tuple[int, int, int], data: st.DataObject) -> None:
    instance = Instance.of(interfering(plain, factors))
    prices = Prices.of(instance)
    assert prices is not None
    price = prices.best([data.draw(st.integers(0, 10**9)) for _ in instance.names])
    stream = [data.draw(st.sampled_from(instance.allowed[unit])) for unit in range(len(instance.members))]
    plan = replay(instance, [stream[unit] for unit in instance.unit], range(len(instance)), [0] * len(instance))
    earned = sum(row[0].work * one for row, one in zip(instance.claims, price, strict=True))
    assert earned <= (plan.makespan * PS + PS // 2) * ONE


def test_local_search_stops_above_the_optimum_where_the_search_does_not() -> None:
    """A shared expert beside a routed one: as in `npu/moe-bf16-ep16-b1` of the zoo, in microseconds."""
    tasks = [vector("norm", 4), vector("cast", 2), cube("gate", 13), vector("topk", 4)]
    tasks += [vector("dispatch", 34, stream=MAIN), cube("up", 337), vector("act", 3), cube("down", 173)]
    tasks += [cube("up_s", 51), vector("act_s", 2), cube("down_s", 30), vector("add", 2)]
    chains = ["norm>cast>gate>topk>dispatch>up>act>down>add", "norm>up_s>act_s>down_s>add"]
    instance = Instance.of(interfering(problem(tasks, chains, sync=1), (1100, 1100, 1200)))
    known = greedy(instance)
    found = searched(instance, known.makespan, _ENOUGH)
    assert found.plan is not None
    assert found.proven == found.plan.makespan
    assert bound(instance) < found.plan.makespan < known.makespan


def test_the_first_region_with_something_fixed_may_begin_off_the_main_stream() -> None:
    """The cut before it is named as it likes, so that no sync is lost, and the program runs as its regions promise."""
    tasks = [vector("pre", 3), vector("norm", 4), vector("cast", 2), cube("gate", 13), vector("topk", 4)]
    tasks += [vector("dispatch", 34, stream=MAIN), cube("up", 337), vector("act", 3), cube("down", 173)]
    tasks += [vector("combine", 34, stream=MAIN), cube("up_s", 51), vector("act_s", 2), cube("down_s", 30), vector("add", 2)]
    chains = ["pre>norm>cast>gate>topk>dispatch>up>act>down>combine>add>post", "norm>up_s>act_s>down_s>add"]
    plain = problem([*tasks, vector("post", 3)], chains, sync=1, fixed=())
    instance = Instance.of(interfering(plain, (1100, 1100, 1200)))
    division = divide(instance)
    solutions = _Chain(instance, division, 0.3, 50).solutions()
    assert solutions[0].plan.stream[-1] == solutions[1].plan.stream[0] != 0
    assert solutions[1].plan.makespan == solutions[1].proven
    whole = assembled(instance, division, solutions)[0]
    ends = sum(one.plan.makespan - segment.overlap(instance) for one, segment in zip(solutions, division.segments, strict=True))
    assert abs(whole.makespan - ends) <= 1


def test_a_plan_that_reaches_the_bound_is_proven_at_once() -> None:
    instance = Instance.of(problem([cube("a", 60), vector("b", 50)]))
    assert searched(instance, 60, 1) == Found(None, 60)


def test_a_search_that_is_cut_short_proves_nothing() -> None:
    instance = Instance.of(problem([cube("a", 20), vector("b", 21), comm("c", 22), vector("d", 23)], ["a>d", "c>d"]))
    assert searched(instance, serial(instance).makespan, 2) == Found(None, None)


def test_what_is_too_large_or_has_several_modes_is_left_alone() -> None:
    modes = Task(name="a", modes=(Mode(duration=5, aic=24), Mode(duration=9, aic=12)))
    for given_problem in (problem([modes, vector("b", 5)]), problem([cube(f"c{n}", 5) for n in range(300)])):
        instance = Instance.of(given_problem)
        assert Rest.of(instance) is None
        assert searched(instance, serial(instance).makespan, _ENOUGH) == Found(None, None)


def test_prices_see_what_no_single_resource_shows() -> None:
    instance = Instance.of(tangle())
    rest = Rest.of(instance)
    assert rest is not None
    assert rest.makespan() == bound(instance) == 153


def test_the_search_is_the_same_every_time() -> None:
    instance = Instance.of(interfering(tangle(), (1100, 1100, 1200)))
    first, second = (searched(instance, serial(instance).makespan, 300) for _ in range(2))
    assert first == second
    assert first.plan is not None


def _chain(blocks: list[list[int]]) -> Problem:
    """Blocks of parallel branches with one cut after each; a branch is a cube task and a vector task of the given length."""
    tasks, edges, last = [cube("in", 9)], [], "in"
    for number, lengths in enumerate(blocks):
        join = f"join{number}"
        for branch, length in enumerate(lengths):
            names = f"c{number}_{branch}", f"v{number}_{branch}"
            tasks += [cube(names[0], length), vector(names[1], length)]
            edges.append(f"{last}>{names[0]}>{names[1]}>{join}")
        tasks.append(vector(join, 7))
        last = join
    return problem(tasks, edges)


def test_side_streams_keep_their_turn_from_region_to_region() -> None:
    """Of tasks that are ready at the same time the stream that was used first goes first: in the whole as in the part."""
    instance = Instance.of(_chain([[20, 21, 10], [9, 30, 31]]))
    division = divide(instance)
    region = division.segments[1]
    alone = region.part(instance)
    plan = replay(alone, [0, 0, 0, 2, 2, 1, 1, 0], range(len(alone)), [0] * len(alone))
    assert list(dict.fromkeys(plan.stream[task] for task in plan.order())) == [0, 2, 1]
    chain = _Chain(instance, division, 0.05, 50)
    found = chain._continued(1, Solution(plan=plan, proven=0), 1, None, (2, 0, 1))
    assert found.plan.stream == (1, 1, 1, 2, 2, 0, 0, 1)


@settings(max_examples=10)
@given(st.lists(st.sampled_from([5, 10, 20, 21]), min_size=2, max_size=3), st.lists(st.just(10), min_size=1, max_size=3))
def test_a_region_takes_the_time_that_is_proven_wherever_it_is(block: list[int], other: list[int]) -> None:
    schedule = Divided(budget=0.05, max_tasks=50).solve(interfering(_chain([block, other, block]), (1000, 1100, 1000)))
    assert len(schedule.regions) >= 2
    assert all(region.makespan <= tolerated(region.lower_bound) for region in schedule.regions)
    assert schedule.lower_bound <= schedule.makespan <= tolerated(schedule.lower_bound) + len(schedule.regions)
