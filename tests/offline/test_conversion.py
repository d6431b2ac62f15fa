"""Conversion by the real TorchAir: what comes out, that it is the same every time, and that it leaves no trace."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from google.protobuf import text_format
from torch import fx
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from autostream import offline
from autostream.errors import ConversionError, InputError, OfflineError, RewriteError
from tests.offline import processes

pytestmark = pytest.mark.usefixtures("npu_host")


def trace(function: Callable[..., Any], *shapes: Sequence[int], dtype: torch.dtype = torch.float32) -> fx.GraphModule:
    """Trace `function` on fake tensors of the given shapes."""
    with FakeTensorMode():
        inputs = [torch.empty(shape, dtype=dtype) for shape in shapes]
    return make_fx(function)(*inputs)


def graph_def(converted: offline.Converted) -> Any:
    return importlib.import_module("torchair._ge_concrete_graph.ge_ir_pb2").GraphDef.FromString(converted.serialized)


def types(converted: offline.Converted) -> list[str]:
    return [op.type for op in graph_def(converted).op]


def two_streams(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    first = torch.mm(a, b)
    torch.ops.air.scope_enter(["_user_stream_label"], ["side"])
    torch.ops.air.wait([first])
    second = torch.mm(b, a)
    torch.ops.air.scope_exit()
    return torch.relu(first), torch.relu(second)


def test_streams_and_control_edges_arrive_in_the_ascend_ir() -> None:
    ops = {op.name: op for op in graph_def(offline.convert(trace(two_streams, (8, 8), (8, 8)))).op}
    assert [op.type for op in ops.values()] == ["Data", "Data", "MatMul", "MatMul", "Relu", "Relu", "NetOutput"]
    assert ops["MatMul_1"].attr["_user_stream_label"].s == b"side"
    assert "_user_stream_label" not in ops["MatMul"].attr
    assert "MatMul:-1" in ops["MatMul_1"].input


def test_fused_npu_operators_convert_by_their_real_converters() -> None:
    def layer(x: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
        return torch.ops.npu.npu_swiglu(torch.ops.npu.npu_rms_norm(x, gamma)[0])

    converted = offline.convert(trace(layer, (4, 64), (64,), dtype=torch.bfloat16))
    assert types(converted) == ["Data", "Data", "RmsNorm", "SwiGlu", "NetOutput"]


def test_operators_whose_converters_ask_for_the_device_convert() -> None:
    def experts(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        groups = torch.full((2,), 4, dtype=torch.int64)
        grouped = torch.ops.npu.npu_grouped_matmul(
            [x], [weight], group_list=groups, split_item=3, group_type=0, group_list_type=1
        )
        return grouped[0]

    with FakeTensorMode():
        graph_module = make_fx(experts)(torch.empty(8, 16, dtype=torch.bfloat16), torch.empty(2, 16, 32, dtype=torch.bfloat16))
    assert "GroupedMatmul" in types(offline.convert(graph_module))


def test_operators_whose_shape_functions_ask_for_the_chip_are_traced() -> None:
    def attention(query: torch.Tensor) -> torch.Tensor:
        return torch.ops.npu.npu_fusion_attention(query, query, query, 4, "BNSD", scale=0.25)[0]

    with FakeTensorMode():
        graph_module = make_fx(attention)(torch.empty(1, 4, 32, 16, dtype=torch.float16))
    (node,) = graph_module.graph.find_nodes(op="call_function", target=torch.ops.npu.npu_fusion_attention.default)
    assert node.meta["val"][0].shape == (1, 4, 32, 16)


def test_the_callers_graph_is_left_as_it_is() -> None:
    def drop_relus(graph_module: fx.GraphModule, _inputs: Sequence[Any], _config: Any) -> None:
        for node in graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default):
            node.replace_all_uses_with(node.args[0])
            graph_module.graph.erase_node(node)
        graph_module.meta["touched"] = True

    graph_module = trace(lambda a: torch.relu(a.view(-1)), (4, 4))  # one output, not in a tuple; a view TorchAir rewrites

    def state() -> tuple[object, ...]:
        nodes = [(node.format_node(), dict(node.meta)) for node in graph_module.graph.nodes]
        return str(graph_module.graph), graph_module.code, nodes, dict(graph_module.meta)

    before = state()
    converted = offline.convert(graph_module, pre_pass=drop_relus)
    assert "Relu" not in types(converted)
    assert state() == before


def test_both_passes_run_in_their_slots_with_the_config() -> None:
    seen: list[tuple[str, str]] = []

    def note(slot: str) -> offline.backend.Pass:
        def noting(graph_module: fx.GraphModule, inputs: Sequence[Any], config: Any) -> None:
            assert len(inputs) == 1
            seen.append((slot, str(graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default))))
            config.experimental_config.topology_sorting_strategy = "StableRDFS"

        return noting

    graph_module = trace(lambda a: (a.view(-1).abs(),), (4, 4))
    plain = offline.convert(graph_module)
    converted = offline.convert(graph_module, pre_pass=note("pre"), post_pass=note("post"))
    assert seen == [("pre", "[view]"), ("post", "[]")]  # view becomes reshape between the slots
    changed = {name for name in converted.options if converted.options[name] != plain.options.get(name)}
    assert changed == {"ge.topoSortingMode"}
    assert list(converted.options) == sorted(converted.options)


def test_what_nobody_looks_at_is_left_out_and_the_ascend_ir_is_the_same() -> None:
    constant = torch.ones(8, 8)

    def repeated(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, second = two_streams(a, b)
        return torch.mm(first, constant).view(-1), *torch.split(second.t(), 4), a.copy_(second)

    with FakeTensorMode(allow_non_fake_inputs=True):
        graph_module = make_fx(repeated)(torch.empty(8, 8), torch.empty(8, 8))
    compiler = importlib.import_module("torchair.npu_fx_compiler")
    with mock.patch.object(compiler, "_optimize_fx", side_effect=compiler._optimize_fx) as passes:
        bare = offline.convert(graph_module)
        complete = offline.convert(graph_module, configure=lambda _config: None)
    assert bare == complete
    assert len({op.name for op in graph_def(bare).op}) > 10
    spared, made = (call.args[0] for call in passes.call_args_list)
    assert "_code" not in vars(spared)
    assert "_code" in vars(made)
    assert "aten.reshape" in spared.code  # made when it is read, of the graph as it is now


def test_a_program_that_is_asked_for_is_written(tmp_path: Path) -> None:
    def dump_python(config: Any) -> None:
        config.debug.graph_dump.type = "py"
        config.debug.graph_dump.path = str(tmp_path)

    offline.convert(trace(two_streams, (8, 8), (8, 8)), configure=dump_python)
    (written,) = tmp_path.glob("*original*.py")
    assert "MatMul_1_0 = ge.MatMul(" in written.read_text(encoding="utf-8")


def test_configure_reaches_the_options() -> None:
    def single_stream(config: Any) -> None:
        config.ge_config.enable_single_stream = True

    graph_module = trace(lambda a: (a.abs(),), (4, 4))
    assert offline.convert(graph_module).options["ge.enableSingleStream"] == "false"
    assert offline.convert(graph_module, configure=single_stream).options["ge.enableSingleStream"] == "true"


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_inputs_may_be_real_or_meta_tensors(device: str) -> None:
    graph_module = trace(lambda a: (a.abs(),), (4, 4))
    converted = offline.convert(graph_module, [torch.ones(4, 4, device=device)])
    assert list(graph_def(converted).op[0].output_desc[0].shape.dim) == [4, 4]
    assert types(converted) == types(offline.convert(graph_module))


def test_constants_that_are_real_tensors_become_consts() -> None:
    weight = torch.ones(4, 4)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        graph_module = make_fx(lambda a: (torch.mm(a, weight),))(torch.empty(4, 4))
    mode.allow_non_fake_inputs = False
    assert "Const" in types(offline.convert(graph_module))
    assert not mode.allow_non_fake_inputs


def digests(converted: offline.Converted) -> list[str]:
    parts = (converted.serialized, converted.text.encode(), converted.pbtxt.encode(), repr(converted.options).encode())
    return [hashlib.sha256(part).hexdigest() for part in parts]


def test_same_bytes_whatever_was_converted_before_and_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
        from tests.offline import test_conversion as here
        from autostream import offline
        offline.activate()
        print(here.digests(offline.convert(here.trace(here.two_streams, (8, 8), (8, 8)))))
    """
    graph_module = trace(two_streams, (8, 8), (8, 8))
    here = digests(offline.convert(graph_module))
    offline.convert(trace(lambda a: (a.abs(),), (4, 4)))
    monkeypatch.setattr("torchair.npu_fx_compiler._GLOBAL_GRAPH_ID", 7)  # as if the user had compiled some graphs
    assert digests(offline.convert(graph_module)) == here
    elsewhere = [processes.start(code, PYTHONHASHSEED=seed) for seed in ("1", "2")]
    assert [processes.finish(process).strip() for process in elsewhere] == [str(here)] * 2


