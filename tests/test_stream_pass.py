from __future__ import annotations

import contextlib
import copy
import dis
import io
import logging
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.graph import CodeGen

import autostream
from autostream import Options, StreamPass, acceptance, agreement, budget, offline, pipeline
from autostream.cost import TableModel, load_chip
from autostream.errors import AutostreamError, InputError, OfflineError, VerificationError
from autostream.graph.capture import capture
from autostream.graph.programs import to_aten
from autostream.outcome import Outcome
from autostream.program import Severity, read_ascend_ir, verify
from autostream.program.reading.writeback import written_back
from autostream.report import Document
from autostream.report.wording import verdict_line
from autostream.rewrite import emit as emit_module
from autostream.rewrite.sync import task_orders
from tests import models
from tests.rewrite.graphs_fx import on_streams, traced

pytestmark = pytest.mark.usefixtures("npu_host")


def _config(**changes: object) -> object:
    import torchair

    config = torchair.CompilerConfig()
    config.mode = changes.pop("mode", "max-autotune")
    for path, value in changes.items():
        section, _, name = path.partition("__")
        setattr(getattr(config, section), name, value)
    return config


def _graph() -> fx.GraphModule:
    return to_aten(*models.mixture(8)).graph_module


def _disassembly(stream_pass: StreamPass) -> str:
    text = io.StringIO()
    dis.dis(stream_pass, file=text)
    return text.getvalue()


def test_an_accepted_plan_asks_torchair_for_the_stable_order() -> None:
    graph_module, config = _graph(), _config()
    StreamPass(chip="910B2")(graph_module, None, config)
    assert "scope_enter" in str(graph_module.graph)
    assert config.experimental_config.topology_sorting_strategy.value == "StableRDFS"  # type: ignore[attr-defined]


def test_the_code_of_an_accepted_graph_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph_module, made = _graph(), []
    original = fx.GraphModule.recompile
    monkeypatch.setattr(fx.GraphModule, "recompile", lambda module: (made.append(module), original(module))[1])
    monkeypatch.setattr(offline, "convert", lambda _module: pytest.fail("not asked for here"))
    monkeypatch.setattr("autostream.trial.prove_ascend_ir", lambda *_args, **_kwargs: (None, ()))
    StreamPass(chip="910B2")(graph_module, None, None)
    assert "scope_enter" in graph_module.code
    assert [module for module in made if module is graph_module] == [graph_module] and len(made) == 1


@pytest.mark.parametrize("slot", ["pre_pass", "post_pass"])
def test_under_torch_compile_no_code_is_made(slot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[fx.Graph] = []
    seen: list[str] = []
    original = fx.Graph.python_code

    def counted(graph: fx.Graph, *args: Any, **kwargs: Any) -> Any:
        made.append(graph)
        return original(graph, *args, **kwargs)

    def watched(graph_module: fx.GraphModule, *given: Any) -> None:
        assert isinstance(graph_module, _LazyGraphModule)
        with monkeypatch.context() as patch:
            patch.setattr(fx.Graph, "python_code", counted)
            StreamPass(chip="910B2", options={"strict": True})(graph_module, *given)
        seen.append(str(graph_module.graph))
        assert not made
        assert "scope_enter" in graph_module.code  # made when it is asked for, of the graph that was put in
        assert graph_module.graph.owning_module is graph_module

    model, inputs = models.mixture(8)
    compiled = torch.compile(model, backend=offline.npu_backend(**{slot: watched}))
    with torch.no_grad(), pytest.raises(OfflineError, match="running it needs CANN"):
        compiled(*inputs)
    assert len(seen) == 1 and "scope_enter" in seen[0]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"mode": "reduce-overhead"}, "unsupported"),
        ({"ge_config__enable_single_stream": True}, "single-stream"),
        ({"experimental_config__topology_sorting_strategy": "BFS"}, "unsupported"),
    ],
)
def test_a_configuration_that_rules_streams_out_is_respected(changes: dict[str, object], code: str) -> None:
    graph_module, config = _graph(), _config(**changes)
    before = str(graph_module.graph)
    sorting = config.experimental_config.topology_sorting_strategy.value  # type: ignore[attr-defined]
    StreamPass(chip="910B2")(graph_module, None, config)
    assert str(graph_module.graph) == before
    assert config.experimental_config.topology_sorting_strategy.value == sorting  # type: ignore[attr-defined]
    assert autostream.reports()[-1].verdict.code == code


