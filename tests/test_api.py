from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import autostream
from autostream import api, offline, pipeline, trial
from autostream.errors import CaptureError, InputError, OfflineError
from autostream.graph.programs import to_aten
from autostream.program import Severity
from autostream.stream_pass import StreamPass
from tests import models
from tests.models.zoo import ZOO

pytestmark = pytest.mark.usefixtures("npu_host")


@pytest.mark.parametrize(
    ("builder", "reason"),
    [
        (models.toy3x3, "every operator waits for the one before it"),
        (models.chain, "every operator waits for the one before it"),
        (models.tiny_vector, "its branches need the same cores"),
    ],
)
def test_where_nothing_is_to_gain_the_graph_comes_back_as_it_was(builder: object, reason: str) -> None:
    captured = to_aten(*builder())  # type: ignore[operator]
    text, ir = str(captured.graph_module.graph), offline.convert(captured.graph_module)
    result = autostream.schedule(captured.graph_module)
    assert (result.verdict.accepted, result.verdict.code) == (False, "nothing-to-overlap")
    assert result.verdict.reason.startswith(reason)
    assert str(result.graph_module.graph) == text
    assert offline.convert(result.graph_module) == ir


def test_a_dynamic_graph_comes_back_as_it_was_with_the_reason() -> None:
    module, inputs, shapes = models.dynamic()
    exported = torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)
    captured = to_aten(exported)
    result = autostream.schedule(exported)
    assert result.verdict.code == "dynamic-shape"
    assert "static" in result.verdict.reason
    assert str(result.graph_module.graph) == str(captured.graph_module.graph)


def test_a_scheduled_program_is_proved_and_saved(tmp_path: Path) -> None:
    result = autostream.schedule(*models.mixture(8))
    assert result.verdict.accepted and result.verdict.gain_low > 0
    assert result.verdict.lower_bound_ns <= result.verdict.scheduled_ns < result.verdict.serial_ns
    assert result.ascend_ir is not None
    assert not [f for f in result.findings if f.severity is Severity.ERROR]
    paths = {path.name: path for path in result.save(tmp_path / "out")}
    assert {"report.json", "graph_before.txt", "graph_after.txt"} <= set(paths)
    assert json.loads(paths["report.json"].read_text())["verdict"]["accepted"] is True
    assert "scope_enter" in paths["graph_after.txt"].read_text()
    assert "scope_enter" not in paths["graph_before.txt"].read_text()


@pytest.mark.parametrize("builder", [models.mixture, models.cnn_branches, models.llama_layer])
def test_the_scheduled_graph_computes_the_same_bits(builder: object) -> None:
    module, inputs = builder()  # type: ignore[operator]
    result = autostream.schedule(module, inputs)
    assert result.verdict.accepted
    state = [*dict(module.named_parameters()).values(), *dict(module.named_buffers()).values()]
    values = [*(tensor.detach() for tensor in state), *inputs]
    expected = result.original(*values)
    found = result.graph_module(*values)
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


_DUMP = """
import autostream, hashlib
from tests import models
from tests.models.zoo import ZOO
result = autostream.schedule(*models.mixture(8))
text = result.report.to_json() + str(result.graph_module.graph) + result.ascend_ir.text + result.ascend_ir.pbtxt
print("digest", hashlib.sha256(text.encode()).hexdigest())
"""


