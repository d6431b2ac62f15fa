"""The whole product on random graphs: what it schedules, emits and proves gives eager mode's bits in every order it allows."""

from __future__ import annotations

import os
import sys
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autostream.errors import RewriteError, VerificationError
from autostream.graph.capture import capture
from autostream.options import Options
from autostream.program import cross_edges
from autostream.program.execution.execute import execute, serial
from autostream.program.reading.fx import read_fx
from autostream.proof import Prices, prove
from autostream.rewrite.air import Air
from autostream.rewrite.emit import emit
from autostream.scheduling import build_problem, strategy
from tests.properties.graphs import KERNELS, KINDS, MACHINE, Drawn, made_up_costs, wide

pytestmark = pytest.mark.usefixtures("npu_host")

_EXAMPLES = 500 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 100
#: Legal orders tried per program, beside one with a thread per stream.
_ORDERS = 6
_DRAWN = st.tuples(st.sampled_from(KINDS), *[st.integers(0, 63)] * 3)


def test_what_is_accepted_gives_the_bits_of_eager_mode(capsys: pytest.CaptureFixture[str]) -> None:
    tally: Counter[str] = Counter()
    dialect = Air()  # one for all: it remembers where waits land

    @settings(max_examples=_EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(
        steps=st.lists(_DRAWN, min_size=8, max_size=20),
        durations=st.lists(st.integers(2, 60), min_size=1, max_size=12),
        solver=st.sampled_from(["greedy", "greedy", "cpsat"]),
        streams=st.integers(1, 3),
        seed=st.integers(0, 2**32),
    )
    def holds(steps: list[Drawn], durations: list[int], solver: str, streams: int, seed: int) -> None:
        module, inputs = wide(steps)
        graph = capture(module)
        assert not graph.refusals
        reference = serial(module, inputs, kernels=KERNELS)
        options = Options.of({"strategy": solver, "side_streams": streams, "solver_budget": 0.05})
        costs = made_up_costs(graph, durations)
        schedule = strategy(options).solve(build_problem(graph, costs, MACHINE, options))
        tally["drawn"] += 1
        try:
            emitted = emit(module, graph, schedule, dialect).graph_module
        except RewriteError:
            tally["not to be expressed"] += 1
            return
        program = read_fx(emitted)
        try:
            prove(program, graph, Prices(costs=costs, machine=MACHINE))
        except VerificationError:  # the product would leave the graph as it was
            tally["declined"] += 1
            return
        tally[f"proved, by {solver}"] += 1
        tally["several streams"] += len(program.streams()) > 1
        tally["crossed by an edge"] += bool(cross_edges(program))
        assert execute(emitted, inputs, program=program, kernels=KERNELS).same_bits(reference)
        for order in range(_ORDERS):
            run = execute(emitted, inputs, seed=(seed + order) % 2**32, program=program, kernels=KERNELS)
            assert run.same_bits(reference), order

    holds()
    with capsys.disabled():
        sys.stdout.write(f"\nwhole product: {', '.join(f'{what} {count}' for what, count in tally.items())}; diverged 0\n")
    assert tally["several streams"] >= 0.6 * tally["drawn"], tally
    assert tally["crossed by an edge"] >= 0.5 * tally["drawn"], tally
    assert tally["declined"] + tally["not to be expressed"] <= 0.05 * tally["drawn"], tally
    assert tally["proved, by greedy"] and tally["proved, by cpsat"], tally
