"""The table of operator factors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from autostream.cost.chips.factors import _FILE, base_name, load_factors
from autostream.errors import InputError


@pytest.mark.parametrize(
    ("target", "base"),
    [
        ("aten.add.Tensor", "aten.add"),
        ("aten.add_.Tensor", "aten.add"),
        ("npu.npu_scatter_nd_update_.default", "npu.npu_scatter_nd_update"),
        ("npu.npu_mla_prolog_v3_functional.default", "npu.npu_mla_prolog_v3"),
        ("aten.__and__.Tensor", "aten.__and__"),
        ("getitem", "getitem"),
    ],
)
def test_variants_share_a_name(target: str, base: str) -> None:
    assert base_name(target) == base


def test_operators_get_the_group_that_prices_them() -> None:
    factors = load_factors()
    groups = factors.file.groups
    assert factors.find("aten.mm.default") is groups["matmul"]
    assert factors.find("aten.addmm.default") is groups["matmul_with_bias"]
    assert factors.find("npu.npu_rms_norm.default") is groups["norm"]
    assert factors.find("_c10d_functional.all_reduce_.default") is groups["all_reduce"]
    assert factors.find("atb._npu_paged_attention.default").band == "attention"
    assert factors.find("mylib.secret.default") is None


def test_every_aten_name_exists() -> None:
    unknown = [
        target
        for target in load_factors().by_target
        if target.startswith("aten.") and not (hasattr(torch.ops.aten, target[5:]) or hasattr(torch.ops.aten, target[5:] + "_"))
    ]
    assert unknown == []


def test_every_name_of_torch_npu_exists(npu_host: None) -> None:
    spaces = {"npu": torch.ops.npu, "atb": torch.ops.atb}
    names = [target.split(".") for target in load_factors().by_target if target.startswith(("npu.", "atb."))]
    unknown = [name for space, name in names if not any(hasattr(spaces[space], name + end) for end in ("", "_", "_functional"))]
    assert unknown == []


def test_fitted_numbers_name_their_rows() -> None:
    for name, group in load_factors().file.groups.items():
        for number in (group.cube_efficiency, group.vector_passes, group.extra_launch_us):
            assert number is None or number.confidence == "U" or "row" in (number.note or ""), name


def test_an_operator_in_two_groups_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "factors.yaml"
    text = _FILE.read_text(encoding="utf-8") + "\n  twice: {band: vector, targets: [aten.mm]}\n"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="'aten.mm' is in the groups 'matmul' and 'twice'"):
        load_factors(file)


def test_a_misspelt_group_key_is_named(tmp_path: Path) -> None:
    file = tmp_path / "factors.yaml"
    text = _FILE.read_text(encoding="utf-8") + "\n  odd: {band: vector, target: [aten.x]}\n"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"unknown key 'groups\.odd\.target' \(did you mean 'targets'\?\); allowed: band,"):
        load_factors(file)
