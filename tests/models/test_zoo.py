"""The zoo: architectures with the published sizes, traced without memory, planned, and controls left alone."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path

import pytest
import torch

from autostream.chips import cost_model
from autostream.graph import Unit
from autostream.graph.capture import capture
from autostream.graph.programs import AtenProgram, to_aten
from autostream.options import Options
from autostream.outcome import Outcome
from autostream.pipeline import plan
from autostream.program import Severity
from autostream.rewrite.air import Air
from autostream.scheduling import build_problem, check
from autostream.scheduling.baselines import BASELINES
from tests.models import hrnet, inception, nasnet, randwire, residual, serving, vit
from tests.models.handwritten import PATTERNS
from tests.models.zoo import ZOO

#: Small enough to export and plan in every run of the tests.
_SMALL = [
    "cnn/squeezenet",
    "control/chain",
    "control/tiny-vector",
    "npu/moe-w8a8-ep16-b64",
    "npu/moe-bf16-ep1-b1",
    "npu/mla-fused",
    "npu/mla-parts",
    "npu/dsa",
    "npu/longcat-1l",
    "npu/kv-cache",
]

#: Parameters without auxiliary heads, as the common public implementations of the papers have them.
_PARAMETERS = {
    inception.squeezenet: 1_235_496,
    inception.googlenet: 6_624_904,
    inception.inception_v3: 23_834_568,
    nasnet.nasnet_large: 88_753_150,
    hrnet.hrnet_w18: 21_299_004,
    residual.resnet50: 25_557_032,
    residual.densenet121: 7_978_856,
    vit.vit_b: 86_567_656,
}


@functools.cache
def _program(name: str) -> AtenProgram:
    """Trace a model once: planning leaves its graph alone, which a test below checks."""
    missing = ZOO[name].missing()
    if missing:
        pytest.skip(missing)
    return ZOO[name].program()


def _plan(program: AtenProgram) -> Outcome:
    options = Options(strict=True, strategy="greedy")  # the solver has tests of its own
    return plan(program.graph_module, model=cost_model("910B2"), options=options, dialect=Air())


def _products(program: AtenProgram) -> int:
    counts = Counter(getattr(node.target, "_opname", "") for node in program.graph_module.graph.nodes)
    return sum(counts[name] for name in ("convolution", "mm", "addmm", "bmm"))


@pytest.mark.parametrize(("build", "expected"), _PARAMETERS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_an_architecture_has_the_published_number_of_parameters(build: object, expected: int) -> None:
    module, inputs = build()
    assert sum(parameter.numel() for parameter in module.parameters()) == expected
    assert all(tensor.device.type == "meta" for tensor in (*module.parameters(), *inputs))


def test_every_name_begins_with_its_family_and_every_pattern_names_a_model() -> None:
    assert all(name == entry.name and entry.family in {"cnn", "control", "llm", "npu"} for name, entry in ZOO.items())
    assert all(pattern.model in ZOO for pattern in PATTERNS.values())
    assert {entry.expected for entry in ZOO.values() if entry.family == "control"} == {"control"}


@pytest.mark.parametrize("name", _SMALL)
def test_a_small_model_is_planned(name: str) -> None:
    outcome = _plan(_program(name))
    assert outcome.schedule is not None
    assert outcome.verdict.lower_bound_ns <= outcome.schedule.makespan
    assert not [finding for finding in outcome.findings if finding.severity is Severity.ERROR]
    assert outcome.graph is not None and all(op.known for op in outcome.graph)


@pytest.mark.parametrize("name", ["control/chain", "control/tiny-vector", "npu/mla-fused"])
def test_a_control_is_declined_and_its_graph_left_as_it_was(name: str) -> None:
    program = _program(name)
    before = program.graph_module.print_readable(print_output=False)
    outcome = _plan(program)
    assert not outcome.verdict.accepted and outcome.graph_module is None
    assert outcome.verdict.code in {"nothing-to-overlap", "no-gain"}
    assert program.graph_module.print_readable(print_output=False) == before


@pytest.mark.parametrize("name", ["cnn/squeezenet", "npu/dsa", "npu/longcat-1l"])
def test_the_rules_of_other_systems_are_feasible_on_real_models(name: str) -> None:
    outcome = _plan(_program(name))
    assert outcome.graph is not None
    problem = build_problem(outcome.graph, outcome.costs, cost_model("910B2").machine, Options(side_streams=3))
    for baseline, strategy in BASELINES.items():
        assert check(problem, strategy().solve(problem)) == (), baseline


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cnn/squeezenet", 26),
        pytest.param("cnn/googlenet", 58, marks=pytest.mark.slow),
        pytest.param("cnn/inception-v3", 95, marks=pytest.mark.slow),
        pytest.param("cnn/nasnet-a", 489, marks=pytest.mark.slow),
        pytest.param("cnn/hrnet-w18", 326, marks=pytest.mark.slow),
        pytest.param("control/resnet50", 54, marks=pytest.mark.slow),
        pytest.param("control/densenet121", 121, marks=pytest.mark.slow),
    ],
)
def test_a_traced_classifier_has_the_products_of_its_architecture(name: str, expected: int) -> None:
    assert _products(_program(name)) == expected


def test_a_small_world_has_the_same_wiring_in_every_run_and_each_edge_runs_forwards() -> None:
    wirings = randwire.small_world(seed=1)
    assert wirings == randwire.small_world(seed=1) != randwire.small_world(seed=2)
    assert [len(stage) for stage in wirings] == [16, 32, 32, 32]
    assert [sum(map(len, stage)) for stage in wirings] == [32, 64, 64, 64]
    assert all(before < node for stage in wirings for node, row in enumerate(stage) for before in row)


def test_graph_files_give_the_wiring_they_hold(shared: Path) -> None:
    wirings = randwire.from_files(shared / "data" / "ios_randwire")
    assert [len(stage) for stage in wirings] == [16, 32, 32, 32]
    assert wirings[0][6] == [0, 1, 2, 4]


def test_layers_repeat_the_same_operators() -> None:
    if (missing := ZOO["npu/decode-1l"].missing()) is not None:
        pytest.skip(missing)
    counts = []
    for layers in (1, 3):
        module, inputs = serving.decode_layers(8, layers)
        graph = capture(to_aten(module, inputs).graph_module)
        counts.append(Counter(op.target for op in graph if op.unit is not Unit.FREE))
    assert counts[1] == Counter({target: 3 * count for target, count in counts[0].items()})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("shared-beside-routed-w8a8-ep1-b64", {"npu_quant_matmul": 2, "npu_dynamic_quant": 2, "npu_swiglu": 1}),
        ("shared-beside-routed-bf16-ep16-b64", {"mm": 2, "npu_swiglu": 1}),
        ("mla-prolog", {"mm": 1, "npu_kv_rmsnorm_rope_cache": 1}),
        ("dsa-indexer-prolog", {"mm": 3, "npu_scatter_nd_update": 1}),
    ],
)
def test_a_hand_written_pattern_puts_its_branch_on_the_side_stream(name: str, expected: dict[str, int]) -> None:
    graph = capture(_program(PATTERNS[name].model).graph_module)
    side = Counter(graph.ops[op].target.split(".")[1] for op in PATTERNS[name].side(graph))
    assert {kind: side[kind] for kind in expected} == expected
    assert not any("grouped_matmul" in kind or "attention" in kind or "lightning_indexer" in kind for kind in side)


def test_longcat_by_hand_moves_the_whole_mixture_of_experts() -> None:
    graph = capture(_program("npu/longcat-1l").graph_module)
    side = PATTERNS["longcat-two-streams"].side(graph)
    assert {name for name, op in graph.ops.items() if "moe" in op.target and op.unit is not Unit.FREE} <= side
    assert not any("prolog" in graph.ops[name].target or "attention" in graph.ops[name].target for name in side)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(ZOO) - set(_SMALL) - {"npu/decode-61l"}))
def test_every_model_is_planned(name: str) -> None:
    outcome = _plan(_program(name))
    assert outcome.verdict.code not in {"error", "unverified", "unsupported", "dynamic-shape"}
    assert not outcome.verdict.accepted or outcome.verdict.gain_low > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llm/llama-8b-4l"])
def test_a_transformers_model_is_traced_without_weights(name: str) -> None:
    pytest.importorskip("transformers", reason="pip install autostream[zoo]")
    program = _program(name)
    assert all(value.device.type in {"meta", "cpu"} for value in program.example_inputs if isinstance(value, torch.Tensor))
    assert _products(program) >= 4 * 7
