"""Chip files made from CANN's own ini, and what a broken ini says."""

from __future__ import annotations

from pathlib import Path

import pytest

from autostream.cost import RooflineModel, load_chip
from autostream.cost.chips.chipfile import to_yaml
from autostream.cost.chips.platform_ini import from_ini
from autostream.errors import InputError
from tests.cost.build import mm

INI = """\
[version]
SoC_version=Ascend910B9
Short_SoC_version=Ascend910B
AIC_version=AIC-C-220

[SoCInfo]
ai_core_cnt=12
cube_core_cnt=12
vector_core_cnt=24
memory_size=17179869184
l2_size=50331648

[AICoreSpec]
cube_freq=1000
vec_calc_size=64
l0_a_size=65536
l0_b_size=32768
l0_c_size=131072
l1_size=524288
ub_size=196608

[AICoreMemoryRates]
ddr_read_rate=32
l2_read_rate=100
ub_to_l2_rate=48

[DtypeMKN]
Default=16,16,16
DT_INT8=16,32,16
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "Ascend910B9.ini"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_figure_of_the_ini_is_read(tmp_path: Path) -> None:
    made = from_ini(write(tmp_path, INI))
    chip = made.chip
    assert (chip.name, chip.core_version, made.base) == ("910B9", "AIC-C-220", "910B4")
    assert (chip.aic_cores.value, chip.aiv_cores.value, chip.clock_mhz.value) == (12, 24, 1000)
    assert (chip.l2.size_mib.value, chip.hbm.size_gib.value) == (48, 16)
    assert (chip.cube.fp16.flop_per_cycle_per_core.value, chip.cube.int8.flop_per_cycle_per_core.value) == (8192, 16384)
    assert chip.vector.bytes_per_cycle_per_core.value == 128
    assert chip.vector.transfer_bytes_per_cycle_per_core.value == 48
    assert chip.cube.l2_bytes_per_cycle_per_core.value == 100
    assert chip.buffers is not None
    assert [quantity.value for _, quantity in chip.buffers] == [192, 512, 64, 32, 128]
    # What the cores can draw, below what was fitted on larger chips; the rate of another memory.
    assert (chip.l2.aic_gb_per_s.value, chip.l2.aiv_gb_per_s.value) == (1200, 1152)
    assert chip.hbm.spec_gb_per_s.value == 384
    assert chip.comm.dispatch.aiv_gang_cores.value == 24
    assert chip.aic_cores.source in chip.sources and chip.aic_cores.confidence == "L"


def test_the_rest_is_carried_over_and_says_so(tmp_path: Path) -> None:
    chip, base = from_ini(write(tmp_path, INI)).chip, load_chip("910B4")
    for ours, theirs in (
        (chip.launch.aiv.base_us, base.launch.aiv.base_us),
        (chip.comm.all_gather.alpha_us, base.comm.all_gather.alpha_us),
        (chip.relative_error.matmul, base.relative_error.matmul),
    ):
        assert ours.value == theirs.value
        assert ours.confidence == "U" and "carried over from 910B4" in (ours.note or "")


def test_the_file_reads_back_as_the_same_chip(tmp_path: Path) -> None:
    chip = from_ini(write(tmp_path, INI)).chip
    file = tmp_path / "mine.yaml"
    file.write_text(to_yaml(chip, "two\nlines"), encoding="utf-8")
    again = load_chip(file)
    assert again.model_dump() == chip.model_dump()
    assert again.digest
    assert (
        RooflineModel(again).estimate(mm(512, 512, 512)).duration
        > RooflineModel(load_chip("910B4")).estimate(mm(512, 512, 512)).duration
    )


@pytest.mark.parametrize("name", ["910B2", "310P3", "950PR_9589"])
def test_a_shipped_chip_survives_being_written(tmp_path: Path, name: str) -> None:
    chip = load_chip(name)
    file = tmp_path / "copy.yaml"
    file.write_text(to_yaml(chip, name), encoding="utf-8")
    assert load_chip(file).model_dump() == chip.model_dump()


def test_every_ini_of_cann_gives_a_valid_file(tmp_path: Path, shared: Path) -> None:
    paths = sorted((shared / "data" / "platform_config").glob("*.ini"))
    assert paths
    for path in paths:
        made = from_ini(path)
        assert path.stem == f"Ascend{made.chip.name}"
        file = tmp_path / f"{made.chip.name}.yaml"
        file.write_text(to_yaml(made.chip, made.chip.name), encoding="utf-8")
        assert load_chip(file).model_dump() == made.chip.model_dump()
        assert made.chip.core_version == load_chip(made.base).core_version


def test_the_ini_of_a_shipped_chip_gives_its_figures(shared: Path) -> None:
    made = from_ini(shared / "data" / "platform_config" / "Ascend910B2.ini")
    chip, shipped = made.chip, load_chip("910B2")
    assert made.base == "910B2"
    assert chip.machine == shipped.machine
    assert RooflineModel(chip).estimate(mm(4096, 4096, 4096)) == RooflineModel(shipped).estimate(mm(4096, 4096, 4096))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("cube_freq=1000", "cube_freq=fast", r"\[AICoreSpec\] cube_freq = 'fast': a whole number above zero"),
        ("cube_freq=1000", "cube_freq=0", r"\[AICoreSpec\] cube_freq = '0': a whole number"),
        ("cube_freq=1000", "cube_freq=²", r"\[AICoreSpec\] cube_freq = '²': a whole number"),
        ("cube_freq=1000", "cube_freq=" + "9" * 5000, r"\[AICoreSpec\] cube_freq = '9+': a whole number"),
        ("vector_core_cnt=24", "vector_core_cnt=-3", r"\[SoCInfo\] vector_core_cnt = '-3'"),
        ("l2_size=50331648\n", "", r"\[SoCInfo\] l2_size is missing or empty"),
        ("ub_to_l2_rate=48", "ub_to_l2_rate=", r"\[AICoreMemoryRates\] ub_to_l2_rate is missing or empty"),
        ("[DtypeMKN]", "[Dtype]", r"section \[DtypeMKN\] is missing; it must hold Default"),
        ("Default=16,16,16", "Default=16,16", r"\[DtypeMKN\] Default = '16,16': three whole numbers"),
        ("DT_INT8=16,32,16", "DT_INT8=16,x,16", r"\[DtypeMKN\] DT_INT8 = '16,x,16'"),
        ("AIC-C-220", "AIC-Z-999", r"AIC_version = 'AIC-Z-999': no shipped chip .*AIC-C-220"),
        ("SoC_version=Ascend910B9", "SoC_version=", r"\[version\] SoC_version is missing or empty"),
        ("l0_c_size=131072", "l0_c_size=1024", r"l0_c_size = 1024: the output tile of 910B4 needs 131072"),
        ("[version]", "version", "not a platform_config ini.*no section headers"),
    ],
)
def test_a_broken_ini_names_section_and_key(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in INI
    with pytest.raises(InputError, match=said) as caught:
        from_ini(write(tmp_path, INI.replace(old, new, 1)))
    assert "Ascend910B9.ini" in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.ini: cannot be read"):
        from_ini(tmp_path / "gone.ini")
    with pytest.raises(InputError, match="cannot be read"):
        from_ini(tmp_path)
    (tmp_path / "bytes.ini").write_bytes(b"\xff\xfe[version]")
    with pytest.raises(InputError, match="not UTF-8"):
        from_ini(tmp_path / "bytes.ini")


def test_an_empty_memory_size_is_carried_over(tmp_path: Path) -> None:
    chip = from_ini(write(tmp_path, INI.replace("memory_size=17179869184", "memory_size="))).chip
    assert chip.hbm.size_gib.value == load_chip("910B4").hbm.size_gib.value
    assert chip.hbm.size_gib.confidence == "U"
