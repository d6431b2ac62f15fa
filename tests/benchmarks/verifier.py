# ruff: noqa: E402 (the repository must be importable, and the environment ready, before torch is imported)
"""How long the proof of a large program takes, beside TorchAir's own conversion of the same graph in the same run.

    python tests/benchmarks/verifier.py [--layers 121] [--json]

The program: decoder layers of torch_npu operators one after the other (33 operators each), every task on one of four streams by
a fixed draw, so that far more edges cross streams than in any schedule of the product. Times are wall clock on one core, the
best of three for the checks, one run for the conversion.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from autostream import offline

offline.prepare_environment()

from rich.console import Console
from rich.table import Table

from autostream.cost.model import Breakdown, Cost, Machine, Resources, Tier
from autostream.graph import Unit
from autostream.graph.capture import capture
from autostream.graph.programs import to_aten
from autostream.program import cross_edges, peak_memory, returned_storages, reuse_findings, verify
from autostream.program.reading.fx import read_fx
from autostream.proof import orders_of
from autostream.rewrite.air import Air
from autostream.rewrite.emit import emit
from tests.models.networks import many_layers
from tests.rewrite.graphs_fx import at_random

_Value = TypeVar("_Value")
_MACHINE = Machine(name="made-up", aic=24, aiv=48, sync=1000, sync_error=0.0)
#: What a made-up operator of a unit holds.
_HELD = {
    Unit.CUBE: Resources(aic=8),
    Unit.VECTOR: Resources(aiv=16),
    Unit.MIXED: Resources(aic=8, aiv=16),
    Unit.COMM: Resources(aiv=16, comm=1),
}


def measure(layers: int) -> dict[str, Any]:
    """Build the program, check it, convert it; seconds."""
    offline.activate()
    model, inputs = many_layers(layers, npu=True)
    module = to_aten(model, inputs).graph_module
    graph, capturing = _timed(lambda: capture(module), 1)
    emitted = emit(module, graph, at_random(graph, 0), Air()).graph_module
    program, reading = _timed(lambda: read_fx(emitted), 1)
    costs = {
        op.name: Cost(
            duration=10_000, breakdown=Breakdown(), resources=_HELD.get(op.unit, Resources()), tier=Tier.ANALYTIC, error=0.0
        )
        for op in graph
        if op.unit is not Unit.FREE
    }
    groups = {op.name: op.group for op in graph}
    held = capture(emitted)
    returned = returned_storages(held)
    orders, ordering = _timed(lambda: orders_of(program, graph))
    findings, proving = _timed(lambda: verify(program, orders))
    _, contending = _timed(lambda: verify(program, orders, costs=costs, machine=_MACHINE, groups=groups))
    _, remembering = _timed(
        lambda: (
            peak_memory(program, held.storages, returned=returned),
            tuple(reuse_findings(program, held.storages, returned=returned)),
        )
    )
    _, converting = _timed(lambda: offline.convert(module), 1)
    check = ordering + contending + remembering
    return {
        "operators": len(graph),
        "tasks": sum(step.stream is not None for step in program.steps),
        "streams": len(program.streams()),
        "cross_edges": len(cross_edges(program)),
        "required_orders": len(orders),
        "findings": len(findings),
        "capture_s": capturing,
        "read_s": reading,
        "orders_s": ordering,
        "verify_s": proving,
        "verify_with_contention_s": contending,
        "memory_s": remembering,
        "check_s": round(check, 3),
        "torchair_conversion_s": converting,
        "check_share_of_conversion": round(check / converting, 4),
    }


def _timed(run: Callable[[], _Value], times: int = 3) -> tuple[_Value, float]:
    best, value = float("inf"), None
    for _ in range(times):
        start = time.perf_counter()
        value = run()
        best = min(best, time.perf_counter() - start)
    assert value is not None
    return value, round(best, 3)


def main() -> None:
    """Print the measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=121, help="decoder layers (33 operators each)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    found = measure(arguments.layers)
    if arguments.json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
        return
    table = Table("what", "value", title="The verifier on a large program")
    for name, value in found.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int) else f"{value:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
