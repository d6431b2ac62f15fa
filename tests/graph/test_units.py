"""The operator table: complete for what models use, true to the schemas it refers to, and its flop rules."""

from __future__ import annotations

import pytest
import torch

from autostream.graph.flops import RULES, Call, flops_of
from autostream.graph.model import TensorSpec, Unit
from autostream.graph.units import classify, patterns


def spec(*shape: int) -> TensorSpec:
    return TensorSpec(shape=shape, dtype="bfloat16", itemsize=2)


def flops(
    target: str, outputs: list[TensorSpec], scalars: dict[str, object] | None = None, **tensors: TensorSpec | list[TensorSpec]
) -> int:
    info = classify(target)
    assert info is not None
    listed = {name: tuple(value) if isinstance(value, list) else (value,) for name, value in tensors.items()}
    return flops_of(info, Call(tensors=listed, scalars=scalars or {}, outputs=tuple(outputs)))


@pytest.mark.parametrize(
    ("target", "unit"),
    [
        ("aten.mm.default", Unit.CUBE),
        ("aten.convolution.default", Unit.CUBE),
        ("aten._scaled_dot_product_flash_attention_for_cpu.default", Unit.MIXED),
        ("aten.add.Tensor", Unit.VECTOR),
        ("aten.add_.Tensor", Unit.VECTOR),
        ("aten.index_put_.default", Unit.VECTOR),
        ("aten._to_copy.default", Unit.VECTOR),
        ("aten.slice.Tensor", Unit.VECTOR),
        ("aten.as_strided.default", Unit.VECTOR),
        ("aten.view.default", Unit.FREE),
        ("aten.permute.default", Unit.FREE),
        ("aten.sym_size.int", Unit.FREE),
        ("getitem", Unit.FREE),
        ("_c10d_functional.wait_tensor.default", Unit.FREE),
        ("air.wait_tensor.default", Unit.FREE),
        ("_c10d_functional.all_reduce.default", Unit.COMM),
        ("npu_define.allgather.default", Unit.COMM),
        ("npu.npu_moe_distribute_dispatch_v2.default", Unit.COMM),
        ("npu.npu_moe_distribute_combine_add_rms_norm.default", Unit.COMM),
        ("npu.npu_all_gather_base_mm.default", Unit.MIXED),
        ("npu.npu_quant_matmul.default", Unit.CUBE),
        ("npu.npu_grouped_matmul.List", Unit.CUBE),
        ("npu.npu_grouped_matmul_swiglu_quant_v2.default", Unit.MIXED),
        ("npu.npu_grouped_matmul_finalize_routing.default", Unit.MIXED),
        ("npu.npu_fused_infer_attention_score_v2.default", Unit.MIXED),
        ("npu.npu_mla_prolog_v3_functional.default", Unit.MIXED),
        ("npu.npu_kv_rmsnorm_rope_cache_v2_functional.default", Unit.VECTOR),
        ("npu.npu_dequant_swiglu_quant.default", Unit.VECTOR),
        ("npu.npu_format_cast_.acl_format", Unit.VECTOR),
        ("aten._local_scalar_dense.default", Unit.HOST),
        ("npugraph_ex.tagged_event_record.default", Unit.HOST),
    ],
)
def test_units(target: str, unit: Unit) -> None:
    info = classify(target)
    assert info is not None and info.unit is unit


def test_unknown_operators_are_not_guessed() -> None:
    assert classify("aten.no_such_operator.default") is None
    assert classify("mylib.mm.default") is None


def test_the_table_is_well_formed() -> None:
    names = patterns()
    assert len(names) == len(set(names)), "an operator is listed twice"
    for name in names:
        info = classify(name.replace("*", "anything"))
        assert info is not None
        assert info.flops in RULES and info.traffic in ("dense", "gather", "paged", "capped") and info.per >= 1
        assert set(info.order) <= {"collective", "host", "opaque", "random", "prefetch"}
        assert (info.unit is Unit.COMM) <= ("collective" in info.order)


def _packets(namespace: str) -> dict[str, list[torch._ops.OpOverload]]:
    found: dict[str, list[torch._ops.OpOverload]] = {}
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith(f"{namespace}::"):
            packet = getattr(getattr(torch.ops, namespace), schema.name.partition("::")[2], None)
            overload = getattr(packet, schema.overload_name or "default", None)
            if overload is not None:
                found.setdefault(f"{namespace}.{schema.name.partition('::')[2]}", []).append(overload)
    return found


def test_every_core_and_pointwise_operator_of_aten_is_known() -> None:
    tags = {torch.Tag.core, torch.Tag.pointwise}
    core = [str(overload) for overloads in _packets("aten").values() for overload in overloads if tags & set(overload.tags)]
    assert len(core) > 500
    assert [name for name in core if classify(name) is None] == []


def _check_against_schemas(namespace: str) -> None:
    packets = _packets(namespace)
    for pattern in patterns():
        if not pattern.startswith(f"{namespace}.") or pattern.endswith("*"):
            continue
        base = ".".join(pattern.split(".")[:2])
        overloads = packets.get(base) or packets.get(f"{base}_")
        assert overloads, f"{pattern} is no operator of {namespace}"
        info = classify(pattern)
        assert info is not None
        arguments = {argument.name for overload in overloads for argument in overload._schema.arguments}
        assert not info.writes or set(info.writes) & arguments, f"{pattern}: no argument {info.writes}"
        assert not info.update or set(info.update) & arguments, f"{pattern}: no argument {info.update}"


def test_names_and_arguments_of_aten_exist() -> None:
    _check_against_schemas("aten")


