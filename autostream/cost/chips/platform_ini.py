"""A chip file from CANN's own description of a SoC (`platform_config/*.ini`).

What the ini holds is read: cores, clock, cache, memory size, cube and vector width, buffers, rates. The rest is carried over from
the nearest shipped chip of the same family, with confidence U and a note.
"""

from __future__ import annotations

import configparser
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from autostream.cost.chips.chip import Chip, chip_names, load_chip
from autostream.cost.chips.datafile import explain
from autostream.errors import InputError

_KIB, _MIB, _GIB = 2**10, 2**20, 2**30
#: Bytes of one element of `vec_calc_size`, and of one accumulator of the cube.
_FP16, _FP32 = 2, 4
_VECTOR = ("VectorCoreSpec", "VectorCoreMemoryRates")
_CORE = ("AICoreSpec", "AICoreMemoryRates")


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A chip read from an ini, and the shipped chip that the rest comes from."""

    chip: Chip
    base: str


def from_ini(path: Path) -> Imported:
    """Return the chip that a CANN platform_config ini describes.

    Raises:
        InputError: the file cannot be read or is no such ini, a figure is missing or no number (names section and key), or no
            shipped chip is of its family.
    """
    ini = _Ini(path)
    name = ini.text("version", "SoC_version").removeprefix("Ascend")
    base = _nearest(ini, name)
    source = f"CANN platform_config {path.name}"
    data = base.model_dump(exclude_none=True)
    _carry_over(data, base.name)
    data.update(
        name=name,
        aliases=(),
        core_version=ini.text("version", "AIC_version"),
        sources=tuple(dict.fromkeys((source, *base.sources))),
    )
    figures = _Figures(data, source)
    _read_chip(ini, base, figures)
    _read_cores(ini, base, figures)
    try:
        return Imported(chip=Chip.model_validate(data), base=base.name)
    except ValidationError as error:
        raise InputError(f"{path}: no chip file can be made of it: {explain(error, Chip)}") from error


class _Ini:
    """The file; every failure names section and key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._parser = configparser.ConfigParser(strict=False, allow_no_value=True, interpolation=None)
        try:
            self._parser.read_string(path.read_text(encoding="utf-8-sig"), source=str(path))
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: not UTF-8 text (byte {error.start})") from error
        except configparser.Error as error:
            raise InputError(f"{path}: not a platform_config ini: {' '.join(str(error).split())}") from error

    def has(self, section: str, key: str) -> bool:
        """Tell whether there is a value (an ini may leave one empty)."""
        return bool(self._parser.get(section, key, fallback=None))

    def text(self, section: str, key: str) -> str:
        if not self._parser.has_section(section):
            raise InputError(f"{self.path}: section [{section}] is missing; it must hold {key}")
        if not self.has(section, key):
            raise InputError(f"{self.path}: [{section}] {key} is missing or empty")
        return self._parser.get(section, key).strip()

    def number(self, section: str, key: str) -> int:
        text = self.text(section, key)
        if not _is_whole(text):
            raise InputError(f"{self.path}: [{section}] {key} = {text!r}: a whole number above zero is needed")
        return int(text)

    def shape(self, key: str) -> int:
        """Return M x K x N of one data type of the cube."""
        parts = self.text("DtypeMKN", key).split(",")
        if len(parts) != 3 or not all(_is_whole(part.strip()) for part in parts):
            text = ",".join(parts)
            raise InputError(f"{self.path}: [DtypeMKN] {key} = {text!r}: three whole numbers above zero (M,K,N) are needed")
        return math.prod(int(part) for part in parts)

    @property
    def aic(self) -> int:
        return self.number("SoCInfo", "cube_core_cnt" if self.has("SoCInfo", "cube_core_cnt") else "ai_core_cnt")

    @property
    def aiv(self) -> int:
        return self.number("SoCInfo", "vector_core_cnt")

    @property
    def vector(self) -> tuple[str, str]:
        """The sections on the vector cores: their own, or those of the AI cores they are the half of."""
        return _VECTOR if self.has(_VECTOR[0], "vec_calc_size") else _CORE


def _is_whole(text: str) -> bool:
    """Tell whether a text is a whole number above zero (of a length that anything here can have)."""
    return text.isdecimal() and len(text) < 19 and int(text) > 0


class _Figures:
    """The content of the new file, number by number."""

    def __init__(self, data: dict[str, Any], source: str) -> None:
        self._data, self._source = data, source

    def set(self, key: str, value: float, note: str | None = None, *, confidence: str = "L") -> None:
        """Put a number of the ini at a dotted key."""
        *sections, leaf = key.split(".")
        place = self._data
        for section in sections:
            place = place.setdefault(section, {})
        number = {"value": value, "source": self._source, "confidence": confidence}
        place[leaf] = number | ({"note": note} if note else {})

    def note(self, key: str, text: str) -> None:
        """Add to the note of a number that was carried over."""
        place = self._data
        for section in key.split("."):
            place = place[section]
        place["note"] = f"{place['note']}; {text}"