def test_text_forms_say_the_same_as_the_bytes() -> None:
    converted = offline.convert(trace(two_streams, (8, 8), (8, 8)))
    message = graph_def(converted)
    assert text_format.Parse(converted.text, type(message)()) == message
    lines = [line.strip() for line in converted.pbtxt.splitlines()]
    assert lines.count("node {") == len(message.op)
    assert 'input: "^MatMul"' in lines
    matmul = lines[lines.index('name: "MatMul_1"') : lines.index('name: "Relu"')]
    keys = [line for line in matmul if line.startswith('key: "') and "[" not in line]
    assert keys == sorted(keys)
    label = converted.text.index('key: "_user_stream_label"')
    assert (
        converted.text.rindex('key: "_output_name_value"', 0, label) < label < converted.text.index('key: "transpose_x1"', label)
    )


def test_missing_converter_is_named_with_its_node() -> None:
    with pytest.raises(
        ConversionError, match=r"could not convert node 'special_bessel_j0' \(aten\.special_bessel_j0\.default\): .*not implem"
    ):
        offline.convert(trace(lambda a: (torch.special.bessel_j0(a.abs()),), (4, 4)))


def test_the_line_of_the_model_is_noted_on_a_failure() -> None:
    graph_module = trace(lambda a: (torch.special.bessel_j0(a.abs()),), (4, 4))
    for node in graph_module.graph.nodes:
        node.stack_trace = f'  File "model.py", line 7, in forward\n    {node.name}'
    with pytest.raises(ConversionError) as raised:
        offline.convert(graph_module)
    assert raised.value.__notes__ == ['Original traceback:\n  File "model.py", line 7, in forward\n    special_bessel_j0']
    assert "model.py" not in str(raised.value)


