from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from autostream.program import Semantics, Severity, StreamProgram, verify_ranks
from tests.program.programs import found, program, step

REDUCE = "_c10d_functional.all_reduce.default"


def _rank(order: str, *, second: str = "", events: tuple[str, ...] = ()) -> StreamProgram:
    """Collectives named by single letters on the default stream, more of them on a second one."""
    steps = [step(name, kind=REDUCE) for name in order] + [step(name, "s", kind=REDUCE) for name in second]
    return program(steps, event=events, semantics=Semantics.CAPTURE)


def test_ranks_with_one_order_meet() -> None:
    assert verify_ranks({"0": _rank("abc"), "1": _rank("abc"), "2": _rank("a", second="bc", events=("a>b",))}) == ()
    assert verify_ranks({}) == ()


def test_a59_a_collective_that_only_some_ranks_issue_is_found() -> None:
    (finding,) = verify_ranks({"0": _rank("abc"), "1": _rank("ac")})
    assert (finding.kind, finding.severity, finding.steps) == ("rank-missing", Severity.ERROR, ("b",))
    assert finding.explanation.startswith("rank 1 does not take part in 'b'")
    twice = program([step("one", kind=REDUCE, source="a"), step("two", kind=REDUCE, source="a")])
    assert found(verify_ranks({"0": twice, "1": _rank("a")})) == ["rank-missing"]


def test_g28_two_ranks_that_issue_collectives_in_two_orders_wait_in_a_circle() -> None:
    (finding,) = verify_ranks({"0": _rank("abc"), "1": _rank("acb")})
    assert (finding.kind, finding.severity) == ("rank-order", Severity.ERROR)
    assert set(finding.steps) == {"b", "c"}


def test_g28_an_order_that_events_force_counts_and_so_do_three_ranks() -> None:
    steps = [step("a", kind=REDUCE), step("plain"), step("b", "s", kind=REDUCE)]
    forced = program(steps, control=["plain>b"])
    assert found(verify_ranks({"0": forced, "1": _rank("ba")})) == ["rank-order"]
    assert verify_ranks({"0": program(steps), "1": _rank("ba")}) == ()
    circle = {"0": _rank("ab", second="c"), "1": _rank("bc", second="a"), "2": _rank("ca", second="b")}
    (finding,) = verify_ranks(circle)
    assert set(finding.steps) == {"a", "b", "c"}
    del circle["2"]
    assert verify_ranks(circle) == ()


def test_other_steps_are_the_ranks_own() -> None:
    one = program([step("x"), step("a", kind=REDUCE), step("y")])
    two = program([step("y"), step("a", kind=REDUCE), step("x")])
    assert verify_ranks({"0": one, "1": two}) == ()


@settings(max_examples=40, deadline=None)
@given(orders=st.lists(st.permutations("abcd"), min_size=2, max_size=3))
def test_full_orders_must_be_equal(orders: list[list[str]]) -> None:
    findings = verify_ranks({str(rank): _rank("".join(order)) for rank, order in enumerate(orders)})
    assert found(findings) == ([] if all(one == two for one, two in combinations(orders, 2)) else ["rank-order"])
