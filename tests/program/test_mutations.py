"""Mutation testing of the verifier: every mutant of a proved program is found, or gives the same bits in every order drawn."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from torch import Tensor, fx

from autostream.errors import RewriteError
from autostream.graph import OpGraph
from autostream.graph.capture import capture
from autostream.options import Options
from autostream.program import EdgeKind, Severity, StreamProgram, cross_edges, verify
from autostream.program.execution.execute import differs, serial
from autostream.program.execution.runner import Execution
from autostream.program.reading.fx import read_fx
from autostream.proof import orders_of
from autostream.rewrite.air import Air
from autostream.rewrite.emit import emit
from autostream.scheduling import Schedule, build_problem, strategy
from tests.properties.graphs import KERNELS, KINDS, MACHINE, made_up_costs, wide
from tests.rewrite.graphs_fx import at_random

pytestmark = pytest.mark.usefixtures("npu_host")

#: Programs per way of scheduling them.
_PROGRAMS = {"random": 10, "greedy": 20, "cpsat": 10}
_SEEDS = range(6)
_Program = tuple[fx.GraphModule, list[Tensor], OpGraph, StreamProgram, Execution]


def _proved(program: StreamProgram, graph: OpGraph) -> bool:
    findings = verify(program, required=orders_of(program, graph))
    return all(finding.severity is not Severity.ERROR and finding.kind != "order-unproven" for finding in findings)


def _scheduled(graph: OpGraph, how: str, seed: int) -> Schedule:
    """Return a schedule the product makes with made-up prices, or a random one."""
    if how == "random":
        return at_random(graph, seed)
    dice = random.Random(seed)
    options = Options.of({"strategy": how, "side_streams": dice.randint(1, 3), "solver_budget": 0.05})
    costs = made_up_costs(graph, [dice.randint(2, 60) for _ in range(7)])
    return strategy(options).solve(build_problem(graph, costs, MACHINE, options))


def _programs(how: str) -> Iterator[_Program]:
    """Yield emitted programs on several streams that are proved and hold a wait between two of them, from fixed seeds."""
    dialect = Air()
    found = 0
    for seed in range(2000):
        dice = random.Random(seed)
        module, inputs = wide([(dice.choice(KINDS), *(dice.randrange(64) for _ in range(3))) for _ in range(dice.randint(6, 12))])
        graph = capture(module)
        try:
            emitted = emit(module, graph, _scheduled(graph, how, seed), dialect).graph_module
        except RewriteError:
            continue
        program = read_fx(emitted)
        if cross_edges(program) and _proved(program, graph):
            yield emitted, inputs, graph, program, serial(emitted, inputs, kernels=KERNELS)
            found += 1
            if found == _PROGRAMS[how]:
                return


def _mutants(program: StreamProgram) -> Iterator[tuple[str, StreamProgram]]:
    """Drop each wait, swap neighbours on a stream, move a step to another stream."""
    for edge in program.edges:
        if edge.kind is not EdgeKind.DATA:
            yield "edge dropped", replace(program, edges=tuple(other for other in program.edges if other != edge))
    steps = list(program.steps)
    at = {step.name: position for position, step in enumerate(steps)}
    for lane in program.streams().values():
        for first, second in pairwise(lane):
            swapped = steps.copy()
            swapped[at[first.name]], swapped[at[second.name]] = second, first
            yield "neighbours swapped", replace(program, steps=tuple(swapped))
    streams = list(program.streams())
    for position, step in enumerate(steps):
        if step.stream is not None:
            other = streams[(streams.index(step.stream) + 1) % len(streams)]
            moved = [*steps[:position], step._replace(stream=other), *steps[position + 1 :]]
            yield "step moved", replace(program, steps=tuple(moved))


def _without_data_edge(program: StreamProgram) -> Iterator[tuple[str, StreamProgram]]:
    """Drop each data edge between two streams: what GE never does, and a capture mode always."""
    crossing = {(edge.before, edge.after) for edge in cross_edges(program)}
    for edge in program.edges:
        if edge.kind is EdgeKind.DATA and (edge.before, edge.after) in crossing:
            yield "data edge dropped", replace(program, edges=tuple(other for other in program.edges if other != edge))


@pytest.mark.parametrize("how", list(_PROGRAMS))
def test_every_mutant_is_found_or_harmless(how: str, capsys: pytest.CaptureFixture[str]) -> None:
    tally: Counter[tuple[str, str]] = Counter()
    count = 0
    for module, inputs, graph, program, reference in _programs(how):
        count += 1
        assert differs(module, inputs, reference, _SEEDS, program=program, kernels=KERNELS) is None
        for kind, mutant in (*_mutants(program), *_without_data_edge(program)):
            if not _proved(mutant, graph):
                tally[kind, "found"] += 1
                continue
            tally[kind, "harmless"] += 1
            assert differs(module, inputs, reference, _SEEDS, program=mutant, kernels=KERNELS) is None, (kind, mutant)
    with capsys.disabled():
        rows = (f"{kind}: {number} {end}" for (kind, end), number in sorted(tally.items()))
        sys.stdout.write(f"\nmutants of {count} programs ({how}): {'; '.join(rows)}; survived with other bits: 0\n")
    assert count == _PROGRAMS[how]
    # The product's own schedules keep what shares storage together, so their explicit waits are rarely the only order.
    for kind in ("step moved", "neighbours swapped", "data edge dropped", *(["edge dropped"] if how == "random" else [])):
        assert tally[kind, "found"] > 0, tally
