from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autostream.cost.model import Breakdown, Cost, Machine, Resources, Tier
from autostream.errors import VerificationError
from autostream.program import Edge, EdgeKind, Semantics, Step, StreamProgram, simulate
from autostream.program.simulation.running import Slowdowns, Tasks, run
from autostream.program.simulation.simulate import Simulator
from tests.program.programs import program, step

MACHINE = Machine(
    name="toy",
    aic=24,
    aiv=48,
    sync=10,
    sync_error=0.0,
    hbm_contention=1250,
    cube_vector_slowdown=1200,
    compute_comm_slowdown=1500,
)
STREAMS = ["default", "s", "t"]


def _cost(duration: int, *, aic: int = 0, aiv: int = 0, hbm: int = 0, comm: int = 0) -> Cost:
    held = Resources(aic=aic, aiv=aiv, hbm=hbm, comm=comm)
    return Cost(duration=duration, breakdown=Breakdown(), resources=held, tier=Tier.ANALYTIC, error=0.0)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many steps each run of a part has."""
    counted: list[int] = []

    def counting(tasks: Tasks, work: Sequence[int], sync: int, slowdowns: Slowdowns | None) -> tuple[list[int], list[int]]:
        counted.append(len(work))
        return run(tasks, work, sync, slowdowns)

    monkeypatch.setattr("autostream.program.simulation.parts.run", counting)
    return counted


def _layers(count: int, *, late: Sequence[int] = ()) -> tuple[StreamProgram, dict[str, Cost]]:
    """Layers of a fork, two branches and a join; the branch of each layer takes as much longer as `late` says."""
    steps: list[Step] = []
    control: list[str] = []
    costs: dict[str, Cost] = {}
    for i in range(count):
        steps += [step(f"fork{i}"), step(f"left{i}"), step(f"right{i}", "s"), step(f"join{i}")]
        control += [f"fork{i}>right{i}", f"right{i}>join{i}"]
        costs |= {f"fork{i}": _cost(7, aiv=48), f"left{i}": _cost(100, aic=24), f"join{i}": _cost(9, hbm=1000)}
        costs[f"right{i}"] = _cost(120 + (late[i] if late else 0), aiv=48, hbm=500)
    return program(steps, control=control), costs


def test_equal_parts_are_run_once_in_every_world(runs: list[int]) -> None:
    given_program, costs = _layers(20)
    simulator = Simulator(given_program, costs, MACHINE)
    # Each layer: 7 ns, a sync, 120 ns beside the other branch, which stretches the first 100 ns of it by a fifth, a sync, 9 ns.
    assert simulator.makespan() == 20 * (7 + 10 + 138 + 10 + 9) == simulate(given_program, costs, MACHINE).makespan
    assert runs == [4], "the fork as a step without work, both branches and the join"
    assert simulator.makespan(sync=0) == 20 * (7 + 140 + 9)
    assert runs == [4, 4]


def test_parts_with_other_durations_are_run_again(runs: list[int]) -> None:
    given_program, costs = _layers(6, late=[0, 5, 0, 5, 8, 0])
    assert Simulator(given_program, costs, MACHINE).makespan() == simulate(given_program, costs, MACHINE).makespan
    assert runs == [4] * 3


def test_one_step_after_another_is_not_run_at_all(runs: list[int]) -> None:
    steps = [step("a"), step("reduce", "hccl"), step("b"), step("c")]
    costs = {"a": _cost(100, aic=24), "reduce": _cost(50, comm=1), "b": _cost(30, hbm=1500), "c": _cost(1)}
    chain = program(steps, data=["a>reduce", "reduce>b"])
    assert Simulator(chain, costs, MACHINE).makespan() == 100 + 10 + 50 + 10 + 45 + 1 == simulate(chain, costs, MACHINE).makespan
    assert runs == []


def test_what_passes_a_step_by_keeps_it_from_being_a_quiet_point(runs: list[int]) -> None:
    """a comes before b and b before c, but s may run beside each of them."""
    steps = [step("a"), step("b"), step("c"), step("s", "side"), step("end")]
    costs = {"a": _cost(10), "b": _cost(10), "c": _cost(10), "s": _cost(25), "end": _cost(1)}
    given_program = program(steps, data=["s>end"])
    assert Simulator(given_program, costs, MACHINE).makespan() == 25 + 10 + 1
    assert runs == [5]


def test_a_program_that_waits_for_itself_is_named_with_and_without_durations() -> None:
    steps = [step("a"), step("b"), step("c", "s"), step("d", "s"), step("e")]
    simulator = Simulator(program(steps, control=["d>b", "b>c"]), {}, MACHINE)
    for act in (simulator.makespan, simulator.timeline, lambda: simulator.makespan(simulator.durations, sync=3)):
        with pytest.raises(VerificationError, match="'b' on stream 'default' waits for 'd'; 'c' on stream 's' waits for 'b'"):
            act()


def test_slowdowns_are_those_of_the_machine_unless_others_are_given() -> None:
    given_program, costs = _layers(3)
    simulator = Simulator(given_program, costs, MACHINE)
    worse = Slowdowns.of(MACHINE, 200)
    assert worse == (1500, 1440, 1800) and Slowdowns.of(MACHINE, -900) == (1000, 1000, 1000)
    assert simulator.makespan(slowdowns=Slowdowns.of(MACHINE)) == simulator.makespan()
    machine = replace(MACHINE, hbm_contention=1500, cube_vector_slowdown=1440, compute_comm_slowdown=1800)
    assert simulator.makespan(slowdowns=worse) == Simulator(given_program, costs, machine).makespan() > simulator.makespan()


def test_a_sync_below_nothing_is_none() -> None:
    given_program, costs = _layers(3)
    simulator = Simulator(given_program, costs, MACHINE)
    assert simulator.makespan(sync=-5) == simulator.makespan(sync=0)


_durations = st.one_of(st.sampled_from([0, 0, 7, 100]), st.integers(0, 2000))
_costs = st.builds(
    _cost,
    _durations,
    aic=st.sampled_from([0, 12, 24]),
    aiv=st.sampled_from([0, 24, 48]),
    hbm=st.sampled_from([0, 300, 700, 1000, 1300]),
    comm=st.sampled_from([0, 0, 1]),
)
#: Steps (stream, cost) and edges between two of them by position, of one block of a program.
_Block = tuple[list[tuple[str | None, Cost]], list[tuple[int, int]]]


@st.composite
def _blocks(draw: st.DrawFn) -> _Block:
    steps = draw(st.lists(st.tuples(st.sampled_from([*STREAMS, None]), _costs), min_size=1, max_size=5))
    pairs = [(one, two) for two in range(len(steps)) for one in range(two)]
    return steps, draw(st.lists(st.sampled_from(pairs), max_size=6)) if pairs else []


@st.composite
def _programs(draw: st.DrawFn) -> tuple[StreamProgram, dict[str, Cost]]:
    """Blocks one after the other, some of them the same, most of them behind a step that waits for all before it."""
    kinds = draw(st.lists(_blocks(), min_size=1, max_size=3))
    steps: list[Step] = []
    costs: dict[str, Cost] = {}
    edges: set[tuple[str, str]] = set()
    waiting: list[str] = []
    for number, (block, within) in enumerate(draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=5))):
        names = [f"b{number}_{i}" for i in range(len(block))]
        steps += [step(name, stream) for name, (stream, _) in zip(names, block, strict=True)]
        costs |= {name: cost for name, (_, cost) in zip(names, block, strict=True)}
        edges |= {(names[one], names[two]) for one, two in within}
        if number and draw(st.integers(0, 3)):
            gate = f"gate{number}"
            place = len(steps) - len(names)
            steps.insert(place, step(gate, draw(st.sampled_from(STREAMS))))
            costs[gate] = draw(_costs)
            edges |= {(name, gate) for name in waiting} | {(gate, name) for name in names}
            waiting = [gate]
        waiting += names
    kind = draw(st.sampled_from(EdgeKind))
    return StreamProgram(
        semantics=Semantics.GE,
        steps=tuple(steps),
        edges=tuple(Edge(before=one, after=two, kind=kind) for one, two in sorted(edges)),
        in_order=True,
    ), costs


@given(_programs(), st.integers(0, 300), st.integers(-300, 600), st.data())
def test_the_parts_add_up_to_the_whole_in_every_world(
    case: tuple[StreamProgram, dict[str, Cost]], sync: int, error: int, data: st.DataObject
) -> None:
    given_program, costs = case
    simulator = Simulator(given_program, costs, MACHINE)
    assert simulator.makespan() == simulator.timeline().makespan
    moved = data.draw(st.dictionaries(st.sampled_from(sorted(costs)), _durations))
    there = {name: replace(cost, duration=moved.get(name, cost.duration)) for name, cost in costs.items()}
    slowdowns = Slowdowns.of(MACHINE, error)
    machine = replace(
        MACHINE,
        sync=sync,
        hbm_contention=slowdowns.hbm_contention,
        cube_vector_slowdown=slowdowns.cube_vector,
        compute_comm_slowdown=slowdowns.compute_comm,
    )
    taken = [moved.get(key, duration) for key, duration in zip(simulator.keys, simulator.durations, strict=True)]
    assert simulator.makespan(taken, sync=sync, slowdowns=slowdowns) == simulate(given_program, there, machine).makespan


@given(_programs(), st.integers(2, 4))
def test_a_program_after_itself_takes_as_often_its_time(case: tuple[StreamProgram, dict[str, Cost]], times: int) -> None:
    """Behind a step of no work that waits for all before it, on the same stream as that of the step before the program."""
    once, costs = case
    steps: list[Step] = []
    edges: list[Edge] = []
    for number in range(times):
        names = {s.name: f"{s.name}_{number}" for s in once.steps}
        inside = [s._replace(name=names[s.name]) for s in once.steps]
        steps += [*inside, step(f"end{number}")]
        edges += [edge._replace(before=names[edge.before], after=names[edge.after]) for edge in once.edges]
        edges += [Edge(before=s.name, after=f"end{number}", kind=EdgeKind.CONTROL) for s in inside]
        edges += [Edge(before=f"end{number - 1}", after=s.name, kind=EdgeKind.CONTROL) for s in inside if number]
    tiled = {f"{name}_{number}": cost for name, cost in costs.items() for number in range(times)}
    repeated = replace(once, steps=tuple(steps), edges=tuple(edges))
    machine = replace(MACHINE, sync=0)
    alone = replace(once, steps=(*once.steps, step("end")))
    alone = replace(alone, edges=(*once.edges, *(Edge(before=s.name, after="end", kind=EdgeKind.CONTROL) for s in once.steps)))
    assert Simulator(repeated, tiled, machine).makespan() == pytest.approx(
        times * Simulator(alone, costs, machine).makespan(), abs=times
    )
