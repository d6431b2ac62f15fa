"""Kernels of a profile as operators: what a kernel type, its shapes and dtypes say of the operator behind it (`kernels.yaml`)."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from autostream.cost.factors import base_name
from autostream.graph.model import Op, TensorSpec, Unit
from autostream.graph.units import classify

_FILE = Path(__file__).resolve().parent / "kernels.yaml"

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
    read = _RULES[entry.rule](given, made)
    if read is None:
        return None
    tensors, outputs_read, flops = read
    bytes_read, bytes_written = _traffic(entry, given, outputs_read)
    return Op(
        name=kernel,
        target=entry.target,
        unit=entry.unit,
        index=0,
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


# ---- rules: (tensors of the operator, its outputs, its flop), or None where the shapes do not fit ----

_Read = tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...], int]
_Rule = Callable[[Mapping[int, TensorSpec], tuple[TensorSpec, ...]], _Read | None]


def _dense(given: Mapping[int, TensorSpec], outputs: tuple[TensorSpec, ...]) -> _Read | None:
    tensors = tuple(given.values())
    if not outputs and not tensors:
        return None
    largest = max(tensors, key=lambda spec: spec.numel, default=None)
    return tensors, outputs or ((largest,) if largest else ()), 0


def _reduction(given: Mapping[int, TensorSpec], outputs: tuple[TensorSpec, ...]) -> _Read | None:
    tensors = tuple(given.values())
    if not tensors:
        return None
    first = tensors[0]
    return tensors, outputs or (TensorSpec(shape=first.shape[:-1], dtype=first.dtype, itemsize=first.itemsize),), 0


def _gated(given: Mapping[int, TensorSpec], outputs: tuple[TensorSpec, ...]) -> _Read | None:
    """One half gates the other: the result has half of the last dimension."""
    tensors = tuple(given.values())
    if not tensors or not tensors[0].shape:
        return None
    first = tensors[0]
    half = TensorSpec(shape=(*first.shape[:-1], first.shape[-1] // 2), dtype=first.dtype, itemsize=first.itemsize)
    return tensors, outputs or (half,), 0


def _look_up(given: Mapping[int, TensorSpec], outputs: tuple[TensorSpec, ...]) -> _Read | None:
    """Rows of the first input, one for each index of the second."""
    if outputs or len(given) < 2:
        return _dense(given, outputs)
    table, index = tuple(given.values())[:2]
    rows = TensorSpec(shape=(*index.shape, *table.shape[1:]), dtype=table.dtype, itemsize=table.itemsize)
    return tuple(given.values()), (rows,), 0


def _product(given: Mapping[int, TensorSpec], outputs: tuple[TensorSpec, ...]) -> _Read | None:
    """Two factors, each perhaps transposed; the size of the result tells which way where the inner sizes do not."""
    if 0 not in given or 1 not in given:
        return None
    a, b = given[0], given[1]
    if len(a.shape) < 2 or len(b.shape) < 2 or min(a.numel, b.numel) <= 0:
        return None
    wanted = outputs[0].numel if outputs else 0
    found: list[tuple[int, int, int, int]] = []
    batch = max(math.prod(a.shape[:-2]), math.prod(b.shape[:-2]))
    # As they are first, then transposed.
    for m, k in (a.shape[-2:], a.shape[:-3:-1]):
        # A flat weight meets every row of every batch of the left factor.
        rows, shared = (a.numel // k, 1) if len(b.shape) == 2 else (m, batch)
        found += [(shared, rows, n, k) for inner, n in (b.shape[-2:], b.shape[:-3:-1]) if inner == k]
    plain = found[:1] if a.shape[-1] == b.shape[-2] else []
    fits = [item for item in found if not wanted or item[0] * item[1] * item[2] == wanted] or plain
    if not fits:
        return None
    batch, m, n, k = fits[0]
    lead = (batch,) if batch > 1 else ()
    out = outputs[0] if outputs else a
    factors = (
        TensorSpec(shape=(*lead, m, k), dtype=a.dtype, itemsize=a.itemsize),
        TensorSpec(shape=(*lead, k, n), dtype=b.dtype, itemsize=b.itemsize),
    )
    others = tuple(spec for place, spec in given.items() if place > 1)
    result = TensorSpec(shape=(*lead, m, n), dtype=out.dtype, itemsize=out.itemsize)
    return (*factors, *others), (result, *outputs[1:]), 2 * batch * m * n * k


def _grouped(given: Mapping[int, TensorSpec], outputs: tuple[TensorSpec, ...]) -> _Read | None:
    """Rows of `x` shared out over a stack of weights (expert, k, n) in either orientation."""
    x = given.get(0)
    weight = next((spec for place, spec in given.items() if place > 0 and len(spec.shape) == 3), None)
    if x is None or weight is None or len(x.shape) < 2 or min(x.numel, weight.numel) <= 0:
        return None
    k, packing = x.shape[-1], (8 if weight.dtype == "int32" else 2 if weight.dtype == "int4" else 1)
    experts, n = weight.shape[0], weight.numel * packing // (weight.shape[0] * k)
    if not n:
        return None
    rows = math.prod(x.shape[:-1])
    stack = TensorSpec(shape=(experts, k, max(1, n // packing)), dtype=weight.dtype, itemsize=weight.itemsize)
    out = outputs or (TensorSpec(shape=(rows, n), dtype="bfloat16", itemsize=2),)
    others = tuple(spec for place, spec in given.items() if place > 0 and spec is not weight)
    return (x, stack, *others), out, 2 * rows * k * n


def _convolution(given: Mapping[int, TensorSpec], outputs: tuple[TensorSpec, ...]) -> _Read | None:
    """Plain (NCHW, OIHW) or blocked (NC1HWC0, fractal Z) input and weight; a blocked window comes out as (area, 1)."""
    if 0 not in given or 1 not in given or not outputs:
        return None
    x, weight, out = given[0], given[1], outputs[0]
    if len(x.shape) == 5 and len(weight.shape) == 4 and x.shape[1]:
        batch, blocks, height, width, lanes = x.shape
        depth, wide, inner, _ = weight.shape
        channels, area = wide * inner, depth // blocks
        pixels = out.numel // max(1, batch * channels)
        if not area or batch * channels * pixels != out.numel:
            return None
        x = TensorSpec(shape=(batch, blocks * lanes, height, width), dtype=x.dtype, itemsize=x.itemsize)
        weight = TensorSpec(shape=(channels, blocks * lanes, area, 1), dtype=weight.dtype, itemsize=weight.itemsize)
        out = TensorSpec(shape=(batch, channels, pixels, 1), dtype=out.dtype, itemsize=out.itemsize)
    if len(x.shape) != len(weight.shape) or not weight.shape[0]:
        return None
    others = tuple(spec for place, spec in given.items() if place > 1)
    return (x, weight, *others), (out, *outputs[1:]), 2 * out.numel * (weight.numel // weight.shape[0])


def _convolution_backward(given: Mapping[int, TensorSpec], outputs: tuple[TensorSpec, ...]) -> _Read | None:
    """Every output gradient meets every weight of its channel once, whichever of the two gradients is made."""
    tensors = [spec for spec in given.values() if len(spec.shape) >= 4]
    if len(tensors) < 2 or not outputs:
        return None
    gradient, weight = tensors[-1], outputs[0]
    channels = gradient.shape[1] * (gradient.shape[4] if len(gradient.shape) == 5 else 1)
    return tuple(given.values()), outputs, 2 * (gradient.numel // max(1, channels)) * weight.numel


def _attention(given: Mapping[int, TensorSpec], outputs: tuple[TensorSpec, ...]) -> _Read | None:
    """Queries against keys. With the lengths of the sequences beside them, tokens are packed and meet their own sequence only.

    A square mask marks causal attention, which skips half of the scores.
    """
    if 0 not in given or 1 not in given or len(given[0].shape) < 3 or len(given[1].shape) < 3:
        return None
    query, key = given[0], given[1]
    lengths = next((spec for place, spec in given.items() if place > 2 and len(spec.shape) == 1), None)
    square = any(place > 2 and len(spec.shape) > 1 and spec.shape[-1] == spec.shape[-2] for place, spec in given.items())
    if len(key.shape) == 3 and lengths is not None:
        length = key.shape[0] / max(1, lengths.numel)
    else:
        # The sequence is the longer of the two axes that may hold it; the other is the batch or the heads.
        length = max(key.shape[:2]) if len(key.shape) == 3 else max(key.shape[1:3])
    flops = 4 * query.numel * length * (0.5 if square else 1.0)
    return tuple(given.values()), outputs or (query,), round(flops)


_RULES: Mapping[str, _Rule] = {
    "dense": _dense,
    "create": _dense,
    "reduction": _reduction,
    "gated": _gated,
    "look_up": _look_up,
    "product": _product,
    "grouped": _grouped,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "attention": _attention,
}
