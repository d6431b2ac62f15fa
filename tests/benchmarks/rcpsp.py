"""How good the solver is on resource-constrained projects (PSPLIB J30, J60, J120 and RG300), against the best known makespans.

    python tests/benchmarks/rcpsp.py [--seconds 1 10] [--sample N] [--families J30 J60 ...] [--json]

`autostream.scheduling.local.projects` joins the CP-SAT model and the windows that also solve the regions of a program, here with
other resources, to a genetic search that charges no syncs and is used here alone.
`--seconds` is its deterministic budget, calibrated to about that wall-clock time on two idle cores. So answers do not depend on
the load of the machine; the CPU time that was really taken is reported beside them.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from autostream.scheduling.local.projects import solve_project
from autostream.scheduling.machine.resources import NumberedMode
from autostream.scheduling.solver.project import Link, Project, project

_DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "rcpsp"
_FAMILIES = ("J30", "J60", "J120", "RG300")
#: At ten seconds, percent over the best known makespan.
_BARS = {"J30": 0.0, "J60": 0.3, "J120": 3.0, "RG300": 4.0}
#: Instances of each family by default: about a quarter of an hour for both limits.
_SAMPLE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A project as in its file: durations, demands by resource, successors, capacities."""

    name: str
    best_known: int
    durations: tuple[int, ...]
    demands: tuple[tuple[int, ...], ...]
    successors: tuple[tuple[int, ...], ...]
    capacity: tuple[int, ...]

    def project(self) -> Project:
        """The same for the solver. Jobs must be in topological order, as they are in all these files."""
        modes = [[NumberedMode(duration, demand)] for duration, demand in zip(self.durations, self.demands, strict=True)]
        links = [Link(job, successor) for job, successors in enumerate(self.successors) for successor in successors]
        return project(modes, links, self.capacity)


def read(path: Path, name: str, best_known: int) -> Instance:
    """Read a file in Patterson's format."""
    numbers = iter([int(word) for word in path.read_text(encoding="utf-8").split()])
    jobs, resources = next(numbers), next(numbers)
    capacity = tuple(next(numbers) for _ in range(resources))
    durations, demands, successors = [], [], []
    for _ in range(jobs):
        durations.append(next(numbers))
        demands.append(tuple(next(numbers) for _ in range(resources)))
        successors.append(tuple(next(numbers) - 1 for _ in range(next(numbers))))
    return Instance(
        name=name,
        best_known=best_known,
        durations=tuple(durations),
        demands=tuple(demands),
        successors=tuple(successors),
        capacity=capacity,
    )


def violations(instance: Instance, start: Sequence[int]) -> Iterator[str]:
    """What is wrong with a solution: instant by instant, sharing nothing with the solver."""
    end = [begin + duration for begin, duration in zip(start, instance.durations, strict=True)]
    for job, successors in enumerate(instance.successors):
        if start[job] < 0:
            yield f"job {job} starts before 0"
        yield from (f"job {successor} starts before {job} ends" for successor in successors if start[successor] < end[job])
    for now in range(max(end)):
        running = [job for job in range(len(start)) if start[job] <= now < end[job]]
        for kind, limit in enumerate(instance.capacity):
            if sum(instance.demands[job][kind] for job in running) > limit:
                yield f"resource {kind} is overdrawn at {now}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One instance at one limit."""

    family: str
    instance: str
    seconds: float
    makespan: int
    best_known: int
    proven: bool
    cpu_seconds: float
    wall_seconds: float

    @property
    def gap(self) -> float:
        """Percent over the best known makespan."""
        return 100 * (self.makespan / self.best_known - 1)


def solve(family: str, instance: Instance, seconds: float) -> Result:
    """Solve one instance and check the answer."""
    cpu, wall = time.process_time(), time.perf_counter()
    solved = solve_project(instance.project(), seconds)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    wrong = next(violations(instance, solved.times.start), None)
    if wrong or solved.times.makespan < solved.bound:
        raise SystemExit(f"{instance.name}: {wrong or 'the makespan is below the proven bound'}")
    return Result(
        family=family,
        instance=instance.name,
        seconds=seconds,
        makespan=solved.times.makespan,
        best_known=instance.best_known,
        proven=solved.times.makespan == solved.bound,
        cpu_seconds=round(cpu, 2),
        wall_seconds=round(wall, 2),
    )


def sample(family: str, size: int) -> list[Instance]:
    """Instances of a family by lot, always the same: every so many would pick one kind, for the files are ordered by kind."""
    with (_DATA / "best_known.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["set"] == family]
    chosen = random.Random(0).sample(rows, min(size, len(rows)))
    return [read(_DATA / "instances" / row["file"], row["file"].removesuffix(".txt"), int(row["bks_ub"])) for row in chosen]


def summary(results: Sequence[Result]) -> list[dict[str, object]]:
    """Means by family and limit."""
    rows: list[dict[str, object]] = []
    for family, seconds in dict.fromkeys((result.family, result.seconds) for result in results):
        group = [result for result in results if (result.family, result.seconds) == (family, seconds)]
        rows.append(
            {
                "family": family,
                "seconds": seconds,
                "instances": len(group),
                "mean_gap_percent": round(sum(result.gap for result in group) / len(group), 3),
                "bar_percent": _BARS[family] if seconds == 10 else None,
                "proven": sum(result.proven for result in group),
                "mean_cpu_seconds": round(sum(result.cpu_seconds for result in group) / len(group), 2),
                "max_cpu_seconds": max(result.cpu_seconds for result in group),
                "max_wall_seconds": max(result.wall_seconds for result in group),
            }
        )
    return rows


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--sample", type=int, default=_SAMPLE, help="instances of each family")
    parser.add_argument("--families", nargs="+", choices=_FAMILIES, default=list(_FAMILIES))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.sample < 1 or min(arguments.seconds) <= 0:
        parser.error("--sample and --seconds must be positive")
    if not _DATA.is_dir():
        raise SystemExit(f"skipped: no reference data at {_DATA}")
    chosen = {family: sample(family, arguments.sample) for family in arguments.families}
    most = sum(map(len, chosen.values())) * sum(arguments.seconds)
    console = Console(stderr=True)
    console.print(f"{sum(map(len, chosen.values()))} instances, at most about {most / 60:.0f} minutes on two idle cores")
    results = []
    for family, group in chosen.items():
        for seconds, instance in itertools.product(arguments.seconds, group):
            results.append(solve(family, instance, seconds))
            console.print(f"{instance.name} at {seconds:g} s: {results[-1].gap:.2f} %, {results[-1].cpu_seconds} CPU s")
    rows = summary(results)
    if arguments.json:
        json.dump({"summary": rows, "results": [asdict(result) for result in results]}, sys.stdout, indent=1)
        return
    table = Table(*(name.replace("_", " ") for name in rows[0]), title="RCPSP: gap to the best known makespan")
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
