from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autostream.cost.model import Breakdown, Cost, Machine, Resources, Tier
from autostream.errors import VerificationError
from autostream.program import Semantics, StreamProgram, Timeline, simulate
from autostream.program.simulation.simulate import Simulator
from tests.program.programs import program, step

MACHINE = Machine(name="toy", aic=24, aiv=48, sync=10, sync_error=0.0)
#: The same with interference.
HARSH = replace(MACHINE, hbm_contention=1250, cube_vector_slowdown=1200, compute_comm_slowdown=1500)


def cost(duration: int, *, aic: int = 0, aiv: int = 0, hbm: int = 0, comm: int = 0) -> Cost:
    return Cost(
        duration=duration,
        breakdown=Breakdown(),
        resources=Resources(aic=aic, aiv=aiv, hbm=hbm, comm=comm),
        tier=Tier.ANALYTIC,
        error=0.0,
    )


def times(timeline: Timeline) -> dict[str, tuple[int, int]]:
    return {slot.step: (slot.start, slot.end) for slot in timeline.slots}


def test_one_stream_runs_one_after_the_other() -> None:
    run = simulate(program([step("a"), step("b"), step("c")]), {"a": cost(100, aic=24), "b": cost(50), "c": cost(7)}, MACHINE)
    assert times(run) == {"a": (0, 100), "b": (100, 150), "c": (150, 157)}
    assert (run.makespan, run.crossings) == (157, 0)
    assert [slot.stream for slot in run.slots] == ["default"] * 3


def test_two_streams_overlap_and_every_crossing_costs_a_sync() -> None:
    steps = [step("a"), step("b"), step("c", "s"), step("d")]
    run = simulate(
        program(steps, data=["a>c", "c>d", "b>d"]), {"a": cost(100), "b": cost(300), "c": cost(200), "d": cost(50)}, MACHINE
    )
    assert times(run) == {"a": (0, 100), "b": (100, 400), "c": (110, 310), "d": (400, 450)}
    assert run.crossings == 2
    late = simulate(program(steps, data=["a>c", "c>d"]), {"a": cost(100), "b": cost(300), "c": cost(300), "d": cost(50)}, MACHINE)
    assert times(late)["d"] == (420, 470), "the sync is paid on the waiting stream: 410 + 10"


def test_syncs_of_several_producers_are_paid_at_the_same_time() -> None:
    steps = [step("a", "s"), step("b", "t"), step("c")]
    run = simulate(program(steps, control=["a>c", "b>c"]), {"a": cost(100), "b": cost(95), "c": cost(1)}, MACHINE)
    assert times(run)["c"] == (110, 111)
    assert run.crossings == 2


def test_data_through_a_view_is_charged_once() -> None:
    steps = [step("a"), step("v", None), step("b", "s")]
    run = simulate(program(steps, data=["a>v", "v>b", "a>b"]), {"a": cost(100), "v": cost(999), "b": cost(1)}, MACHINE)
    assert times(run) == {"a": (0, 100), "b": (110, 111)}
    assert run.crossings == 1


def test_cores_are_exclusive() -> None:
    steps = [step("a"), step("b", "s")]
    both = {"a": cost(100, aic=16), "b": cost(100, aic=16)}
    assert times(simulate(program(steps), both, MACHINE)) == {"a": (0, 100), "b": (100, 200)}
    half = {"a": cost(100, aic=12), "b": cost(100, aic=12)}
    assert simulate(program(steps), half, MACHINE).makespan == 100
    other = {"a": cost(100, aic=24), "b": cost(100, aiv=48)}
    assert simulate(program(steps), other, MACHINE).makespan == 100


def test_a_step_that_wants_more_cores_than_there_are_gets_all() -> None:
    run = simulate(program([step("a"), step("b", "s")]), {"a": cost(100, aiv=64), "b": cost(100, aiv=1)}, MACHINE)
    assert times(run) == {"a": (0, 100), "b": (100, 200)}