def test_a_declined_graph_is_the_same_object_with_the_same_nodes() -> None:
    graph_module = to_aten(*models.chain()).graph_module
    graph, nodes, config = graph_module.graph, list(graph_module.graph.nodes), _config()
    StreamPass(chip="910B2")(graph_module, None, config)
    assert graph_module.graph is graph and list(graph.nodes) == nodes
    assert config.experimental_config.topology_sorting_strategy.value == "DFS"  # type: ignore[attr-defined]


def test_a_second_run_on_a_scheduled_graph_changes_nothing() -> None:
    graph_module = _graph()
    StreamPass(chip="910B2")(graph_module)
    once = str(graph_module.graph)
    StreamPass(chip="910B2")(graph_module)
    assert str(graph_module.graph) == once
    assert autostream.reports()[-1].verdict.code == "already-scheduled"


def test_a_failing_rewrite_leaves_the_graph_untouched(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_args: object) -> object:
        raise RuntimeError("half way")

    monkeypatch.setattr(emit_module._Emitter, "_write_view", broken)
    monkeypatch.setattr(emit_module._Emitter, "_write_results", broken)
    graph_module = _graph()
    graph, before, config = graph_module.graph, str(graph_module.graph), _config()
    with caplog.at_level(logging.WARNING, logger="autostream"):
        StreamPass(chip="910B2")(graph_module, None, config)
    assert graph_module.graph is graph and str(graph) == before
    assert config.experimental_config.topology_sorting_strategy.value == "DFS"  # type: ignore[attr-defined]
    assert "left the graph as it was" in caplog.text
    with pytest.raises(RuntimeError, match="half way"):
        StreamPass(chip="910B2", options={"strict": True})(graph_module, None, config)
    assert graph_module.graph is graph and str(graph) == before


def test_passes_differ_for_torchairs_cache_exactly_if_they_are_configured_differently() -> None:
    plain, same, other = StreamPass(chip="910B2"), StreamPass(chip="910B2"), StreamPass(chip="910B2", options={"side_streams": 1})
    assert _disassembly(plain) == _disassembly(same)
    assert _disassembly(plain) != _disassembly(other)
    assert _disassembly(plain) != _disassembly(StreamPass(chip="910B4"))
    assert plain.uuid() == same.uuid() != other.uuid()


def test_torchair_can_walk_and_copy_a_config_that_holds_the_pass() -> None:
    from torchair.configs.compiler_config import _get_all_leaf_properties

    config = _config()
    config.post_grad_custom_post_pass = StreamPass(chip="910B2")  # type: ignore[attr-defined]
    assert len(_get_all_leaf_properties(config)) < 10_000
    assert copy.deepcopy(config).post_grad_custom_post_pass.value.uuid()  # type: ignore[attr-defined]


def test_missing_shapes_are_filled_in_from_the_example_inputs() -> None:
    captured = to_aten(*models.mixture(8))
    graph_module = captured.graph_module
    for node in graph_module.graph.nodes:
        if node.op == "call_function":
            node.meta.pop("val")
    StreamPass(chip="910B2")(graph_module, captured.example_inputs)
    assert "scope_enter" in str(graph_module.graph)


def test_filling_in_shapes_leaves_inputs_constants_and_results_as_they_are() -> None:
    def experts(x: Tensor, *weights: Tensor) -> tuple[Tensor, None, dict[str, Tensor]]:
        first, second = (torch.mm(torch.nn.functional.silu(torch.mm(x, a)), b) for a, b in (weights[:2], weights[2:]))
        return first * torch.tensor([2.0]).half() + second, None, {"second": second}

    shapes = [(64, 256), (256, 512), (512, 256), (256, 512), (512, 256)]
    graph_module = make_fx(experts, tracing_mode="fake")(*(torch.empty(shape, dtype=torch.float16) for shape in shapes))
    examples = [node.meta["val"] for node in graph_module.graph.find_nodes(op="placeholder")]
    for node in graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor):
        node.meta.pop("val")
    signature = [node.name for node in graph_module.graph.nodes if node.op in ("placeholder", "get_attr")]
    results = str(graph_module.graph.output_node().args)
    StreamPass(chip="910B2", options={"same_unit_overlap": True})(graph_module, examples)
    assert "scope_enter" in str(graph_module.graph)
    assert [node.name for node in graph_module.graph.nodes if node.op in ("placeholder", "get_attr")] == signature
    assert str(graph_module.graph.output_node().args) == results


