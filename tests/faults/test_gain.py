"""K8, K9: no gain, wrong phase, wrong backend: then nothing happens, and the report says why."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, fx

import autostream
from autostream import StreamPass, offline
from autostream.demo import moe_decode_layer
from autostream.graph import Why
from autostream.graph.programs import to_aten
from autostream.options import Options
from autostream.outcome import Outcome
from autostream.program import Severity, happens_before
from autostream.report.terminal import render
from tests import models
from tests.faults.scenarios import bf16, fp32, int8, noisy, passed, planned, priced, program_of, scenario, streams_of

pytestmark = pytest.mark.usefixtures("npu_host")

npu = torch.ops.npu


def test_a15_a_moe_layer_without_a_second_branch_is_left_alone() -> None:
    """vllm-ascend #8635: the flag made a model without shared experts silently slower."""

    def chain(x: Tensor, gamma: Tensor, up: Tensor, up_scale: Tensor, down: Tensor, down_scale: Tensor) -> Tensor:
        quantised, scale = npu.npu_dynamic_quant(npu.npu_rms_norm(x, gamma)[0])
        hidden = npu.npu_swiglu(npu.npu_quant_matmul(quantised, up, up_scale, pertoken_scale=scale, output_dtype=torch.bfloat16))
        again, scale = npu.npu_dynamic_quant(hidden)
        result: Tensor = npu.npu_quant_matmul(again, down, down_scale, pertoken_scale=scale, output_dtype=torch.bfloat16)
        return result

    inputs = (bf16(64, 7168), bf16(7168), int8(7168, 4096), bf16(4096), int8(2048, 7168), bf16(7168))
    module = scenario(chain, *inputs)
    before = str(module.graph)
    outcome = planned(module)
    assert outcome.verdict.code == "nothing-to-overlap"
    assert "waits for the one before it" in outcome.verdict.reason
    StreamPass(chip="910B2")(module)
    assert str(module.graph) == before


