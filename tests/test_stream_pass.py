from __future__ import annotations

import copy
import dis
import io
import logging

import pytest
import torch
from torch import fx

import autostream
from autostream import Options, StreamPass
from autostream.cost import TableModel, load_chip
from autostream.errors import AutostreamError, InputError
from autostream.graph import to_aten
from autostream.rewrite import emit as emit_module
from tests import models

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