def test_a_later_graph_of_the_same_configuration_gets_its_own_order_back() -> None:
    config, sorting = _config(), []
    stream_pass, accepted = StreamPass(chip="910B2"), _graph()
    for graph_module in (accepted, accepted, to_aten(*models.chain()).graph_module):
        stream_pass(graph_module, None, config)
        sorting.append(config.experimental_config.topology_sorting_strategy.value)  # type: ignore[attr-defined]
    assert sorting == ["StableRDFS", "StableRDFS", "DFS"]
    theirs = _config(experimental_config__topology_sorting_strategy="StableRDFS")
    stream_pass(to_aten(*models.chain()).graph_module, None, theirs)
    assert theirs.experimental_config.topology_sorting_strategy.value == "StableRDFS"  # type: ignore[attr-defined]


def test_its_own_waits_are_not_taken_for_hand_written_ones() -> None:
    graph_module = to_aten(*models.kv_cache(npu=True)).graph_module
    for _ in range(2):
        StreamPass(chip="910B2")(graph_module)
    assert "air.wait" in str(graph_module.graph)
    assert autostream.reports()[-1].verdict.code == "already-scheduled"


def _plan_by_hand(monkeypatch: pytest.MonkeyPatch, graph_module: fx.GraphModule, *on_the_side: str) -> None:
    """Have the named operators planned on a side stream, and the plan accepted if it is proved."""
    by_hand = on_streams(capture(graph_module), dict.fromkeys(on_the_side, "autostream_1"))
    monkeypatch.setattr(pipeline, "strategy", lambda _options: SimpleNamespace(solve=lambda _problem: by_hand))
    monkeypatch.setattr(acceptance, "refusal", lambda *_: None)


