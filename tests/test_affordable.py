"""Plans within what a process has left of streams and events, and within the waits that the user allows each graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import autostream
from autostream.affordable import Means, Ways, afford, enter
from autostream.budget import Ledger, Limits, Need, need_of
from autostream.chips import cost_model
from autostream.errors import InputError
from autostream.graph.programs import to_aten
from autostream.options import Options
from autostream.outcome import Outcome
from autostream.pipeline import plan
from autostream.program.model import StreamProgram
from autostream.rewrite.air import Air
from autostream.scheduling import Problem, Schedule, crossings
from autostream.scheduling.lists.greedy import Greedy
from tests import models
from tests.program.programs import program, step
from tests.scheduling.problems import cube, problem, vector

_FREE = Limits(streams=None, events=None)


@pytest.fixture(scope="module")
def graph(npu_host: None) -> object:
    return to_aten(*models.many_layers(2)).graph_module


def planned(graph: object, ledger: Ledger, **options: int) -> Outcome:
    chosen = Options.of({"solver_budget": 0.1, **options})
    return plan(graph, model=cost_model("910B2"), options=chosen, dialect=Air(), ledger=ledger)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def whole(graph: object) -> Outcome:
    return planned(graph, Ledger())


def test_with_enough_left_nothing_is_planned_again(graph: object, whole: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    assert whole.program is not None
    monkeypatch.setattr("autostream.pipeline.Capped", lambda *_: pytest.fail("planned again"))
    ledger, needed = Ledger(), need_of(whole.program)
    outcome = planned(graph, ledger, max_waits=needed.events, event_budget=needed.events, stream_budget=needed.streams)
    assert outcome.verdict == whole.verdict and outcome.notes == whole.notes
    assert ledger.used == needed


def test_the_waits_allowed_are_kept_and_fewer_of_them_cost_more_time(graph: object, whole: Outcome) -> None:
    assert whole.program is not None
    most, times = need_of(whole.program).events, []
    for waits in (most - 1, 2):
        outcome = planned(graph, Ledger(), max_waits=waits)
        assert outcome.verdict.accepted and outcome.program is not None
        assert 0 < need_of(outcome.program).events == outcome.verdict.cross_edges <= waits
        assert not [finding for finding in outcome.findings if finding.severity == "error"]
        times.append(outcome.verdict.scheduled_ns)
        (note,) = [note for note in outcome.notes if note.startswith(f"max_waits is {waits}: ")]
        assert f"the plan without that limit has {most} waits between streams on 2 streams and takes " in note
        assert f"this one has {outcome.verdict.cross_edges} on 2 and takes " in note and "the limit costs +" in note
    assert times == sorted(times)
    assert whole.verdict.scheduled_ns < times[-1] < whole.verdict.serial_ns


def test_the_plan_for_few_events_is_the_one_for_few_waits(graph: object, whole: Outcome) -> None:
    assert whole.program is not None
    ledger = Ledger()
    ledger.charge(Need(streams=1, events=100))
    outcome = planned(graph, ledger, event_budget=108)
    assert outcome.program is not None and outcome.schedule == planned(graph, Ledger(), max_waits=8).schedule
    assert ledger.used == Need(streams=1, events=100) + need_of(outcome.program)
    assert any(note.startswith("the process has 8 events left: ") for note in outcome.notes)


@pytest.mark.parametrize(
    ("options", "code", "reason"),
    [
        ({"max_waits": 1}, "over-wait-cap", "waits between streams, and max_waits is 1; no plan within that saves time"),
        ({"event_budget": 0}, "over-budget", "0 of 0 events"),
        ({"stream_budget": 1}, "over-budget", "0 of 1 streams"),
    ],
)
def test_where_nothing_useful_fits_the_graph_stays_as_it_is(
    graph: object, options: dict[str, int], code: str, reason: str
) -> None:
    ledger = Ledger()
    outcome = planned(graph, ledger, **options)
    assert (outcome.verdict.accepted, outcome.verdict.code) == (False, code)
    assert reason in outcome.verdict.reason
    assert outcome.graph_module is None and ledger.used == Need(streams=0, events=0)


@pytest.mark.parametrize(("given", "told"), [({"max_waits": -1}, "greater than or equal to 0"), ({"max_wait": 1}, "max_waits")])
def test_what_is_no_number_of_waits_is_refused(given: dict[str, int], told: str) -> None:
    with pytest.raises(InputError, match=told):
        Options.of(given)


# -- with a fake of what tries schedules ------------------------------------------------------------------------------------


def branches() -> Problem:
    """Two branches beside a chain, each worth its two waits, the first one more."""
    tasks, edges = [cube("in", 10)], []
    for name, gain in (("a", 40), ("b", 20)):
        tasks += [cube(f"main_{name}", 60), vector(f"side_{name}", gain), cube(f"join_{name}", 10)]
        start = "in" if name == "a" else "join_a"
        edges += [f"{start}>main_{name}>join_{name}", f"{start}>side_{name}>join_{name}"]
    return problem(tasks, edges, sync=1, side=1)


def emitted(given: Problem, schedule: Schedule, *, more: int = 0) -> StreamProgram:
    """What is read back, with some waits that nobody planned."""
    steps = [step(placement.task, placement.stream) for placement in schedule.placements]
    extra = [step(f"anchor{n}", "s1") for n in range(more)]
    data = [f"{one.before}>{one.after}" for one in given.precedences]
    return program([*steps, *extra], data=[*data, *(f"in>anchor{n}" for n in range(more))])


class Tried:
    """Takes schedules for what the product makes of them, and remembers them."""

    def __init__(self, given: Problem, whole: Outcome, *, more: int = 0, accept: Callable[[Schedule], bool] = lambda _: True):
        self.given, self.whole, self.more, self.accept = given, whole, more, accept
        self.schedules: list[Schedule] = []

    def ways(self) -> Ways:
        def shorten(given: Problem, schedule: Schedule) -> Schedule:
            return autostream.scheduling.Capped(schedule, 0.05).solve(given)

        return Ways(solve=Greedy().solve, shorten=shorten, run=self.run)

    def run(self, schedule: Schedule) -> Outcome:
        self.schedules.append(schedule)
        accepted = self.accept(schedule)
        code = "accepted" if accepted else "no-gain"
        verdict = replace(self.whole.verdict, accepted=accepted, code=code, reason="not worth it")
        return Outcome(verdict=verdict, schedule=schedule, program=emitted(self.given, schedule, more=self.more))


def test_more_waits_than_planned_leave_fewer_for_the_plan(whole: Outcome) -> None:
    given = branches()
    schedule = Greedy().solve(given)
    assert crossings(given, schedule) == 4
    tried = Tried(given, whole, more=1)
    outcome = afford(schedule, given, Means(ledger=Ledger(), limits=_FREE, max_waits=4), tried.ways())
    assert [crossings(given, one) for one in tried.schedules] == [4, 4, 2]
    assert outcome.verdict.accepted and outcome.program is not None and need_of(outcome.program).events == 3


def test_on_fewer_streams_it_is_solved_again(whole: Outcome) -> None:
    tasks = [cube("in", 10), *(cube(f"b{n}", 50, aic=8) for n in range(3)), cube("out", 10)]
    given = problem(tasks, [f"in>b{n}>out" for n in range(3)], sync=1, side=2)
    schedule = Greedy().solve(given)
    assert len(schedule.streams()) == 3
    tried = Tried(given, whole)
    outcome = afford(schedule, given, Means(ledger=Ledger(), limits=Limits(streams=2, events=None)), tried.ways())
    assert outcome.verdict.accepted and [len(one.streams()) for one in tried.schedules] == [2]
    assert outcome.notes[0].startswith("the process has 2 streams left: the plan without that limit has 4 waits")
    assert "on 3 streams" in outcome.notes[0]


def test_a_smaller_plan_that_is_refused_leaves_the_code_of_the_whole_one_and_tells_both_reasons(whole: Outcome) -> None:
    given = branches()
    schedule = Greedy().solve(given)
    tried = Tried(given, whole, accept=lambda one: crossings(given, one) == 4)
    outcome = afford(schedule, given, Means(ledger=Ledger(), limits=Limits(streams=None, events=3)), tried.ways())
    assert [crossings(given, one) for one in tried.schedules] == [2, 4]
    assert outcome.verdict.code == "over-budget"
    assert outcome.verdict.reason.endswith("; the best plan within that: not worth it")


def test_a_plan_that_is_refused_anyway_is_not_said_to_be_over_a_limit(whole: Outcome) -> None:
    given = branches()
    tried = Tried(given, whole, accept=lambda _: False)
    outcome = afford(Greedy().solve(given), given, Means(ledger=Ledger(), limits=_FREE, max_waits=2), tried.ways())
    assert (outcome.verdict.code, outcome.verdict.reason) == ("no-gain", "not worth it")


def test_what_is_refused_takes_nothing(whole: Outcome) -> None:
    ledger = Ledger()
    refused = replace(whole, verdict=replace(whole.verdict, accepted=False, code="no-gain"))
    assert enter(refused, Means(ledger=ledger, limits=_FREE)) is refused
    assert ledger.used == Need(streams=0, events=0)
