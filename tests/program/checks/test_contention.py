from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autostream.cost.model import Cost
from autostream.program import Finding, Semantics, Severity, StreamProgram, verify
from autostream.program.kinds import is_collective
from tests.program.gangs import A3, concurrent_sets, cost, gang_programs, mended, torchair_conflicts
from tests.program.programs import found, program, step

DISPATCH = "npu.npu_moe_distribute_dispatch_v2.default"
FUSED = "npu.npu_dispatch_ffn_combine.default"
GATHER = "_c10d_functional.all_gather_into_tensor.default"
REDUCE = "_c10d_functional.all_reduce.default"
EXCHANGE = "_c10d_functional.all_to_all_single.default"
MATMUL = "npu.npu_quant_matmul.default"
ATTENTION = "npu.npu_fused_infer_attention_score.default"
CORES = st.sampled_from([0, 8, 16, 24, 32, 48])


def _check(
    emitted: StreamProgram, costs: dict[str, Cost] | None = None, groups: dict[str, str] | None = None
) -> tuple[Finding, ...]:
    return verify(emitted, costs=costs, machine=A3, groups=groups)


def _of(findings: Iterable[Finding], kind: str) -> list[Finding]:
    return [finding for finding in findings if finding.kind == kind]


def _two(one: str, two: str, *, control: Iterable[str] = ()) -> StreamProgram:
    """Two steps on two streams, joined by a third."""
    return program([step("a", kind=one), step("b", "s", kind=two), step("join")], data=["a>join", "b>join"], control=control)


# -- gangs ----------------------------------------------------------------------------------------------------------------


def test_a01_fused_dispatch_and_all_reduce_on_vector_cores_never_overlap() -> None:
    steps = [
        step("x"),
        step("fused", kind=FUSED),
        *(step(name, "s", kind=MATMUL) for name in ("up", "act", "down")),
        step("reduce", "s", kind=REDUCE),
        step("add"),
    ]
    data = ["x>fused", "x>up", "up>act", "act>down", "down>reduce", "fused>add", "reduce>add"]
    costs = {
        "fused": cost(48),
        "reduce": cost(16),
        "up": cost(aic=24, comm=0),
        "down": cost(aic=24, comm=0),
        "act": cost(48, comm=0),
    }
    findings = _check(program(steps, data=data), costs)
    (finding,) = _of(findings, "gang-deadlock")
    assert finding.severity is Severity.ERROR
    assert finding.explanation.startswith("gang AIV sum 64 > 48: 'fused' (48) on stream 'default', 'reduce' (16) on stream 's'")
    assert (finding.steps, finding.streams) == (("fused", "reduce"), ("default", "s"))
    assert finding.remedy.startswith("make 'reduce' wait for 'fused'")
    assert _check(program(steps, data=data, control=["fused>reduce"]), costs) == ()
    assert _check(program(steps, data=data, control=["reduce>fused"]), costs) == ()


@pytest.mark.parametrize(
    ("one", "two", "total"),
    [
        (cost(32), cost(24), 56),
        (cost(24), cost(24), None),
        (cost(32), cost(16), None),
        (cost(24), cost(aic=12), None),  # a mixed kernel takes two vector cores to a cube core
        (cost(32), cost(aic=12), 56),
        (cost(32), cost(aic=12, aiv=24), 56),
        (cost(aic=16), cost(aic=16), 64),
    ],
)
def test_a03_gangs_must_fit_together_as_in_torchair(one: Cost, two: Cost, total: int | None, tmp_path: Path) -> None:
    beside = _two(GATHER, DISPATCH)
    found = _of(_check(beside, {"a": one, "b": two}), "gang-deadlock")
    assert [finding.explanation.split(":")[0] for finding in found] == ([f"gang AIV sum {total} > 48"] if total else [])
    assert torchair_conflicts(beside, {"a": one, "b": two, "join": cost()}, tmp_path) == ({"a", "b"} if total else set())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(emitted=gang_programs(streams=("default", "s")), data=st.data())
def test_on_two_streams_we_agree_with_torchair(emitted: StreamProgram, data: st.DataObject, tmp_path: Path) -> None:
    costs = {one.name: cost(data.draw(CORES)) for one in emitted.steps}
    findings = _of(_check(emitted, costs), "gang-deadlock")
    theirs = torchair_conflicts(emitted, costs, tmp_path)
    assert {name for finding in findings for name in finding.steps} <= theirs
    assert bool(findings) == bool(theirs)


