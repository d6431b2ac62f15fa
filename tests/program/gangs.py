"""Costs that hold cores, random programs of gangs, and the same programs as a trace for TorchAir's own deadlock check."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import strategies as st

from autostream.cost.model import Breakdown, Cost, Machine, Resources, Tier
from autostream.program import Edge, EdgeKind, Semantics, Severity, Step, StreamProgram, verify
from tests.program.programs import program, step

A3 = Machine(name="A3", aic=24, aiv=48, sync=0, sync_error=0.0)
STREAMS = ("default", "s", "t")


def cost(aiv: int = 0, *, aic: int = 0, comm: int = 1, duration: int = 100) -> Cost:
    """A step that communicates unless said, on these cores."""
    held = Resources(aic=aic, aiv=aiv, comm=comm)
    return Cost(duration=duration, breakdown=Breakdown(), resources=held, tier=Tier.MEASURED, error=0.0)


@st.composite
def gang_programs(draw: st.DrawFn, *, streams: Sequence[str] = STREAMS, most: int = 8, in_order: bool = True) -> StreamProgram:
    """Steps named g0.. on random streams, with random control edges along the order of emission."""
    count = draw(st.integers(2, most))
    steps = [step(f"g{i}", draw(st.sampled_from(streams)), kind="custom") for i in range(count)]
    pairs = draw(st.lists(st.sampled_from(list(combinations(range(count), 2))), max_size=count, unique=True))
    return program(steps, control=[f"g{one}>g{two}" for one, two in pairs], in_order=in_order)


def concurrent_sets(emitted: StreamProgram, *, stream_order: bool) -> list[tuple[Step, ...]]:
    """Every set of steps on different streams that no path joins: found by trying all subsets, by plain search for paths."""
    after: dict[str, set[str]] = {one.name: set() for one in emitted.steps}
    for edge in emitted.edges:
        after[edge.before].add(edge.after)
    if stream_order:
        for lane in emitted.streams().values():
            for one, two in combinations(lane, 2):
                after[one.name].add(two.name)

    def reaches(one: str, two: str) -> bool:
        return any(follower == two or reaches(follower, two) for follower in after[one])

    def apart(one: Step, two: Step) -> bool:
        return one.stream != two.stream and not reaches(one.name, two.name) and not reaches(two.name, one.name)

    free = {(one.name, two.name) for one, two in combinations(emitted.steps, 2) if apart(one, two)}
    return [
        chosen
        for size in range(1, len(STREAMS) + 1)
        for chosen in combinations(emitted.steps, size)
        if all((one.name, two.name) in free for one, two in combinations(chosen, 2))
    ]


# -- TorchAir's own check -------------------------------------------------------------------------------------------------


def torchair_tool(name: str) -> ModuleType:
    """Load one file of TorchAir's graph checks, without importing torch_npu; skip the test where it is not installed."""
    spec = importlib.util.find_spec("torch_npu")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        file = Path(place) / "dynamo/torchair/tools/gegraph_check" / f"{name}.py"
        if file.exists():
            loader = importlib.util.spec_from_file_location(f"torchair_{name}", file)
            assert loader is not None
            assert loader.loader is not None
            module = importlib.util.module_from_spec(loader)
            loader.loader.exec_module(module)
            return module
    pytest.skip("TorchAir's graph checks are not installed")


def torchair_conflicts(emitted: StreamProgram, costs: Mapping[str, Cost], folder: Path) -> set[str]:
    """Return the steps that TorchAir's check rejects, called the way TorchAir calls it: filter, then check."""
    trace = folder / "graph.json"
    trace.write_text(json.dumps(_trace(emitted, costs)), encoding="utf-8")
    marked = folder / "marked.json"
    marked.unlink(missing_ok=True)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        filtered = torchair_tool("filter_operators").filter_comm_ops(str(trace), None)
        torchair_tool("deadlock_check").deadlock_check(filtered, str(marked), aivec_total=A3.aiv)
    if not marked.exists():
        return set()
    names = [event["name"] for event in json.loads(marked.read_text(encoding="utf-8"))]
    return {name.removeprefix("dead_lock_aiv_") for name in names if name.startswith("dead_lock_")}


def _trace(emitted: StreamProgram, costs: Mapping[str, Cost]) -> list[dict[str, object]]:
    """The tasks of every stream in emission order, with an event per edge: recorded after one step, awaited before the other."""
    events: list[dict[str, object]] = []

    def task(name: str, one: Step, **arguments: object) -> None:
        arguments = {"Task Id": len(events), **arguments}
        events.append({"ph": "X", "tid": one.stream, "ts": len(events), "dur": 1, "name": name, "args": arguments})

    for one in emitted.steps:
        for handle, edge in enumerate(emitted.edges):
            if edge.after == one.name:
                task(f"EVENT_WAIT_{handle}", one)
        held = costs[one.name].resources
        cores = {"Task Type": "KERNEL_MIX_AIC", "Numblocks": held.aic, "Task Ration": 2} if held.aic else {}
        task(f"aiv_{one.name}", one, **({"Task Type": "KERNEL_AIVEC", "Numblocks": held.aiv} | cores), **{"Schem Mode": 1})
        for handle, edge in enumerate(emitted.edges):
            if edge.before == one.name:
                task(f"EVENT_RECORD_{handle}", one)
    return events


# -- mending --------------------------------------------------------------------------------------------------------------


def mended(emitted: StreamProgram, costs: Mapping[str, Cost]) -> StreamProgram:
    """Add the edge every gang finding asks for until none is left."""
    for _ in range(len(emitted.steps) ** 2):
        findings = [one for one in verify(emitted, costs=costs, machine=A3) if one.kind == "gang-deadlock"]
        if not findings:
            return emitted
        assert findings[0].severity is Severity.ERROR
        after, before = findings[0].remedy.removeprefix("make ").split(", ")[0].replace("'", "").split(" wait for ")
        kind = EdgeKind.CONTROL if emitted.semantics is Semantics.GE else EdgeKind.EVENT
        emitted = StreamProgram(
            semantics=emitted.semantics,
            steps=emitted.steps,
            edges=(*emitted.edges, Edge(before=before, after=after, kind=kind)),
            in_order=emitted.in_order,
        )
    raise AssertionError("the remedies do not end")
