from __future__ import annotations

from dataclasses import replace

import pytest

from autostream.errors import InputError
from autostream.graph.model import OpGraph, Unit
from autostream.hints import refuse_missing, tell, tell_collectives
from autostream.program.model import Slot, Timeline
from autostream.verdict import Verdict
from tests.rewrite.graphs import op_graph


def _graph(*paths: str, unit: Unit = Unit.CUBE) -> OpGraph:
    graph = op_graph({f"op{at}": unit for at in range(len(paths))}, [])
    ops = {name: op._replace(module_path=path) for (name, op), path in zip(graph.ops.items(), paths, strict=True)}
    return replace(graph, ops=ops)


def _verdict(code: str = "accepted") -> Verdict:
    return Verdict(accepted=code == "accepted", code=code, reason="nothing to gain", chip="test")


def _after(*spans: tuple[str, int, int]) -> Timeline:
    slots = tuple(Slot(step=f"op{at}", stream=stream, start=start, end=end) for at, (stream, start, end) in enumerate(spans))
    return Timeline(slots=slots, makespan=max(end for _, _, end in spans), crossings=0)


@pytest.mark.parametrize("wanted", ["layers.0.shared", "shared", "0.shared", "layers"])
def test_a_module_is_named_by_its_path_or_by_parts_of_it_in_a_row(wanted: str) -> None:
    graph = _graph("layers.0.shared", "layers.0.routed")
    refuse_missing([wanted], graph)
    (told,) = tell([wanted], graph, None, _verdict("no-gain"))
    assert told.endswith("runs beside nothing: nothing to gain")


@pytest.mark.parametrize("wanted", ["share", "layers.shared", "layer.0"])
def test_parts_of_names_and_gaps_are_no_match(wanted: str) -> None:
    with pytest.raises(InputError, match=f"wanted module '{wanted}' is not in the graph"):
        refuse_missing([wanted], _graph("layers.0.shared"))
    assert "did you mean 'shared_expert'" in tell(["shared_expart"], _graph("shared_expert"), None, _verdict())[0]


def test_a_module_that_runs_beside_others_is_told_with_its_stream() -> None:
    graph = _graph("shared", "routed", "shared")
    (told,) = tell(["shared"], graph, _after(("s", 0, 5), ("default", 3, 9), ("s", 9, 12)), _verdict())
    assert told == "wanted module 'shared' (2 operators): 1 of 2 beside other operators, on stream s (simulated)"
    (alone,) = tell(["shared"], graph, _after(("s", 0, 3), ("default", 3, 9), ("s", 9, 12)), _verdict())
    assert "moved other operators" in alone


def test_collectives_that_are_left_alone_are_not_called_safe() -> None:
    assert "nothing is proved" in tell_collectives(_graph("", "", unit=Unit.COMM), _verdict("no-gain"))[0]
    assert tell_collectives(_graph("", "", unit=Unit.COMM), _verdict()) == ()
    assert tell_collectives(_graph("", unit=Unit.COMM), _verdict("no-gain")) == ()
