"""What planning leaves behind in the process: Python's collector as it was."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from autostream import pipeline
from autostream.chips import cost_model
from autostream.errors import OfflineError
from autostream.graph.programs import to_aten
from autostream.options import Options
from autostream.rewrite.air import Air
from tests import models


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    enabled = gc.isenabled()
    yield
    gc.unfreeze()
    (gc.enable if enabled else gc.disable)()


def _plan() -> None:
    program = to_aten(*models.chain())
    pipeline.plan(program.graph_module, model=cost_model("910B2"), options=Options(strict=True), dialect=Air())


@pytest.mark.parametrize("running", [True, False])
def test_the_collector_runs_afterwards_if_it_did_before(running: bool) -> None:
    (gc.enable if running else gc.disable)()
    _plan()
    assert gc.isenabled() is running


@pytest.mark.parametrize("frozen", [True, False])
def test_what_the_process_has_frozen_stays_frozen(frozen: bool) -> None:
    gc.enable()
    if frozen:
        gc.freeze()
    before = gc.get_freeze_count()
    _plan()
    # Objects that are deleted leave the count; none is released, and none is frozen beside them.
    assert bool(before) is frozen and before // 2 <= gc.get_freeze_count() <= before


class _Cycle:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.own = self


def test_what_a_conversion_leaves_behind_is_gone_afterwards() -> None:
    left: list[weakref.ref[_Cycle]] = []

    def convert(_module: Any) -> Any:
        left.append(weakref.ref(_Cycle()))
        raise OfflineError("no host here")

    gc.enable()
    module = to_aten(*models.mixture(8)).graph_module
    outcome = pipeline.plan(module, model=cost_model("910B2"), options=Options(), dialect=Air(), convert=convert)
    assert outcome.verdict.accepted
    assert len(left) == 1 and left[0]() is None
