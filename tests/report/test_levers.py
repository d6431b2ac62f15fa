from __future__ import annotations

from dataclasses import replace

import pytest

from autostream.cost.model import Cost, Machine, Resources
from autostream.program import simulate
from autostream.program.model import Edge, EdgeKind, Semantics, Step, StreamProgram
from autostream.report import levers
from autostream.report.document import Document
from autostream.report.schema import WhatIfRow
from tests.report import samples

MACHINE = Machine(name="910B2", aic=24, aiv=48, sync=500, sync_error=1.0)


def told(document: Document, name: str) -> dict[str, str]:
    row = next(row for row in document.ops if row.name == name)
    return dict(levers.levers(document, row))


def costs_without_sharing() -> dict[str, Cost]:
    return {name: replace(cost, resources=Resources()) for name, cost in samples.costs().items()}


def document() -> Document:
    """Return the sample as it is simulated: two matmuls beside two vector operators."""
    return simulated(costs_without_sharing())


def simulated(costs: dict[str, Cost]) -> Document:
    after = simulate(samples.program(), costs, MACHINE)
    return samples.document(costs=costs, after=after, machine=MACHINE)


def test_an_operator_that_does_not_set_the_length() -> None:
    found = told(document(), "mul")
    assert found["to move it"] == "on 'default' it would run after or before 'mm', not beside it for 60.0 us"
    assert found["to gain"] == "faster is no use; slower is free until it takes 79.5 us"


def test_the_most_that_a_shorter_operator_gains_is_what_the_simulation_gains() -> None:
    found = document()
    assert told(found, "mm_1")["to gain"] == "a shorter one gains at most 19.5 us: then 'exp', at the same time, sets the length"
    length = max(row.end_ns or 0 for row in found.ops)
    for shorter, gained in ((10_000, 10_000), (19_500, 19_500), (60_000, 19_500)):
        costs = costs_without_sharing()
        costs["mm_1"] = replace(costs["mm_1"], duration=costs["mm_1"].duration - shorter)
        assert length - simulate(samples.program(), costs, MACHINE).makespan == gained


def test_an_operator_that_runs_alone_shortens_the_whole() -> None:
    assert told(document(), "add")["to gain"].startswith("a shorter one shortens the whole")


def test_two_that_set_the_length_together() -> None:
    costs = costs_without_sharing()
    costs["exp"] = replace(costs["exp"], duration=139_500)
    assert told(simulated(costs), "mm_1")["to gain"] == (
        "a shorter one alone gains nothing: 'exp', at the same time, sets the length as well"
    )


def two_in_a_row(aic: int) -> Document:
    """Return the report of two matmuls on one stream that do not depend on each other."""
    steps = tuple(Step(name=name, kind=name, stream="default", source=name) for name in ("mm", "mm_1"))
    program = StreamProgram(semantics=Semantics.GE, steps=steps, edges=(), in_order=True)
    costs = {
        name: replace(cost, resources=Resources(aic=aic)) for name, cost in samples.costs().items() if name in ("mm", "mm_1")
    }
    after = simulate(program, costs, MACHINE)
    return samples.document(costs=costs, program=program, before=after, after=after, machine=MACHINE)


def test_free_to_move_but_for_the_cores() -> None:
    assert told(two_in_a_row(24), "mm_1")["to move it"] == (
        "free to move, but 'mm', the one before it, and it want more aic than the chip has"
    )
    assert told(two_in_a_row(12), "mm_1")["to move it"] == (
        "free to move: beside 'mm', if what that saves is worth a wait between streams"
    )
    assert told(two_in_a_row(12), "mm")["to move it"] == "free to move, but it starts with the program where it is"


def test_free_to_move_but_waiting_for_a_value() -> None:
    program = StreamProgram(
        semantics=Semantics.GE,
        steps=tuple(Step(name=name, kind=name, stream="default", source=name) for name in ("mm", "mm_1")),
        edges=(Edge(before="mm", after="mm_1", kind=EdgeKind.DATA),),
        in_order=True,
    )
    after = simulate(program, samples.costs(), MACHINE)
    found = samples.document(program=program, before=after, after=after, machine=MACHINE)
    assert "waits for a value" in told(found, "mm_1")["to move it"]


def test_bound_operators_and_collectives() -> None:
    found = samples.document(machine=MACHINE, placed={"add": "the label is your own"})
    assert told(found, "add")["to move it"] == "on its own it cannot: see 'where'"
    rows = tuple(row.model_copy(update={"stream": "hccl"}) if row.name == "mul" else row for row in found.ops)
    assert "side_collectives=True" in told(found.model_copy(update={"ops": rows}), "mul")["to move it"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("no-gain", "the option that decides: min_gain=0.01"),
        ("within-error", "a profile of the model"),
        ("nothing-to-overlap", "same_unit_overlap=False"),
        ("over-memory-cap", "max_extra_bytes=None"),
        ("over-wait-cap", "the option that decides: max_waits=None"),
        ("over-budget", "options that decide: stream_budget=None, event_budget=None"),
        ("dynamic-shape", "static shapes"),
    ],
)
def test_what_would_have_a_plan_accepted(code: str, expected: str) -> None:
    verdict = samples.declined(code=code, reason="why.", lower_bound_ns=300_000)
    found = told(samples.document(verdict=verdict, after=None, program=None), "mul")["to be accepted"]
    assert found.startswith("declined, why; ")
    assert expected in found
    assert "no plan under these options gains more than 25 %" in found


def test_a_chain_is_not_told_of_options() -> None:
    verdict = samples.declined(lower_bound_ns=400_000)
    found = samples.document(verdict=verdict, after=None, program=None).model_copy(update={"bound_by": "critical path"})
    assert told(found, "mul")["to be accepted"] == (
        "declined, every operator waits for the one before it; no option changes that, only a graph with branches that do not "
        "depend on each other"
    )
    cores = found.model_copy(update={"bound_by": "vector cores"})
    assert "same_unit_overlap=False" in told(cores, "mul")["to be accepted"]


def test_variants_that_were_tried() -> None:
    variant = WhatIfRow(
        label="batch 256", changed={"batch": 256}, accepted=True, code="accepted", serial_ns=2, scheduled_ns=1, gain=0.5,
        gain_low=0.4, side_streams=1, cross_edges=1,
    )  # fmt: skip
    found = samples.document(verdict=samples.declined(), after=None, program=None)
    assert told(found.model_copy(update={"what_if": (variant,)}), "mul")["to be accepted"].endswith("accepted under: batch 256")
    refused = variant.model_copy(update={"accepted": False})
    assert "none of the variants" in told(found.model_copy(update={"what_if": (refused,)}), "mul")["to be accepted"]


def test_an_accepted_plan_needs_nothing() -> None:
    assert "to be accepted" not in told(document(), "mul")