def test_what_the_rewrite_adds_has_its_price(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(cache: Tensor, query: Tensor) -> Tensor:
        attended = torch.mm(query, cache)
        cache.copy_(torch.add(cache, 1))  # converts to Const, Add: it waits for mm through an anchor, a copy of the cache
        return attended

    graph_module = traced(step, (4096, 4096), (16, 4096))
    _plan_by_hand(monkeypatch, graph_module, "mm")
    outcome = StreamPass(chip="910B2").judge(graph_module)
    assert outcome is not None and outcome.verdict.accepted and outcome.after is not None
    spent = {slot.step: slot.end - slot.start for slot in outcome.after.slots}
    assert spent["wait_tensor_default"] > 10_000


def test_what_only_the_ascend_ir_shows_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    # Outside a scope TorchAir makes one transpose of the two, on the default stream, with no order behind the update.
    def step(cache: Tensor, new: Tensor, slot: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        torch.ops.npu.scatter_update_(cache[None], slot.long(), new[None], -2)
        return torch.bmm(query, cache.transpose(0, 1).transpose(1, 2)), torch.relu(query)

    graph_module = traced(step, (256, 4, 128), (256, 2, 128), (1,), (4, 128, 128))

    _plan_by_hand(monkeypatch, graph_module, "scatter_update_", "bmm")
    before = str(graph_module.graph)
    StreamPass(chip="910B2")(graph_module)
    assert str(graph_module.graph) == before
    verdict = autostream.reports()[-1].verdict
    assert verdict.code == "unverified" and "Ascend IR" in verdict.reason


_ZOO = {
    "mixture": models.mixture,
    "cnn_branches": models.cnn_branches,
    "llama_layer": models.llama_layer,
    "tiny_vector": models.tiny_vector,
    "chain": models.chain,
    "kv_cache": lambda: models.kv_cache(npu=True),
    "many_layers": lambda: models.many_layers(2, npu=True),
}


@pytest.mark.parametrize("slot", ["pre_pass", "post_pass"])
@pytest.mark.parametrize("name", _ZOO)
def test_in_either_slot_the_ir_is_proved_and_does_the_same_work(name: str, slot: str) -> None:
    graph_module = to_aten(*_ZOO[name]()).graph_module  # type: ignore[operator]
    graph = capture(graph_module)
    before = str(graph_module.graph)
    plain = offline.convert(graph_module)
    placed: dict[str, tuple[str, ...]] = {}

    def scheduled(gm: fx.GraphModule, example_inputs: list[object], config: object) -> None:
        StreamPass(chip="910B2")(gm, example_inputs, config)
        placed.update(written_back(gm))

    converted = offline.convert(graph_module, **{slot: scheduled})  # type: ignore[arg-type]
    assert str(graph_module.graph) == before
    assert converted == offline.convert(graph_module, **{slot: StreamPass(chip="910B2")})  # type: ignore[arg-type]
    if not autostream.reports()[-1].verdict.accepted:
        assert converted == plain
        return
    program = read_ascend_ir(converted.serialized, in_order=converted.options["ge.topoSortingMode"] == "3", written_back=placed)
    assert program.in_order and len(program.streams()) > 1
    assert not [f for f in verify(program, required=task_orders(graph)) if f.severity is Severity.ERROR]
    kinds, plain_kinds = (Counter(s.kind for s in p.steps if s.stream) for p in (program, read_ascend_ir(plain.serialized)))
    assert kinds == plain_kinds


def test_inductors_slot_leaves_the_graph_alone() -> None:
    graph = _graph().graph
    before = str(graph)
    StreamPass(chip="910B2")(graph)
    assert str(graph) == before


def test_a_price_list_replaces_the_chips_model() -> None:
    graph_module = _graph()
    prices = {node.name: 1 for node in graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default)}
    free = TableModel(load_chip("910B2").machine, prices)
    StreamPass(cost_model=free)(graph_module)
    assert not autostream.reports()[-1].verdict.accepted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"chip": "910B9"}, "910B9"),
        ({"options": {"side_stream": 1}}, "did you mean 'side_streams'"),
        ({"options": {"min_gain": 2}}, "min_gain"),
        ({"options": 3}, "mapping"),
    ],
)
def test_bad_arguments_are_refused_when_the_pass_is_made(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        StreamPass(**arguments)  # type: ignore[arg-type]
    assert issubclass(InputError, AutostreamError)


def test_options_are_frozen_and_identified() -> None:
    assert Options().fingerprint() == Options().fingerprint()
    assert Options().fingerprint() != Options(side_streams=1).fingerprint()
    with pytest.raises(Exception, match="frozen"):
        Options().side_streams = 3  # type: ignore[misc]


class _Broken(CodeGen):
    """A code generator of the user's that stumbles over what it does not know."""

    def _gen_python_code(self, nodes: Any, *args: Any, **kwargs: Any) -> Any:
        if any("scope_enter" in str(node.target) for node in nodes):
            raise ValueError("no word for scopes")
        return super()._gen_python_code(nodes, *args, **kwargs)


def test_code_that_cannot_be_made_leaves_the_graph_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*_args: object, **_kwargs: object) -> object:
        raise OfflineError("no host here")

    monkeypatch.setattr(offline, "convert", unavailable)
    module = to_aten(*models.mixture(8)).graph_module
    module.graph.set_codegen(_Broken())
    module.recompile()
    graph, text, code = module.graph, str(module.graph), module.code
    StreamPass()(module)
    assert module.graph is graph and str(module.graph) == text and module.code == code
    verdict = autostream.reports()[-1].verdict
    assert verdict.code == "error" and "no word for scopes" in verdict.reason
    with pytest.raises(ValueError, match="no word for scopes"):
        StreamPass(options={"strict": True})(module)
    assert module.graph is graph and str(module.graph) == text


