"""The DeepSeek-style layer in real npu operators at H = 7168: shared expert beside routed experts, traced without memory."""

from __future__ import annotations

from collections import Counter

import pytest

import autostream
from autostream import ScheduleResult, offline
from autostream.demo import moe_decode_layer
from autostream.program import Severity, StreamProgram, cross_edges, read_ascend_ir, verify
from autostream.rewrite.sync import task_orders

pytestmark = pytest.mark.usefixtures("npu_host")


@pytest.fixture(scope="module", params=[True, False], ids=["expert-parallel", "one-card"])
def result(request: pytest.FixtureRequest, npu_host: None) -> ScheduleResult:
    return autostream.schedule(*moe_decode_layer(npu=True, batch=64, hidden=7168, expert_parallel=request.param), chip="910B2")


def _program(result: ScheduleResult) -> StreamProgram:
    assert result.ascend_ir is not None
    return read_ascend_ir(result.ascend_ir.serialized, in_order=True)


def test_the_shared_expert_runs_beside_the_routed_ones(result: ScheduleResult) -> None:
    assert result.verdict.accepted
    assert result.verdict.gain_low > 0
    assert result.report.overlap.total_ns > 0
    stream = {slot.step: slot.stream for slot in result.after.slots} if result.after else {}
    shared = {stream[name] for name in stream if name.startswith("npu_quant_matmul")}
    routed = {stream[name] for name in stream if name.startswith("npu_grouped_matmul")}
    assert len(shared) == len(routed) == 1 and shared != routed


def test_the_emitted_ir_is_proved(result: ScheduleResult) -> None:
    assert result.graph is not None
    findings = verify(_program(result), required=task_orders(result.graph))
    assert not [finding for finding in findings if finding.severity is Severity.ERROR]


def test_the_emitted_ir_holds_no_compute_operator_more(result: ScheduleResult) -> None:
    plain = read_ascend_ir(offline.convert(result.original).serialized, in_order=True)
    kinds, plain_kinds = (Counter(s.kind for s in p.steps if s.stream is not None) for p in (_program(result), plain))
    assert kinds == plain_kinds
    assert (kinds["GroupedMatmul"], kinds["QuantBatchMatmulV3"]) == (2, 2)


def test_one_side_stream_with_few_forks_and_joins(result: ScheduleResult) -> None:
    assert result.verdict.side_streams == 1
    program = _program(result)
    stream = {step.name: step.stream for step in program.steps}
    touching = [edge for edge in cross_edges(program) if "autostream_1" in (stream[edge.before], stream[edge.after])]
    assert 2 <= len(touching) <= 4


def test_collectives_keep_the_default_stream_and_their_order(result: ScheduleResult) -> None:
    program = _program(result)
    collectives = [step for step in program.steps if step.kind.startswith("MoeDistribute")]
    assert {step.stream for step in collectives} <= {"default"}
    names = [step.kind for step in collectives]
    assert names == sorted(names, key=lambda kind: "Combine" in kind)
