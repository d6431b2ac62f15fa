from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autostream.budget import Ledger, Limits, Need, Region, need_as_given, need_of, within_budget
from autostream.cost import load_chip
from autostream.cost.model import Machine
from autostream.graph.model import Unit
from autostream.options import Options
from tests.program.programs import program, step
from tests.rewrite.graphs import op_graph

LIMITS = Limits(streams=1800, events=65536)


def test_a_graph_that_fits_is_entered_and_one_that_does_not_changes_nothing() -> None:
    ledger = Ledger()
    assert ledger.reserve(Need(streams=1799, events=0), LIMITS) is None
    reason = ledger.reserve(Need(streams=3, events=6), LIMITS)
    assert reason is not None
    for number in ("3 streams and 6 events", "1 graphs", "1799 of 1800 streams and 0 of 65536 events", "600 graphs of this size"):
        assert number in reason
    assert ledger.used == Need(streams=1799, events=0)
    assert ledger.reserve(Need(streams=1, events=65536), LIMITS) is None
    assert ledger.reserve(Need(streams=0, events=1), LIMITS) is not None
    ledger.reset()
    assert ledger.used == Need(streams=0, events=0)


def test_what_runs_as_it_is_counts_even_beyond_the_limit() -> None:
    ledger = Ledger()
    ledger.charge(Need(streams=1801, events=0))
    assert ledger.used.streams == 1801
    assert ledger.reserve(Need(streams=0, events=0), LIMITS) is not None


def test_without_a_known_limit_nothing_is_refused() -> None:
    nothing = Limits.of(Machine(name="new", aic=1, aiv=2, sync=0, sync_error=0.0), Options())
    assert Ledger().reserve(Need(streams=10**6, events=10**6), nothing) is None
    assert nothing.fit(Need(streams=3, events=1)) is None


def test_the_users_limits_go_before_the_chips() -> None:
    machine = load_chip("910B2").machine
    assert Limits.of(machine, Options()) == LIMITS
    assert Limits.of(machine, Options(stream_budget=32000, event_budget=7)) == Limits(streams=32000, events=7)
    assert Limits.of(load_chip("310P3").machine, Options()).events == 1023


def test_threads_never_take_more_than_there_is() -> None:
    ledger = Ledger()
    with ThreadPoolExecutor(8) as pool:
        refusals = list(pool.map(lambda _: ledger.reserve(Need(streams=3, events=1), LIMITS), range(700)))
    assert refusals.count(None) == 600
    assert ledger.used == Need(streams=1800, events=600)


def test_a_program_needs_its_streams_and_an_event_for_each_wait_between_two() -> None:
    steps = [step("a"), step("b", "s"), step("view", None), step("c", "hccl")]
    assert need_of(program(steps, data=["a>b", "b>view", "view>c", "a>c"])) == Need(streams=3, events=3)


def test_a_graph_as_it_is_takes_the_engines_streams() -> None:
    assert need_as_given(None).streams == 1
    assert need_as_given(op_graph({"mm": Unit.CUBE, "view": Unit.FREE}, [])).streams == 1
    assert need_as_given(op_graph({"mm": Unit.CUBE, "gather": Unit.COMM}, [])).streams == 2


def region(gain: int, streams: str = "a", events: int = 1) -> Region:
    return Region(gain=gain, streams=frozenset(streams), events=events)


@pytest.mark.parametrize(
    ("regions", "streams", "events", "kept"),
    [
        ([region(5), region(9), region(7)], 1, 2, (1, 2)),  # the least gain goes first
        ([region(5), region(5), region(5)], 1, 2, (0, 1)),  # of equal ones the later
        ([region(5, "a"), region(4, "b"), region(3, "a")], 1, 9, (0, 2)),  # a stream that is open costs nothing
        ([region(9, events=7), region(5, events=2)], 1, 3, (1,)),  # what does not fit makes room for what does
        ([region(9)], 0, 9, ()),
        ([], 3, 3, ()),
    ],
)
def test_regions_are_kept_by_gain(regions: list[Region], streams: int, events: int, kept: tuple[int, ...]) -> None:
    assert within_budget(regions, Need(streams=streams, events=events)) == kept


@given(
    regions=st.lists(
        st.builds(Region, gain=st.integers(0, 9), streams=st.frozensets(st.sampled_from("abc")), events=st.integers(0, 5)),
        max_size=8,
    ),
    streams=st.integers(0, 3),
    events=st.integers(0, 12),
)
def test_what_is_kept_fits_and_nothing_that_gains_more_could_be_added(regions: list[Region], streams: int, events: int) -> None:
    kept = within_budget(regions, Need(streams=streams, events=events))
    opened: frozenset[str] = frozenset().union(*(regions[at].streams for at in kept))
    spent = sum(regions[at].events for at in kept)
    assert len(opened) <= streams and spent <= events and list(kept) == sorted(set(kept))
    for at in set(range(len(regions))) - set(kept):
        assert len(opened | regions[at].streams) > streams or spent + regions[at].events > events
