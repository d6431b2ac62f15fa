"""Hand-written streams as a report: simulated as they are, on the terms on which a plan is judged."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

import autostream
from autostream.as_written import as_written
from autostream.chips import cost_model
from autostream.graph.capture import capture
from autostream.graph.programs import to_aten
from autostream.program import Edge, EdgeKind
from autostream.program.model import Semantics
from autostream.program.reading.fx import read_fx
from autostream.rewrite.air import ensure_operators


class Branches(nn.Module):
    """A product and, on the stream of that label if there is one, elementwise work on other data."""

    def __init__(self, label: str = "") -> None:
        super().__init__()
        self.label = label

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if self.label:
            torch.ops.air.scope_enter(["_user_stream_label"], [self.label])
        side = torch.tanh(torch.exp(y))
        if self.label:
            torch.ops.air.scope_exit()
        return torch.mm(x, x) + side


def inputs() -> tuple[torch.Tensor, ...]:
    return tuple(torch.empty(4096, 4096, dtype=torch.float16, device="meta") for _ in range(2))


def test_streams_written_by_hand_are_simulated_as_they_are() -> None:
    ensure_operators()
    report = autostream.inspect(Branches("side"), inputs()).report
    plain = autostream.inspect(Branches(), inputs()).report
    assert report is not None and plain is not None
    assert {row.name for row in report.streams} == {"default", "side"}
    assert report.verdict.code == "as-written" and not report.verdict.accepted
    assert report.verdict.side_streams == 1 and report.verdict.cross_edges == len(report.edges) == 1
    assert plain.verdict.side_streams == 0 == len(plain.edges)
    assert report.verdict.serial_ns < plain.verdict.serial_ns


def test_one_stream_takes_what_a_schedule_takes_as_its_start() -> None:
    plain = autostream.inspect(Branches(), inputs()).report
    assert plain is not None
    assert plain.verdict.serial_ns == autostream.schedule(Branches(), inputs()).verdict.serial_ns


def test_results_and_inspections_draw_themselves() -> None:
    ensure_operators()
    inspection = autostream.inspect(Branches("side"), inputs())
    shown = inspection._repr_html_()
    assert shown.startswith("<div><b>No findings</b></div>") and "<svg" in shown
    result = autostream.schedule(Branches(), inputs())
    assert result._repr_html_() == result.report._repr_html_()


def test_a_program_that_waits_for_itself_has_no_report() -> None:
    graph_module = to_aten(Branches(), inputs()).graph_module
    program, graph = read_fx(graph_module, semantics=Semantics.GE), capture(graph_module)
    names = [step.name for step in program.steps if step.stream is not None]
    stuck = dataclasses.replace(program, edges=(*program.edges, Edge(before=names[-1], after=names[0], kind=EdgeKind.CONTROL)))
    model = cost_model("910B2")
    assert as_written(program, graph, model, name="fine") is not None
    assert as_written(stuck, graph, model, name="stuck") is None
