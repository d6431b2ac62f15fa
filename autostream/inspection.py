"""Judge a multi-stream program that somebody wrote: read it on every level, verify it, and say where it was written."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from autostream import offline
from autostream.as_written import as_written
from autostream.cost.model import Cost, CostModel, Tier
from autostream.errors import InputError, OfflineError, VerificationError, nearest
from autostream.graph import OpGraph
from autostream.graph.capture import capture
from autostream.graph.origin import module_path, source_line
from autostream.graph.programs import AtenProgram
from autostream.program import (
    Finding,
    Semantics,
    Severity,
    StreamProgram,
    read_ascend_ir,
    returned_storages,
    reuse_findings,
    simulate,
    verify,
)
from autostream.program.checks.oversync import hidden_waits, idle_waits
from autostream.program.kinds import is_collective
from autostream.program.reading.dump_ops import communicating
from autostream.program.reading.events import needs_capture
from autostream.program.reading.fx import read_fx
from autostream.program.reading.ge_dump import load_ops
from autostream.program.reading.writeback import written_back
from autostream.report import Document
from autostream.report.notebook import document_html, findings_html
from autostream.suppressions import Suppressed, judge, load_suppressions

if TYPE_CHECKING:
    from torch import fx

logger = logging.getLogger(__name__)

AUTO = "auto"
#: A wait's predicted price is a simulation: only programs up to this size get it.
_SIMULATED_STEPS = 500
#: TorchAir tells GE beside the graph which outputs share the memory of inputs.
_UNSEEN_WRITES = (
    "a dump does not tell which results are written back into graph inputs (copy_ in the model), so races for these are not "
    "found here: check the model itself as well"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """A multi-stream program as it was read, level by level (``"fx"``, ``"ascend_ir"``), and what the verifier says of it.

    `findings` are those that count; the ones that a suppressions file accepts are in `suppressed`.
    """

    programs: Mapping[str, StreamProgram]
    findings: tuple[Finding, ...]
    suppressed: tuple[Suppressed, ...] = ()
    #: What the reader should know of the check itself: what could not be looked at, and why.
    notes: tuple[str, ...] = ()
    semantics: Semantics = Semantics.GE
    #: Chip whose cores the proofs rest on; empty if none was needed.
    chip: str = ""
    #: The program simulated on the streams it was written for; None for a dump, and for a program that waits for itself.
    report: Document | None = None

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the findings, and the timeline."""
        drawn = "" if self.report is None else document_html(self.report)
        return f"{findings_html(self.findings, [(one.finding, one.reason) for one in self.suppressed])}\n{drawn}"


@dataclass(slots=True)
class _Found:
    """Findings on their way: by what they say, with the levels they were found on."""

    findings: dict[tuple[object, ...], Finding] = field(default_factory=dict)

    def add(self, level: str, program: StreamProgram, found: Iterable[Finding], places: Mapping[str, str]) -> None:
        """Add the findings of one level; one that an earlier level has of the same FX nodes only adds its level there.

        Of several that say the same of the same nodes (about two storages, say) the first of one level is that of the other.
        """
        sources = {step.name: step.source or step.name for step in program.steps}
        seen: Counter[tuple[object, ...]] = Counter()
        for finding in dict.fromkeys(found):
            origins = tuple(sources.get(name, name) for name in finding.steps)
            what = (finding.kind, finding.severity, origins, finding.streams) if origins else (finding.kind, finding.explanation)
            seen[what] += 1
            key = (*what, seen[what])
            where = tuple(places.get(origin, "") for origin in origins)
            known = self.findings.get(key)
            if known is None:
                self.findings[key] = replace(finding, where=where, levels=(level,))
            elif level not in known.levels:
                self.findings[key] = replace(known, levels=(*known.levels, level))


def semantics_of(text: str | Semantics) -> Semantics | None:
    """Return the semantics a text names; None for ``"auto"``.

    Raises:
        InputError: it names none.
    """
    allowed = (AUTO, *(semantics.value for semantics in Semantics))
    if text not in allowed:
        raise InputError(f"unknown semantics {str(text)!r}{nearest(str(text), allowed)}; allowed: {', '.join(allowed)}")
    return None if text == AUTO else Semantics(text)


def inspect_dump(path: Path, *, model: CostModel, suppressions: str | Path | None) -> Inspection:
    """Judge an Ascend IR dump. Cores are checked for the operators that communicate, from the shapes the dump has.

    Raises:
        InputError: the dump or the suppressions cannot be read.
    """
    entries = load_suppressions(suppressions) if suppressions is not None else ()
    program = read_ascend_ir(path)
    ops = communicating(load_ops(path))
    costs = {name: model.estimate(op) for name, op in ops.items()}
    groups = {name: op.group for name, op in ops.items()}
    places = {step.source: f"FX node {step.source}" for step in program.steps if step.source}
    found = _Found()
    findings = [*verify(program, costs=costs, machine=model.machine, groups=groups), *_lints(program, None)]
    several = len(program.streams()) > 1
    if several:
        unpriced = [(step.name, step.kind) for step in program.steps if is_collective(step.kind) and step.name not in ops]
        findings += _unknown_cores(unpriced, model)
    found.add("ascend_ir", program, findings, places)
    judged = judge(found.findings.values(), entries)
    return Inspection(
        programs={"ascend_ir": program},
        findings=judged.findings,
        suppressed=judged.suppressed,
        notes=(_UNSEEN_WRITES,) if several else (),
        chip=model.machine.name,
    )


