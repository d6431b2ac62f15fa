"""A small scheduled graph written by hand: two matmuls on the default stream beside two vector operators on a side stream."""

from __future__ import annotations

from typing import Any

import networkx as nx

from autostream.cost.model import FREE, Breakdown, Cost, Resources, Tier
from autostream.graph.model import Op, OpGraph, Unit, Why
from autostream.options import Options
from autostream.program.model import (
    Edge,
    EdgeKind,
    Finding,
    Semantics,
    Severity,
    Slot,
    Step,
    StreamProgram,
    Timeline,
)
from autostream.report.document import Document, Provenance, build
from autostream.verdict import Verdict

SIDE = "autostream_1"


def op(name: str, target: str, unit: Unit, index: int, source: str = "") -> Op:
    return Op(
        name=name, target=target, unit=unit, position=index, inputs=(), outputs=(), flops=0, bytes_read=0, bytes_written=0,
        module_path=f"layers.0.{name}", source_line=source,
    )  # fmt: skip


def graph() -> OpGraph:
    ops = (
        op("mm", "aten.mm.default", Unit.CUBE, 0),
        op("view", "aten.view.default", Unit.FREE, 1),
        op("mm_1", "aten.mm.default", Unit.CUBE, 2),
        op("mul", "aten.mul.Tensor", Unit.VECTOR, 3),
        op("exp", "aten.exp.default", Unit.VECTOR, 4),
        op("add", "aten.add.Tensor", Unit.VECTOR, 5),
    )
    dag = nx.DiGraph()
    dag.add_nodes_from(item.name for item in ops)
    for before, after in (("mm", "view"), ("view", "mm_1"), ("mm_1", "add"), ("mul", "exp"), ("exp", "add")):
        dag.add_edge(before, after, why=frozenset({Why.DATA}))
    return OpGraph(
        dag=dag, ops={item.name: item for item in ops}, storages={}, outputs=("add",), notes=("operator my.op is not known",)
    )


def cost(duration: int, tier: Tier = Tier.ANALYTIC, **terms: int) -> Cost:
    return Cost(
        duration=duration, breakdown=Breakdown(launch=1_000, **terms), resources=Resources(aic=24, hbm=300), tier=tier, error=0.2
    )


def costs() -> dict[str, Cost]:
    return {
        "mm": cost(100_000, Tier.SCALED, cube=99_000),
        "view": FREE,
        "mm_1": cost(100_000, Tier.SCALED, cube=99_000),
        "mul": cost(60_000, vector=59_000),
        "exp": cost(120_000, vector=119_000),
        "add": cost(20_000, Tier.UNKNOWN, hbm=19_000),
    }


def timeline(*slots: tuple[str, str, int, int]) -> Timeline:
    return Timeline(
        slots=tuple(Slot(step=name, stream=stream, start=start, end=end) for name, stream, start, end in slots),
        makespan=max((slot[3] for slot in slots), default=0),
        crossings=0,
    )


def before() -> Timeline:
    return timeline(
        ("mm", "default", 0, 100_000),
        ("mm_1", "default", 100_000, 200_000),
        ("mul", "default", 200_000, 260_000),
        ("exp", "default", 260_000, 380_000),
        ("add", "default", 380_000, 400_000),
    )


def after() -> Timeline:
    """The side stream runs beside the matmuls; exp is 10 us longer than alone."""
    return timeline(
        ("mm", "default", 0, 100_000),
        ("mul", SIDE, 500, 60_500),
        ("exp", SIDE, 60_500, 190_500),
        ("mm_1", "default", 100_000, 200_000),
        ("add", "default", 200_000, 220_000),
    )


def program() -> StreamProgram:
    def step(name: str, stream: str | None) -> Step:
        return Step(name=name, kind=name, stream=stream, source=name)

    return StreamProgram(
        semantics=Semantics.GE,
        steps=(
            step("mm", "default"), step("view", None), step("mul", SIDE), step("exp", SIDE), step("mm_1", "default"),
            step("add", "default"),
        ),
        edges=(
            Edge(before="mm", after="mm_1", kind=EdgeKind.DATA),
            Edge(before="mul", after="exp", kind=EdgeKind.DATA),
            Edge(before="exp", after="add", kind=EdgeKind.DATA),
        ),
        in_order=True,
    )  # fmt: skip


def accepted(**changes: Any) -> Verdict:
    values: dict[str, Any] = {
        "accepted": True, "code": "accepted", "reason": "the simulated gain clears the model's error", "chip": "910B2",
        "strategy": "greedy", "serial_ns": 400_000, "scheduled_ns": 220_000, "lower_bound_ns": 210_000, "gain_low": 0.3,
        "gain_high": 0.5, "side_streams": 1, "cross_edges": 1, "control_edges": 0, "unmeasured": 0.5,
    }  # fmt: skip
    return Verdict(**{**values, **changes})


def declined(**changes: Any) -> Verdict:
    values: dict[str, Any] = {
        "accepted": False, "code": "nothing-to-overlap", "reason": "every operator waits for the one before it.", "chip": "910B2",
        "serial_ns": 400_000, "scheduled_ns": 400_000,
    }  # fmt: skip
    return Verdict(**{**values, **changes})


def finding(severity: Severity = Severity.ERROR, **changes: Any) -> Finding:
    values: dict[str, Any] = {
        "kind": "race", "severity": severity, "steps": ("mul", "add_"), "streams": ("default", SIDE),
        "explanation": "add_ writes what mul reads", "remedy": "let add_ wait for mul",
    }  # fmt: skip
    return Finding(**{**values, **changes})


def provenance() -> Provenance:
    return Provenance(
        autostream="0.1.0", torch="2.13.0", torch_npu=None, chip="910B2", chip_digest="roofline-1/0123",
        options=Options().model_dump(mode="json"), options_fingerprint=Options().fingerprint(),
    )  # fmt: skip


def document(**changes: Any) -> Document:
    """Return the document of the accepted schedule; keyword arguments replace what `build` is given."""
    values: dict[str, Any] = {
        "name": "sample", "verdict": accepted(), "provenance": provenance(), "graph": graph(), "costs": costs(),
        "before": before(), "after": after(), "program": program(),
    }  # fmt: skip
    return build(**{**values, **changes})
