# ruff: noqa: E402 (the repository must be importable, and the environment ready, before torch is imported)
"""Every model of the zoo on every chip: autostream beside the rules of other systems and the published hand-written patterns.

    python tests/benchmarks/zoo.py [--models GLOB ...] [--chips NAME ...] [--quick] [--same-unit-overlap]
                                   [--solver-budget SECONDS] [--json]

All times are simulated. A model that fails is reported and does not end the run; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import fnmatch
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

from autostream.chips import cost_model
from autostream.errors import InputError, percentage
from autostream.options import Options
from tests.benchmarks.judge import Timed, by_hand, judge
from tests.models.handwritten import PATTERNS, Pattern
from tests.models.zoo import ZOO, Entry

#: Models whose export or schedule takes many seconds: left out by ``--quick``.
_SLOW = (
    *("cnn/nasnet-a", "cnn/hrnet-w18", "cnn/randwire*", "cnn/inception-v3-b32", "control/*", "llm/*"),
    *("npu/decode-*8l", "npu/decode-61l", "npu/longcat-14l", "npu/tp4-*"),
)
_STATED = (
    "Simulated, ns. Strategies are compared on the scheduling problem (streams and order as chosen, one wait a crossing) by "
    "autostream.program.simulate; gain and memory are of the emitted graph, read back. No graph is converted by TorchAir."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    try:
        given = {name: getattr(asked, name) for name in ("side_streams", "same_unit_overlap", "solver_budget")}
        options = Options.of(given | {"strict": True})
        for chip in asked.chips:
            cost_model(chip)
    except InputError as error:
        parser.error(str(error))
    selected = _selected(asked.models, quick=asked.quick)
    if not selected:
        parser.error(f"no model matches {' '.join(asked.models)}; there are {', '.join(ZOO)}")
    result = run(selected, asked.chips, options)
    if asked.json:
        sys.stdout.write(json.dumps(result, indent=1) + "\n")
    else:
        _show(result)
    return 1 if result["failed"] else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["*"], metavar="GLOB", help="names of the zoo (default: all)")
    parser.add_argument("--chips", nargs="+", default=["910B2"], metavar="NAME")
    parser.add_argument("--side-streams", type=int, default=3, help="side streams beside the main one (default: 3)")
    parser.add_argument("--same-unit-overlap", action="store_true", help="credit small kernels of one kind with running at once")
    parser.add_argument("--solver-budget", type=float, default=2.0, help="effort of the solver, about seconds (default: 2)")
    parser.add_argument("--quick", action="store_true", help="leave out models that take many seconds")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _selected(globs: Sequence[str], *, quick: bool) -> list[Entry]:
    def matches(name: str, patterns: Sequence[str]) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)

    return [entry for name, entry in ZOO.items() if matches(name, globs) and not (quick and matches(name, _SLOW))]


def run(entries: Sequence[Entry], chips: Sequence[str], options: Options) -> dict[str, Any]:
    """Return rows, patterns, what was skipped and what failed, and the summary."""
    rows: list[dict[str, Any]] = []
    patterns: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    skipped = {entry.name: reason for entry in entries if (reason := entry.missing())}
    for entry in entries:
        if entry.name in skipped:
            continue
        began = time.perf_counter()
        try:
            program = entry.program()
            exported = time.perf_counter() - began
            for chip in chips:
                model = cost_model(chip)
                row, outcome = judge(program, model, options)
                rows.append({"model": entry.name, "expected": entry.expected, "export_seconds": round(exported, 3)} | row)
                for pattern in PATTERNS.values():
                    if pattern.model == entry.name and outcome.schedule is not None:
                        theirs = by_hand(pattern, outcome, model, options)
                        patterns.append(_beside(pattern, rows[-1], theirs))
        except Exception as error:  # one model must not end the run
            first = next(iter(str(error).splitlines()), "")
            failed.append({"model": entry.name, "error": f"{type(error).__name__}: {first}"})
        ending = "" if not failed or failed[-1]["model"] != entry.name else ", failed"
        sys.stderr.write(f"{entry.name}: {time.perf_counter() - began:.1f} s{ending}\n")
    return {
        "stated": _STATED,
        "options": options.model_dump(mode="json"),
        "rows": rows,
        "patterns": patterns,
        "skipped": skipped,
        "failed": failed,
        "summary": _summary(rows, patterns),
    }


def _beside(pattern: Pattern, row: dict[str, Any], theirs: Timed) -> dict[str, Any]:
    serial, ours = row["baselines"]["serial"]["time_ns"], row["autostream"]
    return {
        "pattern": pattern.name,
        "published": pattern.published,
        "model": row["model"],
        "chip": row["chip"],
        "serial_ns": serial,
        "by_hand_ns": theirs.time_ns,
        "by_hand_gain": round(1 - theirs.time_ns / serial, 4),
        "by_hand_sync_edges": theirs.sync_edges,
        "autostream_ns": ours["time_ns"],
        "autostream_gain": round(1 - ours["time_ns"] / serial, 4),
        "autostream_sync_edges": ours["sync_edges"],
        "at_least_as_good": ours["time_ns"] <= theirs.time_ns,
    }


def _summary(rows: Sequence[dict[str, Any]], patterns: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Count what the bars ask for; lists name the models that miss one."""
    compared = [row for row in rows if "baselines" in row]
    controls = [row for row in rows if row["expected"] == "control"]
    return {
        "models": len(rows),
        "compared": len(compared),
        "worse_than_best_baseline": [_where(row) for row in compared if not row["at_least_as_good"]],
        "more_sync_edges": [_where(row) for row in compared if _syncs(row)[0] > _syncs(row)[1]],
        "ns_saved_per_extra_edge": {
            _where(row): row["ns_saved_per_extra_edge"] for row in compared if _syncs(row)[0] > _syncs(row)[1]
        },
        "not_fewer_sync_edges": [_where(row) for row in compared if not row["fewer_sync_edges"]],
        **_within_edges([row for row in compared if "within_edges" in row]),
        "closed_to_optimality": sum(row["status"] in ("optimal", "near-optimal") for row in compared),
        "regions": sum(row["regions"]["all"] for row in compared),
        "regions_closed_to_optimality": sum(row["regions"]["closed"] for row in compared),
        "regions_closed_exactly": sum(row["regions"]["exactly"] for row in compared),
        "accepted": sum(row["accepted"] for row in rows),
        "accepted_but_slower_at_the_low_end": [_where(r) for r in rows if r["accepted"] and r["emitted"]["gain_low"] < 0],
        "controls": len(controls),
        "controls_touched": [_where(row) for row in controls if row["accepted"]],
        "patterns_better_than_ours": [p["pattern"] for p in patterns if not p["at_least_as_good"]],
    }


