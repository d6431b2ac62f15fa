"""The graph pass: what TorchAir calls between its own passes, `(graph_module, example_inputs, config)`, in place."""

from __future__ import annotations

import copy
import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from autostream import agreement, budget, offline, telemetry
from autostream.chips import cost_model
from autostream.cost.model import CostModel
from autostream.errors import VerificationError
from autostream.graph.values import MISSING, value_of
from autostream.options import Options
from autostream.outcome import Outcome
from autostream.pipeline import plan
from autostream.rewrite.air import Air
from autostream.verdict import Verdict

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
        outcome = self._filed(graph_module, example_inputs, config)
        stable = outcome is not None and outcome.verdict.code in ("accepted", "already-scheduled")
        # Everything that can fail is behind us: the swap is all there is.
        if outcome is not None and outcome.graph_module is not None:
            stable = self._swapped(graph_module, outcome.graph_module.graph)
        if config is not None:
            _sort(config, stable=stable)

    def _swapped(self, graph_module: fx.GraphModule, graph: fx.Graph) -> bool:
        """Put the graph in and have its code made; should that fail against all odds, put the old one back and return False."""
        given = graph_module.graph
        try:
            graph_module.graph = graph
        except Exception:
            graph_module.graph = given
            if self.options.strict:
                raise
            logger.warning("autostream left the graph as it was", exc_info=True)
            return False
        return True

    def judge(
        self, graph_module: fx.GraphModule, example_inputs: Sequence[Any] | None = None, config: Any = None
    ) -> Outcome | None:
        """Return what the pass would do with `graph_module`, which is not changed; file the report.

        Returns None if that failed unexpectedly: the failure is logged and the caller goes on with the graph as it is.

        Raises:
            Exception: only with the option ``strict``.
        """
        outcome = self._filed(graph_module, example_inputs, config)
        if outcome is not None and outcome.graph_module is not None:
            outcome.graph_module.recompile()
        return outcome

    def _filed(self, graph_module: fx.GraphModule, example_inputs: Sequence[Any] | None, config: Any) -> Outcome | None:
        try:
            outcome = self._judge(graph_module, example_inputs, config)
        except Exception:
            if self.options.strict:
                raise
            logger.warning("autostream left the graph as it was", exc_info=True)
            agreement.refusal(agreement.DECLINED, None, timeout=self.options.rank_timeout)
            return None
        return self._file(self._agreed(outcome))

    def _judge(self, graph_module: fx.GraphModule, example_inputs: Sequence[Any] | None, config: Any) -> Outcome:
        model = self._model()
        refusal = _config_refusal(config)
        if refusal is not None:
            code, reason = refusal
            return Outcome(verdict=Verdict(accepted=False, code=code, reason=reason, chip=model.machine.name))
        module = _with_shapes(graph_module, example_inputs)
        plans = offline.cache_root() / "plans" if self.options.plan_cache else None
        return plan(
            module, model=model, options=self.options, dialect=Air(), convert=offline.convert, ledger=budget.process, plans=plans
        )

    def _agreed(self, outcome: Outcome) -> Outcome:
        """Ask the ranks this graph is compiled with; decline if one of them has another plan."""
        reason = agreement.refusal(agreement.digest(outcome), outcome.graph, timeout=self.options.rank_timeout)
        if reason is None or not outcome.verdict.accepted:
            return outcome
        if self.options.strict:
            raise VerificationError(reason)
        logger.warning("autostream left the graph as it was: %s", reason)
        verdict = replace(outcome.verdict, accepted=False, code="ranks-disagree", reason=reason)
        return replace(outcome, verdict=verdict, graph_module=None, ascend_ir=None)

    def _file(self, outcome: Outcome) -> Outcome:
        _charge(outcome)
        telemetry.add(outcome.document(name="", options=self.options, model=self._model()))
        verdict = outcome.verdict
        logger.info("autostream %s: %s", "accepted" if verdict.accepted else "declined", verdict.reason)
        return outcome


def _charge(outcome: Outcome) -> None:
    """Count what a graph takes that is compiled as it is; an accepted plan has been entered, and so has one met again."""
    if outcome.verdict.code not in ("accepted", "already-scheduled", "ranks-disagree"):
        budget.process.charge(budget.need_as_given(outcome.graph))


def _model_source(chip: str | None, profile: str | Path | None, model: CostModel | None) -> Callable[[], CostModel]:
    if model is None and profile is not None:
        model = cost_model(chip, profile)
    if model is not None:
        return lambda: model
    cost_model(chip)  # a wrong name is an error here, not in the middle of a compilation
    return lambda: cost_model(chip)


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
    copied = fx.GraphModule(graph_module, copy.deepcopy(graph_module.graph))
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
