"""Planning from real dumps, with and without a profile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from autostream import offline
from autostream.cost.model import Cost, CostModel, Machine, Tier
from autostream.dumps import DumpPlan, schedule_dump
from autostream.errors import InputError
from autostream.graph.model import Op, Unit
from autostream.options import Options
from autostream.outcome import Outcome
from autostream.pipeline import plan
from autostream.program import EdgeKind, Severity, read_ascend_ir, verify
from autostream.program.reading.ge_dump import load_ops
from autostream.rewrite.air import Air
from tests.dumps.conftest import Demo
from tests.dumps.handwritten import branches, node
from tests.dumps.profiles import profile_of
from tests.rewrite.graphs_fx import traced

#: What the nodes of the demo layer take in the profile, us.
TIMES = {
    "RmsNorm": 6.0, "Cast": 4.0, "MatMul": 12.0, "MoeGatingTopK": 8.0, "MoeDistributeDispatchV2": 60.0, "GroupedMatmul": 150.0,
    "DequantSwigluQuant": 12.0, "GroupedMatmul_1": 90.0, "MoeDistributeCombineV2": 70.0, "DynamicQuant": 5.0,
    "QuantBatchMatmulV3": 30.0, "SwiGlu": 4.0, "DynamicQuant_1": 4.0, "QuantBatchMatmulV3_1": 25.0, "Add": 4.0, "Add_1": 4.0,
}  # fmt: skip


class SameCosts:
    """The prices of a plan's nodes, for the FX nodes they were converted from."""

    def __init__(self, planned: DumpPlan, machine: Machine) -> None:
        self._costs = {
            op.source_line.removeprefix("FX node "): planned.costs[name]
            for name, op in planned.graph.ops.items()
            if op.unit is not Unit.FREE
        }
        self._machine = machine

    @property
    def machine(self) -> Machine:
        return self._machine

    def estimate(self, op: Op) -> Cost:
        return self._costs[op.name]

    def fingerprint(self) -> str:
        return "the same costs"


def fx_road(demo: Demo, planned: DumpPlan) -> Outcome:
    from autostream.chips import cost_model

    model: CostModel = SameCosts(planned, cost_model("910B2").machine)
    return plan(demo.program.graph_module, model=model, options=Options(strict=True), dialect=Air())


