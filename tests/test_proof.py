from __future__ import annotations

import pytest
import torch
from torch import Tensor, fx

import autostream
from autostream import offline
from autostream.errors import OfflineError, VerificationError
from autostream.graph.capture import capture
from autostream.graph.programs import to_aten
from autostream.offline import Converted
from autostream.program import Severity
from autostream.program.reading.fx import read_fx
from autostream.proof import prove, prove_ascend_ir
from autostream.rewrite.air import Air
from autostream.rewrite.emit import emit
from tests import models
from tests.rewrite.graphs_fx import at_random, on_streams, traced

pytestmark = pytest.mark.usefixtures("npu_host")


def _cached(cache: Tensor, new: Tensor, query: Tensor, slot: Tensor) -> Tensor:
    attended = torch.mm(query, cache)
    torch.ops.npu.scatter_update_(cache[None, None], slot.long(), new[None, None], -2)
    return attended


def _emitted() -> tuple[fx.GraphModule, object]:
    module = traced(_cached, (8, 8), (2, 8), (4, 8), (1,))
    graph = capture(module)
    return emit(module, graph, on_streams(graph, {"mm": "side"}), Air()).graph_module, graph


def test_an_emitted_hazard_is_proved_on_both_levels() -> None:
    graph_module, graph = _emitted()
    assert not [f for f in prove(read_fx(graph_module), graph) if f.severity is Severity.ERROR]  # type: ignore[arg-type]
    converted, notes = prove_ascend_ir(graph_module, graph, offline.convert)  # type: ignore[arg-type]
    assert converted is not None and notes == ()


def test_without_its_wait_the_same_graph_is_refused_on_both_levels() -> None:
    graph_module, graph = _emitted()
    for node in list(graph_module.graph.find_nodes(op="call_function", target=torch.ops.air.wait.default)):
        graph_module.graph.erase_node(node)
    graph_module.recompile()
    with pytest.raises(VerificationError, match="emitted graph failed"):
        prove(read_fx(graph_module), graph)  # type: ignore[arg-type]
    with pytest.raises(VerificationError, match="Ascend IR failed"):
        prove_ascend_ir(graph_module, graph, offline.convert)  # type: ignore[arg-type]


def test_a_wait_beyond_the_plan_is_told() -> None:
    def branches(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.mm(x, x), torch.mm(y, y)

    module = traced(branches, (8, 8), (8, 8))
    graph = capture(module)
    emitted = emit(module, graph, on_streams(graph, {"mm": "side"}), Air()).graph_module
    assert prove(read_fx(emitted), graph) == ()
    first, second = emitted.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default)
    with emitted.graph.inserting_before(second):
        emitted.graph.call_function(torch.ops.air.wait.default, ([first],))
    (finding,) = prove(read_fx(emitted), graph)
    assert (finding.kind, finding.severity) == ("over-synchronised", Severity.WARNING)
    assert finding.steps == (first.name, second.name)


def test_operators_in_another_order_than_planned_are_refused() -> None:
    module = traced(lambda x: (torch.rand_like(x), torch.rand_like(x)), (8, 8))
    graph = capture(module)
    swapped = traced(lambda x: (torch.rand_like(x), torch.rand_like(x)), (8, 8))
    first, second = swapped.graph.find_nodes(op="call_function", target=torch.ops.aten.rand_like.default)
    first.prepend(second)
    swapped.recompile()
    with pytest.raises(VerificationError):
        prove(read_fx(swapped), graph)


def test_a_missing_converter_leaves_the_proof_on_the_fx_level_and_says_so() -> None:
    captured = to_aten(*models.mixture(8))
    graph = capture(captured.graph_module)
    emitted = emit(captured.graph_module, graph, at_random(graph, 0), Air()).graph_module

    def cannot(_module: fx.GraphModule) -> Converted:
        raise OfflineError("no converter for aten.secret")

    assert prove_ascend_ir(emitted, graph, cannot) == (
        None,
        ("proved on the FX graph only; the Ascend IR could not be made here: no converter for aten.secret",),
    )


def test_unpaired_scopes_are_found_by_check_and_keep_a_graph_from_being_scheduled() -> None:
    graph_module = to_aten(*models.mixture(8)).graph_module
    first = graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default)[0]
    with graph_module.graph.inserting_before(first):
        graph_module.graph.call_function(torch.ops.air.scope_enter.default, (["_user_stream_label"], ["1"]))
    graph_module.recompile()
    kinds = {finding.kind: finding.severity for finding in autostream.check(graph_module)}
    assert kinds["unpaired-scope"] is Severity.ERROR
    verdict = autostream.schedule(graph_module).verdict
    assert verdict.code == "unsupported" and "scope" in verdict.reason
