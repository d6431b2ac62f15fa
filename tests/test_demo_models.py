"""The demo layer and the zoo of models: traced without memory, with the operators they promise, convertible by TorchAir."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from autostream import offline
from autostream.demo import moe_decode_layer
from autostream.errors import InputError, OfflineError
from tests import models

Built = tuple[nn.Module, tuple[Tensor, ...]]

#: Builders whose graphs hold ATen operators alone and run on the CPU, with operators that each must contain.
ATEN: dict[str, tuple[Callable[[], Any], dict[str, int]]] = {
    "toy3x3": (models.toy3x3, {"mm": 1, "add": 1}),
    "chain": (models.chain, {"mm": 6}),
    "tiny_vector": (models.tiny_vector, {"tanh": 12, "sigmoid": 12, "mm": 0}),
    "kv_cache": (models.kv_cache, {"index_put_": 1, "copy_": 1, "mm": 4}),
    "mixture": (models.mixture, {"mm": 16, "silu": 8, "add": 7}),
    "custom_pass_by_hand": (models.custom_pass_by_hand, {"mm": 1, "abs": 1, "add": 1, "sub": 1}),
    "cnn_branches": (models.cnn_branches, {"convolution": 6, "max_pool2d_with_indices": 1, "cat": 1}),
    "llama_layer": (models.llama_layer, {"mm": 7, "bmm": 2, "_softmax": 1}),
    "many_layers": (
        lambda: models.many_layers(
            2, batch=4, hidden=32, intermediate=16, shared_intermediate=16, local_experts=4, top_k=2, device="cpu"
        ),
        {"bmm": 4, "mm": 6, "topk": 2, "silu": 4},
    ),
}

#: The operators of one npu layer that compute, in graph order.
EXPERT_PARALLEL = [
    "npu_rms_norm",
    "npu_moe_gating_top_k",
    "npu_moe_distribute_dispatch_v2",
    "npu_grouped_matmul",
    "npu_dequant_swiglu_quant",
    "npu_grouped_matmul",
    "npu_moe_distribute_combine_v2",
    "npu_dynamic_quant",
    "npu_quant_matmul",
    "npu_swiglu",
    "npu_dynamic_quant",
    "npu_quant_matmul",
]
_ON_CARD = {
    "npu_moe_distribute_dispatch_v2": "npu_moe_init_routing_v2",
    "npu_moe_distribute_combine_v2": "npu_moe_finalize_routing",
}
SINGLE_CARD = [_ON_CARD.get(name, name) for name in EXPERT_PARALLEL]


@pytest.fixture(scope="module")
def host() -> None:
    """Bring up torch_npu and TorchAir, or skip."""
    reason = offline.why_unavailable()
    if reason:
        pytest.skip(reason)
    offline.activate()


def _kinds(graph_module: fx.GraphModule) -> list[str]:
    """Name every called operator, without namespace and overload."""
    return [node.target._opname for node in graph_module.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]


def _ge_ops(converted: offline.Converted) -> dict[str, Any]:
    """Return the GE operators by name."""
    from torchair._ge_concrete_graph.ge_ir_pb2 import GraphDef

    return {op.name: op for op in GraphDef.FromString(converted.serialized).op}


def _labels(converted: offline.Converted) -> dict[str, str]:
    return {name: op.attr["_user_stream_label"].s.decode() for name, op in _ge_ops(converted).items() if op.type != "Data"}


def _controls(converted: offline.Converted) -> set[tuple[str, str]]:
    """Return the control edges (before, after)."""
    return {
        (text.removesuffix(":-1"), name) for name, op in _ge_ops(converted).items() for text in op.input if text.endswith(":-1")
    }


@pytest.mark.parametrize("name", ATEN)
def test_aten_builder_exports_and_traces(name: str) -> None:
    build, expected = ATEN[name]
    module, inputs = build()
    assert torch.export.export(module, inputs, strict=False).graph.output_node().args[0]
    counts = Counter(_kinds(models.aten_graph(module, inputs)))
    assert {kind: counts[kind] for kind in expected} == expected


@pytest.mark.parametrize("name", ATEN)
def test_traced_graph_computes_the_same_bits(name: str) -> None:
    module, inputs = ATEN[name][0]()
    graph_module = models.aten_graph(module, inputs, functional=True)
    expected, state = [value.clone() for value in _flat(module(*inputs))], _state(ATEN[name][0]()[0])
    actual = _flat(graph_module(*state, *inputs))
    assert len(actual) == len(expected)
    for left, right in zip(actual, expected, strict=True):
        assert torch.equal(left, right)
    for left, right in zip(state, _state(module), strict=True):  # mutated buffers end up equal too
        assert torch.equal(left, right)


def test_two_builds_are_equal() -> None:
    for left, right in zip(_state(models.llama_layer()[0]), _state(models.llama_layer()[0]), strict=True):
        assert torch.equal(left, right)


def test_experts_of_the_mixture_are_independent() -> None:
    graph = models.aten_graph(*models.mixture(64, device="meta")).graph
    tokens = [node for node in graph.nodes if node.op == "placeholder"][-1]
    assert len(tokens.users) == 64 and all(user.target is torch.ops.aten.mm.default for user in tokens.users)


def test_dynamic_keeps_a_symbolic_batch() -> None:
    module, inputs, dynamic_shapes = models.dynamic()
    program = torch.export.export(module, inputs, strict=False, dynamic_shapes=dynamic_shapes)
    batch = program.graph.find_nodes(op="placeholder")[-1].meta["val"].shape[0]
    assert isinstance(batch, torch.SymInt)


def test_kv_cache_mutates_both_caches_between_reads() -> None:
    module, inputs = models.kv_cache()
    before = [buffer.clone() for buffer in module.buffers()]
    module(*inputs)
    assert all(not torch.equal(old, new) for old, new in zip(before, module.buffers(), strict=True))
    kinds = _kinds(models.aten_graph(module, inputs))
    assert kinds.index("mm") < kinds.index("index_put_") < kinds.index("_softmax")


def test_aten_layer_is_an_exact_mixture_of_experts() -> None:
    batch, experts, top_k = 7, 6, 3
    layer, (hidden,) = moe_decode_layer(
        npu=False,
        batch=batch,
        hidden=32,
        intermediate=16,
        shared_intermediate=24,
        local_experts=experts,
        top_k=top_k,
        device="cpu",
    )
    weights = {name: value.float() for name, value in layer.named_parameters()}
    x = hidden.float()
    normed = (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)).bfloat16().float() * weights["gamma"]
    normed = normed.bfloat16().float()
    scores = torch.softmax(normed @ weights["gate"], dim=-1)
    expected = x + _expert(normed, weights["shared_gate_up"].t(), weights["shared_down"].t())
    for token in range(batch):
        chosen = scores[token].topk(top_k)
        for expert, score in zip(chosen.indices.tolist(), chosen.values, strict=True):
            result = _expert(normed[token], weights["gate_up"][expert], weights["down"][expert])
            expected[token] += score / chosen.values.sum() * result
    torch.testing.assert_close(layer(hidden).float(), expected, atol=2e-2, rtol=2e-2)


def _expert(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    gate, up = (x @ gate_up).chunk(2, dim=-1)
    return (functional.silu(gate) * up) @ down


def test_layer_uses_no_memory_by_default() -> None:
    layer, (hidden,) = moe_decode_layer(npu=False)
    assert hidden.shape == (64, 7168) and hidden.dtype is torch.bfloat16
    assert {value.device.type for value in [*_state(layer), hidden]} == {"meta"}
    (output,) = models.aten_graph(layer, (hidden,)).graph.output_node().all_input_nodes
    result = output.meta["val"]
    assert result.shape == hidden.shape and result.dtype is hidden.dtype


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"npu": False, "batch": 0}, "batch must be a positive integer, not 0"),
        ({"npu": False, "hidden": 64.0}, "hidden must be a positive integer, not 64.0"),
        ({"npu": False, "local_experts": 4}, "top_k = 8 exceeds the 4 routed experts"),
        ({"npu": False, "expert_parallel": True}, "expert_parallel = True needs npu = True"),
        ({"npu": True, "ep_world_size": 1}, "needs ep_world_size >= 2"),
    ],
)
def test_layer_refuses(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        moe_decode_layer(**wrong)


@pytest.mark.usefixtures("host")
def test_npu_layer_brings_up_the_operators_by_itself() -> None:
    code = "from autostream.demo import moe_decode_layer; moe_decode_layer(npu=True)[0]; import torch; torch.ops.npu.npu_rms_norm"
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_DEVICE_BACKEND_AUTOLOAD"}
    done = subprocess.run([sys.executable, "-c", code], check=False, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_npu_layer_says_why_it_cannot_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OfflineError("torch_npu is not installed")

    monkeypatch.setattr(offline, "activate", fail)
    with pytest.raises(OfflineError, match="not installed"):
        moe_decode_layer(npu=True)


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(("parallel", "expected", "rows"), [(True, EXPERT_PARALLEL, 64 * 16 * 8), (False, SINGLE_CARD, 64 * 8)])
def test_npu_layer_holds_the_real_operators(parallel: bool, expected: list[str], rows: int) -> None:
    layer, inputs = moe_decode_layer(npu=True, expert_parallel=parallel)
    assert torch.export.export(layer, inputs, strict=False).graph.output_node().args[0]
    graph_module = models.aten_graph(layer, inputs)
    kinds = _kinds(graph_module)
    assert [kind for kind in kinds if kind.startswith("npu_")] == expected
    assert Counter(kind for kind in kinds if not kind.startswith("npu_"))["mm"] == 1
    first, second = graph_module.graph.find_nodes(op="call_function", target=torch.ops.npu.npu_grouped_matmul.default)
    assert [(value.shape, value.dtype) for value in first.meta["val"]] == [((rows, 4096), torch.int32)]
    assert [(value.shape, value.dtype) for value in second.meta["val"]] == [((rows, 7168), torch.bfloat16)]


@pytest.mark.usefixtures("host")
def test_dispatch_and_combine_convert_without_a_process_group() -> None:
    layer, inputs = moe_decode_layer(npu=True, group="experts")
    assert not torch.distributed.is_initialized()
    ops = _ge_ops(offline.convert(models.aten_graph(layer, inputs)))
    counts = Counter(op.type for op in ops.values())
    assert counts["MoeDistributeDispatchV2"] == counts["MoeDistributeCombineV2"] == 1
    assert counts["GroupedMatmul"] == counts["QuantBatchMatmulV3"] == counts["DynamicQuant"] == 2
    assert counts["RmsNorm"] == counts["MoeGatingTopK"] == counts["SwiGlu"] == counts["DequantSwigluQuant"] == 1
    for name in ("MoeDistributeDispatchV2", "MoeDistributeCombineV2"):
        assert ops[name].attr["group_ep"].s == b"experts"
        assert ops[name].attr["ep_world_size"].i == 16 and ops[name].attr["moe_expert_num"].i == 256


@pytest.mark.usefixtures("host")
def test_single_card_layer_converts() -> None:
    layer, inputs = moe_decode_layer(npu=True, expert_parallel=False)
    counts = Counter(op.type for op in _ge_ops(offline.convert(models.aten_graph(layer, inputs))).values())
    assert counts["MoeInitRoutingV3"] == counts["MoeFinalizeRoutingV2"] == 1


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("name", [name for name in ATEN if name != "kv_cache"])
def test_aten_builder_converts(name: str) -> None:
    module, inputs = ATEN[name][0]()
    counts = Counter(op.type for op in _ge_ops(offline.convert(models.aten_graph(module, inputs, functional=True))).values())
    kinds = Counter(_kinds(models.aten_graph(module, inputs)))
    assert counts["MatMul"] == kinds["mm"] and counts["BatchMatMul"] == kinds["bmm"]
    assert counts["NetOutput"] == 1


@pytest.mark.usefixtures("host")
def test_npu_kv_cache_converts_with_its_writes() -> None:
    module, inputs = models.kv_cache(npu=True)
    assert "scatter_update_" in _kinds(models.aten_graph(module, inputs))
    ops = _ge_ops(offline.convert(models.aten_graph(module, inputs, functional=True)))
    counts = Counter(op.type for op in ops.values())
    assert counts["Scatter"] == 1 and counts["ConcatV2"] == 1
    # Both results and both caches leave the graph.
    (output,) = (op for op in ops.values() if op.type == "NetOutput")
    assert len(output.input) == 4


@pytest.mark.usefixtures("host")
def test_stack_of_npu_layers_converts() -> None:
    converted = offline.convert(models.aten_graph(*models.many_layers(3, npu=True)))
    assert Counter(op.type for op in _ge_ops(converted).values())["MoeDistributeCombineV2"] == 3


@pytest.mark.usefixtures("host")
def test_four_inputs_by_hand_reaches_the_ascend_ir() -> None:
    converted = offline.convert(models.aten_graph(*models.four_inputs_by_hand()))
    labels = _labels(converted)
    assert {name: labels[name] for name in ("Add", "MatMul", "MatMul_1", "Add_1")} == {
        "Add": "",
        "MatMul": "1",
        "MatMul_1": "",
        "Add_1": "2",
    }
    # Each npu_wait_tensor becomes an Identity on the waiting stream, and carries the control edge.
    assert labels["Identity"] == "1" and labels["Identity_1"] == "2"
    assert _controls(converted) == {("Add", "Identity"), ("MatMul", "Identity_1")}


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("early", [True, False])
def test_custom_pass_by_hand_reaches_the_ascend_ir(early: bool) -> None:
    graph_module = models.aten_graph(*models.custom_pass_by_hand())
    first, second = (models.insert_streams, None) if early else (None, models.insert_streams)
    converted = offline.convert(graph_module, pre_pass=first, post_pass=second)
    labels = _labels(converted)
    assert {name: labels[name] for name in ("MatMul", "Abs", "Add", "Sub")} == {
        "MatMul": "stream_1",
        "Abs": "stream_1",
        "Add": "",
        "Sub": "",
    }
    assert _controls(converted) == {("Abs", "Sub")}


def _flat(result: Any) -> list[Tensor]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _state(module: nn.Module) -> list[Tensor]:
    return [value.detach() for value in [*module.parameters(), *module.buffers()]]
