"""Mutation testing of the verifier: every mutant of a proved program is found, or gives the same bits in every order drawn."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import fx

from autostream.errors import RewriteError
from autostream.graph import OpGraph, capture
from autostream.program import EdgeKind, Execution, ExecutionError, Severity, StreamProgram, differs, read_fx, serial, verify
from autostream.proof import orders_of
from autostream.rewrite.air import Air
from autostream.rewrite.emit import emit
from tests.rewrite.graphs_fx import at_random
from tests.rewrite.sketches import KINDS, execute, sketch

pytestmark = pytest.mark.usefixtures("npu_host")

_PROGRAMS = 30
_SEEDS = range(6)


def _update(*args: object, **kwargs: object) -> object:
    """Stand in for the cache update, which torch_npu has no CPU kernel for."""
    return execute(torch.ops.npu.scatter_update_.default, args, kwargs)


_KERNELS = {"npu.scatter_update_.default": _update}


def _proved(program: StreamProgram, graph: OpGraph) -> bool:
    findings = verify(program, required=orders_of(program, graph))
    return all(finding.severity is not Severity.ERROR and finding.kind != "order-unproven" for finding in findings)


def _programs() -> Iterator[tuple[fx.GraphModule, list[object], OpGraph, StreamProgram, Execution]]:
    """Yield emitted programs on several streams that are proved and hold at least one explicit wait, from fixed seeds."""
    dialect = Air()
    found = 0
    for seed in range(2000):
        dice = random.Random(seed)
        steps = [(dice.choice(KINDS), *(dice.randrange(64) for _ in range(3))) for _ in range(dice.randint(6, 12))]
        builder, module = sketch(steps)
        graph = capture(module)
        try:
            emitted = emit(module, graph, at_random(graph, seed), dialect).graph_module
        except RewriteError:
            continue
        program = read_fx(emitted)
        waits = any(edge.kind is EdgeKind.CONTROL for edge in program.edges)
        if waits and len(program.streams()) > 1 and _proved(program, graph):
            inputs: list[object] = list(builder.inputs.values())
            try:
                reference = serial(emitted, inputs, kernels=_KERNELS)
            except ExecutionError:  # an update with rows of the very cache it writes
                continue
            yield emitted, inputs, graph, program, reference
            found += 1
            if found == _PROGRAMS:
                return


def _mutants(program: StreamProgram) -> Iterator[tuple[str, StreamProgram]]:
    """Drop each wait, swap neighbours on a stream, move a step to another stream."""
    for edge in program.edges:
        if edge.kind is not EdgeKind.DATA:
            yield "edge dropped", replace(program, edges=tuple(other for other in program.edges if other != edge))
    steps = list(program.steps)
    for lane in program.streams().values():
        for first, second in pairwise(lane):
            one, two = steps.index(first), steps.index(second)
            swapped = steps.copy()
            swapped[one], swapped[two] = second, first
            yield "neighbours swapped", replace(program, steps=tuple(swapped))
    streams = list(program.streams())
    for position, step in enumerate(steps):
        if step.stream is not None:
            other = streams[(streams.index(step.stream) + 1) % len(streams)]
            moved = [*steps[:position], replace(step, stream=other), *steps[position + 1 :]]
            yield "step moved", replace(program, steps=tuple(moved))


def test_every_mutant_is_found_or_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    tally: Counter[tuple[str, str]] = Counter()
    count = 0
    for module, inputs, graph, program, reference in _programs():
        count += 1
        assert differs(module, inputs, reference, _SEEDS, program=program, kernels=_KERNELS) is None
        for kind, mutant in _mutants(program):
            if not _proved(mutant, graph):
                tally[kind, "found"] += 1
                continue
            tally[kind, "harmless"] += 1
            assert differs(module, inputs, reference, _SEEDS, program=mutant, kernels=_KERNELS) is None, (kind, mutant)
    with capsys.disabled():
        rows = (f"{kind}: {how} {number}" for (kind, how), number in sorted(tally.items()))
        sys.stdout.write(f"\nmutants of {count} programs: {'; '.join(rows)}; survived with other bits: 0\n")
    assert count == _PROGRAMS
    for kind in ("edge dropped", "step moved"):
        assert tally[kind, "found"] > 0, tally
