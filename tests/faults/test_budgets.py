"""K6: streams, events and bytes that one process has."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, fx

import autostream
from autostream import budget
from autostream.budget import Ledger, Limits, Need, need_of
from autostream.cost import load_chip
from autostream.demo import moe_decode_layer
from autostream.graph.capture import capture
from autostream.graph.programs import to_aten
from autostream.options import Options
from autostream.program import StreamProgram, peak_memory
from tests import models
from tests.faults.scenarios import Input, bf16, fp32, passed, planned, priced, program_of, scenario, scopes_of
from tests.program.programs import program, step

pytestmark = pytest.mark.usefixtures("npu_host")

c10d = torch.ops._c10d_functional
LIMITS = Limits.of(load_chip("910B2").machine, Options())


@pytest.fixture(autouse=True)
def _empty_ledger() -> Iterator[None]:
    budget.reset()
    yield
    budget.reset()


def _branches(rows: int) -> fx.GraphModule:
    def two(x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return torch.mm(x, w), torch.sigmoid(v)

    return scenario(two, fp32(rows, 8), fp32(8, 8), fp32(rows, 8))


# -- streams and events -----------------------------------------------------------------------------------------------------


def test_a13_a_model_cut_into_layers_fills_the_budget_after_nine_sizes() -> None:
    """vllm-ascend #9596: (62 + 1) graphs of three streams to a size; 16 sizes were asked for."""
    ledger, layer = Ledger(), Need(streams=3, events=6)
    whole = Need(streams=63 * 3, events=63 * 6)
    assert LIMITS.fit(whole) == 9
    sizes = []
    for size in range(16):
        refusals = [ledger.reserve(layer, LIMITS) for _ in range(63)]
        sizes.append(refusals.count(None))
        if size == 15:
            assert refusals[-1] is not None
            assert "600 graphs of this size fit" in refusals[-1]
    assert sizes == [63] * 9 + [600 - 9 * 63] + [0] * 6


