"""Single cells of a profiler's CSV: times, counts, shapes, data types, formats, core types."""

from __future__ import annotations

import functools
import re
from decimal import Decimal, InvalidOperation
from itertools import zip_longest

from autostream.profiles.model import Core, Tensor

#: What stands for "nothing".
_NOTHING = frozenset({"", "N/A", "NA", "NULL", "None", "nan"})
#: torch's names of the profiler's data types (without ``DT_``); others keep their own in lower case.
_DTYPES = {
    "BF16": "bfloat16",
    "FLOAT": "float32",
    "FP32": "float32",
    "FLOAT32": "float32",
    "FP16": "float16",
    "DOUBLE": "float64",
    "UNDEFINED": "",
}
_CORES = {
    "HCCL": Core.COMMUNICATION,
    "AIV": Core.AI_VECTOR_CORE,
    "AIC": Core.AI_CORE,
    "AICPU": Core.AI_CPU,
    "DSA": Core.DSA,
}
#: Larger than any time or count a profile can hold: over 3000 years in nanoseconds.
_LIMIT = 10**20

#: Names that aclgraph gives: operator type, formats and kinds of tiling, a running number.
_GRAPH_NAME = re.compile(r"^([A-Z][A-Za-z0-9]*?)_(?:N[DZ]|FRACTAL|FORMAT|NCHW|NHWC)\w*$")
_COLLECTIVE_PART = re.compile(r"hcom|hccl", re.IGNORECASE)
_COLLECTIVE = re.compile(r"^(hcom_[A-Za-z]+_?)_")
#: GE numbers its nodes: ``Cast66``; the one digit of a version (``MatMulV2``) belongs to the type.
_NUMBER = re.compile(r"(?<=[A-Za-z])(?<!V)\d+$|(?<=V\d)\d+$")


def plain(cell: str) -> str:
    """Return a cell without the blanks, tabs and quotes around its content; empty for N/A and its like."""
    text = cell.strip().strip('"').strip()
    return "" if text in _NOTHING else text


def nanoseconds(cell: str) -> int:
    """Return a time given in microseconds as whole nanoseconds; exact, because floats cannot hold 19 digits.

    Raises:
        ValueError: not a number of microseconds from 0 up.
    """
    return _whole(_decimal(cell) * 1000)


def optional_nanoseconds(cell: str) -> int:
    """Return a time as `nanoseconds` does; 0 for an empty or N/A cell."""
    return nanoseconds(cell) if plain(cell) else 0


def count(cell: str) -> int:
    """Return a whole number from 0 up; 0 for an empty or N/A cell.

    Raises:
        ValueError: anything else.
    """
    if not plain(cell):
        return 0
    number = _decimal(cell)
    if number != number.to_integral_value():
        raise ValueError(f"{plain(cell)!r} is no whole number")
    return _whole(number)


def optional_count(cell: str) -> int | None:
    """Return a whole number, or None for an empty or N/A cell."""
    return count(cell) if plain(cell) else None


def core(cell: str, name: str = "") -> Core:
    """Return the kind of core; a label that is not known counts as unknown. The name tells a collective's AI CPU part."""
    text = plain(cell).upper()
    if text == "AI_CPU" and _COLLECTIVE_PART.search(name):
        return Core.COMMUNICATION_AI_CPU
    if text in _CORES:
        return _CORES[text]
    try:
        return Core(text) if text else Core.UNKNOWN
    except ValueError:
        return Core.UNKNOWN


@functools.lru_cache(maxsize=16_384)
def tensors(shapes: str, dtypes: str, formats: str) -> tuple[Tensor, ...]:
    """Return the operands listed in three cells; an empty segment is a scalar or an operand that was left out.

    Raises:
        ValueError: a shape is not a list of whole numbers.
    """
    columns = (_segments(shapes), _segments(dtypes), _segments(formats))
    return tuple(
        Tensor(shape=_shape(shape), dtype=_dtype(dtype), format=_format(layout))
        for shape, dtype, layout in zip_longest(*columns, fillvalue="")
    )


def operator_type(cell: str, name: str) -> str:
    """Return the operator type of a kernel: the cell, or what the name tells where the cell says nothing.

    ``aclnnInplaceRelu_Relu_Relu`` and ``Relu12`` are Relu, ``trans_TransData_0`` is TransData, ``MatMulV2_NDNZ_..._229955``
    (aclgraph) is MatMulV2, ``hcom_allReduce__868_0_1`` is hcom_allReduce_.
    """
    text = plain(cell)
    given = bool(text) and not text.isdigit()
    renamed = _GRAPH_NAME.match(text if given else name)
    if renamed:
        return renamed.group(1)
    if given:
        return text
    collective = _COLLECTIVE.match(name)
    if collective:
        return collective.group(1)
    parts = [part for part in name.split("_") if part and not part.isdigit()]
    return _NUMBER.sub("", parts[-1]) if parts else name


def _decimal(cell: str) -> Decimal:
    text = plain(cell)
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r} is no number") from None
    if not number.is_finite() or number < 0 or number > _LIMIT:
        raise ValueError(f"{text!r} is not a number from 0 up")
    return number


def _whole(number: Decimal) -> int:
    return int(number.to_integral_value())


def _segments(cell: str) -> list[str]:
    """Split at ``;``; an empty pair of quotes is one operand without a shape, an N/A cell none."""
    text = cell.strip()
    if text in _NOTHING - {""} or not text:
        return []
    return text.strip('"').strip().split(";")


def _shape(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.strip().strip('"').split(",")]
    if parts in ([""], ["N/A"]):
        return ()
    try:
        shape = tuple(int(part) for part in parts if part)
    except ValueError:
        raise ValueError(f"{text!r:.80} is no shape") from None
    if any(not 0 <= size <= _LIMIT for size in shape):
        raise ValueError(f"{text!r:.80} is no shape")
    return shape


def _dtype(text: str) -> str:
    name = plain(text).upper().removeprefix("DT_")
    return _DTYPES.get(name, name.lower())


def _format(text: str) -> str:
    # "NC1HWC0:1" carries a sub-format behind the colon.
    return plain(text).upper().removeprefix("FORMAT_").partition(":")[0]
