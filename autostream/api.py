"""The public functions: compile, schedule, check, inspect, lower, and the Dynamo backend."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx

from autostream import offline, telemetry
from autostream.chips import cost_model
from autostream.cost.model import Cost
from autostream.errors import InputError
from autostream.graph import OpGraph
from autostream.graph.programs import AtenProgram, to_aten
from autostream.inspection import Inspection, inspect_dump, inspect_graph, semantics_of
from autostream.offline import Converted
from autostream.options import Options
from autostream.pipeline import plan
from autostream.program import Finding, Semantics, StreamProgram, Timeline
from autostream.report import Document
from autostream.report.files import save as save_report
from autostream.rewrite.air import Air
from autostream.scheduling import Schedule
from autostream.stream_pass import StreamPass
from autostream.verdict import Verdict
from autostream.whatif import what_if as variants

logger = logging.getLogger(__name__)

_IR_SUFFIXES = (".pbtxt", ".pb", ".txt")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScheduleResult:
    """A verdict with everything it rests on.

    `graph_module` is the rewritten graph if the plan was accepted, else the graph as it was captured; it takes the parameters
    and buffers as inputs in front of the user's and returns a tuple. `program` is what was read back from the emitted graph
    (None if nothing was emitted). Times are simulated, in nanoseconds.
    """

    verdict: Verdict
    graph: OpGraph | None
    costs: Mapping[str, Cost]
    schedule: Schedule | None
    program: StreamProgram | None
    graph_module: fx.GraphModule
    findings: tuple[Finding, ...]
    before: Timeline | None
    after: Timeline | None
    report: Document
    original: fx.GraphModule
    ascend_ir: Converted | None

    def __repr__(self) -> str:
        return f"ScheduleResult(accepted={self.verdict.accepted}, reason={self.verdict.reason!r})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict and the timelines."""
        return self.report._repr_html_()

    def lower(self) -> str:
        """Return the Ascend IR of `graph_module` (GraphDef in text form), made here by the real TorchAir.

        Raises:
            OfflineError: torch_npu cannot be brought up, or TorchAir has no converter for an operator.
        """
        converted = self.ascend_ir or offline.convert(self.graph_module, None)
        return converted.text

    def save(self, folder: str | Path) -> tuple[Path, ...]:
        """Write report.json, the graph before and after, and the Ascend IR if there is one; return the paths.

        Raises:
            InputError: the folder cannot be written.
        """
        return save_report(
            self.report,
            Path(folder),
            graph_before=str(self.original.graph),
            graph_after=str(self.graph_module.graph),
            ascend_ir=self.ascend_ir.pbtxt if self.ascend_ir else None,
        )


def schedule(
    program: Any,
    example_inputs: Any = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    chip: str | None = None,
    profile: str | Path | None = None,
    options: Options | Mapping[str, Any] | None = None,
    what_if: bool = False,
) -> ScheduleResult:
    """Schedule a program offline: no NPU is needed, nothing is run.

    Args:
        program: nn.Module (with `example_inputs`, which may be fake or on the meta device), ExportedProgram, ATen
            GraphModule, or the path of a .pt2 file.
        example_inputs: a tensor or a tuple of tensors for an nn.Module.
        example_kwargs: keyword inputs of an nn.Module.
        chip: chip name or path of a chip file; None = the device's own, else the profile's, else 910B2.
        profile: file or folder of a profile of this model; operators that ran there cost what they took, others of their kind
            are scaled by it.
        options: Options or a mapping.
        what_if: also plan with other options (one to four side streams, other overlaps) and put what they give into the report.

    Raises:
        InputError: wrong type, unknown chip or option, unreadable file.
        CaptureError: the module cannot be captured as one static graph.
    """
    chosen = Options.of(options)
    model = cost_model(chip, profile)
    host = _bring_up_host()
    captured = to_aten(program, example_inputs, example_kwargs)
    convert = functools.partial(_convert, captured) if host else None
    outcome = plan(captured.graph_module, model=model, options=chosen, dialect=Air(), convert=convert, notes=captured.notes)
    if outcome.graph_module is not None:
        outcome.graph_module.recompile()  # its code was not needed so far
    report = outcome.document(name=captured.name, options=chosen, model=model)
    if what_if:
        rows = variants(captured.graph_module, model=model, options=chosen, dialect=Air())
        report = report.model_copy(update={"what_if": rows})
    return ScheduleResult(
        verdict=outcome.verdict,
        graph=outcome.graph,
        costs=outcome.costs,
        schedule=outcome.schedule,
        program=outcome.program,
        graph_module=outcome.graph_module or captured.graph_module,
        findings=outcome.findings,
        before=outcome.before,
        after=outcome.after,
        report=report,
        original=captured.graph_module,
        ascend_ir=outcome.ascend_ir,
    )


