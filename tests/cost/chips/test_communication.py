"""Collectives by kind, bytes, ranks and network: the published figures, and what must hold whatever the figures are."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autostream.cost import RooflineModel, chip_names, load_chip
from autostream.cost.chips.communication import comm_time, gang_cores
from autostream.cost.chips.factors import CommKind
from tests.cost.build import collective, spec

KINDS: tuple[CommKind, ...] = get_args(CommKind)
A2, A3 = load_chip("910B2").comm, load_chip("910_9391").comm
MB = 10**6


def rate(chip: str, kind: CommKind, ranks: int) -> float:
    """Return the GB/s of the larger side, alpha left out."""
    comm = load_chip(chip).comm
    return 100 * MB / (comm_time(comm, kind, 100 * MB, ranks) - comm_time(comm, kind, 0, ranks))


@pytest.mark.parametrize(
    ("chip", "kind", "ranks", "published"),
    [
        ("910_9391", "all_gather", 16, 208),
        ("910_9391", "reduce_scatter", 16, 172),
        ("910_9391", "dispatch", 8, 102),
        ("910_9391", "combine", 8, 152),
        ("910_9391", "dispatch", 16, 87),
        ("910_9391", "combine", 16, 121),
        # A pair of A2 devices has one link, and 8 devices have 7 each.
        ("910B2", "send_recv", 2, 19.8),
        ("910B2", "all_gather", 8, 8 * 19.8),
        ("910B2", "all_reduce", 8, 4 * 19.8),
    ],
)
def test_published_rates_are_reproduced(chip: str, kind: CommKind, ranks: int, published: float) -> None:
    assert rate(chip, kind, ranks) == pytest.approx(published, rel=1e-3)


@pytest.mark.parametrize("name", chip_names())
def test_a_send_to_a_neighbour_uses_the_link_that_a_gather_of_two_uses(name: str) -> None:
    # In an all-gather of two ranks each sends half of the larger side.
    assert rate(name, "send_recv", 2) == pytest.approx(rate(name, "all_gather", 2) / 2, rel=0.01)


def test_a_link_of_a2_lies_in_the_published_range() -> None:
    assert 18.7 <= A2.node.gb_per_s.value <= 20.9 < A2.node.spec_gb_per_s.value == 28
    assert A2.between_nodes.gb_per_s.value == 24.3


def test_a_tiny_all_reduce_is_all_latency() -> None:
    assert comm_time(A2, "all_reduce", 8, 8) == pytest.approx(16_000, rel=0.01)
    assert 5_400 <= comm_time(A3, "all_reduce", 8, 8) <= 8_001


def test_the_algorithm_factors_of_a_full_mesh_and_of_a_switch() -> None:
    link = A2.node.gb_per_s.value
    for ranks in (2, 4, 8):
        # Every rank sends 1 / n of the bytes to each other one, over a link of its own.
        assert rate("910B2", "all_gather", ranks) == pytest.approx(ranks * link)
        assert rate("910B2", "all_reduce", ranks) == pytest.approx(ranks * link / 2)
    bare = A3.model_copy(update={"all_gather": A3.all_gather.model_copy(update={"gb_per_s_by_ranks": None})})
    for ranks in (2, 8, 16):
        moved = comm_time(bare, "all_gather", MB, ranks) - comm_time(bare, "all_gather", 0, ranks)
        assert moved == pytest.approx(MB * (ranks - 1) / ranks / A3.node.gb_per_s.value)


def test_beyond_a_node_the_slower_network_bounds() -> None:
    # Half of what a rank of 16 routes leaves its server, over its own 24.3 GB/s.
    assert rate("910B2", "all_to_all", 16) == pytest.approx(2 * 24.3)
    assert rate("910B2", "dispatch", 16) == pytest.approx(2 * 24.3)
    # Each of the 8 devices carries an eighth of what two servers exchange: the links inside stay the slower ones.
    assert rate("910B2", "all_gather", 16) == pytest.approx(8 * 19.8)
    extra = A2.between_nodes.extra_alpha_us.value
    assert comm_time(A2, "all_reduce", 0, 16) == (A2.all_reduce.alpha_us.value + extra) * 1000


def test_between_and_beyond_published_rates() -> None:
    assert rate("910_9391", "dispatch", 8) > rate("910_9391", "dispatch", 12) > rate("910_9391", "dispatch", 16)
    # Every doubling costs as much as the last one that was measured.
    per_byte = [1 / rate("910_9391", "dispatch", ranks) for ranks in (8, 16, 32, 64)]
    steps = [b - a for a, b in pairwise(per_byte)]
    assert steps == pytest.approx([steps[0]] * 3)


@pytest.mark.parametrize("chip", chip_names())
@given(kind=st.sampled_from(KINDS), small=st.integers(0, 2**32), more=st.integers(0, 2**32), ranks=st.integers(1, 2000))
def test_time_never_falls_with_the_bytes(chip: str, kind: CommKind, small: int, more: int, ranks: int) -> None:
    comm = load_chip(chip).comm
    alpha = getattr(comm, kind).alpha_us.value * 1000
    assert alpha <= comm_time(comm, kind, small, ranks) <= comm_time(comm, kind, small + more, ranks)


@pytest.mark.parametrize("chip", chip_names())
@given(kind=st.sampled_from(KINDS), nbytes=st.integers(0, 2**32), ranks=st.integers(2, 1000))
def test_more_ranks_with_the_same_part_each_are_never_faster(chip: str, kind: CommKind, nbytes: int, ranks: int) -> None:
    """The larger side of a collective grows with its ranks; in a full mesh so do the links."""
    comm = load_chip(chip).comm
    fewer, more = (comm_time(comm, kind, nbytes * n, n) for n in (ranks, ranks + 1))
    assert fewer <= more * (1 + 1e-12)


@given(kind=st.sampled_from(KINDS), nbytes=st.integers(0, 2**32), ranks=st.integers(2, 767))
def test_on_a_switch_more_ranks_are_never_faster(kind: CommKind, nbytes: int, ranks: int) -> None:
    assert comm_time(A3, kind, nbytes, ranks) <= comm_time(A3, kind, nbytes, ranks + 1) * (1 + 1e-12)


def test_a_rank_alone_pays_the_latency_only() -> None:
    for kind in set(KINDS) - {"send_recv"}:
        assert comm_time(A2, kind, MB, 1) == comm_time(A2, kind, 0, 1)


def test_the_group_of_the_operator_decides() -> None:
    tensor = spec(4096, 4096)
    op = collective("_c10d_functional.all_to_all_single.default", (tensor,), (tensor,))
    model = RooflineModel(load_chip("910B2"))
    unknown, server, many = (model.estimate(op._replace(group_size=size)).breakdown.comm for size in (None, 8, 32))
    assert unknown == server < many


def test_a_gang_is_as_large_as_the_library_needs() -> None:
    assert gang_cores(A3, "dispatch") == 48
    assert gang_cores(A3, "all_reduce") == 0
    few = A3.all_reduce.model_copy(update={"aiv_gang_cores": A3.all_reduce.aiv_gang_cores.model_copy(update={"value": 4})})
    assert gang_cores(A3.model_copy(update={"all_reduce": few}), "all_reduce") == A3.min_aiv_cores.value == 16