@pytest.fixture(scope="module")
def profile(demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return profile_of(demo.forms["pbtxt"], tmp_path_factory.mktemp("profile") / "kernel_details.csv", TIMES)


@pytest.fixture(scope="module")
def planned(demo: Demo, profile: Path) -> DumpPlan:
    return schedule_dump(demo.forms["pbtxt"], profile=profile, chip="910B2", options={"strict": True})


def test_nodes_cost_what_their_kernels_took(planned: DumpPlan) -> None:
    assert {name: planned.costs[name].duration for name in TIMES} == {name: round(us * 1000) for name, us in TIMES.items()}
    assert {planned.costs[name].tier for name in TIMES} == {Tier.MEASURED}
    assert sorted(planned.tiers.by_name) == sorted(TIMES)
    assert planned.match.matched_share == 1.0 and planned.match.unmatched == ()


def test_the_plan_gains_as_much_as_that_of_the_fx_graph(demo: Demo, planned: DumpPlan) -> None:
    other = fx_road(demo, planned)
    assert planned.verdict.accepted and other.verdict.accepted
    assert planned.verdict.serial_ns == other.verdict.serial_ns
    assert planned.verdict.gain > 0.05
    assert planned.verdict.gain == pytest.approx(other.verdict.gain, abs=0.005)


def test_kernels_of_other_names_are_matched_by_type_and_shapes(demo: Demo, tmp_path: Path) -> None:
    path = profile_of(demo.forms["pbtxt"], tmp_path / "kernel_details.csv", TIMES, rename=lambda name: f"aclnn{name}x")
    plan_by_shape = schedule_dump(demo.forms["pbtxt"], profile=path, chip="910B2", options={"strict": True})
    assert plan_by_shape.tiers.by_name == ()
    computing = {name for name in TIMES if not name.startswith("MoeDistribute")}
    assert set(plan_by_shape.tiers.by_shape) == computing
    assert plan_by_shape.costs["MatMul"].duration == 12_000
    assert {group.type for group in plan_by_shape.match.unmatched} == {"MoeDistributeDispatchV2", "MoeDistributeCombineV2"}
    assert any("MoeDistributeDispatchV2" in note for note in plan_by_shape.report.notes)


def test_names_with_scope_and_suffix_are_nodes_too(demo: Demo, tmp_path: Path) -> None:
    names = {"MatMul": "model/layer/MatMul", "Cast": "Cast_ND_a1b2c3d4e5f6"}
    path = profile_of(
        demo.forms["pbtxt"], tmp_path / "kernel_details.csv", {name: TIMES[name] for name in names}, rename=names.__getitem__
    )
    found = schedule_dump(demo.forms["pbtxt"], profile=path, chip="910B2")
    assert set(found.tiers.by_name) == set(names)
    # What did not run is scaled by others of its kind or analytic, and told apart.
    assert found.tiers.analytic and found.tiers.total == len(TIMES)
    assert any(note.startswith("14 nodes without a kernel: RmsNorm") for note in found.report.notes)


def test_a_profile_of_another_model_is_refused(demo: Demo, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text(branches())
    path = profile_of(other, tmp_path / "kernel_details.csv", {"MatMul": 30.0, "v0": 9.0})
    with pytest.raises(InputError, match=r"none of its 6 kernels belongs to a node of .*demo.pbtxt.*MatMul \(3\)"):
        schedule_dump(demo.forms["pbtxt"], profile=path, chip="910B2")


@pytest.mark.parametrize("form", ["pbtxt", "txt", "pb"])
def test_the_rewritten_dump_is_the_plan(demo: Demo, form: str, planned: DumpPlan, tmp_path: Path) -> None:
    found = schedule_dump(demo.forms[form], chip="910B2")
    assert found.rewritten is not None
    path = tmp_path / f"again.{form}"
    path.write_bytes(found.rewritten)
    program = read_ascend_ir(path, in_order=True)
    labels = {node.node: node.stream for node in found.nodes}
    assert {step.name: step.stream for step in program.steps if step.stream is not None} == labels
    assert sum(stream.startswith("autostream_") for stream in labels.values()) >= 5
    assert not [finding for finding in verify(program) if finding.severity is Severity.ERROR]
    # Nothing else has changed.
    before = {op.name: op for op in load_ops(demo.forms[form])}
    after = {op.name: op._replace(label=None, controls=()) for op in load_ops(path)}
    assert after == before
    # A schedule on top of a schedule is refused.
    plan = schedule_dump(path, chip="910B2")
    assert plan.verdict.code == "already-scheduled"
    assert not [note for note in plan.report.notes if "planned from a dump" in note or "the plan holds" in note]


def test_saved_files(planned: DumpPlan, tmp_path: Path) -> None:
    names = {path.name for path in planned.save(tmp_path / "new")}
    assert names == {
        "report.json", "report.html", "ops.csv", "trace_view.json", "plan.json", "plan.csv", "scheduled_demo.pbtxt",
    }  # fmt: skip
    data = json.loads((tmp_path / "new" / "plan.json").read_text())
    assert data["accepted"] and data["topology_sorting_strategy"] == "StableRDFS"
    assert [entry["node"] for entry in data["nodes"]] == [step.name for step in _tasks(planned)]
    assert [entry["label"] for entry in data["nodes"] if entry["node"] == "RmsNorm"] == [_stream(planned, "RmsNorm")]
    rows = (tmp_path / "new" / "plan.csv").read_text().splitlines()
    assert len(rows) == 1 + len(data["nodes"]) and rows[0].startswith("position,node,type,fx_node,stream")


def _tasks(planned: DumpPlan) -> list[Any]:
    assert planned.program is not None
    return [step for step in planned.program.steps if step.stream is not None]


def _stream(planned: DumpPlan, name: str) -> str | None:
    stream = next(step.stream for step in _tasks(planned) if step.name == name)
    return None if stream in ("default", "hccl") else stream


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "graph.txt"
    path.write_text(text)
    return path


def test_an_order_that_no_value_carries_becomes_a_control_edge(tmp_path: Path) -> None:
    """`Assign` overwrites what the vector chain read first: nothing but a control edge can say so across streams."""
    big = (4096, 4096)
    extra = node("Assign", "Assign", ["x:0", "MatMul:0"], big, ports=["ref", "value"], out="ref")
    found = schedule_dump(write(tmp_path, branches(extra=extra)), chip="910B2", options={"strict": True})
    assert found.graph.why("v0", "Assign") and found.program is not None
    controls = {(edge.before, edge.after) for edge in found.program.edges if edge.kind is EdgeKind.CONTROL}
    assert ("v0", "Assign") in controls
    assert found.verdict.accepted
    assert {entry.node: entry.waits for entry in found.nodes if entry.waits} == {"Assign": ("v0",)}
    assert b'input: "v0:-1"' in (found.rewritten or b"")


def test_the_labels_of_the_user_stay(tmp_path: Path) -> None:
    text = branches().replace(
        'name: "v0" type: "Exp"', 'name: "v0" type: "Exp" attr { key: "_user_stream_label" value { s: "mine" } }'
    )
    found = schedule_dump(write(tmp_path, text), chip="910B2", options={"strict": True})
    assert found.graph.ops["v0"].stream == "mine"
    assert next(entry for entry in found.nodes if entry.node == "v0").stream == "mine"
    assert next(entry for entry in found.nodes if entry.node == "v0").label is None


def test_collectives_keep_one_order_and_are_dealt_out_by_it(tmp_path: Path) -> None:
    from tests.profiles import files

    big = (4096, 4096)
    text = branches(
        extra=node("c1", "HcomAllReduce", ["x:0"], big, group="tp") + node("c2", "HcomAllReduce", ["w:0"], big, group="tp")
    )
    path = write(tmp_path, text.replace('input: "v5:0"', 'input: "v5:0" input: "c1:0" input: "c2:0"'))
    rows = [
        files.at(files.HCOM, str(1000 + 300 * step + 200 * place), took, Step_Id=str(step))
        for step in (1, 2, 3)
        for place, took in enumerate(("100.0", "50.0"))
    ]
    profile = tmp_path / "kernel_details.csv"
    profile.write_text(files.table(rows))
    found = schedule_dump(path, profile=profile, chip="910B2", options={"strict": True})
    assert found.tiers.by_order == ("c1", "c2")
    assert (found.costs["c1"].duration, found.costs["c2"].duration) == (100_000, 50_000)
    assert found.graph.dag.has_edge("c1", "c2")


def test_what_has_no_shape_or_no_table_entry_is_listed(tmp_path: Path) -> None:
    odd = node("Odd", "MyOwnKernel", ["x:0"], (4096, 4096)) + node("Blind", "SoftmaxV2", ["Odd:0"], None)
    odd += node("After", "ReduceSum", ["Blind:0"], None)
    found = schedule_dump(write(tmp_path, branches(extra=odd)), chip="910B2")
    assert set(found.tiers.unknown) == {"Odd", "After"}
    told = next(note for note in found.report.notes if note.startswith("unknown price"))
    assert "Odd (MyOwnKernel): the type is not in the table of kernels" in told
    assert "After (ReduceSum): the dump does not tell the shape of 'Blind'" in told


def test_dynamic_and_nested_graphs_are_declined(tmp_path: Path) -> None:
    dynamic = schedule_dump(write(tmp_path, branches(extra=node("d", "Exp", ["x:0"], (-1, 4096)))), chip="910B2")
    assert dynamic.verdict.code == "dynamic-shape" and "'d' (Exp)" in dynamic.verdict.reason
    assert dynamic.nodes == () and dynamic.rewritten is None
    nested = schedule_dump(write(tmp_path, branches(extra=node("i", "If", ["x:0"]))), chip="910B2")
    assert nested.verdict.code == "unsupported"


def test_the_options_decide_as_they_do_for_a_program(tmp_path: Path) -> None:
    path = write(tmp_path, branches())
    free = schedule_dump(path, chip="910B2")
    assert free.verdict.accepted and free.verdict.gain > 0.1
    assert schedule_dump(path, chip="910B2", options={"min_gain": 0.9}).verdict.code == "no-gain"
    assert schedule_dump(path, chip="910B2", options={"side_streams": 0}).verdict.code == "nothing-to-overlap"
    assert schedule_dump(path, chip="910B2", options={"stream_budget": 1}).verdict.code == "over-budget"
    waiting = schedule_dump(path, chip="910B2", options={"max_waits": free.verdict.cross_edges - 1})
    assert waiting.verdict.code == "over-wait-cap" and waiting.rewritten is None
    limited = schedule_dump(path, chip="910B2", options={"core_limits": True})
    assert any(note.startswith("core_limits was not applied") for note in limited.report.notes)
    capped = schedule_dump(path, chip="910B2", options={"max_extra_bytes": 0})
    assert capped.verdict.code == "over-memory-cap" and capped.rewritten is None
    assert not any(entry.label or entry.waits for entry in capped.nodes)


def test_a_cycle_is_told(tmp_path: Path) -> None:
    text = branches().replace('name: "v0" type: "Exp" input: "x:0"', 'name: "v0" type: "Exp" input: "v5:0"')
    with pytest.raises(InputError, match="wait for each other: v1 -> v2"):
        schedule_dump(write(tmp_path, text), chip="910B2", options={"strict": True})


def test_a_dump_in_a_model_is_rewritten_where_it_stands(tmp_path: Path) -> None:
    text = '# a model\nname: "m { op {" graph { name: "g"\n' + branches() + "}\n"
    found = schedule_dump(write(tmp_path, text), chip="910B2")
    assert found.verdict.accepted and found.rewritten is not None
    again = found.rewritten.decode()
    assert again.startswith('# a model\nname: "m { op {" graph { name: "g"\n') and again.endswith("}\n")
    assert {op.label for op in load_ops(again)} == {None, "autostream_1"}


def test_a_dump_that_returns_nothing_is_told(tmp_path: Path) -> None:
    whole, cut = branches(), branches().partition('op { name: "out"')[0]
    told = [any("no NetOutput" in note for note in schedule_dump(write(tmp_path, text)).report.notes) for text in (whole, cut)]
    assert told == [False, True]


def test_the_same_files_give_the_same_bytes(demo: Demo, profile: Path, planned: DumpPlan) -> None:
    again = schedule_dump(demo.forms["pbtxt"], profile=profile, chip="910B2", options={"strict": True})
    assert again.to_json() == planned.to_json()
    assert again.rewritten == planned.rewritten


@pytest.fixture(scope="module")
def convolutions(npu_host: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Branches of convolutions with ReLUs behind them, and one kind of activation that stays a kernel; made by TorchAir."""

    def block(x: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
        branches = [torch.relu(torch.conv2d(x, weight, padding=1)) for weight in (first, second)]
        return branches[0] + branches[1], torch.nn.functional.leaky_relu(torch.conv2d(x, first))

    path = tmp_path_factory.mktemp("convolutions") / "dump.pbtxt"
    path.write_text(offline.convert(traced(block, (8, 64, 56, 56), (64, 64, 3, 3), (64, 64, 3, 3))).pbtxt)
    return path


def test_a_relu_behind_a_convolution_is_part_of_its_kernel_as_in_a_program(convolutions: Path) -> None:
    planned = schedule_dump(convolutions, chip="910B2")
    took = {name: planned.costs[name].duration for name in planned.graph.ops if "elu" in name.lower()}
    assert (took.pop("Relu"), took.pop("Relu_1")) == (0, 0)
    assert took and all(took.values())  # LeakyRelu shares their row of the table
    assert planned.tiers.total == sum(op.unit is not Unit.FREE for op in planned.graph) - 2
    older = schedule_dump(convolutions, chip="310P3")
    assert older.costs["Relu"].duration and older.costs["Relu_1"].duration


def test_a_relu_with_a_kernel_in_the_profile_costs_what_that_took(convolutions: Path, tmp_path: Path) -> None:
    times = {"Conv2D": 60.0, "Conv2D_1": 60.0, "Conv2D_2": 50.0, "Relu": 9.0, "Add": 9.0}
    planned = schedule_dump(convolutions, chip="910B2", profile=profile_of(convolutions, tmp_path / "profile.csv", times))
    assert planned.costs["Relu"].duration == 9_000
    assert planned.costs["Relu_1"].duration == 0