def inspect(
    program: Any,
    example_inputs: Any = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    chip: str | None = None,
    semantics: str = "auto",
    suppressions: str | Path | None = None,
) -> Inspection:
    """Read a multi-stream program, hand-written or ours, and verify it on every level that can be had here.

    Args:
        program: what `schedule` takes, or the path of an Ascend IR dump (.pbtxt, .pb, .txt).
        example_inputs: a tensor or a tuple of tensors for an nn.Module.
        example_kwargs: keyword inputs of an nn.Module.
        chip: whose cores gangs must fit in; chip name or path of a chip file, None = the device's own, else 910B2.
        semantics: ``"ge"`` (max-autotune), ``"capture"`` (reduce-overhead, npugraph_ex), or ``"auto"``: what the graph's own
            words ask for. A dump is always ``"ge"``.
        suppressions: YAML file of accepted findings, see `autostream.suppressions`.

    Raises:
        InputError: wrong type, unreadable or foreign file, unknown chip or semantics.
        CaptureError: the module cannot be captured as one graph.
    """
    wanted = semantics_of(semantics)
    model = cost_model(chip)
    if isinstance(program, str | Path) and Path(program).suffix.lower() in _IR_SUFFIXES:
        if wanted is Semantics.CAPTURE:
            raise InputError(f"{program}: an Ascend IR dump is made for max-autotune; allowed semantics: 'ge', 'auto'")
        return inspect_dump(Path(program), model=model, suppressions=suppressions)
    host = _bring_up_host()
    captured = to_aten(program, example_inputs, example_kwargs)
    return inspect_graph(captured, model=model, semantics=wanted, host=host, suppressions=suppressions)


def check(
    program: Any,
    example_inputs: Any = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    chip: str | None = None,
    semantics: str = "auto",
    suppressions: str | Path | None = None,
) -> tuple[Finding, ...]:
    """Return what the verifier says of a multi-stream program, accepted findings left out.

    Arguments and errors are those of `inspect`, which also tells what was read and what was suppressed.
    """
    inspection = inspect(
        program,
        example_inputs,
        example_kwargs=example_kwargs,
        chip=chip,
        semantics=semantics,
        suppressions=suppressions,
    )
    return inspection.findings


def lower(
    program: Any,
    example_inputs: Any = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    chip: str | None = None,
    profile: str | Path | None = None,
    options: Options | Mapping[str, Any] | None = None,
) -> str:
    """Return the Ascend IR (GraphDef in text form) of the scheduled program, made here by the real TorchAir.

    A declined program is lowered as it was given. Arguments and errors are those of `schedule`.

    Raises:
        OfflineError: torch_npu is not there, or TorchAir has no converter for an operator.
    """
    scheduled = schedule(program, example_inputs, example_kwargs=example_kwargs, chip=chip, profile=profile, options=options)
    return scheduled.lower()