def test_custom_operator_without_converter_is_explained() -> None:
    @torch.library.custom_op("autostream_test::opaque", mutates_args=())
    def opaque(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    opaque.register_fake(torch.empty_like)
    expected = r"node 'opaque' \(autostream_test\.opaque\.default\): TorchAir has no converter .* registry, which only CANN has"
    with pytest.raises(OfflineError, match=expected) as raised:
        offline.convert(trace(lambda a: (torch.ops.autostream_test.opaque(a),), (4, 4)))
    assert not isinstance(raised.value, ConversionError)  # where CANN is, it may well be convertible


def test_failure_inside_a_scope_does_not_label_the_next_graph() -> None:
    def failing(a: torch.Tensor) -> tuple[torch.Tensor]:
        torch.ops.air.scope_enter(["_user_stream_label"], ["side"])
        result = torch.special.bessel_j0(a)
        torch.ops.air.scope_exit()
        return (result,)

    with pytest.raises(OfflineError):
        offline.convert(trace(failing, (4, 4)))
    assert not importlib.import_module("torchair.scope._scope_attr").has_scope_attr()
    assert "_user_stream_label" not in offline.convert(trace(lambda a: (a.abs(),), (4, 4))).text


@pytest.mark.parametrize("error", [RewriteError("no"), KeyError("missing", 3)])
def test_what_a_pass_raises_comes_out_unchanged(error: Exception) -> None:
    def failing(_graph_module: fx.GraphModule, _inputs: Sequence[Any], _config: Any) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        offline.convert(trace(lambda a: (a.abs(),), (4, 4)), post_pass=failing)
    assert caught.value is error


def test_unpaired_scope_is_an_error_in_torchairs_words() -> None:
    def unpaired(a: torch.Tensor) -> tuple[torch.Tensor]:
        torch.ops.air.scope_enter(["_user_stream_label"], ["side"])
        return (a.abs(),)

    with pytest.raises(OfflineError, match="could not convert the graph: .*scope_exit"):
        offline.convert(trace(unpaired, (4, 4)))


def test_a_pass_may_convert_too_and_no_state_is_left() -> None:
    compiler = importlib.import_module("torchair.npu_fx_compiler")
    converter = importlib.import_module("torchair._ge_concrete_graph.fx2ge_converter")
    before = (compiler._GLOBAL_GRAPH_ID, converter.initialize_graph_engine, converter.GeGraph)
    inner = trace(lambda a: (a.neg(),), (2, 2))
    results: list[list[str]] = []
    graph_module = trace(two_streams, (8, 8), (8, 8))
    plain = offline.convert(graph_module)
    converted = offline.convert(graph_module, pre_pass=lambda *_: results.append(types(offline.convert(inner))))
    assert results == [["Data", "Neg", "NetOutput"]]
    assert converted == plain
    assert (compiler._GLOBAL_GRAPH_ID, converter.initialize_graph_engine, converter.GeGraph) == before
    assert TracingContext.try_get() is None


def test_placeholder_without_shape_is_bad_input() -> None:
    graph_module = fx.symbolic_trace(torch.nn.ReLU())
    with pytest.raises(InputError, match=r"placeholder 'input_1' has no meta\['val'\]"):
        offline.convert(graph_module)


def test_wrong_number_of_inputs_is_bad_input() -> None:
    with pytest.raises(InputError, match="2 example inputs were given for 1 placeholder"):
        offline.convert(trace(lambda a: (a.abs(),), (4, 4)), [torch.ones(4, 4)] * 2)


def test_input_on_an_npu_that_is_not_there_is_refused_before_torch_npu_aborts() -> None:
    with FakeTensorMode():
        on_npu = torch.empty(4, 4, device="npu")
    with pytest.raises(InputError, match="device 'npu'.*trace on 'cpu' or 'meta'"):
        offline.convert(trace(lambda a: (a.softmax(-1),), (4, 4)), [on_npu])


def test_npu_backend_runs_the_passes_under_torch_compile_and_then_needs_an_npu() -> None:
    seen: list[str] = []
    backend = offline.npu_backend(pre_pass=lambda *_: seen.append("pre"), post_pass=lambda *_: seen.append("post"))
    compiled = torch.compile(lambda a: a.abs() + 1, backend=backend)
    with torch.no_grad(), pytest.raises(OfflineError, match="running it needs CANN and an Ascend NPU"):
        compiled(torch.ones(4, 4))
    assert seen == ["pre", "post"]
