"""What operators cost beyond their bytes and flop: `op_factors.yaml`, groups of operators that share their factors."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from autostream.cost.chips.datafile import Quantity, Section, Share, Slowdown, read
from autostream.errors import InputError

_VERSION = re.compile(r"_v\d+$")
_FILE = Path(__file__).resolve().parent.parent / "op_factors.yaml"

#: The classes that have an error band (keys of `relative_error` in a chip file).
Band = Literal["matmul", "conv", "attention", "elementwise", "vector", "comm", "unknown"]
#: The collectives a chip file prices.
CommKind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv", "dispatch", "combine"]


class Group(Section):
    """Operators with the same factors."""

    band: Band
    #: How to read (batch, m, n, k) of a product from the operator's tensors; None: its flop count is all that is known.
    product: Literal["matmul", "conv"] | None = None
    #: Positions of the two factors of the product among the operator's tensor inputs.
    operands: tuple[int, int] = Field(default=(0, 1), strict=False)
    #: Float32 products may use the HF32 mode.
    hf32: bool = False
    #: Achieved share of the cube peak, where it is not that of a large matrix product.
    cube_efficiency: Share | None = None
    #: Passes of the vector unit over every byte moved.
    vector_passes: Quantity | None = None
    #: Launch and tail of the vector kernel, as a multiple of those of an elementwise one.
    launch_factor: Slowdown | None = None
    #: Added to the launch.
    extra_launch_us: Quantity | None = None
    #: How the work is spread over vector cores: by bytes, one row (last dimension) to a block, or over all cores however small.
    blocks: Literal["bytes", "rows", "chip"] = "bytes"
    #: What comes from device memory although the rest is still in the cache: nothing, all but the first factor, everything.
    cold: Literal["none", "weights", "all"] = "none"
    comm: CommKind | None = None
    #: Whether its kernels keep a limit on the cores they use (Ascend C kernels do), or may take it as advice.
    limits: Literal["advisory", "kept"] = "advisory"
    #: What does the work: cube and vector cores, or the copy engine beside them.
    engine: Literal["cores", "copy"] = "cores"
    #: Different kernels of public profiles that its prices were compared with, and the terms that were the longest in them.
    #: Left out where there are too few to say how far off it is (see `analytic.roofline.stated_class`).
    kernels: int = Field(default=0, ge=0)
    bound: tuple[Literal["launch", "cube", "vector", "hbm", "l2"], ...] = Field(default=(), strict=False)
    #: ``namespace.name`` without overload; in-place (``_``) and ``_functional`` forms follow it.
    targets: tuple[str, ...] = Field(default=(), strict=False)


class FactorFile(Section):
    """The content of `op_factors.yaml`."""

    sources: tuple[str, ...] = Field(default=(), strict=False)
    #: For operators no group names, by unit.
    default_cube: Group
    default_vector: Group
    default_mixed: Group
    default_comm: Group
    #: For operators the operator table does not know.
    unknown: Group
    groups: Mapping[str, Group]


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """The groups, and which operator belongs to which."""

    file: FactorFile
    digest: str
    by_target: Mapping[str, Group]

    def find(self, target: str) -> Group | None:
        """Return the group of an operator such as ``"aten.add_.Tensor"``, or None; a version (``_v3``) follows its base name."""
        name = base_name(target)
        return self.by_target.get(name) or self.by_target.get(_VERSION.sub("", name))


def base_name(target: str) -> str:
    """Return ``namespace.name`` of a target, without overload and without the suffix of its in-place or functional form."""
    name = ".".join(target.split(".")[:2])
    # The underscores of ``__and__`` are part of its name.
    return name if name.endswith("__") else name.removesuffix("_").removesuffix("_functional")


@functools.cache
def load_factors(path: Path = _FILE) -> Factors:
    """Return the factors of a file.

    Raises:
        InputError: the file breaks the schema, or names one operator in two groups.
    """
    file, digest = read(path, FactorFile)
    by_target: dict[str, Group] = {}
    owner: dict[str, str] = {}
    for name, group in file.groups.items():
        for target in group.targets:
            base = base_name(target)
            if base in owner:
                raise InputError(f"{path}: operator {base!r} is in the groups {owner[base]!r} and {name!r}; one is allowed")
            owner[base], by_target[base] = name, group
    return Factors(file=file, digest=digest, by_target=by_target)