def compile(  # the name users know from torch
    model: Callable[..., Any],
    *,
    chip: str | None = None,
    profile: str | Path | None = None,
    options: Options | Mapping[str, Any] | None = None,
    **torch_compile_kwargs: Any,
) -> Any:
    """Compile a model with multi-stream scheduling; returns what torch.compile returns.

    On an NPU the model goes through TorchAir (max-autotune) with the pass registered. Elsewhere the model runs unscheduled on
    the device at hand and each graph still gets its verdict, see `autostream.reports`.

    Raises:
        InputError: no model, unknown chip or option, `backend` among the keyword arguments, or a `mode` other than max-autotune.
    """
    if not callable(model):
        raise InputError(f"model is of type {type(model).__name__}; allowed: an nn.Module or a function")
    _check_mode(torch_compile_kwargs.pop("mode", None))
    if "backend" in torch_compile_kwargs:
        raise InputError(
            "autostream.compile sets backend itself; with one of your own, give TorchAir's config autostream.pass_ instead"
        )
    backend = functools.partial(dynamo_backend, chip=chip, profile=profile, options=Options.of(options))
    cost_model(chip, profile)
    return torch.compile(model, backend=backend, **torch_compile_kwargs)


def dynamo_backend(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    chip: str | None = None,
    profile: str | Path | None = None,
    options: Options | Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Dynamo backend ``"autostream"``: TorchAir with the pass on an NPU, else eager ATen with a verdict for each graph.

    ``torch.compile(model, backend="autostream", options={...})`` passes its options on; ``"chip"`` among them names the chip,
    ``"profile"`` a profile of the model.
    """
    _check_mode(mode)
    given = dict(options) if isinstance(options, Mapping) else {}
    chip, profile = given.pop("chip", chip), given.pop("profile", profile)
    stream_pass = StreamPass(chip=chip, profile=profile, options=given if isinstance(options, Mapping) else options)
    backend = offline.npu_backend(post_pass=stream_pass) if _npu_present() else _host_backend(stream_pass)
    compiled: Callable[..., Any] = backend(graph_module, list(example_inputs))
    return compiled


def reports() -> tuple[Document, ...]:
    """Return the reports of the graphs compiled in this process, newest last."""
    return telemetry.reports()


def _check_mode(mode: str | None) -> None:
    if mode not in (None, "default", "max-autotune"):
        raise InputError(f"mode {mode!r} has no stream vocabulary here so far; allowed: 'max-autotune' (which is the default)")


def _convert(captured: AtenProgram, graph_module: fx.GraphModule) -> Converted:
    return offline.convert(graph_module, captured.example_inputs)


def _bring_up_host() -> bool:
    """Bring up the real torch_npu and TorchAir if they can be had; say once in the log why not."""
    missing = offline.why_unavailable()
    if missing is not None:
        logger.info("no Ascend IR here: %s", missing)
        return False
    offline.activate()
    return True


def _npu_present() -> bool:
    npu = getattr(torch, "npu", None) if "torch_npu" in sys.modules else None
    return bool(npu is not None and offline.has_cann() and npu.is_available())


def _drop_waits(graph_module: fx.GraphModule) -> None:
    """Take hand-written `air.wait_tensor` out of a graph that runs without streams: TorchAir has no kernel for it there."""
    waits = [node for node in graph_module.graph.nodes if str(node.target) == "air.wait_tensor.default"]
    for node in waits:
        node.replace_all_uses_with(node.args[0])
        graph_module.graph.erase_node(node)
    if waits:
        graph_module.recompile()


def _host_backend(stream_pass: StreamPass) -> Callable[..., Any]:
    """Run the ATen graph as it is; the pass judges a copy."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch._aot_autograd.utils import make_boxed_func

    def run_as_it_is(graph_module: fx.GraphModule, _example_inputs: Sequence[Any]) -> Callable[..., Any]:
        _drop_waits(graph_module)
        boxed: Callable[..., Any] = make_boxed_func(graph_module.forward)
        return boxed

    def judge(graph_module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        stream_pass.judge(graph_module, example_inputs)
        return run_as_it_is(graph_module, example_inputs)

    backend: Callable[..., Any] = aot_autograd(
        fw_compiler=judge,
        bw_compiler=run_as_it_is,
        inference_compiler=judge,
        keep_inference_input_mutations=True,
    )
    return backend
