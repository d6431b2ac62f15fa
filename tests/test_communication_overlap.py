"""Computation beside communication: what the default streams alone can hide, in the order and places where it must stand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from autostream import offline
from autostream.chips import cost_model
from autostream.graph.capture import capture
from autostream.options import Options
from autostream.outcome import Outcome
from autostream.pipeline import plan
from autostream.program import Timeline
from autostream.rewrite.air import Air
from tests.rewrite.graphs_fx import traced

pytestmark = pytest.mark.usefixtures("npu_host")

c10d = torch.ops._c10d_functional
SIZE = 2048


def _reduced(x: Tensor, group: str = "tp") -> Tensor:
    reduced: Tensor = c10d.wait_tensor(c10d.all_reduce(x, "sum", group))
    return reduced


def _planned(function: object, inputs: int, **options: object) -> Outcome:
    """Plan a function of square matrices."""
    module = traced(function, *[(SIZE, SIZE)] * inputs)  # type: ignore[arg-type]
    return plan(module, model=cost_model("910B2"), options=Options(strict=True, **options), dialect=Air())  # type: ignore[arg-type]


def _written(outcome: Outcome) -> list[str]:
    """Return the operators of an accepted plan as they are written, without inputs."""
    assert outcome.graph_module is not None, outcome.verdict
    return [node.name for node in outcome.graph_module.graph.nodes if node.op == "call_function"]


def _overlap(timeline: Timeline | None, one: str, other: str) -> int:
    assert timeline is not None
    slots = {slot.step: slot for slot in timeline.slots}
    return max(0, min(slots[one].end, slots[other].end) - max(slots[one].start, slots[other].start))


def test_independent_work_goes_between_a_collective_and_its_consumer() -> None:
    def late(x: Tensor, w: Tensor, y: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return torch.mm(_reduced(x), w), torch.mm(y, v)

    outcome = _planned(late, 4)
    written = _written(outcome)
    # Where the collective itself is written says nothing: it is on another stream.
    assert written.index("mm_1") < written.index("mm")
    assert _overlap(outcome.before, "all_reduce", "mm_1") == 0
    assert _overlap(outcome.after, "all_reduce", "mm_1") > 0
    # No stream is needed for that: the collective has the engine's own.
    assert outcome.verdict.side_streams == 0 and outcome.verdict.gain > 0.1


def test_the_wait_of_a_collective_stands_right_before_what_needs_it() -> None:
    def early(x: Tensor, w: Tensor, y: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        reduced = _reduced(x)
        independent = torch.mm(y, v)
        return torch.mm(reduced, w), independent.neg()

    outcome = _planned(early, 4, min_gain=0.0)
    written = _written(outcome)
    wait, consumer = written.index("wait_tensor"), written.index("mm_1")
    assert all(name.startswith("scope_") for name in written[wait + 1 : consumer]), written
    assert written.index("mm") < wait


def test_a_plan_that_only_orders_is_not_planned_again() -> None:
    def late(x: Tensor, w: Tensor, y: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return torch.mm(_reduced(x), w), torch.mm(y, v)

    first = _planned(late, 4)
    assert first.graph_module is not None
    again = plan(first.graph_module, model=cost_model("910B2"), options=Options(strict=True), dialect=Air())
    assert again.verdict.code == "nothing-to-overlap" and again.verdict.serial_ns == first.verdict.scheduled_ns


def test_collectives_keep_their_order_though_another_would_pay() -> None:
    """The second collective is needed first, by much more work."""

    def crossed(x: Tensor, y: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        first, second = _reduced(x), _reduced(y, "ep")
        work = torch.mm(torch.mm(torch.mm(second, w), v), w)
        return torch.mm(first, v), work

    module = traced(crossed, *[(SIZE, SIZE)] * 4)
    collectives = [op.name for op in capture(module) if op.group is not None]
    for side_collectives in (False, True):
        outcome = _planned(crossed, 4, side_collectives=side_collectives, min_gain=0.0)
        ran = outcome.after or outcome.before
        assert ran is not None
        assert [slot.step for slot in ran.slots if slot.step in collectives] == collectives


def test_a_prefetch_stays_where_it_was_between_what_it_waits_for_and_its_reader() -> None:
    offline.activate()

    def fetched(x: Tensor, w: Tensor, y: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        reduced = _reduced(x)
        start = torch.mm(y, v)
        torch.ops.npu.npu_prefetch(w, start, 1 << 20)
        beside = torch.mm(start, v)
        return torch.mm(reduced, w), beside

    outcome = _planned(fetched, 4, min_gain=0.0)
    ran = [slot.step for slot in (outcome.after or outcome.before).slots]  # type: ignore[union-attr]
    assert ran.index("mm") < ran.index("npu_prefetch") < ran.index("mm_2")