def test_three_gangs_that_fit_in_pairs_are_rejected_where_torchair_sees_only_pairs(tmp_path: Path) -> None:
    steps = [step(name, stream, kind=DISPATCH) for name, stream in (("a", "default"), ("b", "s"), ("c", "t"))]
    costs = {name: cost(20) for name in "abc"}
    (finding,) = _of(_check(program(steps), costs), "gang-deadlock")
    assert finding.explanation.startswith("gang AIV sum 60 > 48")
    assert finding.steps == ("a", "b", "c")
    assert torchair_conflicts(program(steps), costs, tmp_path) == set()
    assert _of(_check(program(steps, control=["a>c"]), costs), "gang-deadlock") == []


@pytest.mark.parametrize("kind", ["NonZero", "aten.nonzero.default", "aten.nonzero_static.default"])
def test_compute_that_needs_every_core_at_once_is_a_gang_without_a_cost(kind: str) -> None:
    (finding,) = _of(_check(_two(kind, REDUCE), {"b": cost(16)}), "gang-deadlock")
    assert finding.explanation.startswith("gang AIV sum 64 > 48")
    assert _of(_check(_two(kind, REDUCE), {"b": cost(0)}), "gang-deadlock") == []


@settings(max_examples=60, deadline=None)
@given(emitted=gang_programs(), data=st.data())
def test_the_heaviest_concurrent_set_is_found(emitted: StreamProgram, data: st.DataObject) -> None:
    costs = {one.name: cost(data.draw(CORES), aic=data.draw(st.sampled_from([0, 0, 12]))) for one in emitted.steps}
    need = {name: max(one.resources.aiv, 2 * one.resources.aic) for name, one in costs.items()}
    sums = {
        frozenset(one.name for one in chosen if need[one.name]): sum(need[one.name] for one in chosen)
        for chosen in concurrent_sets(emitted, stream_order=True)
    }
    findings = [one for one in _of(_check(emitted, costs), "gang-deadlock") if "AIV" in one.explanation]
    assert bool(findings) == (max(sums.values()) > A3.aiv)
    named = [sums[frozenset(finding.steps)] for finding in findings]
    assert all(f"gang AIV sum {total} > 48" in finding.explanation for total, finding in zip(named, findings, strict=True))
    assert max(named, default=A3.aiv) == max(*sums.values(), A3.aiv)


@settings(max_examples=40, deadline=None)
@given(emitted=gang_programs(in_order=False), data=st.data())
def test_what_only_a_re_sorted_stream_makes_concurrent_is_a_warning(emitted: StreamProgram, data: st.DataObject) -> None:
    costs = {one.name: cost(data.draw(CORES)) for one in emitted.steps}

    def heaviest(*, stream_order: bool) -> int:
        return max(
            sum(costs[one.name].resources.aiv for one in chosen) for chosen in concurrent_sets(emitted, stream_order=stream_order)
        )

    kept, free = heaviest(stream_order=True), heaviest(stream_order=False)
    findings = _of(_check(emitted, costs), "gang-deadlock")
    assert (Severity.ERROR in {finding.severity for finding in findings}) == (kept > A3.aiv)
    assert bool(findings) == (free > A3.aiv)


def test_a_set_is_not_said_twice_where_streams_may_be_re_sorted() -> None:
    emitted = program([step("a", kind="custom"), step("b", "s", kind="custom")], in_order=False)
    assert found(_check(emitted, {"a": cost(32), "b": cost(32)}), Severity.ERROR) == ["gang-deadlock"]
    assert found(_check(emitted, {"a": cost(32), "b": cost(32)}), Severity.WARNING) == []


def test_a_remedy_follows_the_order_of_emission() -> None:
    """The engine could run x, b, c, a; but as it was emitted a comes before x, so b must be the one that waits."""
    steps = [step("a", "s", kind="custom"), step("x", "s"), step("b", "t", kind="custom"), step("c", "u")]
    emitted = program(steps, control=["c>a", "x>b"], in_order=False)
    (finding,) = _check(emitted, {"a": cost(32), "b": cost(32)})
    assert (finding.severity, finding.steps) == (Severity.WARNING, ("a", "b"))
    assert finding.remedy.startswith("make 'b' wait for 'a'")