def test_a_swap_that_fails_is_taken_back(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    module = to_aten(*models.mixture(8)).graph_module
    graph, code = module.graph, module.code
    recompile = fx.GraphModule.recompile

    def failing(self: fx.GraphModule) -> Any:
        if self is module and self.graph is not graph:
            raise RuntimeError("out of luck")
        return recompile(self)

    monkeypatch.setattr(fx.GraphModule, "recompile", failing)
    asked: list[str] = []
    monkeypatch.setattr(agreement, "refusal", lambda digest, *_args, **_kwargs: asked.append(digest))
    StreamPass()(module)
    verdict = autostream.reports()[-1].verdict
    assert not verdict.accepted and verdict.code == "error" and "out of luck" in verdict.reason
    assert asked == [agreement.DECLINED]
    assert module.graph is graph and module.code == code and "left the graph as it was" in caplog.text
    with pytest.raises(RuntimeError, match="out of luck"):
        StreamPass(options={"strict": True})(module)
    assert module.graph is graph and asked == [agreement.DECLINED] * 2


def test_other_ranks_that_refuse_have_the_graph_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    module, seen = to_aten(*models.mixture(8)).graph_module, []
    graph, code = module.graph, module.code

    def refuse(digest: str, *_args: Any, **_kwargs: Any) -> str:
        seen.append((digest, "scope_enter" in module.code, len(autostream.reports())))
        return "rank 1 planned otherwise"

    monkeypatch.setattr(agreement, "refusal", refuse)
    StreamPass()(module)
    ((digest, made, reports),) = seen
    assert digest != agreement.DECLINED and made and not reports  # its code is made, and nothing is told yet
    assert module.graph is graph and module.code == code
    (report,) = autostream.reports()
    assert (report.verdict.code, report.verdict.reason) == ("ranks-disagree", "rank 1 planned otherwise")
    with pytest.raises(VerificationError, match="planned otherwise"):
        StreamPass(options={"strict": True})(module)
    assert module.graph is graph and module.code == code


def test_ranks_that_cannot_be_asked_are_a_reason_to_decline(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: Any, **_kwargs: Any) -> None:
        raise ValueError("no default process group")

    monkeypatch.setattr(agreement, "refusal", broken)
    module = to_aten(*models.mixture(8)).graph_module
    graph, code = module.graph, module.code
    StreamPass()(module)
    assert module.graph is graph and module.code == code
    (report,) = autostream.reports()
    assert report.verdict.code == "ranks-disagree" and "no default process group" in report.verdict.reason
    with pytest.raises(VerificationError, match="no default process group"):
        StreamPass(options={"strict": True})(module)
    assert module.graph is graph and module.code == code


def test_a_report_that_cannot_be_written_stops_the_plan_before_anybody_hears_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    module, asked = to_aten(*models.mixture(8)).graph_module, []
    graph, text, document = module.graph, str(module.graph), Outcome.document

    def failing(self: Outcome, **known: Any) -> Document:
        if self.verdict.accepted:
            raise KeyError("no such row")
        return document(self, **known)

    monkeypatch.setattr(Outcome, "document", failing)
    monkeypatch.setattr(agreement, "refusal", lambda digest, *_args, **_kwargs: asked.append(digest))
    StreamPass()(module)
    assert asked == [agreement.DECLINED] and module.graph is graph and str(module.graph) == text
    (report,) = autostream.reports()
    assert report.verdict.code == "error" and "no such row" in report.verdict.reason


def test_a_graph_that_cannot_be_captured_gets_its_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_module: fx.GraphModule) -> None:
        raise KeyError("no such node")

    monkeypatch.setattr(pipeline, "Captured", broken)
    module = to_aten(*models.mixture(8)).graph_module
    graph, text = module.graph, str(module.graph)
    StreamPass()(module)
    assert module.graph is graph and str(module.graph) == text
    (report,) = autostream.reports()
    assert report.verdict.code == "error" and "no such node" in report.verdict.reason
    with pytest.raises(KeyError, match="no such node"):
        StreamPass(options={"strict": True})(module)