def test_a64_two_cube_kernels_beside_each_other_are_not_credited_and_cube_beside_vector_is() -> None:
    """Ascend's own rules: Cube + Cube fight for cores; Cube + Vector overlap if that beats the event."""

    def twice(x: Tensor, scale: Tensor, a: Tensor, b: Tensor, sa: Tensor, sb: Tensor) -> tuple[Tensor, Tensor]:
        first = npu.npu_quant_matmul(x, a, sa, pertoken_scale=scale, output_dtype=torch.bfloat16)
        return first, npu.npu_quant_matmul(x, b, sb, pertoken_scale=scale, output_dtype=torch.bfloat16)

    weights = (int8(7168, 4096), int8(7168, 4096), bf16(4096), bf16(4096))
    outcome = planned(scenario(twice, int8(64, 7168), fp32(64), *weights))
    assert outcome.verdict.code == "nothing-to-overlap" and "same cores" in outcome.verdict.reason

    def mixed(x: Tensor, scale: Tensor, a: Tensor, sa: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        product = npu.npu_quant_matmul(x, a, sa, pertoken_scale=scale, output_dtype=torch.bfloat16)
        return product, *npu.npu_dynamic_quant(y)

    outcome = planned(scenario(mixed, int8(64, 7168), fp32(64), int8(7168, 4096), bf16(4096), bf16(512, 7168)))
    assert outcome.verdict.accepted
    assert streams_of(outcome)["npu_quant_matmul"] != streams_of(outcome)["npu_dynamic_quant"]


def test_g17_the_decision_follows_the_batch_and_an_unchosen_graph_costs_nothing() -> None:
    """vLLM #30085 and others: what pays at one batch size does not at another."""
    outcomes = {}
    for batch in (1, 64):
        module, inputs = moe_decode_layer(npu=True, batch=batch, expert_parallel=False)
        outcomes[batch] = planned(to_aten(module, inputs).graph_module, min_gain=0.09)
    assert (outcomes[1].verdict.code, outcomes[1].graph_module) == ("no-gain", None)
    assert outcomes[64].verdict.accepted and outcomes[64].graph_module is not None


def test_a26_another_backend_never_sees_scope_nodes() -> None:
    """vllm-ascend #1322: multi-stream code ran where graph mode was off."""
    graph = to_aten(*models.mixture(8)).graph_module.graph
    before = str(graph)
    StreamPass(chip="910B2")(graph)
    assert str(graph) == before


def test_a28_a_padded_batch_and_its_mask_change_nothing_for_the_schedule() -> None:
    """vllm-ascend #2681: a mask is an ordinary input of both branches."""

    def masked(x: Tensor, mask: Tensor, w: Tensor, v: Tensor) -> Tensor:
        return torch.mm(torch.where(mask, x, 0.0), w) + torch.sigmoid(torch.where(mask, v, 0.0))

    module = scenario(masked, bf16(64, 7168), ((64, 1), torch.bool), bf16(7168, 7168), bf16(64, 7168))
    outcome = planned(module, min_gain=0.0)
    emitted = outcome.graph_module
    assert emitted is not None
    readers = [n for n in emitted.graph.nodes if any(s.name == "mask_1" for s in n.all_input_nodes)]
    assert len(readers) == 2 and all("where" in str(node.target) for node in readers)
    offline.convert(emitted)


# -- the kind, in variants --------------------------------------------------------------------------------------------------


def _chain_of(operator: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def chain(x: Tensor) -> Tensor:
        for _ in range(4):
            x = operator(x)
        return x

    return chain


@pytest.mark.parametrize("slot", ["pre_pass", "post_pass"])
@pytest.mark.parametrize(
    "operator",
    [torch.sigmoid, lambda x: torch.mm(x, x), lambda x: npu.npu_swiglu(torch.cat([x, x], dim=-1))],
    ids=["vector", "cube", "npu"],
)
def test_a15_g24_a_graph_with_nothing_to_gain_is_bit_identical_in_either_slot(
    operator: Callable[[Tensor], Tensor], slot: str
) -> None:
    """vllm-ascend #8635, onnxruntime #14484: machinery for streams cost 7-10 % where one stream was used."""
    module = scenario(_chain_of(operator), bf16(512, 512))
    written: list[str] = []

    def run(graph_module: fx.GraphModule, inputs: Any, config: Any) -> None:
        graph, before = graph_module.graph, str(graph_module.graph)
        StreamPass(chip="910B2")(graph_module, inputs, config)
        assert graph_module.graph is graph
        written.extend([before, str(graph_module.graph)])

    converted = offline.convert(module, **{slot: run})  # type: ignore[arg-type]
    report = autostream.reports()[-1]
    assert report.verdict.code in ("nothing-to-overlap", "no-gain", "within-error")
    assert report.verdict.reason and report.shows in ("unscheduled", "refused")
    assert written[0] == written[1]
    assert converted == offline.convert(module)


def test_g17_the_decision_changes_with_the_batch_and_the_threshold_with_the_option() -> None:
    """vLLM #30085, #38990, #28406: what pays is a matter of the batch; a platform gate and a threshold were added by hand."""

    def layer(x: Tensor, w: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.mm(x, w), torch.sigmoid(torch.tanh(y))

    decisions = {}
    for batch in (1, 64, 256, 1024):
        module = scenario(layer, bf16(batch, 64), bf16(64, 64), bf16(batch, 64))
        before = str(module.graph)
        model = priced(aten__mm=60.0, aten__sigmoid=0.1 * batch, aten__tanh=0.1 * batch)  # weights bound one, tokens the other
        for least in (0.2, 0.1):
            emitted, report = passed(module, cost_model=model, options={"min_gain": least})
            decisions[batch, least] = report.verdict.accepted
            assert (str(emitted.graph) == before) is not report.verdict.accepted
            assert report.verdict.accepted or report.verdict.code == "no-gain"
    assert [batch for batch in (1, 64, 256, 1024) if decisions[batch, 0.2]] == [256, 1024]
    assert [batch for batch in (1, 64, 256, 1024) if decisions[batch, 0.1]] == [64, 256, 1024]


@pytest.mark.parametrize("factor", [0.01, 1.0])
def test_a49_a_branch_too_short_to_show_is_not_taken_and_one_that_is_names_its_overlap(factor: float) -> None:
    """cann-recipes-infer: fake parallelism, 5 % of the branch overlapped. G33: say what should be visible in a profile."""

    def layer(x: Tensor, w: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        return torch.mm(x, w), torch.nn.functional.silu(z.to(torch.float32))

    module = scenario(layer, bf16(64, 64), bf16(64, 64), bf16(64, 64))
    model = priced(aten___to_copy=20 * factor, aten__sigmoid=60 * factor, aten__mul=60 * factor, aten__silu=60 * factor)
    outcome = planned(module, model)
    if factor < 0.05:
        assert outcome.verdict.code in ("no-gain", "nothing-to-overlap", "within-error")
        assert outcome.graph_module is None
        return
    assert outcome.verdict.accepted
    streams = streams_of(outcome)
    branch = [name for name in streams if name.startswith(("_to_copy", "silu", "sigmoid", "mul"))]
    assert {streams[name] for name in branch} == {streams["_to_copy"]} != {streams["mm"]}  # the cast goes with its branch
    document = outcome.document(name="", options=Options(), model=model)
    assert document.overlap.total_ns / outcome.costs["mm"].duration >= 0.05
    (row, *_) = document.overlap.rows
    assert "mm" in " ".join(row.targets) and set(row.streams) == {streams["mm"], streams["_to_copy"]}
    text = Console(width=140, record=True, file=StringIO())
    render(document, text)
    shown = text.export_text()
    assert "What runs beside what (simulated)" in shown and "mm" in shown


# -- prefetches -------------------------------------------------------------------------------------------------------------


def _prefetching(times: int, nbytes: int, shadow: int, weights: int = 1) -> fx.GraphModule:
    def layer(x: Tensor, w: Tensor, *fetched: Tensor) -> list[Tensor]:
        for weight in fetched:
            for _ in range(times):
                npu.npu_prefetch(weight, x, nbytes)
        for _ in range(shadow):
            x = torch.mm(x, w)
        return [torch.mm(x, weight) for weight in fetched]

    return scenario(layer, bf16(64, 2048), bf16(2048, 2048), *[bf16(2048, 7168)] * weights)


def _kinds(outcome: Outcome) -> list[str]:
    return [one.kind for one in outcome.findings if "prefetch" in one.kind]


@pytest.mark.parametrize(
    ("times", "mib", "shadow", "weights", "kinds"),
    [
        (1, 8, 8, 1, []),
        (2, 8, 8, 1, ["duplicate-prefetch"]),
        (3, 8, 8, 1, ["duplicate-prefetch"] * 2),
        (1, 12, 8, 1, []),
        (1, 12, 8, 2, ["prefetch-over-cache"]),
        (1, 20, 12, 1, ["prefetch-over-cache"]),
        (1, 16, 0, 1, ["prefetch-exposed"]),
    ],
)
def test_a57_prefetches_that_cannot_pay_are_named(times: int, mib: int, shadow: int, weights: int, kinds: list[str]) -> None:
    """vllm-ascend #6629, #11949: a weight fetched twice cost 5-8 %; other prefetches were longer than what hid them."""
    module = _prefetching(times, mib * 2**20, shadow, weights)
    outcome = planned(module, priced(npu__npu_prefetch=mib * 1.0, aten__mm=10.0))
    assert _kinds(outcome) == kinds
    for finding in outcome.findings:
        assert finding.severity is not Severity.ERROR and finding.remedy


@pytest.mark.parametrize("streams", [0, 2])
def test_a57_a_prefetch_stays_in_front_of_what_uses_the_weight(streams: int) -> None:
    """A schedule that moved it behind would make it useless: no value says that it must come first."""

    def layer(x: Tensor, w: Tensor, weight: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        npu.npu_prefetch(weight, x, 2**20)
        return torch.mm(torch.mm(x, w), weight.t()), torch.sigmoid(torch.tanh(y))

    module = scenario(noisy(layer), bf16(64), bf16(64, 64), bf16(64, 64), bf16(64, 64), bf16(64, 64))
    outcome = planned(module, priced(npu__npu_prefetch=5.0), side_streams=streams, min_gain=0.0)
    graph = outcome.graph
    assert graph is not None and Why.USER in graph.why("npu_prefetch", "mm_1")
    if streams:
        assert happens_before(program_of(outcome)).before("npu_prefetch", "mm_1")
