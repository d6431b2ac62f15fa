"""The graph pass: what TorchAir calls between its own passes, `(graph_module, example_inputs, config)`, in place."""

from __future__ import annotations

import copy
import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from autostream import agreement, budget, offline, telemetry
from autostream.affordable import leave
from autostream.chips import cost_model
from autostream.cost.model import CostModel
from autostream.decisions import failed, verdict_of
from autostream.errors import VerificationError
from autostream.graph import OpGraph
from autostream.graph.values import MISSING, value_of
from autostream.options import Options
from autostream.outcome import Outcome
from autostream.pipeline import plan
from autostream.report import Document
from autostream.rewrite.air import Air
from autostream.rewrite.deferred import DeferredModule

logger = logging.getLogger(__name__)

#: TorchAir's default order, and what the pass asks of TorchAir so that the planned order survives GE's own sorting.
_DEFAULT_ORDER = "DFS"
_STABLE_ORDER = "StableRDFS"
#: Configurations that were asked for it: the next graph that is compiled with one of them may be declined.
_asked: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


class StreamPass(CustomGraphPass):
    """Assigns independent branches of a graph to streams, or leaves the graph exactly as it is.

    Use it in either of TorchAir's slots; the post slot runs after TorchAir's own fusions and is preferred::

        config = torchair.CompilerConfig()
        config.post_grad_custom_post_pass = autostream.StreamPass(chip="910B2")

    Args:
        chip: chip name or path of a chip file; None = the device's own chip, else the profile's, else 910B2.
        profile: file or folder of a profile of this model, read once: operators that ran there cost what they took.
        options: Options or a mapping of option names to values.
        cost_model: prices operators instead of chip and profile.

    Raises:
        InputError: unknown chip or option, or a profile that cannot be read.
    """

    def __init__(
        self,
        *,
        chip: str | None = None,
        profile: str | Path | None = None,
        options: Options | Mapping[str, Any] | None = None,
        cost_model: CostModel | None = None,
    ) -> None:
        self.options = Options.of(options)
        # TorchAir walks the attributes of everything on its config; a function keeps the model out of that walk.
        self._model: Callable[[], CostModel] = _model_source(chip, profile, cost_model)
        self.fingerprint = f"autostream {self.options.fingerprint()} {self._model().fingerprint()}"
        # TorchAir's compile cache tells passes apart by disassembling them: differently configured passes must differ there.
        self.identity = compile(repr(self.fingerprint), "autostream", "eval")

    def uuid(self) -> str:
        """Return what identifies this pass in compile caches."""
        return self.fingerprint

    def __call__(
        self,
        graph_module: fx.GraphModule | fx.Graph,
        example_inputs: Sequence[Any] | None = None,
        config: Any = None,
    ) -> None:
        """Schedule `graph_module` in place, or leave it untouched; the verdict goes to the log and to `autostream.reports()`.

        Raises:
            AutostreamError: only with the option ``strict``.
        """
        if isinstance(graph_module, fx.Graph):
            logger.warning("autostream: this backend has no stream vocabulary; the graph is left as it is")
            return
        outcome = self._settled(graph_module, example_inputs, config, in_place=True)
        if config is not None:
            _sort(config, stable=outcome.verdict.code in ("accepted", "already-scheduled"))

    def judge(self, graph_module: fx.GraphModule, example_inputs: Sequence[Any] | None = None, config: Any = None) -> Outcome:
        """Return what the pass would do with `graph_module`, which is not changed; file the report.

        Raises:
            Exception: only with the option ``strict``; else a failure is logged, and the verdict is a declined one.
        """
        return self._settled(graph_module, example_inputs, config, in_place=False)

    def _settled(
        self, graph_module: fx.GraphModule, example_inputs: Sequence[Any] | None, config: Any, *, in_place: bool
    ) -> Outcome:
        """Plan, make the code, write the report, ask the other ranks, file: what is told to others cannot fail any more."""
        given = graph_module.graph
        model: CostModel | None = None
        planned: Outcome | None = None
        try:
            try:
                model = self._model()
                outcome = planned = self._planned(graph_module, example_inputs, config, model)
                if outcome.graph_module is not None:
                    _make(outcome.graph_module, graph_module if in_place else None)
                report = outcome.document(name="", options=self.options, model=model)
                digest = agreement.digest(outcome)
            except Exception as error:
                self._ask(agreement.DECLINED, given)
                outcome = failed(error, None, model, self.options)
                report = outcome.document(name="", options=self.options, model=model)
            else:
                refusal = self._ask(digest, given if outcome.graph is None else outcome.graph)
                if refusal is not None and outcome.verdict.accepted:
                    if self.options.strict:
                        raise VerificationError(refusal)
                    logger.warning("autostream left the graph as it was: %s", refusal)
                    outcome = outcome.declined("ranks-disagree", refusal)
                    report = outcome.document(name="", options=self.options, model=model)
            if not outcome.verdict.accepted:
                _take_back(planned, graph_module, given)
                planned = None
            _file(outcome, report)
        except BaseException:
            _take_back(planned, graph_module, given)
            raise
        return outcome

    def _planned(
        self, graph_module: fx.GraphModule, example_inputs: Sequence[Any] | None, config: Any, model: CostModel
    ) -> Outcome:
        refusal = _config_refusal(config)
        if refusal is not None:
            return Outcome(verdict=verdict_of(model, *refusal))
        module = _with_shapes(graph_module, example_inputs)
        plans = offline.cache_root() / "plans" if self.options.plan_cache else None
        return plan(
            module, model=model, options=self.options, dialect=Air(), convert=offline.convert, ledger=budget.process, plans=plans
        )

    def _ask(self, digest: str, graph: OpGraph | fx.Graph) -> str | None:
        """Tell the ranks this graph is compiled with what becomes of it here; return why none of them may use its plan."""
        try:
            return agreement.refusal(digest, graph, timeout=self.options.rank_timeout)
        except Exception as error:
            logger.warning("the other ranks could not be asked", exc_info=True)
            return f"the other ranks could not be asked: unexpected {type(error).__name__}: {error}"