def test_cores_are_given_in_the_order_of_readiness() -> None:
    """c is ready before d; d must not slip in front of it although its few cores are free."""
    steps = [step("a"), step("c", "s"), step("p", "t"), step("d", "t"), step("e", "u")]
    costs = {"a": cost(100, aic=12), "c": cost(10, aic=24), "p": cost(50), "d": cost(10, aic=12), "e": cost(10, aiv=48)}
    run = times(simulate(program(steps), costs, MACHINE))
    assert run["c"] == (100, 110)
    assert run["d"] == (110, 120)
    assert run["e"] == (0, 10), "another resource is not held up"


def test_communication_overlaps_compute_but_not_itself() -> None:
    steps = [step("mm"), step("ar", "hccl"), step("ag", "s")]
    run = simulate(program(steps), {"mm": cost(100, aic=24), "ar": cost(80, comm=1), "ag": cost(30, comm=1)}, MACHINE)
    assert times(run) == {"mm": (0, 100), "ar": (0, 80), "ag": (80, 110)}


def test_bandwidth_is_shared_in_proportion_for_the_time_of_overlap() -> None:
    steps = [step("a"), step("b", "s"), step("c", "t")]
    equal = simulate(program(steps[:2]), {"a": cost(1000, hbm=1000), "b": cost(1000, hbm=1000)}, MACHINE)
    assert times(equal) == {"a": (0, 2000), "b": (0, 2000)}
    # Together they want 1500: a runs at 2/3 until b, of 400, is over at 600; 400 of a are done, 600 remain.
    uneven = simulate(program(steps[:2]), {"a": cost(1000, hbm=900), "b": cost(400, hbm=600)}, MACHINE)
    assert times(uneven) == {"a": (0, 1200), "b": (0, 600)}
    # A step without memory traffic is not stretched, two that fit are not either.
    fits = simulate(program(steps), {"a": cost(1000, hbm=500), "b": cost(1000, hbm=500), "c": cost(1000)}, MACHINE)
    assert fits.makespan == 1000
    free = simulate(program(steps), {"a": cost(1000, hbm=1000), "b": cost(1000, hbm=500), "c": cost(1000)}, MACHINE)
    assert times(free)["c"] == (0, 1000)
    assert times(free)["a"] == (0, 1500)


def test_users_of_the_memory_get_less_out_of_it_together() -> None:
    steps = [step("a"), step("b", "s")]
    machine = replace(MACHINE, hbm_contention=1250)
    # 600 + 400 of what is now worth 1000 / 1.25 = 800: both take 1.25 times as long.
    full = simulate(program(steps), {"a": cost(1000, hbm=600), "b": cost(1000, hbm=400)}, machine)
    assert times(full) == {"a": (0, 1250), "b": (0, 1250)}
    fits = simulate(program(steps), {"a": cost(1000, hbm=400), "b": cost(1000, hbm=400)}, machine)
    assert fits.makespan == 1000
    alone = simulate(program(steps), {"a": cost(1000, hbm=1000), "b": cost(1000)}, machine)
    assert alone.makespan == 1000


def test_kernels_beside_each_other_are_both_stretched_for_as_long_as_both_run() -> None:
    steps = [step("a"), step("b", "s")]
    machine = replace(MACHINE, cube_vector_slowdown=1200)
    run = simulate(program(steps), {"a": cost(1000, aic=24), "b": cost(500, aiv=48)}, machine)
    # b takes 600; a has then done 500 of its 1000 and needs 500 more alone.
    assert times(run) == {"a": (0, 1100), "b": (0, 600)}
    host = simulate(program(steps), {"a": cost(1000, aic=24), "b": cost(500)}, machine)
    assert host.makespan == 1000, "what holds no core disturbs nobody"
    copies = simulate(program(steps), {"a": cost(1000, aiv=10), "b": cost(1000, aiv=10)}, machine)
    assert copies.makespan == 1200


