"""What a profile holds: kernels as the device ran them, and what became of every row of the files they were read from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Core(StrEnum):
    """What ran a kernel, in the words of the profiler; older and newer labels of one thing are one member."""

    AI_CORE = "AI_CORE"
    AI_VECTOR_CORE = "AI_VECTOR_CORE"
    MIX_AIC = "MIX_AIC"
    MIX_AIV = "MIX_AIV"
    AI_CPU = "AI_CPU"
    FFTS_PLUS = "FFTS_PLUS"
    #: The engine that draws random numbers.
    DSA = "DSA_SQE"
    #: Image and video decoding.
    DVPP = "DVPP"
    #: A collective as a whole: ``HCCL`` in older files, ``COMMUNICATION`` in newer ones.
    COMMUNICATION = "COMMUNICATION"
    #: The part of a collective that runs on the AI CPU; its time includes waiting for the peers.
    COMMUNICATION_AI_CPU = "HCCL_AI_CPU"
    #: Level0 files say N/A.
    UNKNOWN = "N/A"


#: The cores whose time is communication.
COMMUNICATING = frozenset({Core.COMMUNICATION, Core.COMMUNICATION_AI_CPU})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One operand of a kernel. `shape` is as the device holds it (NZ: 4-D); empty for a scalar or an operand left out."""

    shape: tuple[int, ...]
    #: torch's name, such as ``"bfloat16"``; empty where the profiler gives none.
    dtype: str = ""
    #: Without the prefix ``FORMAT_``; empty where the profiler gives none.
    format: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel or collective on the device. Times are nanoseconds; counts are 0 where the profiler gives none."""

    name: str
    #: Operator type such as ``"MatMulV3"``; taken from the name where the profiler gives none (level0).
    type: str
    core: Core
    start: int
    #: Contains the launch.
    duration: int
    #: Since the task before it ended; not the wait for its inputs.
    wait: int = 0
    blocks: int = 0
    #: Blocks on the other kind of core of a MIX kernel.
    mix_blocks: int = 0
    stream: int | None = None
    step: int | None = None
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    #: Time (ns) and cycles of all cube cores and of all vector cores together.
    aic_time: int = 0
    aic_cycles: int = 0
    aiv_time: int = 0
    aiv_cycles: int = 0

    @property
    def end(self) -> int:
        """When it ended, ns."""
        return self.start + self.duration

    @property
    def communicates(self) -> bool:
        """Whether its time is communication."""
        return self.core in COMMUNICATING


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A row that is no kernel, or could not be read."""

    file: str
    #: Line of the file in which the row ends (events of a trace: position in the list), counted from 1.
    line: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The kernels of one device, ordered by start, and the account of all rows.

    `rows` = kernels + rejected + duplicates + rows of other devices.
    """

    kernels: tuple[Kernel, ...]
    columns: tuple[str, ...]
    rows: int
    rejected: tuple[Rejected, ...] = ()
    #: Second rows of one kernel: a collective's AivKernel row beside its hcom row, a row that is there twice.
    duplicates: int = 0
    other_devices: int = 0
    #: Device or rank the kernels ran on, as the files call it; empty if they do not say.
    device: str = ""
    files: tuple[Path, ...] = ()
    #: Hash of the bytes of the files.
    digest: str = ""
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The file names, for a person."""
        return ", ".join(dict.fromkeys(path.name for path in self.files))

    @property
    def device_time(self) -> int:
        """Sum of the durations, ns."""
        return sum(kernel.duration for kernel in self.kernels)

    @property
    def steps(self) -> tuple[int, ...]:
        """The step numbers, sorted."""
        return tuple(sorted({kernel.step for kernel in self.kernels if kernel.step is not None}))

    def rejections(self) -> dict[str, int]:
        """Return how many rows were rejected for each reason, most frequent first."""
        return dict(Counter(row.reason for row in self.rejected).most_common())