@settings(max_examples=30, deadline=None)
@given(emitted=gang_programs(), data=st.data())
def test_the_edges_the_findings_ask_for_mend_the_program(emitted: StreamProgram, data: st.DataObject) -> None:
    costs = {one.name: cost(data.draw(CORES)) for one in emitted.steps}
    safe = mended(emitted, costs)
    assert found(_check(safe, costs)) == []


def test_regions_that_are_apart_are_reported_one_by_one() -> None:
    steps = [step(f"{name}{i}", stream, kind=DISPATCH) for i in range(3) for name, stream in (("a", "default"), ("b", "s"))]
    barriers = [f"{one}{i}>{two}{i + 1}" for i in range(2) for one, two in ("ab", "ba")]
    costs = {one.name: cost(32) for one in steps}
    findings = _of(_check(program(steps, control=barriers), costs), "gang-deadlock")
    assert [finding.steps for finding in findings] == [("a0", "b0"), ("a1", "b1"), ("a2", "b2")]


def test_a_kernel_that_communicates_is_a_gang_even_if_its_cost_holds_no_engine() -> None:
    costs = {"a": cost(aic=24, comm=0), "b": cost(16)}
    (finding,) = _of(_check(_two(FUSED, REDUCE), costs), "gang-deadlock")
    assert finding.explanation.startswith("gang AIV sum 64 > 48")
    assert _of(_check(_two(MATMUL, REDUCE), costs), "gang-deadlock") == []


def test_steps_that_give_back_their_cores_or_have_no_task_are_no_gangs() -> None:
    assert _check(_two("matmul", "matmul"), {"a": cost(48, aic=24, comm=0), "b": cost(48, aic=24, comm=0)}) == ()
    assert _of(_check(_two(REDUCE, REDUCE), {"a": cost(0), "b": cost(48)}), "gang-deadlock") == []
    assert _check(program([step("a", None, kind=DISPATCH), step("b", "s", kind=DISPATCH)]), {"a": cost(48), "b": cost(48)}) == ()


def test_one_gang_larger_than_the_chip_can_never_start() -> None:
    (finding,) = _check(program([step("a", kind=DISPATCH)]), {"a": cost(56)})
    assert (finding.kind, finding.severity) == ("gang-deadlock", Severity.ERROR)
    assert finding.remedy == "limit 'a' to 48 cores"


def test_cube_cores_have_their_own_capacity() -> None:
    narrow = verify(_two("custom", "custom"), costs={"a": cost(aic=16), "b": cost(aic=16)}, machine=A3)
    assert [finding.explanation.split(":")[0] for finding in narrow] == ["gang AIV sum 64 > 48"]  # the same set, said once
    fits = _of(_check(_two("custom", "custom"), {"a": cost(aic=12), "b": cost(aic=12)}), "gang-deadlock")
    assert fits == []


def test_costs_by_fx_node_are_those_of_the_task_that_communicates() -> None:
    steps = [
        step("Dispatch", kind="MoeDistributeDispatchV2", source="dispatch"),
        step("Cast", kind="Cast", source="dispatch"),
        step("Reduce", "s", kind="HcomAllReduce", source="reduce"),
        step("Add", source="add"),
    ]
    emitted = program(steps, data=["Dispatch>Cast", "Cast>Add", "Reduce>Add"])
    (finding,) = _of(_check(emitted, {"dispatch": cost(48), "reduce": cost(16)}), "gang-deadlock")
    assert finding.steps == ("Dispatch", "Reduce")
    assert finding.streams == ("default", "s")


def test_costs_by_fx_node_are_those_of_the_last_task_if_none_is_known_to_communicate() -> None:
    steps = [step("Cast", source="own"), step("Own", source="own"), step("Other", "s", source="other")]
    costs = {"own": cost(48), "other": cost(16)}
    (finding,) = _check(program(steps), costs)
    assert finding.steps == ("Own", "Other")
    (finding,) = _check(program(steps), costs | {"Cast": cost(56), "Own": cost(8)})
    assert finding.steps == ("Cast", "Other")


def test_without_costs_machine_or_groups_nothing_is_said_of_contention() -> None:
    emitted = _two("custom", "custom")
    costs = {"a": cost(48), "b": cost(48)}
    assert verify(emitted) == ()
    assert verify(emitted, costs=costs) == ()
    assert verify(emitted, machine=A3) == ()
    assert found(verify(emitted, costs=costs, machine=A3)) == ["gang-deadlock"]


# -- communicators and groups ---------------------------------------------------------------------------------------------


