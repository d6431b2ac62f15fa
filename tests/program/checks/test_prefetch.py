from __future__ import annotations

from dataclasses import replace

import pytest

from autostream.cost.model import FREE, Cost, Machine
from autostream.graph.model import OpGraph, TensorSpec, Unit
from autostream.program import Finding, Severity, prefetch_findings
from tests.rewrite.graphs import op_graph

MACHINE = Machine(name="test", aic=24, aiv=48, sync=0, sync_error=0.0, max_prefetch_bytes=100)
_WAITED = TensorSpec(shape=(8,), dtype="int8", itemsize=1)


def _found(*steps: tuple[str, str, int], machine: Machine = MACHINE, times: tuple[int, int] = (0, 10)) -> list[Finding]:
    """Judge a graph of ("fetch" or "use", storage, bytes); a fetch takes `times[0]` ns, a use `times[1]`."""
    graph = op_graph({f"{what}{at}": Unit.VECTOR for at, (what, _, _) in enumerate(steps)}, [])
    ops = {}
    for op, (what, storage, nbytes) in zip(graph, steps, strict=True):
        target = "npu.npu_prefetch.default" if what == "fetch" else "aten.mm.default"
        spec = TensorSpec(shape=(1000,), dtype="int8", itemsize=1)
        ops[op.name] = op._replace(target=target, reads=(storage,), inputs=(spec, _WAITED), bytes_read=nbytes + _WAITED.nbytes)
    judged = OpGraph(dag=graph.dag, ops=ops, storages=graph.storages, outputs=graph.outputs)
    costs: dict[str, Cost] = {op.name: replace(FREE, duration=times[0] if "prefetch" in op.target else times[1]) for op in judged}
    return list(prefetch_findings(judged, costs, machine))


def _kinds(found: list[Finding]) -> list[str]:
    assert all(one.severity is Severity.WARNING and one.remedy for one in found)
    return [one.kind for one in found]


def test_one_prefetch_that_is_used_later_is_fine() -> None:
    assert _found(("fetch", "w", 50), ("use", "x", 0), ("use", "w", 0)) == []


def test_a_second_fetch_before_the_first_is_used_is_a_duplicate_and_after_it_is_not() -> None:
    assert _kinds(_found(("fetch", "w", 50), ("fetch", "w", 50), ("use", "w", 0))) == ["duplicate-prefetch"]
    assert _kinds(_found(("fetch", "w", 50), ("use", "w", 0), ("fetch", "w", 50), ("use", "w", 0))) == []
    assert _kinds(_found(("fetch", "w", 20), ("fetch", "w", 50), ("use", "w", 0))) == []  # it brings more


def test_bytes_in_flight_are_those_not_yet_used() -> None:
    assert _kinds(_found(("fetch", "v", 60), ("fetch", "w", 60), ("use", "v", 0), ("use", "w", 0))) == ["prefetch-over-cache"]
    assert _kinds(_found(("fetch", "v", 60), ("use", "v", 0), ("fetch", "w", 60), ("use", "w", 0))) == []
    unknown = replace(MACHINE, max_prefetch_bytes=None)
    assert _found(("fetch", "w", 10**9), ("use", "w", 0), machine=unknown) == []


@pytest.mark.parametrize(("between", "kinds"), [(0, ["prefetch-exposed"]), (1, ["prefetch-exposed"]), (2, [])])
def test_a_transfer_longer_than_what_hides_it_is_exposed(between: int, kinds: list[str]) -> None:
    steps = [("fetch", "w", 50), *[("use", "x", 0)] * between, ("use", "w", 0)]
    assert _kinds(_found(*steps, times=(20, 10))) == kinds


def test_what_nothing_uses_is_exposed() -> None:
    (finding,) = _found(("fetch", "w", 50), ("use", "x", 0))
    assert finding.kind == "prefetch-exposed" and "nothing behind it uses" in finding.explanation
