# ruff: noqa: E402 (the repository must be importable, and the environment ready, before torch is imported)
"""How long a decision takes: corners and draws of demo layers one after the other, and how much of that is simulation.

    python tests/benchmarks/acceptance.py [--layers N ...] [--json]

Processor time of this process, seconds. The plans are list schedules on one chip; times in their verdicts are simulated.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from autostream import offline

offline.prepare_environment()

from rich.console import Console
from rich.table import Table

from autostream import acceptance
from autostream.chips import cost_model
from autostream.graph.programs import to_aten
from autostream.options import Options
from autostream.pipeline import plan
from autostream.program.reading.fx import read_fx
from autostream.program.simulation.simulate import Simulator
from autostream.rewrite.air import Air
from tests.models import many_layers

_CHIP = "910B2"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", nargs="+", type=int, default=[1, 8, 61])
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    asked = parser.parse_args(arguments)
    rows = [measure(layers) for layers in asked.layers]
    if asked.json:
        sys.stdout.write(json.dumps({"chip": _CHIP, "rows": rows}, indent=1) + "\n")
        return 0
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console().print(table)
    return 0


def measure(layers: int) -> dict[str, Any]:
    """Plan so many layers and time the decision."""
    model = cost_model(_CHIP)
    graph_module = to_aten(*many_layers(layers)).graph_module
    outcome = plan(graph_module, model=model, options=Options(strategy="greedy", min_gain=0.0, strict=True), dialect=Air())
    if outcome.graph is None or outcome.program is None:
        raise SystemExit(f"{layers} layers are not planned: {outcome.verdict.reason}")
    given = (read_fx(graph_module), outcome.program, outcome.graph, outcome.costs, model.machine)
    began = time.process_time()
    gain = acceptance.gain(*given)
    whole = time.process_time() - began
    simulator = Simulator(outcome.program, outcome.costs, model.machine)
    began = time.process_time()
    simulator.makespan()
    return {
        "layers": layers,
        "tasks": simulator.tasks,
        "decision_seconds": round(whole, 4),
        "simulation_seconds": round(time.process_time() - began, 5),
        "nominal": round(gain.nominal, 4),
        "low": round(gain.low, 4),
        "p10": round(gain.p10, 4),
        "p50": round(gain.p50, 4),
        "p90": round(gain.p90, 4),
    }


if __name__ == "__main__":
    sys.exit(main())
