"""Profiles that belong to a dump: one kernel for each node, of its name, type, shapes and data types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from autostream.dumps.graph import graph_of
from autostream.dumps.tensors import inputs_of, outputs_of, tensors_of
from autostream.graph.model import TensorSpec, Unit
from autostream.program import read_ascend_ir
from autostream.program.reading.ge_dump import GeOp, load_ops
from tests.profiles import files

_DTYPES = {
    "bfloat16": "DT_BF16", "float32": "FLOAT", "float16": "FLOAT16", "int8": "INT8", "int32": "INT32", "int64": "INT64",
    "bool": "BOOL",
}  # fmt: skip
_CORES = {Unit.CUBE: "AI_CORE", Unit.VECTOR: "AI_VECTOR_CORE", Unit.MIXED: "MIX_AIC", Unit.COMM: "MIX_AIV"}


def profile_of(
    dump: Path,
    target: Path,
    microseconds: Mapping[str, float],
    *,
    rename: Callable[[str], str] = lambda name: name,
    steps: int = 3,
) -> Path:
    """Write kernel_details.csv for a dump: the named nodes take so long, a little more or less in the first and last step.

    `rename` gives the names of the kernels. Kernels run one after the other on one stream.
    """
    ops = {op.name: op for op in load_ops(dump)}
    graph = graph_of(tuple(ops.values()), read_ascend_ir(dump)).graph
    tensors = tensors_of([ops[name] for name in graph.ops])
    rows = []
    start = 1_000_000.0
    for step in range(1, steps + 1):
        for name, time in microseconds.items():
            took = time * (1 + 0.02 * (step - (steps + 1) / 2))
            row = _row(ops[name], _CORES[graph.ops[name].unit], inputs_of(ops[name], tensors), outputs_of(ops[name], tensors))
            row |= {"Name": rename(name), "Step Id": str(step)}
            rows.append(files.at(row, f"{start:.3f}", f"{took:.3f}"))
            start += took + 0.5
    target.write_text(files.table(rows))
    return target


def _row(op: GeOp, core: str, inputs: tuple[TensorSpec | None, ...], outputs: tuple[TensorSpec | None, ...]) -> dict[str, str]:
    row = {"Device_id": "0", "Stream ID": "2", "Type": op.type, "Accelerator Core": core, "Wait Time(us)": "0", "Block Num": "24"}
    for side, specs in (("Input", inputs), ("Output", outputs)):
        shapes = [",".join(map(str, spec.shape)) if spec is not None else "" for spec in specs]
        row[f"{side} Shapes"] = f'"{";".join(shapes)}"'
        row[f"{side} Data Types"] = ";".join(_DTYPES[spec.dtype] if spec is not None else "DT_UNDEFINED" for spec in specs)
        row[f"{side} Formats"] = ";".join("ND" if spec is not None else "NULL" for spec in specs)
    return row
