"""Run Python text in a fresh process: what importing torch_npu does to a process cannot be undone in it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def start(code: str, **environment: str | None) -> subprocess.Popen[str]:
    """Start Python on `code`; an environment value of None unsets the variable."""
    merged = {**os.environ, "PYTHONPATH": str(REPOSITORY), **environment}
    kept = {name: value for name, value in merged.items() if value is not None}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.Popen(
        command, env=kept, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Wait, demand success, and return standard output."""
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, f"exit {process.returncode}\n{output}\n{errors}"
    return output


def run(code: str, **environment: str | None) -> str:
    """Run `code` to its successful end and return standard output."""
    return finish(start(code, **environment))