def test_two_runs_and_two_processes_give_the_same_bytes() -> None:
    def fresh(seed: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", _DUMP],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[1],
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        return done.stdout.splitlines()[-1]

    assert fresh("1") == fresh("2")
    first, second = autostream.schedule(*models.mixture(8)), autostream.schedule(*models.mixture(8))
    assert first.report.to_json() == second.report.to_json()
    assert str(first.graph_module.graph) == str(second.graph_module.graph)
    assert first.ascend_ir == second.ascend_ir


def test_an_exported_file_is_scheduled_like_its_module(tmp_path: Path) -> None:
    module, inputs = models.mixture(8)
    path = tmp_path / "mixture.pt2"
    torch.export.save(torch.export.export(module, inputs, strict=False), path)
    from_file = autostream.schedule(path).verdict
    assert from_file == autostream.schedule(module, inputs).verdict


def test_lower_gives_the_ascend_ir_of_the_scheduled_graph() -> None:
    text = autostream.lower(*models.mixture(8))
    assert text.count('key: "_user_stream_label"') > 0
    assert autostream.lower(*models.chain()).count('key: "_user_stream_label"') == 0


def test_check_reads_dumps_in_every_form(tmp_path: Path) -> None:
    converted = autostream.schedule(*models.mixture(8)).ascend_ir
    assert converted is not None
    (tmp_path / "dump.pbtxt").write_text(converted.pbtxt)
    (tmp_path / "dump.txt").write_text(converted.text)
    (tmp_path / "dump.pb").write_bytes(converted.serialized)
    programs = [autostream.inspect(tmp_path / f"dump.{suffix}").programs["ascend_ir"] for suffix in ("pbtxt", "txt", "pb")]
    assert programs[0] == programs[1] == programs[2]
    assert len(programs[0].streams()) >= 2
    assert not [f for f in autostream.check(str(tmp_path / "dump.pb")) if f.severity is Severity.ERROR]


def test_compile_runs_the_model_and_files_a_verdict() -> None:
    module, inputs = models.mixture(8)
    compiled = autostream.compile(module, chip="910B2", options={"side_streams": 1})
    known = len(autostream.reports())
    with torch.no_grad():
        assert torch.equal(compiled(*inputs), module(*inputs))
    assert len(autostream.reports()) == known + 1
    assert autostream.reports()[-1].verdict.accepted


def test_torch_compile_knows_the_backend_by_name() -> None:
    module, inputs = models.mixture(8)
    known = len(autostream.reports())
    with torch.no_grad():
        found = torch.compile(module, backend="autostream", options={"chip": "910B4"})(*inputs)
        assert torch.equal(found, module(*inputs))
    assert len(autostream.reports()) == known + 1
    assert autostream.reports()[-1].verdict.chip == "910B4"


def test_on_an_npu_torchairs_backend_runs_the_pass_behind_its_fusions(monkeypatch: pytest.MonkeyPatch) -> None:
    # Everything but the device is real: TorchAir compiles, and only running the converted graph is refused.
    monkeypatch.setattr(api, "_npu_present", lambda: True)
    module, inputs = models.mixture(8)
    known = len(autostream.reports())
    with torch.no_grad(), pytest.raises(OfflineError, match="needs CANN"):
        autostream.compile(module)(*inputs)
    assert [report.verdict.accepted for report in autostream.reports()[known:]] == [True]


def test_a_compiled_model_trains() -> None:
    layer = nn.Linear(8, 8)
    autostream.compile(layer)(torch.ones(2, 8)).sum().backward()
    assert layer.weight.grad is not None


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: autostream.schedule(3), InputError, "int"),
        (lambda: autostream.compile(3), InputError, "int"),  # type: ignore[arg-type]
        (lambda: autostream.schedule(nn.Linear(2, 2)), InputError, "inputs"),
        (lambda: autostream.schedule("missing.pt2"), InputError, r"missing\.pt2"),
        (lambda: autostream.schedule(*models.chain(), chip="911"), InputError, "911"),
        (lambda: autostream.schedule(*models.chain(), options={"gain": 1}), InputError, "gain"),
        (lambda: autostream.schedule(nn.Linear(2, 2), torch.ones(3)), CaptureError, "Linear|shape|mat"),
        (lambda: autostream.check("missing.pbtxt"), InputError, r"missing\.pbtxt"),
        (lambda: autostream.compile(nn.Linear(2, 2), backend="inductor"), InputError, "backend"),
        (lambda: autostream.compile(nn.Linear(2, 2), options={"stric": True}), InputError, "strict"),
    ],
)
def test_bad_input_is_named(call: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()  # type: ignore[operator]


def test_corrupt_files_are_named(tmp_path: Path) -> None:
    for name in ("broken.pt2", "broken.pbtxt", "broken.pb"):
        (tmp_path / name).write_bytes(b"\x00\x01 not a graph {")
    with pytest.raises(InputError, match=r"broken\.pt2"):
        autostream.schedule(tmp_path / "broken.pt2")
    for name in ("broken.pbtxt", "broken.pb"):
        with pytest.raises(InputError, match=name):
            autostream.check(tmp_path / name)


def test_a_graph_without_shapes_is_refused_with_a_way_out() -> None:
    graph = torch.fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    with pytest.raises(InputError, match="example_inputs|meta"):
        autostream.schedule(graph)


def test_only_the_mode_with_a_stream_vocabulary_is_allowed() -> None:
    layer = nn.Linear(2, 2)
    autostream.compile(layer, mode="max-autotune")(torch.ones(2, 2))
    with pytest.raises(InputError, match="reduce-overhead"):
        autostream.compile(layer, mode="reduce-overhead")


def test_a_model_with_hand_written_waits_still_runs_where_there_are_no_streams() -> None:
    import torchair

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            total = torch.add(x, y)
            return torch.mm(x, torch.ops.air.wait_tensor(y, total))

    assert torchair.scope
    x, y = torch.ones(4, 4), torch.ones(4, 4)
    with torch.no_grad():
        assert torch.equal(autostream.compile(Model())(x, y), torch.mm(x, y))
    assert autostream.reports()[-1].verdict.code == "hand-written-sync"


def test_results_are_short_to_look_at_and_the_version_is_known() -> None:
    assert len(repr(autostream.schedule(*models.chain()))) < 300
    assert autostream.__version__ == "0.1.0"


def test_the_help_of_the_package_tells_every_public_name_as_it_is_called() -> None:
    told = dict(re.findall(r"^(\w+)(?:\((.*)\))?$", str(autostream.__doc__), re.MULTILINE))
    assert set(told) == set(autostream.__all__)
    for name, arguments in told.items():
        value = getattr(autostream, name)
        assert isinstance(value, StreamPass) or value.__doc__
        if not arguments or name == "Options":
            continue
        signature = inspect.signature(value)
        bare = [
            parameter.replace(default=parameter.empty, annotation=parameter.empty) for parameter in signature.parameters.values()
        ]
        assert str(signature.replace(parameters=bare, return_annotation=signature.empty)) == f"({arguments})"


def test_a_graph_that_torchair_cannot_convert_is_declined_with_the_operator() -> None:
    verdict = autostream.schedule(*models.kv_cache()).verdict  # index_put has no converter
    assert verdict.code == "not-convertible" and "index_put" in verdict.reason
    assert verdict.scheduled_ns < verdict.serial_ns


class _TwoGroups(nn.Module):
    """Collectives of two process groups, which are not there, on branches of their own."""

    def forward(self, x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        functional, half = torch.ops._c10d_functional, [x.shape[0] // 2] * 2
        first = functional.wait_tensor(functional.all_reduce(x, "sum", "tp"))
        second = torch.mm(torch.relu(torch.mm(y, w)), w)
        second = functional.wait_tensor(functional.all_to_all_single(second, half, half, "ep"))
        return torch.mm(torch.mm(first, w), w), torch.mm(torch.mm(second, w), w)


def test_collectives_whose_group_is_not_there_are_declined_for_that_and_not_for_a_lost_wait() -> None:
    inputs = tuple(torch.empty(4096, 4096, device="meta") for _ in range(3))
    options = {"min_gain": 0.0, "side_collectives": True, "strategy": "greedy", "strict": True}
    verdict = autostream.schedule(_TwoGroups(), inputs, options=options).verdict
    assert verdict.code == "unverified" and "process group" in verdict.reason


def test_what_only_the_machine_with_cann_can_convert_is_planned_and_proved_on_the_fx_graph() -> None:
    """A graph of this kind is what its users plan for on a laptop; there its Ascend IR cannot be had."""
    for name, missing in (("npu/dsa-b8", "operator registry"), ("npu/tp4-dual-decode-4l", "process group")):
        result = autostream.schedule(*ZOO[name].build())
        assert result.verdict.code == "accepted" and result.ascend_ir is None
        (note,) = [note for note in result.report.notes if "proved on the FX graph only" in note]
        assert missing in note and "node '" in note


def test_options_that_open_no_stream_are_named() -> None:
    for options in ({"side_streams": 0}, {"strategy": "serial"}):
        verdict = autostream.schedule(*models.mixture(8), options=options).verdict
        assert verdict.code == "nothing-to-overlap" and "options open no side stream" in verdict.reason


def test_an_unexpected_failure_is_a_verdict_unless_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object, **_kwargs: object) -> object:
        raise KeyError("defect")

    for module, name in ((trial, "emit"), (pipeline, "Captured")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, broken)
            result = autostream.schedule(*models.mixture(8))
            assert result.verdict.code == "error" and "KeyError" in result.verdict.reason
            assert result.graph_module is result.original and result.report.verdict == result.verdict
            with pytest.raises(KeyError):
                autostream.schedule(*models.mixture(8), options={"strict": True})
