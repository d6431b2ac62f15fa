"""The report of a program as somebody wrote it, hand-written streams and all: simulated beside nothing, and not changed."""

from __future__ import annotations

from collections.abc import Iterable

from autostream.cost.model import CostModel
from autostream.errors import VerificationError
from autostream.graph import OpGraph
from autostream.graph.routing import expected_load
from autostream.options import Options
from autostream.pricing import price_graph, unmeasured
from autostream.program import Finding, StreamProgram, cross_edges, simulate
from autostream.program.kinds import DEFAULT, HCCL
from autostream.report import Document, Provenance, build
from autostream.verdict import Verdict


def as_written(
    program: StreamProgram, graph: OpGraph, model: CostModel, *, name: str, findings: Iterable[Finding] = ()
) -> Document | None:
    """Return the report of a program on the streams its author chose, priced as `schedule` prices a plan by default.

    Args:
        program: read back from the FX graph.
        graph: of the same FX graph.
        model: prices operators.
        name: of the program, for people.
        findings: what the verifier said.

    None if the program waits for itself: then there is no time to tell.
    """
    options = Options()
    load = expected_load(graph)
    costs = price_graph(program, graph, load.ops, model, options)
    try:
        timeline = simulate(program, costs, model.machine)
        crossing = cross_edges(program)
    except VerificationError:
        return None
    verdict = Verdict(
        accepted=False,
        code="as-written",
        reason="simulated as it was written",
        chip=model.machine.name,
        serial_ns=timeline.makespan,
        scheduled_ns=timeline.makespan,
        side_streams=len(set(program.streams()) - {DEFAULT, HCCL}),
        cross_edges=len(crossing),
        unmeasured=unmeasured(costs),
    )
    return build(
        name=name,
        verdict=verdict,
        provenance=Provenance.of(chip=model.machine.name, chip_digest=model.fingerprint(), options=options),
        graph=graph,
        costs=costs,
        before=timeline,
        serial=program,
        machine=model.machine,
        findings=findings,
        notes=load.notes,
    )