def test_a_collective_and_a_kernel_stretch_each_other() -> None:
    steps = [step("mm"), step("ar", "hccl"), step("add", "s")]
    machine = replace(MACHINE, compute_comm_slowdown=1500)
    run = simulate(program(steps[:2]), {"mm": cost(1000, aic=24), "ar": cost(1000, comm=1)}, machine)
    assert times(run) == {"mm": (0, 1500), "ar": (0, 1500)}
    gang = simulate(program(steps[:2]), {"mm": cost(1000, aic=24), "ar": cost(1000, aiv=48, comm=1)}, machine)
    assert gang.makespan == 1500, "a collective on vector cores is one all the same"
    three = {"mm": cost(1000, aic=24), "ar": cost(1000, comm=1), "add": cost(1000, aiv=48)}
    both = times(simulate(program(steps), three, replace(machine, cube_vector_slowdown=1200)))
    # Beside two kernels the collective is stretched once; each kernel pays for the other one as well.
    assert both["ar"] == (0, 1500)
    assert both["mm"] == both["add"] == (0, 1500 + 1000 - 1500 * 1000 // 1800 + (1000 - 1500 * 1000 // 1800) // 5)


def test_of_several_steps_for_one_node_the_last_carries_the_cost() -> None:
    steps = [step("Const", None, source="add"), step("Cast", source="add"), step("Add", source="add"), step("Mul", source="mul")]
    run = simulate(program(steps), {"add": cost(100), "Mul": cost(3), "mul": cost(50)}, MACHINE)
    assert times(run) == {"Cast": (0, 0), "Add": (0, 100), "Mul": (100, 103)}


def test_unknown_steps_are_free_and_an_empty_program_takes_no_time() -> None:
    assert simulate(program([step("a"), step("b", "s")], data=["a>b"]), {}, MACHINE).makespan == 10
    assert simulate(program([]), {}, MACHINE) == Timeline(slots=(), makespan=0, crossings=0)


def test_capture_modes_wait_for_events_only() -> None:
    steps = [step("a"), step("b", "s")]
    costs = {"a": cost(100), "b": cost(100)}
    assert simulate(program(steps, data=["a>b"], semantics=Semantics.CAPTURE), costs, MACHINE).makespan == 100
    assert simulate(program(steps, event=["a>b"], semantics=Semantics.CAPTURE), costs, MACHINE).makespan == 210


def test_a_deadlock_names_who_waits_for_whom() -> None:
    steps = [step("a"), step("b"), step("c", "s"), step("d", "s")]
    with pytest.raises(VerificationError, match=r"'a' on stream 'default' waits for 'd'; 'c' on stream 's' waits for 'b'"):
        simulate(program(steps, control=["d>a", "b>c"]), {}, MACHINE)


def test_slots_are_listed_by_start_then_emission() -> None:
    steps = [step("a", "s"), step("b"), step("c", "s"), step("d", "t")]
    run = simulate(program(steps), {"a": cost(5), "b": cost(50), "c": cost(5), "d": cost(2)}, MACHINE)
    assert [slot.step for slot in run.slots] == ["a", "b", "d", "c"]


@st.composite
def _cases(draw: st.DrawFn, *, bandwidth: bool = False) -> tuple[StreamProgram, dict[str, Cost]]:
    count = draw(st.integers(1, 16))
    steps = [step(f"n{i}", draw(st.sampled_from([None, "default", "s", "t"]))) for i in range(count)]
    pair = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda p: p[0] < p[1])
    edges = draw(st.lists(pair, max_size=20)) if count > 1 else []
    costs = {
        f"n{i}": cost(
            draw(st.integers(0, 2000)),
            aic=draw(st.integers(0, 30)),
            aiv=draw(st.integers(0, 60)),
            hbm=draw(st.integers(0, 1000)) if bandwidth else 0,
            comm=draw(st.integers(0, 1)),
        )
        for i in range(count)
    }
    return program(steps, data=[f"n{a}>n{b}" for a, b in edges]), costs


