"""Kernels of a profile as operators: what a kernel type, its shapes and dtypes say of the operator behind it (`kernels.yaml`)."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from autostream.cost.chips.factors import base_name
from autostream.cost.measured.kernel_rules import RULES
from autostream.graph.model import Op, TensorSpec, Unit
from autostream.graph.units import classify

_FILE = Path(__file__).resolve().parent.parent / "kernels.yaml"

Shape = tuple[int, ...]

#: torch's name and bytes per element by the names profiles use; int4 is stored in pairs.
_DTYPES: Mapping[str, tuple[str, int]] = {
    "bf16": ("bfloat16", 2),
    "bfloat16": ("bfloat16", 2),
    "fp16": ("float16", 2),
    "float16": ("float16", 2),
    "half": ("float16", 2),
    "fp32": ("float32", 4),
    "float": ("float32", 4),
    "float32": ("float32", 4),
    "fp64": ("float64", 8),
    "double": ("float64", 8),
    "float64": ("float64", 8),
    "int4": ("int4", 1),
    "int8": ("int8", 1),
    "uint8": ("uint8", 1),
    "int16": ("int16", 2),
    "uint16": ("uint16", 2),
    "int32": ("int32", 4),
    "uint32": ("uint32", 4),
    "int64": ("int64", 8),
    "uint64": ("uint64", 8),
    "bool": ("bool", 1),
    "complex64": ("complex64", 8),
    "float8_e4m3fn": ("float8_e4m3fn", 1),
    "float8_e5m2": ("float8_e5m2", 1),
    "hifloat8": ("hifloat8", 1),
}

#: What an aclgraph or a binary name appends to a kernel type: formats, hashes, tiling keys.
_SUFFIX = re.compile(r"(?:_(?:[0-9a-f]{8,}|\d+|ND|NZ|NDNZ|NZND|NDND|high_performance|mix_ai[cv]|ai_core))+$", re.IGNORECASE)
_VERSION = re.compile(r"(?:V\d+|D)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """What the table says of a kernel type; the fields are explained at the top of `kernels.yaml`."""

    target: str
    unit: Unit
    rule: str = "dense"
    skip: tuple[int, ...] = ()
    looked_up: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()

    @property
    def multiplies(self) -> bool:
        """Whether its factors may be stored in blocks of 16 x 32 bytes."""
        return self.rule in ("product", "grouped")

    @property
    def dense(self) -> bool:
        """Whether it reads every input and writes every output once, so that their bytes are the bytes it moves."""
        return not (self.skip or self.looked_up or self.writes or self.rule == "create")


def op_from_kernel(
    kernel: str,
    input_shapes: Sequence[Shape | None],
    input_dtypes: Sequence[str],
    output_shapes: Sequence[Shape | None] = (),
    output_dtypes: Sequence[str] = (),
    input_formats: Sequence[str] = (),
    output_formats: Sequence[str] = (),
) -> Op | None:
    """Return the operator a kernel would be priced as, or None where its type or its shapes do not say.

    `kernel` is the type a profile names (``"MatMulV3"``, also with the suffixes of an aclgraph). A shape is None for an input
    that was not given and () for a scalar. Dtypes and formats may be spelled in the ways of msprof (``DT_BF16``,
    ``FORMAT_FRACTAL_NZ``) or be missing: the first dtype then holds for all, and blocked layouts are told by their shapes.
    Without output shapes they follow from the inputs. Products come out as plain (m, k) x (k, n), whatever was transposed.
    """
    entry = find_kernel(kernel)
    if entry is None:
        return None
    inputs = _specs(input_shapes, input_dtypes, input_formats, guess=entry.multiplies)
    outputs = _specs(output_shapes, output_dtypes or input_dtypes[:1], output_formats, guess=entry.multiplies)
    given = {place: spec for place, spec in inputs.items() if spec is not None}
    made = tuple(spec for spec in outputs.values() if spec is not None)
    read = RULES[entry.rule](given, made)
    if read is None:
        return None
    tensors, outputs_read, flops = read
    bytes_read, bytes_written = _traffic(entry, given, outputs_read)
    return Op(
        name=kernel,
        target=entry.target,
        unit=entry.unit,
        position=0,
        inputs=tensors,
        outputs=outputs_read,
        flops=flops,
        bytes_read=bytes_read,
        bytes_written=bytes_written,
    )


def find_kernel(kernel: str) -> Kernel | None:
    """Return what the table says of a kernel type, or None; case, version (``V2``, ``D``) and suffixes do not matter."""
    plain = _SUFFIX.sub("", kernel.strip())
    table = _table()
    # Kernels of the Ascend Transformer Boost call themselves that.
    plain = plain if plain.casefold() in table else plain.removesuffix("Kernel")
    names = [plain, _VERSION.sub("", plain)]
    # A kernel in lower case with words after an underscore is somebody's own.
    names += [plain.split("_", maxsplit=1)[0]] if plain[:1].isupper() else []
    return next((table[name.casefold()] for name in names if name.casefold() in table), None)


def kernels_of(target: str) -> tuple[str, ...]:
    """Return the kernel types (lower case) that an operator such as ``"aten.mm.default"`` is known to launch, sorted."""
    base = base_name(target)
    return tuple(sorted(name for name, entry in _table().items() if base_name(entry.target) == base))


def normal_dtype(dtype: str) -> tuple[str, int] | None:
    """Return torch's name of a dtype as profiles spell it and its bytes per element, or None for an unknown one."""
    return _DTYPES.get(dtype.strip().casefold().removeprefix("dt_").removeprefix("torch."))


