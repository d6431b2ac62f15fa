"""Equal graphs get equal plans: byte for byte, run after run, in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_RUNS = 5

_PRINT_DIGESTS = """
import hashlib, sys
from autostream import offline
offline.prepare_environment()
import autostream
from tests.models.zoo import ZOO
for run in range(int(sys.argv[2])):
    result = autostream.schedule(*ZOO[sys.argv[1]].build(), options={"plan_cache": False})
    parts = [result.report.to_json(), str(result.graph_module.graph), result.graph_module.code, repr(result.ascend_ir)]
    print("digest", result.verdict.code, hashlib.sha256("".join(parts).encode()).hexdigest(), flush=True)
"""


@pytest.mark.usefixtures("npu_host")
@pytest.mark.parametrize(
    "name", ["npu/decode-1l", *(pytest.param(name, marks=pytest.mark.slow) for name in ("npu/dsa", "cnn/squeezenet"))]
)
def test_ten_runs_in_two_processes_give_the_same_bytes(name: str) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _PRINT_DIGESTS, name, str(_RUNS)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        for seed in ("1", "2")
    ]
    digests = [line for process in processes for line in process.communicate()[0].splitlines() if line.startswith("digest ")]
    assert [process.returncode for process in processes] == [0, 0]
    assert len(digests) == 2 * _RUNS
    assert len(set(digests)) == 1
    assert digests[0].split()[1] == "accepted"
