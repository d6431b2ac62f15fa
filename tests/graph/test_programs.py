"""Every way in leads to the graph that TorchAir's AOT path would hand to a pass."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._functorch.aot_autograd import aot_module_simplified
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from autostream.errors import CaptureError, InputError
from autostream.graph.capture import capture
from autostream.graph.programs import AtenProgram, to_aten


class Cache(nn.Module):
    """Writes its buffer by `write`, then reads it."""

    def __init__(self, write: Callable[[Tensor, Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.write = write
        self.cache: Tensor
        self.register_buffer("cache", torch.arange(48.0).reshape(6, 8))
        self.proj = nn.Linear(8, 8)

    def forward(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        key = self.proj(x)
        before = self.cache.sum(0)
        self.write(self.cache, rows, key)
        return torch.mm(key, self.cache.t()), before


def _copy_rolled(cache: Tensor, rows: Tensor, key: Tensor) -> None:
    cache.copy_(torch.cat([cache[2:], key]))


WRITES = {
    "index_put_": lambda cache, rows, key: cache.index_put_((rows,), key),
    "index_copy_": lambda cache, rows, key: cache.index_copy_(0, rows, key),
    "scatter_": lambda cache, rows, key: cache.scatter_(0, rows[:, None].expand(2, 8), key),
    "copy_": _copy_rolled,
}


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.head = nn.Linear(8, 10, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(functional.silu(self.embed(tokens)))


class Outputs(nn.Module):
    """Several outputs, nested, with numbers and None; casts; an input changed in place."""

    def forward(self, x: Tensor, scale: int = 3) -> tuple[Any, ...]:
        wide = x.to(torch.float64)
        x.mul_(2)
        return wide * scale, None, scale, {"same": x + 1, "half": wide.to(torch.bfloat16)}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.interpolate(functional.relu(self.norm(self.conv(x))), size=[4, 4], mode="bilinear")
        z = functional.layer_norm(functional.max_pool2d(y, 2), [2, 2])
        return functional.softmax(functional.gelu(z).flatten(1), -1).chunk(2, -1)[1] + 1


def _cases() -> dict[str, tuple[nn.Module, tuple[Any, ...]]]:
    rows = torch.tensor([4, 1])
    cases: dict[str, tuple[nn.Module, tuple[Any, ...]]] = {
        name: (Cache(write), (torch.randn(2, 8), rows)) for name, write in WRITES.items()
    }
    cases |= {"tied": (Tied(), (torch.tensor([[1, 2, 3]]),)), "outputs": (Outputs(), (torch.randn(4, 4),))}
    cases |= {"eval": (Net().eval(), (torch.randn(2, 3, 4, 4),)), "train": (Net().train(), (torch.randn(2, 3, 4, 4),))}
    return cases


CASES = list(_cases())


def targets(graph: fx.Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


def aot_targets(module: nn.Module, inputs: tuple[Any, ...]) -> list[str]:
    """Return what `aot_module_simplified` hands to a compiler when asked as TorchAir asks."""
    seen: list[str] = []

    def compiler(graph_module: fx.GraphModule, _inputs: Any) -> Any:
        seen.extend(targets(graph_module.graph))
        return graph_module.forward

    def backend(graph_module: fx.GraphModule, example_inputs: Any) -> Any:
        return aot_module_simplified(graph_module, example_inputs, fw_compiler=compiler, keep_inference_input_mutations=True)

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(module, backend=backend, fullgraph=True)(*inputs)
    return seen


@pytest.mark.parametrize("case", CASES)
def test_the_form_is_that_of_aot(case: str) -> None:
    module, inputs = _cases()[case]
    program = to_aten(module, inputs)
    # A functional copy that keeps shape and dtype: export leaves it out at once, TorchAir's no-op removal a little later.
    expected = [name for name in aot_targets(module, inputs) if name != "aten.copy.default"]
    assert targets(program.graph_module.graph) == expected
    assert all(isinstance(value, FakeTensor) for value in program.example_inputs)


@pytest.mark.parametrize("case", CASES)
def test_the_graph_computes_what_the_model_does(case: str) -> None:
    module, inputs = _cases()[case]
    program = to_aten(module, inputs)
    state = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers())
    user = iter([value.clone() for value in inputs])
    given = [state[source].detach().clone() if source else next(user) for source in program.sources]
    results = program.graph_module(*given)
    with torch.no_grad():
        expected = [value for value in torch.utils._pytree.tree_leaves(module(*inputs)) if isinstance(value, Tensor)]
    assert isinstance(results, tuple) and len(results) == len(expected)
    for result, value in zip(results, expected, strict=True):
        torch.testing.assert_close(result, value, rtol=0, atol=0)
    after = iter(inputs)
    for source, value in zip(program.sources, given, strict=True):
        torch.testing.assert_close(value, state[source].detach() if source else next(after), rtol=0, atol=0)


def test_a_mutated_buffer_is_copied_back_before_the_output() -> None:
    program = to_aten(*_cases()["index_put_"])
    nodes = list(program.graph_module.graph.nodes)
    copies = [node for node in nodes if node.target is torch.ops.aten.copy_.default]
    assert [node.args[0].name for node in copies] == ["b_cache"]
    assert nodes[-1].op == "output" and nodes[-2] is copies[0]
    assert program.sources[[node.name for node in nodes].index("b_cache")] == "cache"


def test_tied_weights_are_one_placeholder() -> None:
    program = to_aten(Tied(), (torch.tensor([1, 2]),))
    assert len(program.example_inputs) == 2
    assert {node.target for user in [program.graph_module.graph.find_nodes(op="placeholder")[0]] for node in user.users} == {
        torch.ops.aten.embedding.default,
        torch.ops.aten.t.default,
    }


def test_numbers_and_none_are_no_outputs() -> None:
    program = to_aten(Outputs(), (torch.randn(4, 4),))
    (output,) = program.graph_module.graph.find_nodes(op="output")
    assert all(isinstance(value, fx.Node) for value in output.args[0]) and len(output.args[0]) == 3


def test_the_same_program_twice_gives_the_same_graph() -> None:
    first, second = (to_aten(*_cases()["train"]) for _ in range(2))
    assert first.graph_module.code == second.graph_module.code
    assert first.sources == second.sources


def _linear(inputs: Tensor, module: nn.Module | None = None) -> AtenProgram:
    return to_aten(module or nn.Linear(8, 4), inputs)


def test_inputs_may_be_real_fake_or_meta_and_a_single_tensor() -> None:
    real = _linear(torch.randn(2, 8))
    with FakeTensorMode():
        fake_input = torch.empty(2, 8)
        fake_module = nn.Linear(8, 4)
    with torch.device("meta"):
        meta = _linear(torch.empty(2, 8), nn.Linear(8, 4))
    for program in (real, _linear(fake_input), _linear(fake_input, fake_module), meta):
        assert targets(program.graph_module.graph) == ["aten.t.default", "aten.addmm.default"]
        assert not capture(program.graph_module).refusals
    assert real.name == "Linear"


def test_keyword_inputs() -> None:
    class Keyword(nn.Module):
        def forward(self, x: Tensor, *, bias: Tensor) -> Tensor:
            return x + bias

    program = to_aten(Keyword(), torch.ones(2), {"bias": torch.ones(2)})
    assert len(program.example_inputs) == 2


def test_attention_made_for_cpus_is_taken_apart() -> None:
    class Attention(nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            return functional.scaled_dot_product_attention(q, q, q)

    found = targets(to_aten(Attention(), torch.randn(1, 2, 4, 8)).graph_module.graph)
    assert found.count("aten.bmm.default") == 2 and not any("for_cpu" in name for name in found)


def test_a_mutating_custom_operator_is_functionalised() -> None:
    with torch.library._scoped_library("graph_programs", "FRAGMENT") as lib:
        lib.define("bump(Tensor(a!) cache, Tensor x) -> Tensor")
        lib.impl("bump", lambda cache, x: cache.add_(x) * 2, "CompositeExplicitAutograd")

        class Bump(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("cache", torch.zeros(4))

            def forward(self, x: Tensor) -> Tensor:
                return torch.ops.graph_programs.bump(self.cache, x) + self.cache

        found = targets(to_aten(Bump(), torch.ones(4)).graph_module.graph)
    assert found[0] == "auto_functionalized_v2" and found[-1] == "aten.copy_.default"


def test_exported_program_and_file(tmp_path: Path) -> None:
    module, inputs = _cases()["index_copy_"]
    exported = torch.export.export(module, inputs)
    torch.export.save(exported, tmp_path / "model.pt2")
    by_object, by_file = to_aten(exported), to_aten(str(tmp_path / "model.pt2"))
    assert by_object.graph_module.code == by_file.graph_module.code == to_aten(module, inputs).graph_module.code
    assert (by_object.name, by_file.name) == ("Cache", "model")


def test_dynamic_shapes_are_kept() -> None:
    exported = torch.export.export(nn.Linear(8, 4), (torch.randn(3, 8),), dynamic_shapes=({0: torch.export.Dim("n", min=2)},))
    program = to_aten(exported)
    assert isinstance(program.example_inputs[-1].shape[0], torch.SymInt)
    assert [text.partition(":")[0] for text in capture(program.graph_module).refusals] == ["dynamic-shape"]


def test_graph_module_is_copied_and_its_attributes_lifted() -> None:
    linear = nn.Linear(8, 4)
    traced = make_fx(linear)(torch.randn(2, 8))
    code = traced.code
    program = to_aten(traced)
    assert len(program.example_inputs) == 3 and all(isinstance(value, FakeTensor) for value in program.example_inputs)
    assert traced.code == code and not program.graph_module.graph.find_nodes(op="get_attr")
    assert program.sources == ("_param_constant0", "_param_constant1", "")
    x = torch.randn(2, 8)
    with torch.no_grad():
        torch.testing.assert_close(program.graph_module(linear.weight, linear.bias, x)[0], linear(x), rtol=0, atol=0)


def test_attributes_in_front_of_the_inputs_are_lifted_in_order() -> None:
    root = nn.Module()
    root.first, root.second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.full((2,), 3.0))
    graph = fx.Graph()
    first, second, again = (graph.get_attr(name) for name in ("first", "second", "first"))
    x = graph.placeholder("x")
    total = graph.call_function(torch.ops.aten.mul.Tensor, (graph.call_function(torch.ops.aten.sub.Tensor, (first, second)), x))
    graph.output({"sum": graph.call_function(torch.ops.aten.add.Tensor, (total, again)), "nothing": None})
    program = to_aten(fx.GraphModule(root, graph), torch.ones(2))
    assert program.sources == ("first", "second", "")
    program.graph_module.graph.lint()
    (result,) = program.graph_module(root.first, root.second, torch.full((2,), 5.0))
    assert result.tolist() == [-9.0, -9.0]


def test_graph_module_without_shapes_needs_inputs() -> None:
    traced = make_fx(nn.Linear(8, 4))(torch.randn(2, 8))
    for node in traced.graph.nodes:
        node.meta.clear()
    with pytest.raises(InputError, match=r"input arg0_1 of the graph has no shape"):
        to_aten(traced)
    with pytest.raises(InputError, match=r"1 inputs \(arg0_1\), but 2 example inputs"):
        to_aten(traced, (torch.randn(2, 8), torch.randn(2, 8)))
    with pytest.raises(CaptureError, match=r"do the example inputs fit"):
        to_aten(traced, torch.randn(2, 9))
    assert not capture(to_aten(traced, torch.randn(2, 8)).graph_module).refusals
    assert all(not node.meta for node in traced.graph.nodes)


def test_a_graph_that_still_has_modules_is_exported() -> None:
    module = nn.Sequential(nn.Linear(8, 4), nn.ReLU())
    expected = ["aten.t.default", "aten.addmm.default", "aten.relu.default"]
    assert targets(to_aten(fx.symbolic_trace(module), torch.randn(2, 8)).graph_module.graph) == expected
    unlifted = torch.export.export(module, (torch.randn(2, 8),)).module()
    assert targets(to_aten(unlifted).graph_module.graph) == expected


def test_bad_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"of type int; allowed: an nn.Module with example inputs"):
        to_aten(3)
    with pytest.raises(InputError, match="module Linear needs example inputs"):
        to_aten(nn.Linear(2, 2))
    with pytest.raises(InputError, match="example_inputs is of type float"):
        to_aten(nn.Linear(2, 2), 1.0)
    with pytest.raises(InputError, match=r"missing.pt2: no such file; expected a .pt2 file"):
        to_aten(tmp_path / "missing.pt2")
    (tmp_path / "text.pt2").write_text("no archive")
    with pytest.raises(InputError, match=r"text.pt2: not an archive"):
        to_aten(tmp_path / "text.pt2")


def test_a_file_that_is_no_program(tmp_path: Path) -> None:
    torch.save({"a": 1}, tmp_path / "weights.pt2")
    with pytest.raises(
        InputError, match=r"weights.pt2: cannot be read \(.+\); expected a .pt2 file written by torch.export.save"
    ):
        to_aten(tmp_path / "weights.pt2")


def test_failed_export_says_why_in_torchs_words(capfd: pytest.CaptureFixture[str]) -> None:
    class Branch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            sys.stderr.write("words of the model's own\n")
            return x if x.sum() > 0 else -x

    with pytest.raises(
        CaptureError, match=r"^Could not guard on data-dependent expression .*while exporting Branch; the model must be"
    ):
        to_aten(Branch(), torch.ones(2))
    out, err = capfd.readouterr()
    assert out == "" and set(err.splitlines()) == {"words of the model's own"}
    with pytest.raises(CaptureError, match=r"while exporting Linear; model and example inputs must be on one device"):
        to_aten(nn.Linear(2, 2, device="meta"), torch.ones(1, 2))


def test_operators_of_torch_npu_stay_whole(npu_host: None) -> None:
    class Npu(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cache: Tensor
            self.register_buffer("cache", torch.zeros(16, 8))

        def forward(self, rows: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            torch.ops.npu.npu_scatter_nd_update_(self.cache, rows, x)
            return torch.ops.npu.npu_swiglu(x), self.cache.sum()

    program = to_aten(Npu(), (torch.zeros(2, 1, dtype=torch.int64), torch.ones(2, 8)))
    assert sorted(targets(program.graph_module.graph)) == [
        "aten.copy_.default",
        "aten.sum.default",
        "npu.npu_scatter_nd_update.default",
        "npu.npu_swiglu.default",
    ]


def test_attention_that_had_to_be_taken_apart_is_told() -> None:
    class Attention(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    inputs = tuple(torch.randn(1, 4, 8, 16) for _ in range(3))
    (note,) = to_aten(Attention(), inputs).notes
    assert "runs it fused" in note
    assert to_aten(nn.Linear(4, 4), torch.randn(2, 4)).notes == ()