@functools.cache
def _table() -> Mapping[str, Kernel]:
    table: dict[str, Kernel] = {}
    for entry in yaml.safe_load(_FILE.read_text(encoding="utf-8")):
        info = classify(entry["target"])
        kernel = Kernel(
            target=entry["target"],
            unit=info.unit if info is not None else Unit.MIXED,
            rule=entry.get("rule", "dense"),
            skip=tuple(entry.get("skip", ())),
            looked_up=tuple(entry.get("looked_up", ())),
            writes=tuple(entry.get("writes", ())),
        )
        table |= {name.casefold(): kernel for name in entry["kernels"].split()}
    return table


# ---- tensors ----


def _specs(
    shapes: Sequence[Shape | None], dtypes: Sequence[str], formats: Sequence[str], *, guess: bool
) -> dict[int, TensorSpec | None]:
    """Return the tensors by position; an unknown dtype counts as the first known one, without any as float16."""
    known = [normal_dtype(dtype) for dtype in dtypes]
    default = next((dtype for dtype in known if dtype is not None), ("float16", 2))
    specs: dict[int, TensorSpec | None] = {}
    for place, shape in enumerate(shapes):
        if shape is None:
            specs[place] = None
            continue
        name, itemsize = (known[place] if place < len(known) else None) or default
        layout = formats[place].upper() if place < len(formats) else ""
        # Where the profile does not name the layout, blocks of 16 x 32 bytes tell it.
        blocks = (16, 64 if name == "int4" else 32 // itemsize)
        blocked = layout.endswith("NZ") or (guess and not layout and shape[-2:] == blocks)
        plain = _unblocked(shape) if blocked and len(shape) >= 4 else shape
        specs[place] = TensorSpec(shape=_packed(plain, name), dtype=name, itemsize=itemsize)
    return specs


def _unblocked(shape: Shape) -> Shape:
    """Return the plain shape of a matrix in FRACTAL_NZ: (.., n / b, m / 16, 16, b) -> (.., m, n)."""
    columns, rows, inner_rows, inner_columns = shape[-4:]
    return (*shape[:-4], rows * inner_rows, columns * inner_columns)


def _packed(shape: Shape, dtype: str) -> Shape:
    return (*shape[:-1], math.ceil(shape[-1] / 2)) if dtype == "int4" and shape else shape


def _traffic(entry: Kernel, given: Mapping[int, TensorSpec], outputs: tuple[TensorSpec, ...]) -> tuple[int, int]:
    """Return (bytes read, bytes written)."""
    made = sum(spec.nbytes for spec in outputs)
    if entry.rule == "create":
        return 0, made
    read = 0
    for place, spec in given.items():
        if place not in entry.skip:
            read += min(spec.nbytes, made) if place in entry.looked_up else spec.nbytes
    if entry.writes:
        made = sum(given[place].nbytes for place in entry.writes if place in given)
    return read, made
