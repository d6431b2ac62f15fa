from __future__ import annotations

import torch
from torch import fx

from autostream.rewrite.views import belongs_in_scope
from tests.rewrite.graphs_fx import traced

_VIEWS = {"aten.t.default", "aten.view.default", "aten.permute.default", "aten.transpose.int"}


def _is_view(node: fx.Node) -> bool:
    return str(node.target) in _VIEWS


def _last_view(function: object, *shapes: tuple[int, ...]) -> fx.Node:
    module = traced(function, *shapes)  # type: ignore[arg-type]
    return [node for node in module.graph.nodes if _is_view(node)][-1]


def test_one_transpose_or_none_goes_inside() -> None:
    assert belongs_in_scope(_last_view(lambda x: torch.relu(x.view(4, 16)), (8, 8)), _is_view, shared=False)
    assert belongs_in_scope(_last_view(lambda x: torch.relu(x.view(4, 16).t()), (8, 8)), _is_view, shared=False)


def test_two_transposes_may_fold_outside() -> None:
    view = _last_view(lambda x: torch.relu(x.t().permute(1, 0)), (8, 4))
    assert not belongs_in_scope(view, _is_view, shared=False)


def test_a_transpose_of_size_one_dimensions_is_only_a_reshape_outside() -> None:
    view = _last_view(lambda x: torch.relu(x.transpose(0, 1)), (1, 8))
    assert not belongs_in_scope(view, _is_view, shared=False)


def test_a_shared_transpose_stays_outside_and_a_shared_reshape_does_not() -> None:
    assert not belongs_in_scope(_last_view(lambda x: torch.relu(x.t()), (8, 4)), _is_view, shared=True)
    assert belongs_in_scope(_last_view(lambda x: torch.relu(x.view(4, 8)), (8, 4)), _is_view, shared=True)
