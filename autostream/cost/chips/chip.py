"""Chip description files: one YAML per SoC in `cost_models/`, or a user's own file of the same form."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, PrivateAttr

from autostream.cost.chips.communication import Comm
from autostream.cost.chips.datafile import Count, Positive, PositiveCount, Quantity, Section, Share, Slowdown, read
from autostream.cost.model import Machine
from autostream.errors import InputError, nearest

#: The shipped files; a link beside the package's rooms, so that wheel, sdist and editable installs all reach them.
_FOLDER = Path(__file__).resolve().parents[2] / "cost_models"


class L2(Section):
    """The cache all cores share."""

    size_mib: Positive
    #: Rate of all cube cores, and of all vector cores, on data that is in the cache.
    aic_gb_per_s: Positive
    aiv_gb_per_s: Positive
    #: A working set up to this share of the cache is taken to be still there when the next operator reads it.
    resident_share: Share


class Hbm(Section):
    """Device memory."""

    size_gib: Positive
    spec_gb_per_s: Positive
    #: Share of the specified rate that cube and vector kernels achieve.
    aic_efficiency: Share
    aiv_efficiency: Share
    #: What one cube core can draw from it: a kernel on few cores does not reach the rate of the chip.
    bytes_per_cycle_per_aic_core: Positive


class CubeRate(Section):
    """What the cube unit does with one data type."""

    flop_per_cycle_per_core: Positive
    #: Achieved share of that peak in large matrix products.
    efficiency: Share
    #: Added to the launch of every kernel of this type (scales, dequantisation).
    extra_launch_us: Quantity


class Cube(Section):
    """Cube cores (AIC): tiling of a matrix product and rate by data type."""

    #: Output tile one core works on at a time.
    tile_m_elements: PositiveCount
    tile_n_elements: PositiveCount
    #: Shortest piece of the inner dimension worth giving to another core when tiles do not fill half of the chip.
    split_k_elements: PositiveCount
    l2_bytes_per_cycle_per_core: Positive
    #: 1 where the unit that writes the results can apply a ReLU on the way: GE makes one kernel of a convolution and its ReLU.
    relu_on_output: Count | None = None
    fp16: CubeRate
    int8: CubeRate
    fp32: CubeRate
    hf32: CubeRate


class Vector(Section):
    """Vector cores (AIV)."""

    #: Where it is not that of the chip.
    clock_mhz: Positive | None = None
    bytes_per_cycle_per_core: Positive
    #: Between memory and the unified buffer.
    transfer_bytes_per_cycle_per_core: Positive
    #: Bytes of the largest tensor that one block takes.
    bytes_per_block: PositiveCount


class Buffers(Section):
    """Memories of one core."""

    ub_kib: Positive
    l1_kib: Positive
    l0a_kib: Positive
    l0b_kib: Positive
    l0c_kib: Positive


class Launch(Section):
    """Launch and tail of one kernel inside its duration: base + full_chip x share of the cores used."""

    base_us: Positive
    full_chip_us: Quantity


class Launches(Section):
    """Launch cost by kind of kernel."""

    aic: Launch
    aiv: Launch
    #: A mixed kernel pays the cube launch and this.
    mix_extra_us: Quantity
    #: An operator that runs on the host's or the chip's CPU cores.
    host_us: Positive


class Sync(Section):
    """Synchronisation between streams."""

    per_dependency_us: Quantity
    #: Half-width of the relative error of `per_dependency_us`.
    relative_error: Quantity


class Limits(Section):
    """What a driver gives to one process over all its compiled graphs, and what a graph may ask of the cache."""

    streams_per_process: PositiveCount
    events_per_process: PositiveCount
    #: Weights that may be prefetched into the cache and not yet used.
    prefetch_mib: Positive


class Interference(Section):
    """What operators that run at the same time cost each other, beyond the cores they hold. 1 is nothing.

    Applied by the simulator that decides about a plan, not by the solver that proposes one.
    """

    #: Where several operators use the device memory, their common rate is divided by this.
    hbm_contention: Slowdown
    #: Time of an operator on cube or vector cores while another one runs on other cores.
    cube_vector_slowdown: Slowdown
    #: Time of a collective and of an operator on the cores while the other runs.
    compute_comm_slowdown: Slowdown
    #: Half-width of the relative error that the three share.
    relative_error: Quantity


class OperatorFactor(Section):
    """What a user's profiles say of one family of operators on this chip."""

    #: Measured over predicted time: what the analytic price is multiplied by.
    factor: Positive
    #: Half-width of the error that remains.
    relative_error: Quantity