def _within_edges(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What becomes of the models with no fewer waits than the best rule when ours may have no more than that rule."""
    worse, fewer, least, none = [], {}, [], []
    for row in rows:
        within, where = row["within_edges"], _where(row)
        if not within["at_least_as_good"]:
            worse.append(where)
        fewest = within["fewest_edges_as_good"]
        if fewest is not None and fewest < within["edges_allowed"]:
            fewer[where] = f"{fewest} instead of {within['edges_allowed']}"
        elif within["fewer_is_proved_impossible"]:
            least.append(where)
        else:
            none.append(where)
    return {
        "worse_within_the_edges_of_the_best_baseline": worse,
        "as_good_with_fewer_edges_if_capped": fewer,
        "proved_that_no_plan_with_fewer_edges_is_as_good": least,
        "no_plan_with_fewer_edges_found_that_is_as_good": none,
    }


def _syncs(row: dict[str, Any]) -> tuple[int, int]:
    """Waits of ours and of the best rule."""
    return row["autostream"]["sync_edges"], row["baselines"][row["best_baseline"]]["sync_edges"]


def _where(row: dict[str, Any]) -> str:
    return f"{row['model']} on {row['chip']}"


def _show(result: dict[str, Any]) -> None:
    console = Console(width=max(Console().width, 165))
    table = Table(title="Zoo: simulated times, us", caption=result["stated"])
    columns = "model,verdict,tasks,width,serial,best other,syncs,ours,syncs,bound,gap,streams,memory,pass s"
    for column in columns.split(","):
        left = column in ("model", "verdict", "best other")
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    for row in result["rows"]:
        table.add_row(*_cells(row))
    console.print(table)
    if any("within_edges" in row for row in result["rows"]):
        console.print(_capped(result["rows"]))
    if result["patterns"]:
        console.print(_patterns(result["patterns"]))
    lines = [f"skipped {name}: {reason}" for name, reason in result["skipped"].items()]
    lines += [f"failed {item['model']}: {item['error']}" for item in result["failed"]]
    for key, value in result["summary"].items():
        listed = [f"{name}: {told}" for name, told in value.items()] if isinstance(value, dict) else value
        text = ", ".join(listed) or "none" if isinstance(listed, list) else str(listed)
        lines.append(f"{key.replace('_', ' ')}: {text}")
    for line in lines:
        console.print(line, markup=False, highlight=False)


def _capped(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(
        title="No more waits than the best rule: simulated times, us",
        caption="Only where ours has no fewer by itself. As good: the fewest waits with which ours takes no longer than the "
        "rule; (least) if it is proved that no plan with fewer does.",
    )
    for column in ("model", "best other", "time", "syncs", "ours within that", "syncs", "as good", "ours without", "syncs"):
        table.add_column(column, justify="left" if column in ("model", "best other") else "right", no_wrap=True)
    for row in rows:
        if "within_edges" in row:
            best, ours, within = row["baselines"][row["best_baseline"]], row["autostream"], row["within_edges"]
            time_within = _us(within["time_ns"]) if within["at_least_as_good"] else f"[red]{_us(within['time_ns'])}[/red]"
            fewest = f"{within['fewest_edges_as_good']}{' (least)' if within['fewer_is_proved_impossible'] else ''}"
            name, rule = f"{row['model']} {row['chip']}", row["best_baseline"]
            theirs, free = (_us(best["time_ns"]), str(best["sync_edges"])), (_us(ours["time_ns"]), str(ours["sync_edges"]))
            table.add_row(name, rule, *theirs, time_within, str(within["sync_edges"]), fewest, *free)
    return table


def _patterns(patterns: Sequence[dict[str, Any]]) -> Table:
    table = Table(title="Hand-written patterns: gain over one stream, and waits between streams")
    for column in ("pattern", "chip", "by hand", "syncs", "ours", "syncs", "published"):
        table.add_column(column)
    for p in patterns:
        theirs, ours = percentage(p["by_hand_gain"]), percentage(p["autostream_gain"])
        table.add_row(
            p["pattern"], p["chip"], theirs, str(p["by_hand_sync_edges"]), ours, str(p["autostream_sync_edges"]), p["published"]
        )
    return table


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    head = f"{row['model']} {row['chip']}", row["code"]
    if "baselines" not in row:
        return head
    best, ours, memory = row["baselines"][row["best_baseline"]], row["autostream"], row["memory"]
    return (
        *head,
        str(row["tasks"]),
        f"{row['width']:.1f}",
        _us(row["baselines"]["serial"]["time_ns"]),
        f"{_us(best['time_ns'])} {row['best_baseline']}",
        str(best["sync_edges"]),
        _us(ours["time_ns"]) if row["at_least_as_good"] else f"[red]{_us(ours['time_ns'])}[/red]",
        str(ours["sync_edges"]),
        _us(row["lower_bound_ns"]),
        percentage(row["gap"]),
        str(ours["streams"]),
        f"{memory['peak'] / max(memory['serial_peak'], 1):.2f}x" if memory else "",
        f"{row['pass_seconds']:.1f}",
    )


def _us(nanoseconds: int) -> str:
    return f"{nanoseconds / 1000:.1f}"


if __name__ == "__main__":
    sys.exit(main())
