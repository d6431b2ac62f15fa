"""Small profiler files, written here: one builder, so that a test shows only what it is about."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping

#: The columns of today that matter here.
NEW = [
    "Step Id",
    "Device_id",
    "Model ID",
    "Task ID",
    "Stream ID",
    "Name",
    "Type",
    "OP State",
    "Accelerator Core",
    "Start Time(us)",
    "Duration(us)",
    "Wait Time(us)",
    "Block Num",
    "Mix Block Num",
    "HF32 Eligible",
    "Input Shapes",
    "Input Data Types",
    "Input Formats",
    "Output Shapes",
    "Output Data Types",
    "Output Formats",
    "Context ID",
    "aicore_time(us)",
    "aic_total_cycles",
    "aiv_time(us)",
    "aiv_total_cycles",
]

#: A product on 24 cube cores at 1800 MHz.
MATMUL = {
    "Step Id": "1",
    "Device_id": "0",
    "Stream ID": "2",
    "Name": "aclnnMatmul_MatMulV3Common_MatMulV3",
    "Type": "MatMulV3",
    "Accelerator Core": "AI_CORE",
    "Start Time(us)": "1764246877079027.200\t",
    "Duration(us)": "50.5",
    "Wait Time(us)": "0.25",
    "Block Num": "24",
    "Mix Block Num": "0",
    "Input Shapes": '"128,64;64,256"',
    "Input Data Types": "DT_BF16;DT_BF16",
    "Input Formats": "ND;ND",
    "Output Shapes": '"128,256"',
    "Output Data Types": "DT_BF16",
    "Output Formats": "ND",
    "aicore_time(us)": "40",
    "aic_total_cycles": str(24 * 40 * 1800),
    "aiv_time(us)": "0.0",
    "aiv_total_cycles": "0",
}

#: An addition on 48 vector cores at 1800 MHz.
ADD = MATMUL | {
    "Name": "aclnnAdd_AddAiCore_Add",
    "Type": "Add",
    "Accelerator Core": "AI_VECTOR_CORE",
    "Start Time(us)": "1764246877079100",
    "Duration(us)": "30",
    "Block Num": "48",
    "Input Shapes": '"128,256;128,256"',
    "Input Data Types": "DT_BF16;DT_BF16",
    "aicore_time(us)": "0",
    "aic_total_cycles": "0",
    "aiv_time(us)": "25",
    "aiv_total_cycles": str(48 * 25 * 1800),
}

#: A collective as a whole.
HCOM = {
    "Step Id": "1",
    "Device_id": "0",
    "Name": "hcom_allReduce__868_0_1",
    "Type": "hcom_allReduce_",
    "Accelerator Core": "COMMUNICATION",
    "Start Time(us)": "1764246877079110.0",
    "Duration(us)": "100.125",
    "Wait Time(us)": "0",
    "Block Num": "0",
}

Row = Mapping[str, str]


def at(row: Row, start: str, duration: str, **changes: str) -> dict[str, str]:
    """Return a row at another time; `changes` name columns with ``_`` for blanks."""
    return {**row, "Start Time(us)": start, "Duration(us)": duration} | {
        key.replace("_", " "): value for key, value in changes.items()
    }


def table(rows: Iterable[Row], columns: Iterable[str] = NEW, rename: Mapping[str, str] | None = None) -> str:
    """Return a CSV text; a column a row does not name is N/A."""
    columns = list(columns)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([(rename or {}).get(name, name) for name in columns])
    writer.writerows([row.get(name, "N/A") for name in columns] for row in rows)
    return out.getvalue()