def _joined(rows: int) -> fx.GraphModule:
    def two(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        return torch.mm(x, w) + torch.sigmoid(v)

    return scenario(two, fp32(rows, 8), fp32(8, 8), fp32(rows, 8))


@pytest.mark.parametrize("changes_the_graph", [True, False])
@pytest.mark.parametrize("what", ["streams", "events"])
def test_a13_a65_the_budget_is_one_of_the_process_over_graphs_of_every_family(what: str, changes_the_graph: bool) -> None:
    """vllm-ascend #3869: a vision tower and a language model each kept to a budget of their own."""
    families = [_joined(8), _branches(16)]
    first = need_of(program_of(planned(families[0], priced())))
    limit = {"streams": 2 * first.streams + 1, "events": 2 * first.events - 1}[what]
    options = {f"{what.removesuffix('s')}_budget": limit}
    verdicts = []
    for at in range(3):
        module = families[at % 2]
        if changes_the_graph:
            emitted, report = passed(module, cost_model=priced(), options=options)
            assert (str(emitted.graph) == str(module.graph)) is not report.verdict.accepted
        else:
            autostream.StreamPass(cost_model=priced(), options=options).judge(module)
        verdicts.append(autostream.reports()[-1].verdict)
    assert [verdict.code for verdict in verdicts] == ["accepted", "accepted", "over-budget"]
    assert f"of {limit} {what}" in verdicts[2].reason and "2 graphs compiled in this process" in verdicts[2].reason
    assert autostream.reports()[-1].shows == "refused"


def test_a13_what_is_declined_takes_only_what_it_would_take_anyway() -> None:
    passed(_branches(8), cost_model=priced())
    assert budget.process.used == Need(streams=2, events=0)
    passed(to_aten(*models.chain()).graph_module)
    assert budget.process.used == Need(streams=3, events=0)
    emitted, _ = passed(_branches(8), cost_model=priced())
    assert budget.process.used.streams == 5
    passed(emitted, cost_model=priced())  # met again in the second slot
    assert autostream.reports()[-1].verdict.code == "already-scheduled"
    assert budget.process.used.streams == 5


def test_a13_an_offline_schedule_is_judged_alone_and_takes_nothing() -> None:
    module = _branches(8)
    assert planned(module, priced(), stream_budget=2).verdict.accepted
    assert planned(module, priced(), stream_budget=2).verdict.accepted
    outcome = planned(module, priced(), stream_budget=1)
    assert outcome.verdict.code == "over-budget" and outcome.graph_module is None
    assert "0 graphs of this size fit" in outcome.verdict.reason
    assert budget.process.used.streams == 0


def test_a11_a13_streams_do_not_grow_with_the_layers() -> None:
    module, inputs = models.many_layers(3, npu=True, expert_parallel=False)
    emitted, report = passed(to_aten(module, inputs).graph_module, options={"strategy": "greedy"})
    assert report.verdict.accepted
    assert {scope["_user_stream_label"] for scope in scopes_of(emitted)} == {"autostream_1"}
    assert budget.process.used.streams == 2


def test_a40_g31_all_sizes_share_their_labels_and_the_report_tells_the_memory_of_each() -> None:
    """TorchAir 9c4bb757: a stream of its own for each size kept the sizes from sharing memory."""
    labels = set()
    for batch in (8, 64, 128):
        module, inputs = moe_decode_layer(npu=True, batch=batch, expert_parallel=False)
        emitted, report = passed(to_aten(module, inputs).graph_module, options={"min_gain": 0.0, "strategy": "greedy"})
        labels |= {scope["_user_stream_label"] for scope in scopes_of(emitted)}
        if report.verdict.accepted:
            assert report.memory is not None
            assert set(report.memory.streams) <= {"default", "autostream_1", "autostream_2"}
            assert sum(report.memory.streams.values()) == report.memory.peak_bytes
            assert "autostream_1" in report.memory.streams
    assert labels <= {"autostream_1", "autostream_2"} and "autostream_1" in labels


# -- bytes ------------------------------------------------------------------------------------------------------------------


def _many(count: int) -> fx.GraphModule:
    """Independent products, each with an elementwise operator behind it."""

    def independent(x: Tensor, *weights: Tensor) -> list[Tensor]:
        return [torch.sigmoid(torch.mm(x, weight)) for weight in weights]

    return scenario(independent, bf16(512, 512), *[bf16(512, 512)] * count)


def _gathered(count: int) -> fx.GraphModule:
    """Layers whose weights are gathered, all of which could be fetched at the start."""

    def layers(x: Tensor, y: Tensor, *shards: Tensor) -> tuple[Tensor, Tensor]:
        for shard in shards:
            x = torch.sigmoid(torch.mm(x, c10d.wait_tensor(c10d.all_gather_into_tensor(shard, 8, "tp"))))
            y = torch.mul(torch.sigmoid(y), y)
        return x, y

    inputs: list[Input] = [bf16(64, 512), bf16(64, 512), *[bf16(64, 512)] * count]
    return scenario(layers, *inputs)


@pytest.mark.parametrize("build", [_many, _gathered], ids=["g12-g32", "g25"])
@pytest.mark.parametrize("count", [4, 8])
def test_the_memory_cap_is_kept_to_the_byte(build: Callable[[int], fx.GraphModule], count: int) -> None:
    """pytorch #192628, openxla/xla #45753: overlap without a cap ran out of memory; with none to spare nothing moves."""
    module = build(count)
    before = str(module.graph)
    free = planned(module, priced(), strategy="greedy")
    assert free.verdict.accepted and free.memory is not None
    as_given = planned(module, priced(), strategy="serial")
    assert as_given.graph is not None and as_given.verdict.code == "nothing-to-overlap"
    capped = planned(module, priced(), strategy="greedy", max_extra_bytes=0)
    extra = int(capped.verdict.reason.split(" bytes more")[0].rsplit(" ", 1)[1]) if not capped.verdict.accepted else 0
    if extra:
        assert (capped.verdict.code, capped.graph_module) == ("over-memory-cap", None)
        assert planned(module, priced(), strategy="greedy", max_extra_bytes=extra).verdict.accepted
        assert not planned(module, priced(), strategy="greedy", max_extra_bytes=extra - 1).verdict.accepted
        emitted, report = passed(module, cost_model=priced(), options={"max_extra_bytes": 0, "strategy": "greedy"})
        assert str(emitted.graph) == before and report.verdict.code == "over-memory-cap"
    else:
        assert capped.memory == free.memory
    assert extra or build is _gathered


def test_a20_a_view_on_a_side_stream_holds_the_whole_buffer() -> None:
    """vllm-ascend #6479: a slice kept the gathered cache alive over the side stream."""

    def step(shard: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        big = c10d.wait_tensor(c10d.all_gather_into_tensor(shard, 8, "cp"))
        small = torch.sigmoid(big[:, :512].select(0, 0))
        for _ in range(3):
            x = torch.mm(x, w)
        return small, x

    module = scenario(step, bf16(1024, 576), bf16(512, 512), bf16(512, 512))
    outcome = planned(module, priced(), min_gain=0.0)
    whole = 8192 * 576 * 2
    assert outcome.memory is not None and outcome.graph is not None and outcome.graph_module is not None
    assert outcome.memory.held >= whole
    document = outcome.document(name="", options=Options(), model=priced())
    assert document.memory is not None and document.memory.peak_bytes >= whole
    assert sum(document.memory.streams.values()) == document.memory.peak_bytes


def test_g10_a_join_per_layer_gives_memory_back_and_none_at_all_keeps_every_layer() -> None:
    """pytorch #158352: blocks of every layer stayed reserved, ten times what a join needs."""
    storages = capture(scenario(torch.sigmoid, bf16(4096, 7168))).storages
    (buffer,) = [storage for storage in storages.values() if storage.kind == "intermediate"]

    def layers(joined: bool) -> StreamProgram:
        steps, data = [], []
        for layer in range(61):
            steps += [step(f"make{layer}", writes=[f"t{layer}"]), step(f"use{layer}", "s", reads=[f"t{layer}"])]
            data.append(f"make{layer}>use{layer}")
            if joined and layer:
                data.append(f"use{layer - 1}>make{layer}")
        return program(steps, data=data)

    sizes = {f"t{layer}": buffer for layer in range(61)}
    with_joins, without = (peak_memory(layers(joined), sizes).peak for joined in (True, False))
    assert without == 61 * buffer.nbytes
    assert without >= 10 * with_joins


# -- a graph that comes from a file ---------------------------------------------------------------------------------------


_RELOAD = """
import json, sys
import autostream
read = autostream.inspect(sys.argv[1])
print(json.dumps([[s.source, s.stream] for s in read.programs["ascend_ir"].steps]))
print(len([f for f in read.findings if f.severity == "error"]))
"""


def test_a48_a_schedule_that_is_loaded_in_a_new_process_has_the_same_streams(tmp_path: Path) -> None:
    """TorchAir b83c5b1e, b7253457: stream numbers and pools of one process mean nothing in the next one."""
    result = autostream.schedule(*models.mixture(8), chip="910B2", options={"strategy": "greedy"})
    assert result.verdict.accepted and result.ascend_ir is not None
    (dump,) = [path for path in result.save(tmp_path) if path.suffix == ".pbtxt"]
    here = autostream.inspect(dump)
    done = subprocess.run([sys.executable, "-c", _RELOAD, str(dump)], capture_output=True, text=True, check=True)
    there, errors = done.stdout.splitlines()[-2:]
    assert json.loads(there) == [[step.source, step.stream] for step in here.programs["ascend_ir"].steps]
    assert {"autostream_1", "default"} <= {step.stream for step in here.programs["ascend_ir"].steps}
    assert errors == "0"