def inspect_graph(
    captured: AtenProgram, *, model: CostModel, semantics: Semantics | None, host: bool, suppressions: str | Path | None
) -> Inspection:
    """Judge an ATen graph on the FX level and, where `host` has TorchAir and the mode is max-autotune, on the Ascend IR.

    Args:
        captured: the graph.
        model: says what operators cost and which cores they hold.
        semantics: None takes the capture modes if the graph uses words that only they know, else max-autotune.
        host: True if TorchAir is there.
        suppressions: file of accepted findings.

    Raises:
        InputError: the suppressions cannot be read.
    """
    entries = load_suppressions(suppressions) if suppressions is not None else ()
    module = captured.graph_module
    chosen = semantics or (Semantics.CAPTURE if needs_capture(module) else Semantics.GE)
    graph = capture(module)
    costs = {op.name: model.estimate(op) for op in graph}
    places = {node.name: _place(node) for node in module.graph.nodes}
    groups = {op.name: op.group for op in graph}
    program = read_fx(module, semantics=chosen, graph=graph)
    programs = {"fx": program}
    found = _Found()
    notes = list(captured.notes)

    def judged_on(level: StreamProgram) -> tuple[Finding, ...]:
        return verify(level, costs=costs, machine=model.machine, groups=groups)

    lints = (*_lints(program, _predictor(program, costs, model)), *_memory(program, graph))
    if len(program.streams()) > 1:
        unknown = [(op.name, op.target) for op in graph if costs[op.name].tier is Tier.UNKNOWN]
        lints = (*lints, *_unknown_cores(unknown, model))
    found.add("fx", program, (*judged_on(program), *lints), places)
    if host and chosen is Semantics.GE:
        try:
            converted = offline.convert(module, captured.example_inputs)
            programs["ascend_ir"] = read_ascend_ir(converted.serialized, written_back=written_back(module))
        except OfflineError as error:
            notes.append(f"checked on the FX graph only: {error}")
            logger.warning("checked on the FX graph only: %s", error)
        else:
            level = programs["ascend_ir"]
            found.add("ascend_ir", level, (*judged_on(level), *_quietly(hidden_waits, level)), places)
    judged = judge(found.findings.values(), entries)
    return Inspection(
        programs=programs,
        findings=judged.findings,
        suppressed=judged.suppressed,
        notes=tuple(notes),
        semantics=chosen,
        chip=model.machine.name,
        report=as_written(program, graph, model, name=captured.name, findings=judged.findings),
    )


def _lints(program: StreamProgram, predict: Callable[[StreamProgram], int] | None) -> list[Finding]:
    return [*_quietly(hidden_waits, program), *_quietly(lambda read: idle_waits(read, predict), program)]


def _quietly(check: Callable[[StreamProgram], Iterator[Finding]], program: StreamProgram) -> list[Finding]:
    """Return what a lint finds; nothing for a program that waits for itself, which the verifier reports."""
    try:
        return list(check(program))
    except VerificationError:
        return []


def _memory(program: StreamProgram, graph: OpGraph) -> list[Finding]:
    """Return the findings on memory that is used again too early: in the capture modes that is left to the program."""
    if program.semantics is not Semantics.CAPTURE:
        return []
    return _quietly(lambda read: reuse_findings(read, graph.storages, returned=returned_storages(graph)), program)


def _predictor(program: StreamProgram, costs: Mapping[str, Cost], model: CostModel) -> Callable[[StreamProgram], int] | None:
    if len(program.steps) > _SIMULATED_STEPS:
        return None
    return lambda changed: simulate(changed, costs, model.machine).makespan


def _unknown_cores(unknown: Sequence[tuple[str, str]], model: CostModel) -> Iterator[Finding]:
    """Say once of which steps, given with their operators, no table knows the cores."""
    if unknown:
        operators = ", ".join(dict.fromkeys(operator for _, operator in unknown))
        yield Finding(
            kind="cores-unknown",
            severity=Severity.NOTE,
            steps=tuple(name for name, _ in unknown),
            streams=(),
            explanation=f"which cores of {model.machine.name} these take is not known, so proofs about cores may miss them or "
            f"assume too many: {operators}",
            remedy="",
        )


def _place(node: fx.Node) -> str:
    """Return ``"layers.0.mlp (model.py:12)"``, or what is known of it."""
    module, line = module_path(node), source_line(node)
    return f"{module} ({line})" if module and line else module or line
