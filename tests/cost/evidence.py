"""What public measurements there are to compare prices with: every different kernel of every chip once, with its median time.

`measurements.csv` holds a choice of the kernels of some runs, which leaves out several that the model prices badly. Where the
profile of a run is here too (folder ``profiles`` beside it), all of its kernels count, and rows of the table only where they are
of other kernels.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autostream.cost.calibration.fitting import Sample
from autostream.cost.calibration.heldout import rows_of
from autostream.cost.chips.chip import Chip
from autostream.cost.chips.communication import Collective, comm_time
from autostream.cost.chips.factors import CommKind, load_factors
from autostream.cost.measured.signature import signature
from autostream.graph.model import Op
from autostream.profiles import Core, read_profile
from tests.cost.rows import FILE, Rows

PROFILES = FILE.parent / "profiles"
#: The profiles whose kernels have shapes, and the chip of the table that they ran on.
FOLDERS: Mapping[str, str] = {
    "resnet_ddp_level1": "910B2-class(24/48@1800)",
    "resnet_ddp_level2": "910B2-class(24/48@1800)",
    "gpt_training_910b1": "910B1-class(24/48@1850)",
    "megatron_pp2dp2_910b4": "910B4-class(20/40@1650)",
}
_COLLECTIVES = PROFILES / "resnet_ddp_level2" / "communication.json"


_Key = tuple[str, str, tuple[object, ...], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One kernel of one chip: the sample it makes, and the group of `op_factors.yaml` and class that price it."""

    sample: Sample
    group: str
    band: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A collective: its kind, number of ranks and bytes (larger side of one rank), measured and predicted time, ns."""

    what: str
    ranks: int
    nbytes: float
    measured: float
    predicted: float


def kernels(rows: Rows, profiles: Path = PROFILES) -> list[Measured]:
    """Return the different kernels of the profiles in this folder that ran on chips of the table, and of the table."""
    of_profiles: dict[_Key, list[Sample]] = defaultdict(list)
    of_table: dict[_Key, list[Sample]] = defaultdict(list)
    for folder, chip in FOLDERS.items():
        if (profiles / folder).is_dir() and chip in rows.chips:
            for row in rows_of(read_profile(profiles / folder).kernels):
                of_profiles[_key(chip, row.op)].append(Sample(chip=chip, op=row.op, duration=row.kernel.duration))
    for line in rows.rows:
        of_table[_key(line.sample.chip, line.sample.op)].append(line.sample)
    measured: list[Measured] = []
    for members in (of_table | of_profiles).values():
        group = group_of(members[0].op)
        if group is not None:
            median = statistics.median_low(sorted(sample.duration for sample in members))
            band = load_factors().file.groups[group].band
            measured.append(Measured(sample=replace(members[0], duration=median), group=group, band=band))
    return measured


def _key(chip: str, op: Op) -> _Key:
    """What tells kernels apart: table and profile agree on the shapes of the inputs and the first of their types."""
    found = signature(op)
    return (
        chip,
        found.family,
        found.product or tuple(shape for shape, _ in found.inputs),
        found.inputs[0][1] if found.inputs else "",
    )


def group_of(op: Op) -> str | None:
    """Return the name of the group that prices an operator, or None."""
    factors = load_factors()
    found = factors.find(op.target)
    return next((name for name, group in factors.file.groups.items() if group is found), None)


def ai_cpu(profiles: Path = PROFILES) -> list[int]:
    """Return the durations (ns) of the kernels that ran on the AI CPU, of all profiles, sorted."""
    folders = sorted(path for path in profiles.iterdir() if path.is_dir())
    files = [path for folder in folders for path in sorted(folder.glob("kernel_details.csv"))]
    return sorted(one.duration for file in files for one in read_profile(file).kernels if one.core is Core.AI_CPU)


def all_reduces(chip: Chip, file: Path = _COLLECTIVES) -> list[Compared]:
    """Return the all-reduces of a profile on one server of A2: the time they moved data, not that in which they waited.

    A rank sends every other one its part and then the result of its own: 2 x (n - 1) packets, (n - 1) / n of the bytes each way.
    """
    return list(_read_all_reduces(json.loads(file.read_text(encoding="utf-8")), chip))


def _read_all_reduces(steps: Mapping[str, Any], chip: Chip) -> Iterator[Compared]:
    for step in steps.values():
        for name, one in step["collective"].items():
            if not name.startswith("hcom_allReduce"):
                continue
            links = one["Communication Bandwidth Info"]["HCCS"]
            ranks = sum(count for count, _ in links["Size Distribution"].values()) // 2 + 1
            nbytes = links["Transit Size(MB)"] * 1e6 * ranks / (2 * (ranks - 1))
            yield Compared(
                what="all_reduce",
                ranks=ranks,
                nbytes=nbytes,
                measured=one["Communication Time Info"]["Transit Time(ms)"] * 1e6,
                predicted=comm_time(chip.comm, "all_reduce", nbytes, ranks),
            )


def published(chip: Chip) -> list[Compared]:
    """Return the collectives whose published rate is in a chip file, each priced from the links as if it were not.

    Left out: rates that were not measured on this chip (confidence U), and all_gather, which tells the rate of the links.
    """
    found: list[Compared] = []
    kinds: tuple[CommKind, ...] = ("reduce_scatter", "all_to_all", "all_reduce", "broadcast", "dispatch", "combine")
    for kind in kinds:
        collective: Collective = getattr(chip.comm, kind)
        without = chip.comm.model_copy(update={kind: collective.model_copy(update={"gb_per_s_by_ranks": None})})
        nbytes = 1e9
        for ranks, rate in (collective.gb_per_s_by_ranks or {}).items():
            if rate.confidence != "U":
                alpha = collective.alpha_us.value * 1000
                told = {"measured": nbytes / rate.value, "predicted": comm_time(without, kind, nbytes, ranks) - alpha}
                found.append(Compared(what=kind, ranks=ranks, nbytes=nbytes, **told))
    return found
