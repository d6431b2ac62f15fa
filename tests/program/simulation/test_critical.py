from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from autostream.cost.model import FREE, Breakdown, Cost, Machine, Resources, Tier
from autostream.program.model import Edge, EdgeKind, Semantics, Step, StreamProgram
from autostream.program.simulation.critical import Cause, critical
from autostream.program.simulation.simulate import simulate

MACHINE = Machine(name="test", aic=24, aiv=48, sync=500, sync_error=0.0)


def cost(duration: int, *, aic: int = 0, aiv: int = 0) -> Cost:
    return Cost(duration=duration, breakdown=Breakdown(), resources=Resources(aic=aic, aiv=aiv), tier=Tier.ANALYTIC, error=0.0)


def program(streams: Mapping[str, str], edges: tuple[tuple[str, str], ...] = ()) -> StreamProgram:
    return StreamProgram(
        semantics=Semantics.GE,
        steps=tuple(Step(name=name, kind="op", stream=stream) for name, stream in streams.items()),
        edges=tuple(Edge(before=before, after=after, kind=EdgeKind.DATA) for before, after in edges),
        in_order=True,
    )


def test_a_wait_between_streams_is_on_the_path_with_its_price() -> None:
    read = program(
        {"a": "default", "b": "side", "c": "default", "d": "default"}, (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"))
    )
    costs = {"a": cost(1_000, aic=24), "b": cost(5_000, aiv=48), "c": cost(2_000, aic=24), "d": cost(1_000, aiv=48)}
    found = critical(read, simulate(read, costs, MACHINE), costs, MACHINE)
    assert [(link.step, link.cause, link.after, link.sync) for link in found.path] == [
        ("a", Cause.START, "", 0),
        ("b", Cause.DEPENDENCY, "a", 500),
        ("d", Cause.DEPENDENCY, "b", 500),
    ]
    assert found.slack == {"a": 0, "b": 0, "c": 4_000, "d": 0}


def test_cores_that_another_stream_holds_are_named_as_the_cause() -> None:
    read = program({"a": "default", "b": "side"})
    costs = {"a": cost(3_000, aic=24), "b": cost(2_000, aic=24)}
    found = critical(read, simulate(read, costs, MACHINE), costs, MACHINE)
    assert [(link.step, link.cause, link.after) for link in found.path] == [("a", Cause.START, ""), ("b", Cause.RESOURCE, "a")]
    assert found.slack == {"a": 0, "b": 0}


def test_steps_without_work_that_end_together_do_not_explain_each_other_for_ever() -> None:
    read = program({"a": "default", "b": "side", "c": "default"})
    costs = {"a": cost(0, aic=24), "b": cost(0, aic=24), "c": cost(10, aic=24)}
    found = critical(read, simulate(read, costs, MACHINE), costs, MACHINE)
    assert [link.step for link in found.path] == ["a", "c"]


def test_nothing_runs() -> None:
    read = program({})
    found = critical(read, simulate(read, {}, MACHINE), {}, MACHINE)
    assert found.path == () and found.slack == {}


@st.composite
def programs(draw: st.DrawFn) -> tuple[StreamProgram, dict[str, Cost]]:
    names = [f"s{number}" for number in range(draw(st.integers(1, 12)))]
    streams = {name: draw(st.sampled_from(["default", "one", "two"])) for name in names}
    edges = tuple((before, after) for after in names for before in names[: names.index(after)] if draw(st.integers(0, 3)) == 0)
    costs = {
        name: cost(draw(st.integers(0, 20)) * 100, aic=draw(st.sampled_from([0, 12, 24])), aiv=draw(st.sampled_from([0, 48])))
        for name in names
    }
    return program(streams, edges), costs


@given(programs())
def test_the_path_spans_the_run_without_a_gap_that_is_not_explained(drawn: tuple[StreamProgram, dict[str, Cost]]) -> None:
    read, costs = drawn
    timeline = simulate(read, costs, MACHINE)
    found = critical(read, timeline, costs, MACHINE)
    assert found.path[0].start == 0 and found.path[-1].end == timeline.makespan
    for earlier, later in zip(found.path, found.path[1:], strict=False):
        assert later.after == earlier.step and later.start == earlier.end + later.sync
        assert later.sync in (0, MACHINE.sync)
    assert all(found.slack[link.step] == 0 for link in found.path)


@given(programs(), st.data())
def test_a_step_made_longer_by_its_slack_does_not_make_the_run_longer(
    drawn: tuple[StreamProgram, dict[str, Cost]], data: st.DataObject
) -> None:
    read, costs = drawn
    free = {name: cost(priced.duration) for name, priced in costs.items()}  # no contention: orders alone decide
    timeline = simulate(read, free, MACHINE)
    slack = critical(read, timeline, free, MACHINE).slack
    name = data.draw(st.sampled_from(sorted(slack)))
    longer = free | {name: cost(free.get(name, FREE).duration + slack[name])}
    assert simulate(read, longer, MACHINE).makespan == timeline.makespan
    much = free | {name: cost(free.get(name, FREE).duration + slack[name] + 100)}
    assert simulate(read, much, MACHINE).makespan == timeline.makespan + 100