def test_names_and_arguments_of_torch_npu_exist(npu_host: None) -> None:
    _check_against_schemas("npu")


def test_every_npu_operator_of_inference_is_known(npu_host: None) -> None:
    training = ("_backward", "_grad", "bk", "apply_adam", "super_kernel_scope")
    unknown = [name for name in _packets("npu") if classify(f"{name}.default") is None]
    assert len(_packets("npu")) > 350
    assert [name for name in unknown if not any(word in name for word in training)] == []


def test_every_npu_cache_is_known_as_written(npu_host: None) -> None:
    """An argument called cache is written: declared by the schema, or by the table where the schema is silent."""
    readers = ("npu_gather_pa_kv_cache", "npu_mrope")
    for name, overloads in _packets("npu").items():
        for overload in overloads:
            caches = {
                argument for argument in overload._schema.arguments if "cache" in argument.name and str(argument.type) == "Tensor"
            }
            silent = {argument.name for argument in caches if argument.alias_info is None}
            if silent and not name.endswith("_functional") and not name.partition(".")[2].startswith(readers):
                info = classify(str(overload))
                assert info is not None
                assert silent - {"cache_index", "cache_indices"} <= set(info.writes), name


def test_matmul_flops() -> None:
    assert flops("aten.mm.default", [spec(4, 16)], self=spec(4, 8), mat2=spec(8, 16)) == 2 * 4 * 8 * 16
    assert flops("aten.addmm.default", [spec(4, 16)], self=spec(16), mat1=spec(4, 8), mat2=spec(8, 16)) == 2 * 4 * 8 * 16
    assert flops("aten.bmm.default", [spec(3, 4, 16)], self=spec(3, 4, 8), mat2=spec(3, 8, 16)) == 3 * 2 * 4 * 8 * 16
    assert flops("npu.npu_quant_matmul.default", [spec(4, 16)], x1=spec(4, 8), x2=spec(8, 16), scale=spec(16)) == 2 * 4 * 8 * 16
    assert flops("npu.npu_mm_all_reduce_base.default", [spec(4, 16)], x1=spec(4, 8), x2=spec(8, 16)) == 2 * 4 * 8 * 16


def test_grouped_matmul_flops() -> None:
    stacked = flops("npu.npu_grouped_matmul.default", [spec(32, 16)], x=[spec(32, 8)], weight=[spec(4, 8, 16)])
    listed = flops("npu.npu_grouped_matmul.default", [spec(16, 16)] * 2, x=[spec(16, 8)] * 2, weight=[spec(8, 16)] * 2)
    fused = flops("npu.npu_grouped_matmul_swiglu_quant.default", [spec(32, 8)], x=spec(32, 8), weight=spec(4, 8, 16))
    assert stacked == listed == fused == 2 * 32 * 8 * 16
    assert flops("aten._grouped_mm.default", [spec(32, 16)], self=spec(32, 8), mat2=spec(4, 8, 16)) == 2 * 32 * 8 * 16


def test_convolution_flops() -> None:
    plain = flops(
        "aten.convolution.default", [spec(2, 6, 10, 10)], {"transposed": False}, input=spec(2, 4, 10, 10), weight=spec(6, 4, 3, 3)
    )
    assert plain == 2 * (2 * 6 * 100) * (4 * 9)
    turned = flops(
        "aten.convolution.default", [spec(2, 6, 21, 21)], {"transposed": True}, input=spec(2, 4, 10, 10), weight=spec(4, 6, 3, 3)
    )
    assert turned == 2 * (2 * 4 * 100) * (6 * 9)


def test_attention_flops() -> None:
    expected = 4 * (2 * 8 * 1 * 64) * 128
    assert flops("aten.scaled_dot_product_attention.default", [], query=spec(2, 8, 1, 64), key=spec(2, 8, 128, 64)) == expected
    fia = "npu.npu_fused_infer_attention_score.default"
    assert flops(fia, [], {"input_layout": "BSH"}, query=spec(2, 1, 512), key=spec(2, 128, 512)) == expected
    assert flops(fia, [], {"input_layout": "BNSD"}, query=spec(2, 8, 1, 64), key=spec(2, 8, 128, 64)) == expected
    paged = flops(fia, [], {"block_size": 16}, query=spec(2, 1, 512), key=spec(4096, 16, 512), block_table=spec(2, 8))
    assert paged == expected
    tensors = {"query": spec(2, 1, 8, 64), "key": spec(2, 128, 1, 64), "weights": spec(2, 1, 8)}
    assert flops("npu.npu_lightning_indexer.default", [], {"layout_key": "BSND"}, **tensors) == expected // 2


def test_other_flops() -> None:
    prolog = flops(
        "npu.npu_mla_prolog.default",
        [],
        token_x=spec(2, 4, 16),
        weight_dq=spec(16, 8),
        weight_uk=spec(2, 4, 8),
        rope_sin=spec(2, 4),
    )
    assert prolog == 2 * 8 * (16 * 8 + 2 * 4 * 8)
    assert flops("aten.add.Tensor", [spec(4, 8)], self=spec(4, 8), other=spec(8)) == 32
    assert flops("aten.sum.dim_IntList", [spec(4)], self=spec(4, 8)) == 32
    assert (
        flops("aten.max_pool2d_with_indices.default", [spec(1, 1, 2, 2)] * 2, {"kernel_size": [2, 2]}, self=spec(1, 1, 4, 4))
        == 16
    )
    assert flops("aten.view.default", [spec(32)], self=spec(4, 8)) == 0