def test_a07_two_communicators_on_vector_cores_are_serialised() -> None:
    groups = {"a": "ep", "b": "dsa_cp"}
    costs = {"a": cost(16), "b": cost(16)}
    findings = _check(_two(EXCHANGE, GATHER), costs, groups)
    (finding,) = _of(findings, "communicators-in-parallel")
    assert (finding.severity, finding.steps) == (Severity.ERROR, ("a", "b"))
    assert finding.remedy.startswith("make 'b' wait for 'a'")
    assert _of(findings, "gang-deadlock") == []  # they would fit: the rule is one of its own
    assert _check(_two(EXCHANGE, GATHER, control=["a>b"]), costs, groups) == ()
    assert _of(_check(_two(EXCHANGE, GATHER), costs), "communicators-in-parallel") != []  # unknown groups may differ
    on_engine = _check(_two(EXCHANGE, GATHER), {"a": cost(16), "b": cost(0)}, groups)
    assert _of(on_engine, "communicators-in-parallel") == []
    beside_kernel = _check(_two(DISPATCH, GATHER), {"a": cost(16), "b": cost(16)}, groups)
    assert _of(beside_kernel, "communicators-in-parallel") == []


@pytest.mark.parametrize(
    ("routed", "shared"),
    [
        (DISPATCH, GATHER),  # A04
        (DISPATCH, "_c10d_functional.reduce_scatter_tensor.default"),
        ("MoeDistributeDispatchV2", "HcomAllGather"),  # A54
        (REDUCE, GATHER),  # A64 (a)
    ],
)
def test_a04_a05_a54_a64_collectives_of_two_groups_in_no_order_fail_whatever_they_cost(routed: str, shared: str) -> None:
    groups = {"a": "ep", "b": "tp"}
    fast = {"a": cost(16, duration=1), "b": cost(16, duration=1_000_000)}
    slow = {"a": cost(16, duration=1_000_000), "b": cost(16, duration=1)}
    findings = _check(_two(routed, shared), fast, groups)
    assert "unordered-collectives" in found(findings, Severity.ERROR)
    assert findings == _check(_two(routed, shared), slow, groups)
    assert found(_check(_two(routed, shared, control=["a>b"]), fast, groups), Severity.ERROR) == []


@pytest.mark.parametrize(("one", "two"), [(REDUCE, REDUCE), ("HcomAllReduce", "MoeDistributeCombineV2"), ("custom", "custom")])
def test_g36_one_group_on_two_streams_needs_an_order(one: str, two: str) -> None:
    groups = {"a": "tp", "b": "tp"}
    (finding,) = _of(_check(_two(one, two), groups=groups), "group-on-two-streams")
    assert (finding.severity, finding.steps) == (Severity.ERROR, ("a", "b"))
    assert "process group 'tp'" in finding.explanation
    assert _of(_check(_two(one, two), {"a": cost(16), "b": cost(16)}, groups), "communicators-in-parallel") == []
    assert _check(_two(one, two, control=["b>a"]), groups=groups) == ()
    assert _of(_check(_two(one, two), groups={"a": "tp", "b": "ep"}), "group-on-two-streams") == []
    assert _of(_check(_two(one, two), groups={"a": "", "b": ""}), "group-on-two-streams") == []
    one_stream = program([step("a", kind=one), step("b", kind=two)])
    assert _check(one_stream, groups=groups) == ()


def test_a_group_kept_apart_only_by_the_order_of_emission_is_a_warning() -> None:
    steps = [step("a", kind="custom"), step("c"), step("b", "s", kind="custom")]
    groups = {"a": "tp", "b": "tp"}
    assert _check(program(steps, control=["c>b"]), groups=groups) == ()
    (finding,) = _check(program(steps, control=["c>b"], in_order=False), groups=groups)
    assert (finding.kind, finding.severity) == ("group-on-two-streams", Severity.WARNING)


@settings(max_examples=40, deadline=None)
@given(emitted=gang_programs(), data=st.data())
def test_a_group_is_rejected_if_and_only_if_two_of_it_may_meet(emitted: StreamProgram, data: st.DataObject) -> None:
    groups = {one.name: data.draw(st.sampled_from(["tp", "ep", ""])) for one in emitted.steps}
    pairs = [chosen for chosen in concurrent_sets(emitted, stream_order=True) if len(chosen) == 2]
    clash = {tuple(one.name for one in pair) for pair in pairs if len({groups[one.name] for one in pair} - {""}) == 1}
    clash = {pair for pair in clash if all(groups[name] for name in pair)}
    findings = _of(verify(emitted, groups=groups), "group-on-two-streams")
    assert {tuple(sorted(finding.steps)) for finding in findings} <= clash
    assert bool(findings) == bool(clash)
    more = sum(int(match[1]) for finding in findings if (match := re.search(r"and (\d+) more", finding.explanation)))
    assert len(findings) + more == len(clash)


