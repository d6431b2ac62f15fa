"""How well prices fitted to half of a profile predict the other half.

    python tests/benchmarks/calibration.py [--json]

Two questions on two public profiles, and one on four (folder ../shared/data/profiles beside the repository):
- rows: a random half of the rows (fixed seed) is learnt, the other half predicted by measured -> scaled -> analytic, as by a user
  who profiles one step and schedules the next;
- shapes: half of the signatures are learnt by `autostream calibrate`, the other half predicted, so that no shape was ever seen.
- together: what kernels that ran at the same time cost each other, from how many kernels that can be told, and what would be told
  were any evidence enough. Beside collectives that moved nothing there is no interference: what is found there has other causes.
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
from autostream.cost.calibration.beside import observe
from autostream.cost.calibration.calibrate import calibrate
from autostream.cost.calibration.heldout import quantile, rows_of, split_rows
from autostream.cost.calibration.interference import Evidence, measure
from autostream.cost.calibration.transfers import read_transfers
from autostream.errors import percentage
from autostream.profiles import read_profile

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "profiles"
PROFILES = {"gpt_training_910b1": "910B1", "megatron_pp2dp2_910b4": "910B4"}
TOGETHER = {"resnet_ddp_level1": "910B2", "resnet_ddp_level2": "910B2", **PROFILES}
#: Asks for next to nothing: to look at what `autostream calibrate` would not claim.
ANYTHING = Evidence(repeats=1, shapes=1, kernels=1, time=1)


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


def together(folder: Path, chip: str) -> dict[str, Any]:
    """Return what ran beside the kernels of a profile, and the factors, with the evidence that is asked for and with any."""
    profile = read_profile(folder)
    observed = observe(profile, read_transfers(profile))
    model = RooflineModel(load_chip(chip))
    factors = {
        name: {one.company.value: asdict(one) for one in measure([observed], model, least)}
        for name, least in (("claimed", None), ("anything", ANYTHING))
    }
    return {"companies": dict(sorted(Counter(one.company.value for one in observed).items())), **factors}


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
            rows.add_row(name, unit, str(one["rows"]), *(percentage(number) for number in numbers))
        for kind, before in found["shapes"]["before"].items():
            after = found["shapes"]["after"][kind]
            numbers = [before["median"], before["p90"], after["median"], after["p90"]]
            shapes.add_row(
                name, kind, str(before["rows"]), str(before["signatures"]), *(percentage(number) for number in numbers)
            )
    console.print(rows)
    for name, found in outcome.items():
        without = found["rows"]["rows_without_operator"]
        console.print(f"{name}: rows priced by tier {found['rows']['tiers']}; {without} rows have no operator to price")
    console.print(shapes)


def show_together(outcome: dict[str, Any]) -> None:
    """Print what ran beside what, and what that says."""
    console = Console()
    table = Table(title="Kernels that ran together: time beside others over time alone")
    for heading in ("Profile", "Company", "Kernels", "comparable", "Shapes", "from any evidence", "p75", "claimed"):
        table.add_column(heading)
    for name, found in outcome.items():
        console.print(f"{name}: {found['companies']}")
        for company, one in found["anything"].items():
            factors = [f"{value:.2f}" if value else "-" for value in (one["factor"], one["p75"])]
            if not one["seen"]:
                continue
            claimed = found["claimed"][company]["factor"]
            counts = [str(one[key]) for key in ("seen", "kernels", "shapes")]
            table.add_row(name, company, *counts, *factors, f"{claimed:.2f}" if claimed else "-")
    console.print(table)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    if not SHARED.is_dir():
        sys.stderr.write(f"no reference data at {SHARED}\n")
        return 2
    outcome = run()
    beside = {name: together(SHARED / name, chip) for name, chip in TOGETHER.items()}
    if arguments.json:
        sys.stdout.write(json.dumps({**outcome, "together": beside}, indent=1, sort_keys=True) + "\n")
    else:
        show(outcome)
        show_together(beside)
    return 0


if __name__ == "__main__":
    sys.exit(main())