class ErrorBand(Quantity):
    """Half-width of the error a whole class of operators may share on this chip, as a factor less one (see `Cost.error`)."""

    #: The same of single kernels on a chip that was left out of the fit: half of them, and nine of ten, stay within it.
    median: Quantity | None = None
    p90: Quantity | None = None


class RelativeError(Section):
    """Error bands by class of operator."""

    matmul: ErrorBand
    conv: ErrorBand
    attention: ErrorBand
    elementwise: ErrorBand
    vector: ErrorBand
    comm: ErrorBand
    unknown: ErrorBand


class Chip(Section):
    """One SoC. Every number carries its unit in its key, its source and how sure it is."""

    name: str = Field(min_length=1)
    #: Other names of chips these figures hold for; a leading "Ascend" never matters.
    aliases: tuple[str, ...] = Field(default=(), strict=False)
    #: Architecture of its cube cores as CANN names it, such as ``AIC-C-220``: chips that share it are of one kind.
    core_version: str = ""
    #: The documents the numbers come from.
    sources: tuple[str, ...] = Field(default=(), strict=False)
    aic_cores: PositiveCount
    aiv_cores: PositiveCount
    clock_mhz: Positive
    l2: L2
    hbm: Hbm
    cube: Cube
    vector: Vector
    buffers: Buffers | None = None
    launch: Launches
    sync: Sync
    comm: Comm
    interference: Interference
    relative_error: RelativeError
    #: Left out in a file: nothing is limited.
    limits: Limits | None = None
    #: By family of operators (`measured.signature.family`), such as ``"aten.mm"``; written by ``autostream calibrate``.
    calibration: Mapping[str, OperatorFactor] = Field(default_factory=dict)

    _digest: str = PrivateAttr(default="")

    @property
    def digest(self) -> str:
        """Hash of the file this chip was read from (empty if it was built in memory)."""
        return self._digest

    @property
    def machine(self) -> Machine:
        """What the scheduler and the simulator need to know of this chip."""
        return Machine(
            name=self.name,
            aic=self.aic_cores.value,
            aiv=self.aiv_cores.value,
            sync=round(self.sync.per_dependency_us.value * 1000),
            sync_error=self.sync.relative_error.value,
            hbm_contention=_thousandths(self.interference.hbm_contention),
            cube_vector_slowdown=_thousandths(self.interference.cube_vector_slowdown),
            compute_comm_slowdown=_thousandths(self.interference.compute_comm_slowdown),
            interference_error=self.interference.relative_error.value,
            fuses_relu=bool(self.cube.relu_on_output and self.cube.relu_on_output.value),
            max_streams=self.limits.streams_per_process.value if self.limits else None,
            max_events=self.limits.events_per_process.value if self.limits else None,
            max_prefetch_bytes=round(self.limits.prefetch_mib.value * 2**20) if self.limits else None,
        )


def load_chip(name_or_path: str | os.PathLike[str]) -> Chip:
    """Return a chip by name (case, aliases and a leading "Ascend" do not matter) or from a user's .yaml / .yml file.

    Raises:
        InputError: unknown name (with the nearest match and the list), or a file that cannot be read or breaks the schema
            (with file, key and what is allowed).
    """
    if isinstance(name_or_path, os.PathLike) or str(name_or_path).lower().endswith((".yaml", ".yml")):
        return _from_file(Path(name_or_path))
    if not isinstance(name_or_path, str):
        raise InputError(f"chip must be a name or the path of a .yaml file, not {type(name_or_path).__name__}")
    chips = _shipped()
    chip = chips.get(_plain(name_or_path))
    if chip is None:
        hint = nearest(_plain(name_or_path).upper(), [name.upper() for name in chips])
        raise InputError(
            f"unknown chip {name_or_path!r}{hint}; "
            f"known chips: {', '.join(chip_names())}; or give the path of your own .yaml file"
        )
    return chip


def chip_names() -> tuple[str, ...]:
    """Return the names of the shipped chips, sorted; aliases are left out."""
    return tuple(sorted({chip.name for chip in _shipped().values()}))


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a chip file."""
    return Chip.model_json_schema()


def _thousandths(quantity: Quantity) -> int:
    return round(quantity.value * 1000)


def _plain(name: str) -> str:
    return name.strip().casefold().removeprefix("ascend")


def _from_file(path: Path) -> Chip:
    chip, digest = read(path, Chip)
    chip._digest = digest
    return chip


@functools.cache
def _shipped() -> dict[str, Chip]:
    """Return every shipped chip under its plain name and aliases."""
    chips = [_from_file(path) for path in sorted(_FOLDER.glob("*.yaml"))]
    return {_plain(name): chip for chip in chips for name in (chip.name, *chip.aliases)}
