from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from autostream.budget import Ledger, Limits, Need, need_as_given, need_of
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


def test_what_was_reserved_can_be_given_back() -> None:
    ledger = Ledger()
    ledger.charge(Need(streams=2, events=3))
    assert ledger.reserve(Need(streams=1798, events=5), LIMITS) is None
    ledger.release(Need(streams=1798, events=5))
    assert ledger.used == Need(streams=2, events=3)
    assert ledger.reserve(Need(streams=1798, events=5), LIMITS) is None


def test_what_runs_as_it_is_counts_even_beyond_the_limit() -> None:
    ledger = Ledger()
    ledger.charge(Need(streams=1801, events=0))
    assert ledger.used.streams == 1801
    assert ledger.reserve(Need(streams=0, events=0), LIMITS) is not None


def test_what_is_left_may_be_less_than_nothing() -> None:
    ledger = Ledger()
    ledger.charge(Need(streams=1801, events=36))
    assert ledger.left(LIMITS) == Limits(streams=-1, events=65500)
    assert ledger.left(Limits(streams=None, events=36)) == Limits(streams=None, events=0)


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
