"""What other options would have given: the same graph planned again under each, proved on the FX graph and simulated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from torch import fx

from autostream.cost.model import CostModel
from autostream.errors import plural
from autostream.options import Options
from autostream.pipeline import plan
from autostream.report.schema import WhatIfRow
from autostream.rewrite.dialect import Dialect
from autostream.verdict import Verdict

#: Numbers of side streams that are tried.
SIDE_STREAMS = (1, 2, 3, 4)
#: Switches that are tried beside the options that were given, and how a report calls them.
_SWITCHES = {
    "core_limits": "core limits for kernels of one kind",
    "same_unit_overlap": "kernels of one kind at once",
    "side_collectives": "collectives on side streams",
}


def variants(options: Options) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what is tried: a label, and the options that differ from those given."""
    for count in SIDE_STREAMS:
        yield plural(count, "side stream"), {"side_streams": count}
    for name, label in _SWITCHES.items():
        on = not getattr(options, name)
        yield label if on else f"without {label}", {name: on}


def what_if(
    graph_module: fx.GraphModule,
    *,
    model: CostModel,
    options: Options,
    dialect: Dialect,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[WhatIfRow, ...]:
    """Plan the graph under every variant of the options; nothing is converted and `graph_module` is not changed.

    A variant that fails is told as such, also with ``strict``: it is the plan that was asked for which must not fail.

    Args:
        graph_module: ATen graph; every node's ``meta["val"]`` tells its shape.
        model: prices operators.
        options: what the variants differ from.
        dialect: vocabulary of the backend.
        tell: called with the label of each variant before it is planned.
    """
    rows = []
    for label, changed in variants(options):
        tell(label)
        other = options.model_copy(update={"strict": False, **changed})
        outcome = plan(graph_module, model=model, options=other, dialect=dialect)
        rows.append(row(label, changed, outcome.verdict))
    return tuple(rows)


def batches(
    build: Callable[[int], fx.GraphModule], sizes: Iterable[int], *, model: CostModel, options: Options, dialect: Dialect
) -> tuple[WhatIfRow, ...]:
    """Plan the graph that `build` makes for each batch size."""
    rows = []
    for size in sizes:
        outcome = plan(build(size), model=model, options=options, dialect=dialect)
        rows.append(row(f"batch {size}", {"batch": size}, outcome.verdict))
    return tuple(rows)


def row(label: str, changed: Mapping[str, Any], verdict: Verdict) -> WhatIfRow:
    """Return what one variant gave; `changed` holds what differs from the plan that the report is about."""
    return WhatIfRow(
        label=label,
        changed=dict(changed),
        accepted=verdict.accepted,
        code=verdict.code,
        serial_ns=verdict.serial_ns,
        scheduled_ns=verdict.scheduled_ns,
        gain=round(verdict.gain, 6),
        gain_low=round(verdict.gain_low, 6),
        side_streams=verdict.side_streams,
        cross_edges=verdict.cross_edges,
    )
