"""Where a view is written when its consumer is inside a stream scope.

Outside a scope TorchAir defers permute, t, transpose, view and reshape and folds a chain of them at the consumer, unlabelled.
Inside a user scope every view becomes one GE op with the scope's label. Inside is where a view belongs (its transpose then
runs on the consumer's stream and may fuse with it), unless folding would have saved a transpose or two streams would each
make their own.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import fx

#: Views that move data when GE cannot fold them into their consumer.
_TRANSPOSING = frozenset({"aten.permute.default", "aten.t.default", "aten.transpose.int"})


def completes_collective(view: fx.Node) -> bool:
    """True if a view is the result of a collective, as it is from its completion on: an Identity where it is written."""
    return str(view.target) == "_c10d_functional.wait_tensor.default"


def belongs_in_scope(view: fx.Node, is_view: Callable[[fx.Node], bool], *, shared: bool) -> bool:
    """True if `view` may be written inside its consumer's scope without costing more tasks than outside.

    A chain with at most one transpose costs the same either way; a chain with more may fold to fewer outside. A transpose
    that only moves dimensions of size one is a reshape outside and a real transpose inside.

    Args:
        view: the view a consumer reads, directly or through other views.
        is_view: tells views from operators that emit tasks.
        shared: True if consumers in different scopes read `view`; then a transpose is written once, outside.
    """
    transposes = 0
    node = view
    while is_view(node):
        if str(node.target) in _TRANSPOSING:
            transposes += 1
            if shared or _is_reshape(node):
                return False
        sources = node.all_input_nodes
        if len(sources) != 1:
            break
        node = sources[0]
    return transposes <= 1


def _is_reshape(node: fx.Node) -> bool:
    """True if a transposing view keeps the order of elements (it moves only dimensions of size one)."""
    value, source = node.meta.get("val"), node.all_input_nodes[0].meta.get("val")
    if value is None or source is None:
        return False
    return [size for size in value.shape if size != 1] == [size for size in source.shape if size != 1] and bool(
        value.is_contiguous() and source.is_contiguous()
    )
