from __future__ import annotations

import csv
import io

from autostream.report.table import table
from tests.report import samples


def test_a_row_per_operator() -> None:
    rows = list(csv.DictReader(io.StringIO(table(samples.document()))))
    assert [row["name"] for row in rows] == ["mm", "mm_1", "mul", "exp", "add"]
    assert rows[3] == {
        "name": "exp", "target": "aten.exp.default", "unit": "vector", "stream": samples.SIDE, "start_ns": "60500",
        "end_ns": "190500", "before_stream": "default", "before_start_ns": "260000", "before_end_ns": "380000",
        "duration_ns": "120000", "slack_ns": "", "tier": "analytic", "error": "0.2", "module_path": "layers.0.exp",
        "source_line": "", "launch_ns": "1000", "cube_ns": "0", "vector_ns": "119000", "hbm_ns": "0", "l2_ns": "0",
        "comm_ns": "0", "held_aic": "24", "held_aiv": "0", "held_hbm": "300", "held_comm": "0", "on_critical_path": "0",
    }  # fmt: skip


def test_no_timeline_leaves_cells_empty() -> None:
    document = samples.document(verdict=samples.declined(), before=None, after=None, program=None)
    rows = list(csv.DictReader(io.StringIO(table(document))))
    assert {(row["stream"], row["start_ns"], row["before_end_ns"]) for row in rows} == {("", "", "")}
