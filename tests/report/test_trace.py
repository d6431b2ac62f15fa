from __future__ import annotations

import itertools
import json
from collections import defaultdict
from typing import Any

import pytest

from autostream.cost.model import Machine
from autostream.graph.model import Unit
from autostream.report.document import Document
from autostream.report.occupancy import counters, given, shown, split
from autostream.report.trace import trace
from tests.report import samples

MACHINE = Machine(name="910B2", aic=24, aiv=48, sync=500, sync_error=1.0)


@pytest.fixture
def document() -> Document:
    return samples.document(machine=MACHINE)


def events(document: Document) -> list[dict[str, Any]]:
    data = json.loads(trace(document))
    assert set(data) == {"displayTimeUnit", "otherData", "traceEvents"}
    found: list[dict[str, Any]] = data["traceEvents"]
    return found


def check_format(found: list[dict[str, Any]]) -> None:
    """What the trace-event format asks of an event by its phase, and what viewers ask of a lane."""
    lanes = defaultdict(list)
    names = {}
    flows: dict[tuple[str, int], dict[str, dict[str, Any]]] = defaultdict(dict)
    for event in found:
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int) and isinstance(event["name"], str)
        if event["ph"] == "M":
            names[event["name"], event["pid"], event["tid"]] = event["args"]
            continue
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] > 0
            lanes[event["pid"], event["tid"]].append((event["ts"], round(event["ts"] + event["dur"], 3)))
        elif event["ph"] == "C":
            assert all(isinstance(value, int) and value >= 0 for value in event["args"].values())
        else:
            assert event["ph"] in ("s", "f")
            flows[event["cat"], event["id"]][event["ph"]] = event
    for (pid, tid), slices in lanes.items():
        assert ("process_name", pid, 0) in names and ("thread_name", pid, tid) in names
        ordered = sorted(slices)
        assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(ordered))
    for ends in flows.values():
        start, end = ends["s"], ends["f"]
        assert end["bp"] == "e" and start["ts"] <= end["ts"]
        for bound in (start, end):
            assert any(first <= bound["ts"] < last for first, last in lanes[bound["pid"], bound["tid"]])


def test_format(document: Document) -> None:
    check_format(events(document))


def test_before_and_after_are_two_processes_with_a_lane_per_stream(document: Document) -> None:
    names = {(event["pid"], event["tid"]): event["args"]["name"] for event in events(document) if event["name"] == "thread_name"}
    assert [name for (pid, _), name in sorted(names.items()) if pid == 1] == ["default"]
    assert [name for (pid, _), name in sorted(names.items()) if pid == 2] == ["default", samples.SIDE]
    slices = [event for event in events(document) if event["ph"] == "X" and event["pid"] == 2]
    assert {event["args"]["operator"]: (event["tid"], event["ts"], event["dur"]) for event in slices} == {
        "mm": (0, 0.0, 100.0), "mm_1": (0, 100.0, 100.0), "add": (0, 200.0, 20.0), "mul": (1, 0.5, 60.0), "exp": (1, 60.5, 130.0),
    }  # fmt: skip


def test_a_wait_between_streams_is_an_arrow(document: Document) -> None:
    arrows = [event for event in events(document) if event["ph"] in ("s", "f")]
    assert [(event["ph"], event["tid"], event["ts"]) for event in arrows] == [("s", 1, 190.499), ("f", 0, 200.0)]


def test_overlap_analysis_uses_the_words_of_the_profiler(document: Document) -> None:
    found = events(document)
    lanes = [event["args"]["name"] for event in found if event["name"] == "thread_name" and event["pid"] == 4]
    assert lanes == ["Computing", "Communication", "Communication(Not Overlapped)", "Free"]
    slices = [(event["name"], event["ts"], event["dur"]) for event in found if event["ph"] == "X" and event["pid"] == 4]
    assert slices == [("Computing", 0.0, 220.0)]


def test_a_declined_graph_has_one_timeline() -> None:
    document = samples.document(verdict=samples.declined(), after=None, program=None)
    assert {event["pid"] for event in events(document)} == {1, 3}


def test_no_timeline_at_all() -> None:
    document = samples.document(verdict=samples.declined(), before=None, after=None, program=None)
    assert events(document) == []


def test_same_document_same_text(document: Document) -> None:
    assert trace(document) == trace(Document.from_json(document.to_json()))


def test_counters_add_up_what_runs_at_once(document: Document) -> None:
    cube, vector, hbm, engine = counters(shown(document), aic=24, aiv=48)
    assert (cube.capacity, vector.points, engine.points) == (24, (), ())
    # Every sample operator holds 24 cube cores: 300 thousandths of the bandwidth each, two at once after 0.5 us.
    assert hbm.points == ((0, 300), (500, 600), (190_500, 300), (220_000, 0))
    assert cube.points[0] == (0, 24) and cube.points[-1] == (220_000, 0)


def test_split_of_a_timeline_with_a_collective() -> None:
    runs = given(samples.document())
    comm = runs[1].row.model_copy(update={"unit": Unit.COMM})
    runs = tuple(run if run.row.name != "mm_1" else type(run)(row=comm, stream="hccl", start=90_000, end=210_000) for run in runs)
    runs = tuple(run for run in runs if run.row.name in ("mm", "mm_1", "exp"))
    found = split(runs)
    assert found.computing == ((0, 100_000), (260_000, 380_000))
    assert found.communication == ((90_000, 210_000),)
    assert found.not_overlapped == ((100_000, 210_000),)
    assert found.free == ((210_000, 260_000),)
