"""How well prices fitted to half of a profile predict the other half.

    python tests/benchmarks/calibration.py [--json]

Two questions on two public profiles (folder ../shared/data/profiles beside the repository):
- rows: a random half of the rows (fixed seed) is learnt, the other half predicted by measured -> scaled -> analytic, as by a user
  who profiles one step and schedules the next;
- shapes: half of the signatures are learnt by `autostream calibrate`, the other half predicted, so that no shape was ever seen.
The shipped chip files were fitted with the help of these very profiles, which flatters "before".
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter, defaultdict
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from autostream.cost import MeasuredModel, RooflineModel, load_chip
from autostream.cost.calibrate import calibrate
from autostream.cost.heldout import quantile, rows_of, split_rows
from autostream.profiles import read_profile

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "profiles"
PROFILES = {"gpt_training_910b1": "910B1", "megatron_pp2dp2_910b4": "910B4"}


def predict_other_half(folder: Path, chip: str) -> dict[str, Any]:
    """Return errors by unit of the chip, and how many rows each tier priced."""
    profile = read_profile(folder)
    learnt, asked = split_rows(rows_of(profile.kernels))
    base = RooflineModel(load_chip(chip))
    model = MeasuredModel(base, replace(profile, kernels=tuple(row.kernel for row in learnt)))
    errors: dict[str, dict[str, list[float]]] = defaultdict(lambda: {"analytic": [], "chain": []})
    tiers: Counter[str] = Counter()
    for row in asked:
        cost = model.estimate(row.op)
        tiers[cost.tier.value] += 1
        unit = errors[row.op.unit.value]
        unit["chain"].append(abs(cost.duration / row.kernel.duration - 1))
        unit["analytic"].append(abs(base.estimate(row.op).duration / row.kernel.duration - 1))
    return {
        "rows": len(asked),
        "rows_without_operator": len(profile.kernels) - len(learnt) - len(asked),
        "tiers": dict(sorted(tiers.items())),
        "units": {
            unit: {
                "rows": len(found["chain"]),
                **{
                    f"{model}_{what}": round(value, 4)
                    for model, values in found.items()
                    for what, value in (("median", statistics.median(values)), ("p90", quantile(values, 0.9)))
                },
            }
            for unit, found in sorted(errors.items())
        },
    }


def run() -> dict[str, Any]:
    """Return everything this benchmark measures."""
    outcome: dict[str, Any] = {}
    for name, chip in PROFILES.items():
        fitted = calibrate([read_profile(SHARED / name)], chip)
        outcome[name] = {
            "chip": chip,
            "rows": predict_other_half(SHARED / name, chip),
            "shapes": {
                "before": {kind: asdict(found) for kind, found in fitted.before.items()},
                "after": {kind: asdict(found) for kind, found in fitted.after.items()},
            },
        }
    return outcome


def show(outcome: dict[str, Any]) -> None:
    """Print the outcome as tables."""
    console = Console()
    rows = Table(title="Rows: half of them learnt, the other half predicted; relative error")
    for heading in ("Profile", "Unit", "Rows", "analytic median", "analytic p90", "chain median", "chain p90"):
        rows.add_column(heading)
    shapes = Table(title="Shapes: half of them learnt, the other half predicted; relative error")
    for heading in ("Profile", "Class", "Rows", "Shapes", "before median", "before p90", "after median", "after p90"):
        shapes.add_column(heading)
    for name, found in outcome.items():
        for unit, one in found["rows"]["units"].items():
            numbers = [one[key] for key in ("analytic_median", "analytic_p90", "chain_median", "chain_p90")]
            rows.add_row(name, unit, str(one["rows"]), *(f"{number:.1%}" for number in numbers))
        for kind, before in found["shapes"]["before"].items():
            after = found["shapes"]["after"][kind]
            numbers = [before["median"], before["p90"], after["median"], after["p90"]]
            shapes.add_row(name, kind, str(before["rows"]), str(before["signatures"]), *(f"{number:.1%}" for number in numbers))
    console.print(rows)
    for name, found in outcome.items():
        without = found["rows"]["rows_without_operator"]
        console.print(f"{name}: rows priced by tier {found['rows']['tiers']}; {without} rows have no operator to price")
    console.print(shapes)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    if not SHARED.is_dir():
        sys.stderr.write(f"no reference data at {SHARED}\n")
        return 2
    outcome = run()
    if arguments.json:
        sys.stdout.write(json.dumps(outcome, indent=1, sort_keys=True) + "\n")
    else:
        show(outcome)
    return 0


if __name__ == "__main__":
    sys.exit(main())
