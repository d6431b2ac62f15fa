"""Same answers: a proved program gives the original's bits in every order it allows; and the proof notices a missing wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, fx

from autostream.errors import RewriteError
from autostream.graph import OpGraph, Unit
from autostream.graph.capture import capture
from autostream.program import Severity, StreamProgram, verify
from autostream.program.reading.fx import read_fx
from autostream.rewrite.air import Air
from autostream.rewrite.dialect import Landing
from autostream.rewrite.emit import emit
from autostream.rewrite.sync import forced_orders, task_orders
from autostream.scheduling.problem import MAIN, Placement, Schedule
from tests.graph.orders import draw_order
from tests.rewrite.graphs_fx import on_streams
from tests.rewrite.sketches import KINDS, Machine, Step, draw_run, sketch

pytestmark = pytest.mark.usefixtures("npu_host")

_STREAMS = (MAIN, "side_1", "side_2")
_SYNCS = ("air.wait.default", "air.wait_tensor.default")


def _schedule(module: fx.GraphModule, dialect: Air, choices: Sequence[int], seed: int, *, together: str) -> Schedule:
    """Place the tasks on drawn streams in a drawn order.

    `together` says which of them share a stream: "hazards", those that an order other than a data edge links; "lost", of
    those the ones where no wait lands in front of the second; "nothing", none.
    """
    graph = capture(module)
    nodes = {node.name: node for node in module.graph.nodes}
    tasks = [op.name for op in graph if op.unit is not Unit.FREE]
    stream = {name: _STREAMS[choices[i % len(choices)] % len(_STREAMS)] for i, name in enumerate(tasks)}
    linked = nx.Graph()
    for forced in forced_orders(graph):
        lost = dialect.landing(nodes[forced.after], None) is Landing.LOST
        if together == "hazards" or (together == "lost" and lost):
            linked.add_edge(forced.before, forced.after)
    for group in nx.connected_components(linked):
        stream |= dict.fromkeys(group, stream[min(group)])
    order = [name for name in draw_order(graph.dag, seed) if name in stream]
    rows = tuple(Placement(task=t, stream=stream[t], mode=0, start=at, end=at + 1) for at, t in enumerate(order))
    return Schedule(placements=rows, strategy="test", status="feasible", makespan=len(rows), lower_bound=0)


def _is_proved(program: StreamProgram, graph: OpGraph) -> bool:
    return not [f for f in verify(program, required=task_orders(graph)) if f.severity is Severity.ERROR]


def _differing(
    expected: list[bytes], module: fx.GraphModule, program: StreamProgram, inputs: Mapping[str, Tensor], seeds: Sequence[int]
) -> list[int]:
    """Return the seeds of the orders that give other bits."""
    emitted = capture(module)
    differing = []
    for seed in seeds:
        anchors = seed % 3 > 0
        if Machine(module, emitted, inputs, copies=anchors).run(draw_run(program, seed, anchors=anchors)) != expected:
            differing.append(seed)
    return differing


def _without_one_wait(module: fx.GraphModule, which: int) -> fx.GraphModule | None:
    """Return a copy without one of its waits; None if there is none."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    waits = [node for node in graph.nodes if str(node.target) in _SYNCS]
    if not waits:
        return None
    wait = waits[which % len(waits)]
    if wait.users:
        wait.replace_all_uses_with(wait.args[0])
    graph.erase_node(wait)
    return fx.GraphModule(module, graph)


def test_a_proved_program_gives_the_same_bits_in_every_order_it_allows() -> None:
    tally: Counter[str] = Counter()
    dialect = Air()  # one for all: it remembers where waits land

    @settings(max_examples=150)
    @given(
        steps=st.lists(st.tuples(st.sampled_from(KINDS), *[st.integers(0, 63)] * 3), min_size=4, max_size=14),
        choices=st.lists(st.integers(0, 2), min_size=3, max_size=20),
        together=st.sampled_from(["lost", "lost", "hazards", "nothing"]),
        seeds=st.lists(st.integers(0, 2**32), min_size=4, max_size=4, unique=True),
    )
    def holds(steps: list[Step], choices: list[int], together: str, seeds: list[int]) -> None:
        builder, module = sketch(steps)
        graph = capture(module)
        assert not graph.refusals
        plain = [step.name for step in read_fx(module).steps if step.stream is not None]
        expected = Machine(module, graph, builder.inputs, copies=False).run(plain)
        tally["drawn"] += 1
        try:
            emitted = emit(module, graph, _schedule(module, dialect, choices, seeds[0], together=together), dialect).graph_module
        except RewriteError:
            tally["inexpressible"] += 1
            return
        program = read_fx(emitted)
        if not _is_proved(program, graph):
            tally["unproved"] += 1
            return
        tally["proved"] += 1
        tally["on several streams"] += len(program.streams()) > 1
        assert _differing(expected, emitted, program, builder.inputs, seeds) == []
        broken = _without_one_wait(emitted, seeds[1])
        if broken is not None:
            tally["one wait dropped"] += 1
            without = read_fx(broken)
            if _is_proved(without, graph):  # its order holds by other means
                assert _differing(expected, broken, without, builder.inputs, seeds) == []
            else:
                tally["and found out"] += 1

    holds()
    assert tally["proved"] >= 0.5 * tally["drawn"] and tally["on several streams"] >= 0.3 * tally["drawn"], tally
    assert tally["and found out"] >= 10, tally


def test_a_missing_wait_is_found_out_and_would_change_the_bits() -> None:
    # A cache is read on a side stream, then written on the default one, then read there again.
    steps: list[Step] = [("unary", 0, 0, 0), ("scatter", 0, 0, 0), ("unary", 0, 0, 1)]
    builder, module = sketch(steps)
    graph = capture(module)
    tasks = [op.name for op in graph if op.unit is not Unit.FREE]
    reader, writer = tasks[0], next(name for name in tasks if name.startswith("scatter"))
    expected = Machine(module, graph, builder.inputs, copies=False).run(tasks)
    emitted = emit(module, graph, on_streams(graph, {reader: "side"}), Air()).graph_module
    program, seeds = read_fx(emitted), range(20)
    assert _is_proved(program, graph)
    assert _differing(expected, emitted, program, builder.inputs, seeds) == []
    broken = _without_one_wait(emitted, 0)
    assert broken is not None
    findings = verify(read_fx(broken), required=task_orders(graph))
    assert {f.steps for f in findings if f.severity is Severity.ERROR} == {(reader, writer)}
    assert _differing(expected, broken, read_fx(broken), builder.inputs, seeds) != []