def _interrupted(*_args: Any, **_kwargs: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("at", ["refusal", "digest", "document", "interrupt"])
def test_a_plan_that_is_not_used_gives_back_its_streams_and_events(
    monkeypatch: pytest.MonkeyPatch, at: str, strict: bool
) -> None:
    document = Outcome.document

    def failing(self: Outcome, **known: Any) -> Document:
        if self.verdict.accepted:
            raise KeyError("no such row")
        return document(self, **known)

    def broken(*_args: Any) -> str:
        raise KeyError("no digest")

    if at == "document":
        monkeypatch.setattr(Outcome, "document", failing)
    elif at == "digest":
        monkeypatch.setattr(agreement, "digest", broken)
    else:
        monkeypatch.setattr(agreement, "refusal", _interrupted if at == "interrupt" else lambda *_args, **_kwargs: "no")
    module = _graph()
    graph, code = module.graph, module.code
    budget.reset()
    raised = KeyboardInterrupt if at == "interrupt" else (KeyError, VerificationError) if strict else ()
    with pytest.raises(raised) if raised else contextlib.nullcontext():
        StreamPass(chip="910B2", options={"strict": strict})(module)
    assert module.graph is graph and module.code == code
    # A graph that goes on as it is takes what it takes; one that is not compiled takes nothing.
    assert budget.process.used == budget.Need(streams=0 if raised else 1, events=0)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("error", [KeyError("no such operator"), KeyboardInterrupt()])
def test_hints_that_fail_take_nothing_of_the_ledger(monkeypatch: pytest.MonkeyPatch, error: BaseException, strict: bool) -> None:
    def broken(*_args: Any) -> tuple[str, ...]:
        raise error

    monkeypatch.setattr("autostream.hints.tell", broken)
    asked: list[str] = []
    monkeypatch.setattr(agreement, "refusal", lambda digest, *_args, **_kwargs: asked.append(digest))
    module = _graph()
    graph, code = module.graph, module.code
    budget.reset()
    raised = strict or isinstance(error, KeyboardInterrupt)
    with pytest.raises(type(error)) if raised else contextlib.nullcontext():
        StreamPass(chip="910B2", options={"strict": strict})(module)
    assert module.graph is graph and module.code == code
    assert budget.process.used == budget.Need(streams=0 if raised else 1, events=0)
    assert asked == ([] if isinstance(error, KeyboardInterrupt) else [agreement.DECLINED])
    if not raised:
        (report,) = autostream.reports()
        assert report.verdict.code == "error" and "no such operator" in report.verdict.reason


def test_a_plan_that_the_ranks_agreed_on_is_used_though_its_report_cannot_be_traced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_args: Any, **_kwargs: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("torch._logging._internal.trace_structured", full)
    module = _graph()
    StreamPass(chip="910B2", options={"strict": True})(module)
    assert "scope_enter" in module.code
    (report,) = autostream.reports()
    assert report.verdict.accepted
    assert "could not be added to torch's structured trace" in caplog.text and "No space left" in caplog.text


@pytest.mark.parametrize("accepted", [False, True])
def test_an_interrupt_while_the_report_is_filed_takes_everything_back(monkeypatch: pytest.MonkeyPatch, accepted: bool) -> None:
    monkeypatch.setattr("autostream.telemetry.add", _interrupted)
    monkeypatch.setattr(agreement, "refusal", lambda *_args, **_kwargs: None if accepted else "no")
    module = _graph()
    graph, code = module.graph, module.code
    budget.reset()
    with pytest.raises(KeyboardInterrupt):
        StreamPass(chip="910B2")(module)
    assert module.graph is graph and module.code == code
    assert budget.process.used == budget.Need(streams=0, events=0)


def test_a_chip_file_that_can_no_longer_be_read_is_a_reason_to_decline(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lenient, strict = StreamPass(), StreamPass(options={"strict": True})

    def unreadable(*_args: Any) -> Any:
        raise InputError("my_chip.yaml: cannot be read: permission denied")

    monkeypatch.setattr("autostream.stream_pass.cost_model", unreadable)
    asked: list[str] = []
    monkeypatch.setattr(agreement, "refusal", lambda digest, *_args, **_kwargs: asked.append(digest))
    module = _graph()
    graph, code = module.graph, module.code
    lenient(module)
    assert module.graph is graph and module.code == code and asked == [agreement.DECLINED]
    (report,) = autostream.reports()
    assert (report.verdict.code, report.verdict.chip, report.provenance.chip_digest) == ("error", "an unknown chip", "")
    assert "my_chip.yaml" in report.verdict.reason and "left the graph as it was: my_chip.yaml" in caplog.text
    assert verdict_line(report) == "DECLINED: my_chip.yaml: cannot be read: permission denied, on an unknown chip"
    with pytest.raises(InputError, match=r"my_chip\.yaml"):
        strict(module)
    assert module.graph is graph and asked == [agreement.DECLINED] * 2
