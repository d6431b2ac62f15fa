"""What the pipeline found out about one graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torch import fx

from autostream.cost.model import Cost, CostModel
from autostream.graph.model import OpGraph
from autostream.offline import Converted
from autostream.options import Options
from autostream.program.checks.lifetimes import Memory
from autostream.program.model import Finding, StreamProgram, Timeline
from autostream.report import Document, Provenance, build
from autostream.scheduling.problem import Schedule
from autostream.verdict import Verdict

#: What a verdict calls the chip where the step that failed is the one that tells it.
UNKNOWN_CHIP = "an unknown chip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The verdict and everything it rests on; what the pipeline did not get to is None or empty.

    `graph_module` is the rewritten graph and set only if the plan was accepted; `program` is read back from the rewritten
    graph even if the plan was then refused, `serial` from the given one. `placed` tells why an operator is
    on its stream, where the scheduler was not free. `ascend_ir` is the converted form of the graph, where
    it was asked for.
    """

    verdict: Verdict
    graph: OpGraph | None = None
    costs: Mapping[str, Cost] = field(default_factory=dict)
    schedule: Schedule | None = None
    before: Timeline | None = None
    after: Timeline | None = None
    program: StreamProgram | None = None
    serial: StreamProgram | None = None
    findings: tuple[Finding, ...] = ()
    memory: Memory | None = None
    placed: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    graph_module: fx.GraphModule | None = None
    ascend_ir: Converted | None = None

    def declined(self, code: str, reason: str) -> Outcome:
        """Return this outcome with its plan refused after all; what is known of the plan stays in the report."""
        verdict = replace(self.verdict, accepted=False, code=code, reason=reason)
        return replace(self, verdict=verdict, graph_module=None, ascend_ir=None)

    def document(self, *, name: str, options: Options, model: CostModel | None) -> Document:
        """Return the report of this outcome: plain data, no graph is kept alive by it. Without a model nothing was priced."""
        machine = model.machine if model else None
        provenance = Provenance.of(
            chip=machine.name if machine else UNKNOWN_CHIP, chip_digest=model.fingerprint() if model else "", options=options
        )
        return build(
            name=name,
            verdict=self.verdict,
            provenance=provenance,
            graph=self.graph,
            costs=self.costs,
            before=self.before,
            after=self.after,
            program=self.program,
            serial=self.serial,
            machine=machine,
            schedule=self.schedule,
            placed=self.placed,
            findings=self.findings,
            memory=self.memory,
            notes=self.notes,
        )
