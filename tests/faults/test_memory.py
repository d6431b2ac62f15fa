"""K2: memory that is given back while another stream can still touch it, and what streams keep longer than they need."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx

from autostream.graph.capture import capture
from autostream.options import Options
from autostream.program import Semantics, Severity, lifetimes, peak_memory, returned_storages, reuse_findings
from autostream.program.reading.fx import read_fx
from tests.faults.handwritten import capture_vocabulary, enter, leave, woven
from tests.faults.scenarios import Input, bf16, fp32, int8, planned, priced, program_of, scenario

pytestmark = pytest.mark.usefixtures("npu_host")

npu = torch.ops.npu


#: Input and weight of a quantised product: type of the values, weights (int4 ones packed by eight), their scales.
_PRECISIONS: dict[str, tuple[torch.dtype, Input]] = {
    "w8a8": (torch.int8, int8(512, 512)),
    "w4a4": (torch.quint4x2, ((512, 64), torch.int32)),
}


def _inputs(batch: int, precision: str) -> list[Input]:
    return [bf16(batch, 512), _PRECISIONS[precision][1], bf16(512), bf16(batch, 512), bf16(batch, 1)]


def _quantised_branch(precision: str) -> Callable[..., tuple[Tensor, ...]]:
    """Data and scale are made for the product; the default stream goes on to make values of the same sizes."""
    dtype = _PRECISIONS[precision][0]

    def branch(x: Tensor, w: Tensor, s: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        values, scale = npu.npu_dynamic_quant(x, dst_type=dtype)
        product = npu.npu_quant_matmul(values, w, s, pertoken_scale=scale, output_dtype=torch.bfloat16)
        later, rescale = npu.npu_dynamic_quant(y, dst_type=dtype)  # as large as the first two
        return product, torch.relu(later), torch.relu(rescale), torch.relu(z)

    return branch


def _by_hand(batch: int, precision: str, *, joined_before: str) -> fx.GraphModule:
    """The product on a stream of its own; the default stream waits for it before the named node."""
    capture_vocabulary()
    return woven(
        _quantised_branch(precision),
        _inputs(batch, precision),
        ("npu_quant_matmul", "tagged_event_record", "fork"),
        enter("npu_quant_matmul", "s"),
        ("npu_quant_matmul", "tagged_event_wait", "fork"),
        ("npu_dynamic_quant_1", "tagged_event_record", "join"),
        leave("npu_dynamic_quant_1"),
        (joined_before, "tagged_event_wait", "join"),
    )


@pytest.mark.parametrize("precision", _PRECISIONS)
@pytest.mark.parametrize("batch", [1, 61, 64, 1088])
def test_a16_a18_g21_data_and_scale_that_a_side_stream_still_reads_are_given_away_at_any_size(batch: int, precision: str) -> None:
    """vllm-ascend #8502, #12178, TensorRT-LLM #15265: seen at one batch size only, wrong at every one."""
    module = _by_hand(batch, precision, joined_before="output")
    graph, program = capture(module), read_fx(module, semantics=Semantics.CAPTURE)
    found = list(reuse_findings(program, graph.storages, returned=returned_storages(graph)))
    assert {one.severity for one in found} == {Severity.ERROR}
    guarded = {name for name in graph.storages if name.startswith("npu_dynamic_quant.")}
    assert {name for name in guarded if any(repr(name) in one.explanation for one in found)} == guarded  # both of them


@pytest.mark.parametrize("precision", _PRECISIONS)
@pytest.mark.parametrize("batch", [1, 64, 1088])
def test_a16_a18_a_join_in_front_of_the_next_allocation_mends_it(batch: int, precision: str) -> None:
    module = _by_hand(batch, precision, joined_before="npu_dynamic_quant_1")
    graph, program = capture(module), read_fx(module, semantics=Semantics.CAPTURE)
    assert list(reuse_findings(program, graph.storages, returned=returned_storages(graph))) == []


@pytest.mark.parametrize("precision", _PRECISIONS)
@pytest.mark.parametrize("batch", [1, 64, 1088])
def test_a16_a18_what_the_pass_emits_keeps_both_to_the_join(batch: int, precision: str) -> None:
    """The engine keeps a value that another stream uses to the first edge back; the lifetimes say so, and nothing overlaps."""
    module = scenario(_quantised_branch(precision), *_inputs(batch, precision))
    prices = priced(npu__npu_quant_matmul=100.0, npu__npu_dynamic_quant=50.0)
    outcome = planned(module, prices, min_gain=0.0)
    program = program_of(outcome)
    assert outcome.graph_module is not None
    graph = capture(outcome.graph_module)
    returned = returned_storages(graph)
    assert list(reuse_findings(program, graph.storages, returned=returned)) == []
    streams = {step.name: step.stream for step in program.steps}
    lives = {life.storage: life for life in lifetimes(program, graph.storages, returned=returned)}
    crossing = [life for life in lives.values() if {where for where, _ in life.last_uses} - {life.stream}]
    assert crossing or streams["npu_quant_matmul"] == streams["npu_dynamic_quant"]
    assert all(life.freed > life.last for life in crossing)


@pytest.mark.parametrize("labels", [1, 2])
def test_g08_memory_is_told_by_the_stream_that_allocates_it_and_not_merged(labels: int) -> None:
    """pytorch #114320: allocations of a side stream came from the wrong pool."""

    def branches(x: Tensor, w: Tensor, *rest: Tensor) -> list[Tensor]:
        return [torch.mm(torch.mm(x, w), w), *(torch.sigmoid(torch.tanh(value)) for value in rest)]

    module = scenario(branches, fp32(64, 64), fp32(64, 64), *[fp32(64, 64)] * 3)
    outcome = planned(module, priced(), side_streams=labels, min_gain=0.0)
    program = program_of(outcome)
    assert outcome.memory is not None
    document = outcome.document(name="", options=Options(), model=priced())
    assert document.memory is not None
    by_stream = document.memory.streams
    makers = {step.stream for step in program.steps if step.stream and step.writes}
    assert set(by_stream) == makers and len(makers) > 1
    assert document.memory.peak_bytes == sum(by_stream.values()) >= document.memory.one_stream_bytes


def test_a20_a_view_keeps_the_whole_storage_and_not_its_own_size() -> None:
    """vllm-ascend #6480; a copy lets the large buffer go (a plain clone would not: TorchAir drops it)."""

    def step(copied: bool) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
        def run(x: Tensor, w: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            part = torch.mm(x, w)[:, :8]
            part = torch.neg(part) if copied else part
            for _ in range(3):
                y = torch.mm(y, w)
            return torch.sigmoid(part), y

        return run

    shapes = (bf16(64, 512), bf16(512, 512), bf16(8, 512))
    peaks = {}
    for copied in (False, True):
        module = scenario(step(copied), *shapes)
        graph = capture(module)
        life = next(one for one in lifetimes(read_fx(module), graph.storages) if one.storage == "mm")
        assert life.nbytes == 64 * 512 * 2
        peaks[copied] = life.freed
        assert peak_memory(read_fx(module), graph.storages).peak >= life.nbytes
    assert peaks[True] < peaks[False]