@pytest.mark.parametrize(("held", "refused"), [(8, True), (15, True), (16, False), (48, False), (0, False)])
def test_a51_a_collective_on_vector_cores_needs_sixteen_of_them(held: int, refused: bool) -> None:
    findings = _check(program([step("a", kind=REDUCE)]), {"a": cost(held)})
    assert found(findings, Severity.ERROR) == (["too-few-cores"] if refused else [])
    assert _check(program([step("a", kind=DISPATCH)]), {"a": cost(8)}) == ()


# -- other scenarios ------------------------------------------------------------------------------------------------------


def test_a09_collectives_that_data_orders_on_one_stream_have_no_finding() -> None:
    emitted = program([step("a", kind=DISPATCH), step("b", kind=REDUCE)], data=["a>b"])
    assert _check(emitted, {"a": cost(48), "b": cost(48)}, {"a": "ep", "b": "tp"}) == ()


def test_a10_no_collective_runs_beside_attention_that_the_host_updates() -> None:
    def captured(attention: str, gather: str, *events: str) -> StreamProgram:
        steps = [
            step("attention", attention, kind=ATTENTION),
            step("reduce", attention, kind=REDUCE),
            step("gather", gather, kind=GATHER),
            step("out"),
        ]
        return program(steps, event=events, semantics=Semantics.CAPTURE, forked=("s",))

    beside = _check(captured("default", "s", "reduce>gather", "gather>out"), groups={})
    assert found(beside) == []  # after it
    beside = _check(captured("default", "s", "gather>out"), groups={})
    (finding,) = _of(beside, "collective-beside-update")
    assert (finding.severity, finding.steps) == (Severity.ERROR, ("attention", "gather"))
    moved = _check(captured("s", "default", "reduce>gather", "reduce>out"), groups={})
    assert found(moved) == ["update-on-side-stream"]
    two = program([step("one", kind=ATTENTION), step("two", "s", kind=ATTENTION)], semantics=Semantics.CAPTURE)
    assert _of(_check(two, groups={}), "collective-beside-update") == []
    engine_orders = program([step("attention", kind=ATTENTION), step("gather", "s", kind=GATHER)])
    assert _check(engine_orders, groups={}) == ()


@pytest.mark.parametrize(("one", "two"), [(MATMUL, MATMUL), (MATMUL, "npu.npu_dynamic_quant.default")])
def test_a64_compute_beside_compute_may_be_slow_but_does_not_stop(one: str, two: str) -> None:
    """Whether it is worth it is for the scheduler to say: kernels that give back their cores cannot deadlock."""
    assert _check(_two(one, two), {"a": cost(aic=24, comm=0), "b": cost(48, comm=0)}, {}) == ()


def test_g29_gangs_and_a_stream_that_is_not_joined_are_both_found() -> None:
    steps = [step("dispatch", "s", kind=DISPATCH), step("reduce", kind=REDUCE)]
    findings = _check(program(steps, semantics=Semantics.CAPTURE), {"dispatch": cost(48), "reduce": cost(16)})
    assert {"gang-deadlock", "unjoined-stream", "unordered-collectives"} <= set(found(findings, Severity.ERROR))


def test_what_the_operator_table_calls_a_collective_is_one_here() -> None:
    table = yaml.safe_load(files("autostream.graph").joinpath("ops.yaml").read_text(encoding="utf-8"))
    rows = table if isinstance(table, list) else next(rows for rows in table.values() if isinstance(rows, list))
    names = [name for row in rows if "collective" in row.get("order", ()) for name in row["ops"].split()]
    assert len(names) > 15
    calls = [f"{name.removesuffix('*')}.default" for name in names if not name.endswith(".*")]
    calls += [
        f"{space}.{name}.default" for space in ("_c10d_functional", "c10d_functional") for name in ("all_reduce", "broadcast")
    ]
    assert [name for name in calls if not is_collective(name)] == []