@given(_cases())
def test_makespan_lies_between_its_bounds(case: tuple[StreamProgram, dict[str, Cost]]) -> None:
    given_program, costs = case
    run = simulate(given_program, costs, MACHINE)
    lanes = given_program.streams()
    total = sum(costs[s.name].duration for lane in lanes.values() for s in lane)
    longest = max((sum(costs[s.name].duration for s in lane) for lane in lanes.values()), default=0)
    assert longest <= run.makespan <= total + run.crossings * MACHINE.sync
    assert run.makespan >= _critical_path(given_program, costs)
    if len(lanes) == 1:
        assert run.makespan == total
    assert run == simulate(given_program, costs, MACHINE)


def _critical_path(given_program: StreamProgram, costs: dict[str, Cost]) -> int:
    """Longest chain of data edges, without syncs."""
    end: dict[str, int] = {}
    for s in given_program.steps:
        start = max((end[e.before] for e in given_program.edges if e.after == s.name), default=0)
        end[s.name] = start + (costs[s.name].duration if s.stream is not None else 0)
    return max(end.values(), default=0)


@given(_cases(bandwidth=True))
def test_a_timeline_is_legal(case: tuple[StreamProgram, dict[str, Cost]]) -> None:
    given_program, costs = case
    run = simulate(given_program, costs, MACHINE)
    slots = {slot.step: slot for slot in run.slots}
    for lane in given_program.streams().values():
        assert all(slots[a.name].end <= slots[b.name].start for a, b in pairwise(lane))
    for edge in given_program.edges:
        if edge.before in slots and edge.after in slots:
            sync = MACHINE.sync if slots[edge.before].stream != slots[edge.after].stream else 0
            assert slots[edge.after].start >= slots[edge.before].end + sync
    for slot in run.slots:
        now = [costs[other.step].resources for other in run.slots if other.start <= slot.start < other.end]
        assert sum(min(r.aic, MACHINE.aic) for r in now) <= MACHINE.aic
        assert sum(min(r.aiv, MACHINE.aiv) for r in now) <= MACHINE.aiv
        assert sum(r.comm for r in now) <= 1
        assert slot.end - slot.start >= costs[slot.step].duration
        assert slot.end - slot.start <= costs[slot.step].duration * 3 + 1


@given(_cases(bandwidth=True))
def test_interference_is_paid_for_overlap_alone(case: tuple[StreamProgram, dict[str, Cost]]) -> None:
    given_program, costs = case
    run = simulate(given_program, costs, HARSH)
    assert run == simulate(given_program, costs, HARSH)
    for slot in run.slots:
        duration = costs[slot.step].duration
        beside = [other for other in run.slots if other.step != slot.step and other.start < slot.end and slot.start < other.end]
        assert slot.end - slot.start >= duration
        if not beside:
            assert slot.end - slot.start == duration
    if len(given_program.streams()) == 1:
        assert run == simulate(given_program, costs, MACHINE)
    longest = max((sum(costs[s.name].duration for s in lane) for lane in given_program.streams().values()), default=0)
    assert run.makespan >= max(longest, _critical_path(given_program, costs)), (
        "what bounds a plan without interference bounds it still"
    )


@given(_cases(bandwidth=True), st.integers(0, 40), st.integers(1, 3))
def test_a_prepared_program_runs_with_other_durations_as_if_prepared_anew(
    case: tuple[StreamProgram, dict[str, Cost]], sync: int, factor: int
) -> None:
    given_program, costs = case
    simulator = Simulator(given_program, costs, HARSH)
    assert simulator.makespan() == simulator.timeline().makespan == simulate(given_program, costs, HARSH).makespan
    other = {name: replace(found, duration=found.duration * factor) for name, found in costs.items()}
    durations = [duration * factor for duration in simulator.durations]
    expected = simulate(given_program, other, replace(HARSH, sync=sync)).makespan
    assert simulator.makespan(durations, sync=sync) == expected
    assert simulator.makespan() == simulate(given_program, costs, HARSH).makespan, "a run leaves nothing behind"
