"""The analytic model: terms, resources, bands, and the orders no price may break."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autostream.cost import FREE, Chip, Cost, Resources, RooflineModel, Tier, chip_names, load_chip
from autostream.cost.analytic.product import Product, tile
from autostream.graph.model import Op, Unit
from tests.cost.build import collective, make, mm, spec, vector

B2 = RooflineModel(load_chip("910B2"))
CHIPS = {name: load_chip(name) for name in chip_names()}
VECTORS = (
    "aten.add.Tensor",
    "aten.clone.default",
    "npu.npu_rms_norm.default",
    "aten._softmax.default",
    "aten.topk.default",
    "x.y",
)
sizes = st.integers(1, 5000)


def with_cores(chip: Chip, aic: int, aiv: int) -> Chip:
    """Return the chip with other core counts and everything else as it was."""
    return chip.model_copy(
        update={
            "aic_cores": chip.aic_cores.model_copy(update={"value": aic}),
            "aiv_cores": chip.aiv_cores.model_copy(update={"value": aiv}),
        }
    )


def samples() -> list[Op]:
    """Return operators of every unit and kind."""
    x, w, ids = spec(64, 7168), spec(7168, 2048), spec(64, 8, dtype="int64")
    image, kernel, map_ = spec(8, 64, 56, 56), spec(128, 64, 3, 3), spec(8, 128, 56, 56)
    return [
        mm(16, 3200, 5120),
        mm(4096, 4096, 4096, "int8"),
        mm(32, 4096, 4096, "float32"),
        make("aten.addmm.default", Unit.CUBE, (spec(2048), x, w), (spec(64, 2048),), flops=2 * 64 * 7168 * 2048),
        make("aten.convolution.default", Unit.CUBE, (image, kernel), (map_,), flops=2 * map_.numel * 64 * 9),
        make("npu.npu_grouped_matmul.default", Unit.MIXED, (spec(512, 7168), spec(32, 7168, 2048)), (spec(512, 2048),)),
        make("npu.npu_fused_infer_attention_score.default", Unit.MIXED, (x, x, x), (x,), flops=10**9),
        make("aten.sort.stable", Unit.MIXED, (spec(64, 256),), (spec(64, 256), spec(64, 256, dtype="int64"))),
        make("npu.npu_mm_all_reduce_base.default", Unit.MIXED, (x, w), (spec(64, 2048),)),
        *(vector(target, 64, 7168) for target in VECTORS),
        vector("aten.add.Tensor", 1),
        vector("aten.add.Tensor", 0),
        collective("_c10d_functional.all_reduce.default", (x,), (x,)),
        collective("npu.npu_moe_distribute_dispatch_v2.default", (x, ids), (spec(4096, 7168),)),
        collective("mylib.gossip.default", (x,), (x,)),
        make("aten._local_scalar_dense.default", Unit.HOST, (spec(1),), ()),
        make("mylib.secret.default", Unit.VECTOR, (x,), (x,), known=False),
        make("mylib.nothing.default", Unit.COMM, (), (), known=False),
        make("aten.mm.default", Unit.CUBE, (), (), flops=0),
    ]


@pytest.mark.parametrize("name", chip_names())
def test_every_price_adds_up_and_fits_the_machine(name: str) -> None:
    model = RooflineModel(CHIPS[name])
    machine = model.machine
    for op in samples():
        cost = model.estimate(op)
        parts, held = cost.breakdown, cost.resources
        assert cost.duration == parts.launch + max(parts.cube, parts.vector, parts.hbm, parts.l2, parts.comm), op.target
        assert type(cost.duration) is int and cost.duration >= 1, op.target
        assert 0 <= held.aic <= machine.aic and 0 <= held.aiv <= machine.aiv, op.target
        assert 0 <= held.hbm <= 1000 and held.comm in (0, 1), op.target
        assert 0 < cost.error <= cost.spread < 2, op.target


def test_an_operator_without_a_task_is_free() -> None:
    view = make("aten.view.default", Unit.FREE, (spec(8),), (spec(8),))
    assert B2.estimate(view) == FREE
    assert B2.estimate(view._replace(known=False)) == FREE


@pytest.mark.parametrize(
    ("op", "aic", "aiv", "comm"),
    [
        (mm(4096, 4096, 4096), True, False, 0),
        (vector("aten.add.Tensor", 4096, 4096), False, True, 0),
        (make("npu.npu_fusion_attention.default", Unit.MIXED, (spec(8, 8),), (spec(8, 8),), flops=9), True, True, 0),
        (collective("_c10d_functional.all_reduce.default", (spec(8),), (spec(8),)), False, False, 1),
        (make("npu.npu_mm_all_reduce_base.default", Unit.MIXED, (spec(8, 8), spec(8, 8)), (spec(8, 8),)), True, True, 1),
        (make("aten._local_scalar_dense.default", Unit.HOST, (spec(1),), ()), False, False, 0),
    ],
)
def test_each_unit_holds_its_own_resources(op: Op, aic: bool, aiv: bool, comm: int) -> None:
    held = B2.estimate(op).resources
    assert (held.aic > 0, held.aiv > 0, held.comm) == (aic, aiv, comm)


def test_small_operators_leave_cores_to_others() -> None:
    # One block per 4096 bytes of the largest tensor: what profiles of 4096-element fp32 kernels show.
    assert B2.estimate(vector("aten.add.Tensor", 8192)).resources == Resources(aiv=4)
    assert B2.estimate(vector("aten.add.Tensor", 4096, 4096)).resources.aiv == 48
    # One row to a block.
    assert B2.estimate(vector("npu.npu_rms_norm.default", 8, 7168)).resources.aiv == 8
    # 320 x 1024 outputs are 3 x 4 tiles of at most 128 x 256; one row of tiles is cut as narrow as loads the cores evenly.
    assert B2.estimate(mm(320, 1024, 512)).resources.aic == 12
    assert B2.estimate(mm(32, 4096, 4096)).resources.aic == 24
    mixed = make("npu.npu_grouped_matmul.default", Unit.MIXED, (spec(320, 512), spec(1, 512, 1024)), (spec(320, 1024),))
    held = B2.estimate(mixed).resources
    assert (held.aic, held.aiv) == (12, 24)


def test_a_gang_holds_vector_cores_only_where_the_chip_says_so() -> None:
    tokens, ids = spec(64, 7168), spec(64, 8, dtype="int64")
    dispatch = collective("npu.npu_moe_distribute_dispatch_v2.default", (tokens, ids), (spec(4096, 7168),))
    reduce = collective("_c10d_functional.all_reduce.default", (tokens,), (tokens,))
    a3 = RooflineModel(load_chip("910_9392"))
    assert a3.estimate(dispatch).resources.aiv == load_chip("910_9392").comm.dispatch.aiv_gang_cores.value > 0
    assert a3.estimate(reduce).resources.aiv == 0


def test_unknown_operators_hold_the_chip_and_say_so() -> None:
    op = vector("mylib.secret.default", 64, 64)
    known, unknown = B2.estimate(op), B2.estimate(op._replace(known=False))
    assert (unknown.tier, known.tier) == (Tier.UNKNOWN, Tier.ANALYTIC)
    assert (unknown.resources.aic, unknown.resources.aiv) == (24, 48)
    assert unknown.duration > known.duration
    bands = load_chip("910B2").relative_error
    assert unknown.error == bands.unknown.value == max(band.value for _, band in bands)
    assert B2.estimate(make("m.n.default", Unit.COMM, (), (), known=False)).resources.comm == 1


def test_bands_come_from_the_class() -> None:
    bands = load_chip("910B2").relative_error
    assert B2.estimate(mm(64, 64, 64)).error == bands.matmul.value
    assert B2.estimate(vector("aten.mul_.Tensor", 64)).error == bands.elementwise.value
    assert B2.estimate(vector("npu.npu_dynamic_quant.default", 8, 64)).error == bands.vector.value
    # Nobody measured it, or nothing like it: an operator of no group, a group without kernels, another term that bounds it.
    assert B2.estimate(vector("mylib.known.default", 64)).error == bands.unknown.value
    assert B2.estimate(vector("aten._native_batch_norm_legit_no_training.default", 1, 64, 56, 56)).error == bands.unknown.value
    long, short = (
        make("npu.npu_fusion_attention.default", Unit.MIXED, (spec(8, 8),), (spec(8, 8),), flops=flops) for flops in (10**12, 9)
    )
    assert B2.estimate(long).error == bands.attention.value < bands.unknown.value == B2.estimate(short).error
    broadcast = collective("_c10d_functional.broadcast.default", (spec(8),), (spec(8),))
    assert B2.estimate(broadcast._replace(group_size=8)).error == B2.estimate(broadcast).error == bands.comm.value
    assert B2.estimate(broadcast._replace(group_size=16)).error == bands.unknown.value, "between servers"


def test_a_large_product_runs_near_the_achieved_peak() -> None:
    m, n, k = 24 * 128, 256 * 8, 4096
    cost = B2.estimate(mm(m, n, k))
    peak = 24 * 8192 * 1800e6 * load_chip("910B2").cube.fp16.efficiency.value
    assert cost.breakdown.cube == pytest.approx(2 * m * n * k / peak * 1e9, rel=1e-3)


def test_padding_and_waves_are_paid() -> None:
    # 24 full tiles take one wave, a 25th a second one; 1 row costs what 16 do.
    one, two = B2.estimate(mm(3 * 128, 8 * 256, 4096)), B2.estimate(mm(5 * 128, 5 * 256, 4096))
    assert two.breakdown.cube == pytest.approx(2 * one.breakdown.cube, rel=1e-3)
    assert B2.estimate(mm(1, 4096, 4096)).breakdown.cube == B2.estimate(mm(16, 4096, 4096)).breakdown.cube


def test_data_types_have_their_own_peaks() -> None:
    cube = {dtype: B2.estimate(mm(3072, 2048, 4096, dtype)).breakdown.cube for dtype in ("int8", "float16", "float32")}
    assert cube["int8"] < cube["float16"] < cube["float32"]
    # Weights in int8 under bf16 activations run at the slower rate.
    mixed = make(
        "npu.npu_weight_quant_batchmatmul.default",
        Unit.CUBE,
        (spec(3072, 4096), spec(4096, 2048, dtype="int8")),
        (spec(3072, 2048),),
    )
    assert B2.estimate(mixed).breakdown.cube == cube["float16"]


def test_weights_are_cold_and_fresh_activations_are_not() -> None:
    chip = load_chip("910B2")
    product = B2.estimate(mm(16, 3200, 5120))
    rate = chip.hbm.spec_gb_per_s.value * chip.hbm.aic_efficiency.value
    assert product.breakdown.hbm == pytest.approx(3200 * 5120 * 2 / rate, rel=1e-3)
    assert product.resources.hbm == pytest.approx(1000 * product.breakdown.hbm / product.duration, abs=1)
    assert B2.estimate(vector("aten.add.Tensor", 1024, 1024)).breakdown.hbm == 0
    # 400 MB do not fit the cache.
    assert B2.estimate(vector("aten.add.Tensor", 10_000, 10_000)).breakdown.hbm > 0
    assert B2.estimate(vector("aten.embedding.default", 1024, 1024)).breakdown.hbm > 0


def test_the_matrix_of_a_matrix_vector_product_is_cold() -> None:
    vector_product = make("aten.mv.default", Unit.CUBE, (spec(4096, 4096), spec(4096)), (spec(4096),), flops=2 * 4096**2)
    assert B2.estimate(vector_product).breakdown.hbm >= B2.estimate(mm(1, 4096, 4096)).breakdown.hbm > 0


def test_a_grouped_product_is_tiled_per_expert() -> None:
    few = make("npu.npu_grouped_matmul.default", Unit.CUBE, (spec(64, 512), spec(2, 512, 512)), (spec(64, 512),))
    many = make("npu.npu_grouped_matmul.default", Unit.CUBE, (spec(64, 512), spec(64, 512, 512)), (spec(64, 512),))
    # One row per expert is padded to 16.
    assert B2.estimate(many).breakdown.cube > 2 * B2.estimate(few).breakdown.cube
    assert B2.estimate(many).breakdown.hbm > 8 * B2.estimate(few).breakdown.hbm


def test_a_grouped_product_reads_one_weight_for_each_row_at_most() -> None:
    def grouped(rows: int, experts: int) -> Op:
        inputs = (spec(rows, 2048), spec(experts, 2048, 1536))
        return make("npu.npu_grouped_matmul.default", Unit.CUBE, inputs, (spec(rows, 1536),), flops=2 * rows * 2048 * 1536)

    assert B2.estimate(grouped(8, 128)).breakdown.hbm == B2.estimate(grouped(8, 8)).breakdown.hbm
    assert B2.estimate(grouped(128, 128)).breakdown.hbm > 15 * B2.estimate(grouped(8, 128)).breakdown.hbm
    times = [B2.estimate(grouped(rows, 128)).duration for rows in (1, 2, 8, 64, 127, 128, 129, 512)]
    assert times == sorted(times)


def test_products_whose_results_lie_side_by_side_cost_as_much() -> None:
    def transposed(*shape: int) -> Cost:
        inputs = (spec(8, 128, 512), spec(128, 512, 128))
        target = "npu.npu_transpose_batchmatmul.default"
        return B2.estimate(make(target, Unit.CUBE, inputs, (spec(*shape),), flops=2 * 8 * 128 * 512 * 128))

    # With scales the real operator returns (m, 1, batch x n), with a split (splits, m, batch x n / splits).
    assert transposed(8, 128, 128) == transposed(8, 1, 16384) == transposed(2, 8, 8192)


def test_convolutions_are_products_and_transposed_ones_go_by_their_flop() -> None:
    x, weight, out = spec(8, 64, 56, 56), spec(128, 64, 3, 3), spec(8, 128, 56, 56)
    flops = 2 * out.numel * 64 * 9
    forward = B2.estimate(make("aten.convolution.default", Unit.CUBE, (x, weight), (out,), flops=flops))
    as_mm = B2.estimate(mm(8 * 56 * 56, 128, 64 * 9))
    assert forward.breakdown.cube == pytest.approx(as_mm.breakdown.cube, rel=1e-3)
    y, up, big = spec(8, 64, 28, 28), spec(64, 64, 2, 2), spec(8, 64, 56, 56)
    true_flops = 2 * y.numel * 64 * 4
    transposed = B2.estimate(make("aten.convolution.default", Unit.CUBE, (y, up), (big,), flops=true_flops))
    per_core = 24 * 8192 * 1.8 * load_chip("910B2").cube.fp16.efficiency.value
    assert transposed.breakdown.cube == pytest.approx(true_flops / per_core, rel=1e-2)


def test_dispatch_is_priced_by_its_tokens_not_by_its_buffer() -> None:
    tokens, ids = spec(64, 7168), spec(64, 8, dtype="int64")
    target = "npu.npu_moe_distribute_dispatch_v2.default"
    small = B2.estimate(collective(target, (tokens, ids), (spec(1024, 7168),)))
    large = B2.estimate(collective(target, (tokens, ids), (spec(65536, 7168),)))
    comm = load_chip("910B2").comm.dispatch
    assert comm.gb_per_s_by_ranks is not None
    expected = comm.alpha_us.value * 1000 + 64 * 7168 * 2 * 8 / comm.gb_per_s_by_ranks[8].value
    assert small.breakdown.comm == large.breakdown.comm == pytest.approx(expected, abs=1)


def test_a_fused_collective_moves_no_weights() -> None:
    def fused(k: int) -> Cost:
        tensors = (spec(64, k), spec(k, 4096))
        return B2.estimate(make("npu.npu_mm_all_reduce_base.default", Unit.MIXED, tensors, (spec(64, 4096),)))

    comm = load_chip("910B2").comm
    # 8 devices in a full mesh: a rank sends an eighth to each of the others, twice.
    expected = comm.all_reduce.alpha_us.value * 1000 + 2 * 64 * 4096 * 2 / 8 / comm.node.gb_per_s.value
    assert fused(512).breakdown.comm == fused(4096).breakdown.comm == pytest.approx(expected, abs=1)


def test_host_operators_take_a_fixed_time_and_no_core() -> None:
    host = B2.estimate(make("aten._local_scalar_dense.default", Unit.HOST, (spec(1),), ()))
    assert host.duration == load_chip("910B2").launch.host_us.value * 1000
    assert host.resources == Resources()


def test_the_fingerprint_names_chip_and_data() -> None:
    first = RooflineModel(load_chip("910B2")).fingerprint()
    assert first == RooflineModel(load_chip("Ascend910B2")).fingerprint()
    assert first != RooflineModel(load_chip("910B3")).fingerprint()


@settings(max_examples=60)
@given(m=sizes, n=sizes, k=sizes, axis=st.integers(0, 2), more=st.integers(1, 600), chip=st.sampled_from(chip_names()))
def test_a_larger_product_is_never_shorter(m: int, n: int, k: int, axis: int, more: int, chip: str) -> None:
    model = RooflineModel(CHIPS[chip])
    grown = [size + more * (axis == i) for i, size in enumerate((m, n, k))]
    assert model.estimate(mm(grown[0], grown[1], grown[2])).duration >= model.estimate(mm(m, n, k)).duration


@settings(max_examples=60)
@given(
    target=st.sampled_from(VECTORS),
    rows=sizes,
    columns=sizes,
    more_rows=st.integers(0, 50),
    more_columns=st.integers(0, 600),
    chip=st.sampled_from(chip_names()),
)
def test_a_larger_tensor_is_never_shorter(
    target: str, rows: int, columns: int, more_rows: int, more_columns: int, chip: str
) -> None:
    model = RooflineModel(CHIPS[chip])
    small = model.estimate(vector(target, rows, columns))
    assert model.estimate(vector(target, rows + more_rows, columns + more_columns)).duration >= small.duration


@settings(max_examples=60)
@given(op=st.sampled_from(samples()), bytes_more=st.integers(0, 10**9), flops_more=st.integers(0, 10**12))
def test_more_bytes_or_flop_are_never_shorter(op: Op, bytes_more: int, flops_more: int) -> None:
    # For a mixed operator the first flop changes its kind: from vector work to a product.
    flops_more = flops_more if op.flops or op.unit is not Unit.MIXED else 0
    more = op._replace(bytes_read=op.bytes_read + bytes_more, flops=op.flops + flops_more)
    assert B2.estimate(more).duration >= B2.estimate(op).duration


@settings(max_examples=80)
@given(m=sizes, n=sizes, k=sizes, rows=sizes, target=st.sampled_from(VECTORS), aic=st.integers(1, 24), aiv=st.integers(1, 48))
def test_fewer_cores_are_never_faster(m: int, n: int, k: int, rows: int, target: str, aic: int, aiv: int) -> None:
    fewer = RooflineModel(with_cores(load_chip("910B2"), aic, aiv))
    for op in (mm(m, n, k), vector(target, rows, k)):
        assert fewer.estimate(op).duration >= B2.estimate(op).duration


@settings(max_examples=80)
@given(batch=st.integers(1, 70), m=sizes, n=sizes, k=sizes, cores=st.integers(1, 30))
def test_tiles_cover_the_product(batch: int, m: int, n: int, k: int, cores: int) -> None:
    product = Product(batch=batch, m=m, n=n, k=k, itemsize=2)
    tiling = tile(product, load_chip("910B2").cube, cores)
    assert 1 <= tiling.cores <= cores
    # The busiest core does at least its share, and all cores together at least the whole.
    assert tiling.flop * tiling.cores >= product.flop * 0.999


def test_what_was_priced_before_changes_no_price() -> None:
    chip = load_chip("910B2")
    used = RooflineModel(chip)
    changes = (
        {"target": "aten.exp.default"},
        {"unit": Unit.VECTOR},
        {"inputs": (spec(3, 5),)},
        {"outputs": (spec(3, 5),)},
        {"flops": 10**12},
        {"bytes_read": 10**9},
        {"bytes_written": 10**9},
        {"group_size": 64},
        {"known": False},
    )
    for op in samples():
        assert used.estimate(op._replace(name="another", position=7)) is used.estimate(op)
        for change in changes:
            other = op._replace(**change)
            assert used.estimate(other) == RooflineModel(chip).estimate(other)
