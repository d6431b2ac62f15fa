"""What planning from a dump gives: the decision, the report, and what to write into the model or a pass, node by node."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autostream.cost.model import Cost
from autostream.dumps.graph import DumpGraph
from autostream.dumps.matching import NodeMatch
from autostream.dumps.streams import Planned
from autostream.graph.model import OpGraph, Unit
from autostream.outcome import Outcome
from autostream.program.kinds import DEFAULT, HCCL
from autostream.program.model import Finding, StreamProgram, Timeline
from autostream.report import Document
from autostream.report.files import save_forms, write, write_bytes
from autostream.scheduling import Schedule
from autostream.verdict import Verdict

FORMAT, VERSION = "autostream-plan", 1
PLAN, PLAN_CSV = "plan.json", "plan.csv"
_COLUMNS = ("position", "node", "type", "fx_node", "stream", "label", "waits", "duration_ns", "start_ns", "end_ns", "tier")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedNode:
    """One node of the dump that runs as a task. Times are simulated, ns."""

    #: Place in the order of the plan.
    position: int
    node: str
    type: str
    #: FX node it was converted from, where the dump tells.
    fx_node: str
    stream: str
    #: ``_user_stream_label`` to set; None where none is needed, or the node has it already.
    label: str | None
    #: Nodes that it has to wait for by a control edge, beside those whose data it reads.
    waits: tuple[str, ...]
    duration_ns: int
    start_ns: int
    end_ns: int
    #: Where the price comes from; ``"folded"`` for what GE folds into its reader.
    tier: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiers:
    """The nodes with a task by where their price comes from."""

    by_name: tuple[str, ...] = ()
    by_order: tuple[str, ...] = ()
    by_shape: tuple[str, ...] = ()
    scaled: tuple[str, ...] = ()
    analytic: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Number of nodes that were priced."""
        return sum(map(len, (self.by_name, self.by_order, self.by_shape, self.scaled, self.analytic, self.unknown)))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DumpPlan:
    """A verdict on a dump with everything it rests on. Names are those of GE's nodes; times are simulated, in nanoseconds."""

    verdict: Verdict
    graph: OpGraph
    costs: Mapping[str, Cost]
    schedule: Schedule | None
    program: StreamProgram | None
    before: Timeline | None
    after: Timeline | None
    findings: tuple[Finding, ...]
    report: Document
    match: NodeMatch
    tiers: Tiers
    #: In the order of the plan, or of the dump where the plan was declined.
    nodes: tuple[PlannedNode, ...]
    #: The dump with the plan in it, in the form it was in; None where the plan was declined or the form cannot be written.
    rewritten: bytes | None
    #: Name of the file the dump was read from.
    source: str

    def __repr__(self) -> str:
        return f"DumpPlan(accepted={self.verdict.accepted}, reason={self.verdict.reason!r})"

    def to_json(self) -> str:
        """Return the plan as JSON with sorted keys; the same dump, profile and options give the same text."""
        return json.dumps(self._data(), sort_keys=True, indent=1, allow_nan=False) + "\n"

    def to_csv(self) -> str:
        """Return one row per node that runs as a task; several waits are split by blanks."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for node in self.nodes:
            values = asdict(node) | {"waits": " ".join(node.waits), "label": node.label or ""}
            writer.writerow([values[name] for name in _COLUMNS])
        return out.getvalue()

    def save(self, folder: str | Path) -> tuple[Path, ...]:
        """Write the report in every form, the plan as JSON and CSV, and the rewritten dump where there is one; return the paths.

        Raises:
            InputError: the folder cannot be written.
        """
        place = Path(folder)
        paths = [*save_forms(self.report, place), write(place / PLAN, self.to_json()), write(place / PLAN_CSV, self.to_csv())]
        if self.rewritten is not None:
            paths.append(write_bytes(place / f"scheduled_{self.source}", self.rewritten))
        return tuple(paths)

    def _data(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "dump": self.source,
            "accepted": self.verdict.accepted,
            "code": self.verdict.code,
            "reason": self.verdict.reason,
            "chip": self.verdict.chip,
            "serial_ns": self.verdict.serial_ns,
            "scheduled_ns": self.verdict.scheduled_ns,
            "topology_sorting_strategy": "StableRDFS",
            "nodes": [asdict(node) for node in self.nodes],
            "costs": asdict(self.tiers),
            "unmatched_kernels": [asdict(group) for group in self.match.unmatched],
            "kernels": {
                "all": self.match.kernels,
                "matched": self.match.matched_kernels,
                "matched_share": self.match.matched_share,
            },
        }


def nodes_of(dump: DumpGraph, outcome: Outcome, plan: Planned | None) -> tuple[PlannedNode, ...]:
    """Return the nodes with a task in the order of the plan if it was accepted, else of the dump as it is."""
    accepted = outcome.verdict.accepted and plan is not None
    program = plan.program if accepted and plan is not None else outcome.serial
    timeline = outcome.after if accepted else outcome.before
    slots = {slot.step: slot for slot in timeline.slots} if timeline else {}
    found: list[PlannedNode] = []
    for step in program.steps if program else ():
        op = dump.graph.ops.get(step.name)
        if op is None or step.stream is None:
            continue
        cost, slot = outcome.costs.get(step.name), slots.get(step.name)
        planned = plan if accepted else None
        found.append(
            PlannedNode(
                position=len(found),
                node=step.name,
                type=step.kind,
                fx_node=op.source_line.removeprefix("FX node "),
                stream=step.stream or (DEFAULT if op.unit is not Unit.COMM else HCCL),
                label=planned.labels.get(step.name) if planned else None,
                waits=planned.waits.get(step.name, ()) if planned else (),
                duration_ns=cost.duration if cost else 0,
                start_ns=slot.start if slot else 0,
                end_ns=slot.end if slot else 0,
                tier="folded" if op.unit is Unit.FREE else cost.tier.value if cost else "",
            )
        )
    return tuple(found)
