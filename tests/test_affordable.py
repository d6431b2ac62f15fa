"""Regions that gain least go first when a process runs out of streams or events."""

from __future__ import annotations

import pytest

import autostream
from autostream.affordable import afford
from autostream.budget import Ledger, Limits, Need, need_of
from autostream.chips import cost_model
from autostream.options import Options
from autostream.outcome import Outcome
from autostream.pipeline import plan
from autostream.rewrite.air import Air
from autostream.scheduling.problem import Problem, Schedule
from tests import models


@pytest.fixture(scope="module")
def graph() -> object:
    module, inputs = models.many_layers(4)
    return autostream.schedule(module, inputs).original


def planned(graph: object, ledger: Ledger, **options: int) -> Outcome:
    return plan(graph, model=cost_model("910B2"), options=Options(**options), dialect=Air(), ledger=ledger)  # type: ignore[arg-type]


def test_with_enough_left_nothing_is_dropped(graph: object) -> None:
    ledger = Ledger()
    outcome = planned(graph, ledger)
    assert outcome.verdict.accepted and outcome.program is not None
    assert ledger.used == need_of(outcome.program)


def test_the_regions_that_gain_least_are_left_in_order(graph: object) -> None:
    whole = planned(graph, Ledger())
    assert whole.program is not None and whole.schedule is not None
    needed = need_of(whole.program).events
    assert len([region for region in whole.schedule.regions if region.crossings]) >= 2
    ledger = Ledger()
    fewer = planned(graph, ledger, event_budget=needed - 1)
    assert fewer.verdict.accepted and fewer.program is not None
    assert 0 < need_of(fewer.program).events <= needed - 1
    assert ledger.used == need_of(fewer.program)
    assert 0 < fewer.verdict.gain < whole.verdict.gain
    assert any("regions with overlap, those that gain least, were left in order" in note for note in fewer.notes)


def test_with_nothing_left_the_graph_stays_as_it_is(graph: object) -> None:
    ledger = Ledger()
    outcome = planned(graph, ledger, event_budget=0)
    assert (outcome.verdict.accepted, outcome.verdict.code) == (False, "over-budget")
    assert outcome.graph_module is None and ledger.used == Need(streams=0, events=0)


def test_a_smaller_plan_that_is_refused_leaves_the_reason_of_the_whole_one(graph: object) -> None:
    whole = planned(graph, Ledger())
    assert whole.program is not None
    limits = Limits(streams=None, events=need_of(whole.program).events - 1)
    tried: list[Schedule] = []

    def refuse(schedule: Schedule) -> Outcome:
        tried.append(schedule)
        return Outcome(verdict=whole.verdict.__class__(accepted=False, code="no-gain", reason="", chip="x"))

    problem = _problem(graph)
    outcome = afford(whole, problem, Ledger(), limits, refuse)
    assert len(tried) == 1 and outcome.verdict.code == "over-budget"


def _problem(graph: object) -> Problem:
    from autostream.graph.capture import capture
    from autostream.graph.routing import expected_load
    from autostream.pricing import price
    from autostream.scheduling import build_problem

    model, options = cost_model("910B2"), Options()
    captured = capture(graph)  # type: ignore[arg-type]
    costs = {name: price(op, model, options) for name, op in expected_load(captured).ops.items()}
    return build_problem(captured, costs, model.machine, options)