def _read_chip(ini: _Ini, base: Chip, figures: _Figures) -> None:
    clock = ini.number("AICoreSpec", "cube_freq")
    figures.set("aic_cores", ini.aic)
    figures.set("aiv_cores", ini.aiv)
    figures.set("clock_mhz", clock)
    figures.set("l2.size_mib", ini.number("SoCInfo", "l2_size") / _MIB)
    read = ini.number("AICoreMemoryRates", "l2_read_rate")
    moved = ini.number(ini.vector[1], "ub_to_l2_rate")
    limits = {"aic": ("l2_read_rate", read * ini.aic * clock / 1000), "aiv": ("ub_to_l2_rate", moved * ini.aiv * clock / 1000)}
    for cores, (key, rate) in limits.items():
        # What kernels achieve was fitted on other chips; the ini says what it cannot exceed.
        if rate < getattr(base.l2, f"{cores}_gb_per_s").value:
            figures.set(f"l2.{cores}_gb_per_s", rate, f"{key} x cores x clock", confidence="U")
        else:
            figures.note(f"l2.{cores}_gb_per_s", f"the ini allows {rate:.0f} ({key} x cores x clock)")
    rate = ini.number("AICoreMemoryRates", "ddr_read_rate") * ini.aic * clock / 1000
    if not ini.has("SoCInfo", "memory_size"):
        figures.note("hbm.spec_gb_per_s", f"ddr_read_rate x cores x clock is {rate:.0f}")
        return
    size = ini.number("SoCInfo", "memory_size") / _GIB
    figures.set("hbm.size_gib", size)
    if math.isclose(size, base.hbm.size_gib.value, rel_tol=0.01):
        figures.note("hbm.spec_gb_per_s", f"ddr_read_rate x cores x clock is {rate:.0f}")
    else:
        note = f"ddr_read_rate x cores x clock; {base.name} has another memory"
        figures.set("hbm.spec_gb_per_s", rate, note, confidence="U")


def _read_cores(ini: _Ini, base: Chip, figures: _Figures) -> None:
    spec, rates = ini.vector
    figures.set("vector.bytes_per_cycle_per_core", ini.number(spec, "vec_calc_size") * _FP16, "vec_calc_size lanes of 2 bytes")
    figures.set("vector.transfer_bytes_per_cycle_per_core", ini.number(rates, "ub_to_l2_rate"), "ub_to_l2_rate")
    figures.set("cube.l2_bytes_per_cycle_per_core", ini.number("AICoreMemoryRates", "l2_read_rate"), "l2_read_rate")
    for kind, key in (("fp16", "Default"), ("int8", "DT_INT8")):
        figures.set(f"cube.{kind}.flop_per_cycle_per_core", 2 * ini.shape(key), f"DtypeMKN {key}")
    for buffer in ("l1", "l0a", "l0b", "l0c"):
        key = f"{buffer}_size" if buffer == "l1" else f"{buffer[:2]}_{buffer[2]}_size"
        figures.set(f"buffers.{buffer}_kib", ini.number("AICoreSpec", key) / _KIB)
    figures.set("buffers.ub_kib", ini.number(spec, "ub_size") / _KIB)
    tile = base.cube.tile_m_elements.value * base.cube.tile_n_elements.value * _FP32
    accumulators = ini.number("AICoreSpec", "l0_c_size")
    if tile > accumulators:
        raise InputError(
            f"{ini.path}: [AICoreSpec] l0_c_size = {accumulators}: the output tile of {base.name} needs {tile} bytes; "
            "copy the nearest file of 'autostream chips' by hand and give it a smaller tile"
        )
    for kind in ("dispatch", "combine"):
        if getattr(base.comm, kind).aiv_gang_cores.value == base.aiv_cores.value:
            figures.set(f"comm.{kind}.aiv_gang_cores", ini.aiv, "takes every vector core unless limited", confidence="U")


def _carry_over(data: dict[str, Any], base: str) -> None:
    """Mark every number of a chip as taken from it."""
    for value in data.values():
        if isinstance(value, dict) and "value" in value:
            said, carried = value.get("note", ""), f"carried over from {base}"
            # What the base has from yet another chip keeps the name of that one.
            note = said if "carried over" in said else f"{said}; {carried}" if said else carried
            value.update(confidence="U", note=note)
        if isinstance(value, dict):
            _carry_over(value, base)


def _nearest(ini: _Ini, name: str) -> Chip:
    """Return the shipped chip of that name, else the most similar one of its family, else of its architecture.

    Raises:
        InputError: no shipped chip shares its family or architecture.
    """
    shipped = [load_chip(known) for known in chip_names()]
    family, core = ini.text("version", "Short_SoC_version").removeprefix("Ascend"), ini.text("version", "AIC_version")
    same = [chip for chip in shipped if name in _names(chip)]
    relatives = [chip for chip in shipped if any(known.startswith(family) for known in _names(chip))]
    alike = [chip for chip in shipped if chip.core_version == core]
    found = same or [chip for chip in relatives if chip.core_version == core] or alike
    if not found:
        known = ", ".join(dict.fromkeys(chip.core_version for chip in shipped))
        raise InputError(
            f"{ini.path}: [version] AIC_version = {core!r}: no shipped chip has this architecture to carry figures over from; "
            f"known: {known}"
        )
    figures = {"aic": ini.aic, "clock": ini.number("AICoreSpec", "cube_freq"), "l2": ini.number("SoCInfo", "l2_size") / _MIB}
    return min(found, key=lambda chip: (_distance(chip, figures), chip.name))


def _names(chip: Chip) -> tuple[str, ...]:
    return (chip.name, *chip.aliases)


def _distance(chip: Chip, figures: Mapping[str, float]) -> float:
    own = {"aic": chip.aic_cores.value, "clock": chip.clock_mhz.value, "l2": chip.l2.size_mib.value}
    return sum(abs(math.log(own[key] / value)) for key, value in figures.items())
