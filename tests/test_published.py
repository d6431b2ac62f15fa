"""The multi-stream examples that TorchAir's documentation publishes, through the real TorchAir."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from torch import fx

import autostream
from autostream import offline
from autostream.graph.capture import capture
from autostream.graph.programs import to_aten
from autostream.program import EdgeKind, Severity, StreamProgram, cross_edges, read_ascend_ir, verify
from autostream.rewrite.sync import task_orders
from tests import models
from tests.models.trace import aten_graph

pytestmark = pytest.mark.usefixtures("npu_host")


def _tasks(program: StreamProgram) -> list[tuple[str, str]]:
    return [(step.kind, step.stream) for step in program.steps if step.stream is not None]


def _control(program: StreamProgram) -> list[tuple[str, str]]:
    kind = {step.name: step.kind for step in program.steps}
    return [(kind[e.before], kind[e.after]) for e in program.edges if e.kind is EdgeKind.CONTROL]


def test_the_hand_written_four_input_model_is_read_with_its_streams_and_control_edges() -> None:
    module, inputs = models.four_inputs_by_hand()
    inspection = autostream.inspect(aten_graph(module, inputs))
    assert _tasks(inspection.programs["ascend_ir"]) == [
        ("Add", "default"),
        ("Identity", "1"),
        ("MatMul", "1"),
        ("MatMul", "default"),
        ("Identity", "2"),
        ("Add", "2"),
    ]
    assert _control(inspection.programs["ascend_ir"]) == [("Add", "Identity"), ("MatMul", "Identity")]
    assert {step.stream for step in inspection.programs["fx"].steps} == {"default", "1", "2"}
    assert not [f for f in inspection.findings if f.severity is Severity.ERROR]


def test_the_labels_are_on_the_emitted_ge_operators() -> None:
    module, inputs = models.four_inputs_by_hand()
    text = offline.convert(aten_graph(module, inputs)).text
    labelled = [block for block in text.split("op {") if "_user_stream_label" in block]
    assert Counter('s: "1"' in block for block in labelled) == {True: 2, False: 2}


def test_the_hand_written_custom_pass_is_read_with_its_record_and_wait() -> None:
    module, inputs = models.custom_pass_by_hand()
    converted = offline.convert(aten_graph(module, inputs), pre_pass=models.insert_streams)
    program = read_ascend_ir(converted.serialized, in_order=True)
    assert _tasks(program) == [
        ("MatMul", "stream_1"),
        ("Abs", "stream_1"),
        ("Add", "default"),
        ("Sub", "default"),
    ]
    assert _control(program) == [("Abs", "Sub")]
    assert not [f for f in verify(program) if f.severity is Severity.ERROR]


@pytest.mark.parametrize("slot", ["pre_pass", "post_pass"])
@pytest.mark.parametrize("experts", [8, 64])
def test_independent_experts_are_scheduled_by_the_pass_with_no_change_to_the_model(slot: str, experts: int) -> None:
    module, inputs = models.mixture(experts)
    graph_module = to_aten(module, inputs).graph_module
    plain = read_ascend_ir(offline.convert(graph_module).serialized, in_order=True)
    converted = offline.convert(graph_module, **{slot: autostream.pass_})
    program = read_ascend_ir(converted.serialized, in_order=converted.options["ge.topoSortingMode"] == "3")
    assert autostream.reports()[-1].verdict.accepted
    assert program.in_order
    streams = set(program.streams())
    assert "default" in streams and 2 <= len(streams) <= 3
    assert Counter(kind for kind, _ in _tasks(program)) == Counter(kind for kind, _ in _tasks(plain))
    findings = verify(program, required=task_orders(capture(graph_module)))
    assert not [f for f in findings if f.severity is Severity.ERROR]
    assert len(cross_edges(program)) <= 3 * experts


def test_the_pass_changes_the_graph_that_torchair_holds_and_nothing_else() -> None:
    module, inputs = models.mixture(8)
    graph_module = to_aten(module, inputs).graph_module
    before = str(graph_module.graph)
    seen: list[fx.GraphModule] = []

    def spy(gm: fx.GraphModule, example_inputs: object, config: object) -> None:
        autostream.pass_(gm, example_inputs, config)  # type: ignore[arg-type]
        seen.append(gm)

    offline.convert(graph_module, post_pass=spy)
    assert str(graph_module.graph) == before
    assert "scope_enter" in str(seen[0].graph)


_BY_HAND = """
import torch
from torch import nn
from autostream import offline
offline.activate()
import torchair

class Model(nn.Module):
    def forward(self, a, b, c, d):
        total = torch.add(a, b)
        with torchair.scope.npu_stream_switch("1"):
            product = torch.mm(c, torchair.scope.npu_wait_tensor(d, total))
        return total, product

def make():
    return Model(), tuple(torch.ones(64, 64) for _ in range(4))
"""


def test_a_model_with_hand_written_scopes_is_checked_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "by_hand.py").write_text(_BY_HAND)
    command = [sys.executable, "-m", "autostream", "check", "by_hand:make", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    levels = json.loads(done.stdout)["levels"]
    assert levels["ascend_ir"]["streams"] == {"default": 1, "1": 2}
    assert levels["ascend_ir"]["control_edges"] == 1
    assert levels["fx"]["streams"] == {"default": 1, "1": 2}