def _make(planned: fx.GraphModule, module: fx.GraphModule | None) -> None:
    """Put the planned graph into `module` if there is one, which makes its code; a failure leaves `module` as it was.

    What torch.compile hands over makes its code only when somebody runs it, and TorchAir does not run it: then none is made.
    """
    if module is None:
        planned.recompile()
        return
    given = module.graph
    try:
        module.graph = planned.graph
    except Exception:
        module.graph = given
        raise


def _take_back(planned: Outcome | None, module: fx.GraphModule, given: fx.Graph) -> None:
    """Put the graph back as it was given, and what its plan was to take of streams and events."""
    if module.graph is not given:
        module.graph = given
    if planned is not None:
        leave(planned, budget.process)


def _file(outcome: Outcome, report: Document) -> None:
    """Keep the report, and count what a graph takes that stays as it is: an accepted plan was entered into the ledger already."""
    verdict = outcome.verdict
    telemetry.add(report)
    logger.info("autostream %s: %s", "accepted" if verdict.accepted else "declined", verdict.reason)
    if verdict.code not in ("accepted", "already-scheduled"):  # a graph met again was entered the first time
        budget.process.charge(budget.need_as_given(outcome.graph))


def _model_source(chip: str | None, profile: str | Path | None, model: CostModel | None) -> Callable[[], CostModel]:
    if model is None and (chip is not None or profile is not None):
        model = cost_model(chip, profile)
    if model is not None:
        return lambda: model
    return lambda: cost_model(None)  # the device at hand, which may not be up yet


def _config_refusal(config: Any) -> tuple[str, str] | None:
    """Return (code, reason) if TorchAir's configuration rules streams out."""
    if config is None:
        return None
    mode = config.mode.value
    if mode != "max-autotune":
        return "unsupported", f"mode {mode!r} synchronises nothing by itself; only max-autotune is supported so far"
    if config.ge_config.enable_single_stream.value in ("1", "True", "true"):
        return "single-stream", "enable_single_stream is set, which GE refuses together with stream labels"
    sorting = config.experimental_config.topology_sorting_strategy.value
    if sorting not in ("DFS", _STABLE_ORDER):
        return "unsupported", f"topology_sorting_strategy {sorting!r} would undo the planned order (allowed: DFS, StableRDFS)"
    return None


def _with_shapes(graph_module: fx.GraphModule, example_inputs: Sequence[Any] | None) -> fx.GraphModule:
    """Return the module itself if every value is known, else a copy with the same signature and the values filled in."""
    missing = any(node.op != "output" and value_of(node) is MISSING for node in graph_module.graph.nodes)
    if not missing or example_inputs is None:
        return graph_module
    copied = DeferredModule(graph_module, copy.deepcopy(graph_module.graph), type(graph_module).__name__)
    mode = detect_fake_mode(list(example_inputs)) or FakeTensorMode()
    allowed = mode.allow_non_fake_inputs
    mode.allow_non_fake_inputs = True  # constants of the module are real tensors
    try:
        FakeTensorProp(copied, mode).propagate_dont_convert_inputs(*(_fake(value, mode) for value in example_inputs))
    finally:
        mode.allow_non_fake_inputs = allowed
    return copied


def _fake(value: Any, mode: FakeTensorMode) -> Any:
    is_real = isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)
    return mode.from_tensor(value, static_shapes=True) if is_real else value


def _sort(config: Any, *, stable: bool) -> None:
    """Ask TorchAir for the stable order, or take back what was asked for an earlier graph of the same configuration."""
    if stable and config.experimental_config.topology_sorting_strategy.value == _DEFAULT_ORDER:
        config.experimental_config.topology_sorting_strategy = _STABLE_ORDER
        _asked[id(config)] = config
    elif not stable and _asked.pop(id(config), None) is config:
        config.experimental_config.topology_sorting_strategy = _DEFAULT_ORDER


#: The pass with default options, for `config.post_grad_custom_post_pass = autostream.pass_`.
pass_ = StreamPass()
