"""The shipped chip files, finding them by name, and what a user's broken file says."""

from __future__ import annotations

import configparser
import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from autostream.cost import chip_names, json_schema, load_chip
from autostream.errors import InputError

FOLDER = Path(__file__).resolve().parents[3] / "cost_models"
INI = Path(__file__).resolve().parents[4] / "shared" / "data" / "platform_config"


def numbers(data: Any, path: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Return every {value: ...} mapping of a file with the path of its key."""
    if not isinstance(data, dict):
        return []
    if "value" in data:
        return [(path, data)]
    return [found for key, value in data.items() for found in numbers(value, f"{path}.{key}" if path else str(key))]


@pytest.fixture
def good() -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((FOLDER / "910B2.yaml").read_text(encoding="utf-8"))
    return copy.deepcopy(data)


def broken(tmp_path: Path, data: Any) -> str:
    file = tmp_path / "mine.yaml"
    file.write_text(data if isinstance(data, str) else yaml.safe_dump(data), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_chip(file)
    assert str(file) in str(caught.value)
    return str(caught.value)


def test_the_required_chips_are_shipped() -> None:
    assert set(chip_names()) == {path.stem for path in FOLDER.glob("*.yaml")}
    assert {"910B1", "910B2", "910B3", "910B4", "310P1", "310P3"} <= set(chip_names())
    for name in ("910_9391", "910_9392", "910_9381", "910_9382", "910_9372", "910_9362"):
        assert load_chip(name).machine.aic in (20, 24)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_shipped_file_validates_and_sources_every_number(path: Path) -> None:
    chip = load_chip(path)
    assert chip.name == path.stem
    found = numbers(yaml.safe_load(path.read_text(encoding="utf-8")))
    assert len(found) > 50
    units = ("_cores", "_mhz", "_mib", "_gib", "_kib", "gb_per_s", "_us", "_elements", "_core", "_per_block", "_share")
    counts = ("ranks", "devices", "_per_process")
    for key, number in found:
        parts = key.split(".")
        leaf = parts[-2] if parts[-1].isdecimal() else parts[-1]
        # Ratios have no unit: efficiencies, relative errors and slowdowns say so in their own or their section's name.
        ratio = any(word in key for word in ("efficiency", "relative_error", "interference", "factor"))
        # 1 for what there is.
        flag = leaf == "relu_on_output" and number["value"] in (0, 1)
        assert leaf.endswith((*units, *counts)) or ratio or flag, key
        assert number["confidence"] in "SLU" and number["source"] in chip.sources, key
        assert not number["source"].startswith(("/", "~", ".")), key


def test_aliases_lead_to_one_chip_each() -> None:
    owners: dict[str, str] = {}
    for name in chip_names():
        for alias in (name, *load_chip(name).aliases):
            assert alias.casefold() not in owners, alias
            owners[alias.casefold()] = name


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("910B2", "910B2"),
        ("910b2", "910B2"),
        ("Ascend910B2", "910B2"),
        ("ascend910B2C", "910B2"),
        (" 910B3 ", "910B3"),
        ("310P", "310P3"),
        ("Ascend910_9392", "910_9391"),
        ("Ascend910_9362", "910_9362"),
        ("Ascend910B4-1", "910B4-1"),
        ("ascend910_95", "950PR_9589"),
    ],
)
def test_names_are_found_in_any_spelling(given: str, name: str) -> None:
    assert load_chip(given).name == name


def test_an_unknown_name_gets_the_nearest_and_the_list() -> None:
    with pytest.raises(InputError, match=r"'910B22'.*did you mean '910B2'.*310P1, 310P3, 910B1.*\.yaml"):
        load_chip("910B22")
    with pytest.raises(InputError, match="unknown chip ''"):
        load_chip("")
    with pytest.raises(InputError, match="not int"):
        load_chip(910)  # type: ignore[arg-type]


def test_the_machine_carries_the_sync_cost_of_the_file() -> None:
    chip = load_chip("910B2")
    machine = chip.machine
    assert (machine.name, machine.aic, machine.aiv) == ("910B2", 24, 48)
    assert machine.sync == 450
    assert machine.sync_error == chip.sync.relative_error.value
    assert machine.hbm_contention == round(1000 * chip.interference.hbm_contention.value) > 1000
    assert machine.cube_vector_slowdown == round(1000 * chip.interference.cube_vector_slowdown.value) > 1000
    assert machine.compute_comm_slowdown == round(1000 * chip.interference.compute_comm_slowdown.value) > 1000
    assert machine.interference_error == chip.interference.relative_error.value > 0


def test_a_users_file_works_and_its_digest_follows_its_content(tmp_path: Path, good: dict[str, Any]) -> None:
    file = tmp_path / "mine.yml"
    file.write_text(yaml.safe_dump(good), encoding="utf-8")
    first = load_chip(str(file))
    assert first.machine == load_chip("910B2").machine
    assert load_chip(file).digest == first.digest
    good["aic_cores"]["value"] = 12
    file.write_text(yaml.safe_dump(good), encoding="utf-8")
    second = load_chip(file)
    assert second.machine.aic == 12
    assert second.digest != first.digest


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.yaml: cannot be read"):
        load_chip(tmp_path / "nowhere.yaml")
    with pytest.raises(InputError, match="cannot be read"):
        load_chip(tmp_path)


def test_a_misspelt_key_gets_the_nearest(tmp_path: Path, good: dict[str, Any]) -> None:
    good["clock_mzh"] = good.pop("clock_mhz")
    text = broken(tmp_path, good)
    assert "missing key 'clock_mhz'" in text
    assert "unknown key 'clock_mzh' (did you mean 'clock_mhz'?); allowed: name, " in text


def test_a_misspelt_key_deep_inside_gets_the_keys_of_its_place(tmp_path: Path, good: dict[str, Any]) -> None:
    good["cube"]["int8"]["extra_lunch_us"] = good["cube"]["int8"].pop("extra_launch_us")
    text = broken(tmp_path, good)
    assert "unknown key 'cube.int8.extra_lunch_us' (did you mean 'extra_launch_us'?)" in text
    assert "allowed: flop_per_cycle_per_core, efficiency, extra_launch_us" in text


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("value", -1, "greater than 0"),
        ("value", "1800", "number"),
        ("value", True, "number"),
        ("value", float("nan"), "finite"),
        ("confidence", "X", "'S', 'L' or 'U'"),
        ("source", "", "at least 1 character"),
    ],
)
def test_a_bad_value_says_what_is_allowed(tmp_path: Path, good: dict[str, Any], key: str, value: Any, said: str) -> None:
    good["clock_mhz"][key] = value
    text = broken(tmp_path, good)
    assert f"'clock_mhz.{key}'" in text
    assert said in text


def test_a_bare_number_is_told_to_carry_a_source(tmp_path: Path, good: dict[str, Any]) -> None:
    good["clock_mhz"] = 1800
    assert "key 'clock_mhz' must be a mapping with value, source, confidence, note, not int 1800" in broken(tmp_path, good)


@pytest.mark.parametrize("value", [0.9, 11])
def test_interference_neither_speeds_up_nor_is_absurd(tmp_path: Path, good: dict[str, Any], value: float) -> None:
    good["interference"]["hbm_contention"]["value"] = value
    text = broken(tmp_path, good)
    assert "'interference.hbm_contention.value'" in text and "equal to" in text


def test_a_rate_needs_at_least_two_ranks(tmp_path: Path, good: dict[str, Any]) -> None:
    rates = good["comm"]["dispatch"]["gb_per_s_by_ranks"]
    rates[1] = rates[8]
    assert "greater than or equal to 2" in broken(tmp_path, good)


def test_an_efficiency_above_one_is_refused(tmp_path: Path, good: dict[str, Any]) -> None:
    good["hbm"]["aic_efficiency"]["value"] = 1.2
    assert "less than or equal to 1" in broken(tmp_path, good)


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just text", "a: [1,\n", "\tname: x\n"])
def test_a_file_that_is_no_chip_is_refused(tmp_path: Path, text: str) -> None:
    said = broken(tmp_path, text)
    assert "mapping" in said or "not valid YAML" in said


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "chip.yaml"
    file.write_bytes(b"\xff\xfe\x00name")
    with pytest.raises(InputError, match="not UTF-8"):
        load_chip(file)


def test_the_json_schema_describes_the_file() -> None:
    schema = json_schema()
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) >= {"name", "aic_cores", "clock_mhz", "comm", "relative_error"}
    assert "clock_mhz" in schema["required"] and "aliases" not in schema["required"]


def inis() -> list[tuple[str, str]]:
    """Return every shipped chip with each ini on it, its own and those of its aliases."""
    names = [(chip, name) for chip in chip_names() for name in (chip, *load_chip(chip).aliases)]
    return [(chip, name) for chip, name in names if (INI / f"Ascend{name}.ini").is_file()]


def read_ini(name: str) -> configparser.ConfigParser:
    ini = configparser.ConfigParser(strict=False, allow_no_value=True)
    assert ini.read(INI / f"Ascend{name}.ini", encoding="utf-8")
    return ini


def test_every_chip_is_compared_with_an_ini() -> None:
    if not INI.is_dir():
        pytest.skip(f"no CANN platform_config at {INI}")
    assert {chip for chip, _ in inis()} == set(chip_names())


@pytest.mark.parametrize(("chip_name", "name"), inis())
def test_the_figures_agree_with_the_ini_or_the_note_says_why_not(chip_name: str, name: str) -> None:
    chip, ini = load_chip(chip_name), read_ini(name)
    soc, core = ini["SoCInfo"], ini["AICoreSpec"]
    pairs = [
        (chip.aic_cores, float(soc.get("cube_core_cnt") or soc["ai_core_cnt"])),
        (chip.aiv_cores, float(soc["vector_core_cnt"])),
        (chip.clock_mhz, float(core["cube_freq"])),
        (chip.l2.size_mib, float(soc["l2_size"]) / 2**20),
    ]
    if soc.get("memory_size"):
        pairs.append((chip.hbm.size_gib, float(soc["memory_size"]) / 2**30))
    assert chip.buffers is not None
    keys = {"l1_kib": "l1_size", "l0a_kib": "l0_a_size", "l0b_kib": "l0_b_size", "l0c_kib": "l0_c_size", "ub_kib": "ub_size"}
    pairs += [(getattr(chip.buffers, ours), float(core[theirs]) / 2**10) for ours, theirs in keys.items()]
    for quantity, figure in pairs:
        if quantity.value != pytest.approx(figure, rel=1e-3):
            # An accepted difference: the file names the ini's figure, says why, and is not sure.
            assert f"ini: {figure:g}" in (quantity.note or ""), (quantity, figure)
            assert quantity.confidence == "U"
    assert chip.core_version == ini["version"]["AIC_version"]


@pytest.mark.parametrize(("chip_name", "name"), inis())
def test_the_cache_is_not_faster_than_the_ini_allows(chip_name: str, name: str) -> None:
    chip, ini = load_chip(chip_name), read_ini(name)
    own = "VectorCoreMemoryRates" if ini.has_section("VectorCoreMemoryRates") else "AICoreMemoryRates"
    clock = chip.clock_mhz.value / 1000
    aic = float(ini["AICoreMemoryRates"]["l2_read_rate"]) * chip.aic_cores.value * clock
    aiv = float(ini[own]["ub_to_l2_rate"]) * chip.aiv_cores.value * clock
    assert chip.l2.aic_gb_per_s.value <= aic * 1.001
    assert chip.l2.aiv_gb_per_s.value <= aiv * 1.001


@pytest.mark.parametrize("name", ["910B4-1", "950PR_9589"])
def test_what_no_source_gives_for_a_chip_is_not_sure(name: str) -> None:
    for key, number in numbers(yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))):
        own = "platform_config" in number["source"] or (name, key) == ("950PR_9589", "hbm.spec_gb_per_s")
        assert own or (number["confidence"] == "U" and number["note"]), key
        assert number["confidence"] != "S", key
