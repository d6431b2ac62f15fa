"""Real processes over gloo on this machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from autostream import agreement
from autostream.agreement import DECLINED

_RANK = """
import json, sys, time
import torch.distributed as dist
rank, port, plans, timeout, late = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5])
world = int(sys.argv[6])
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
from autostream.agreement import refusal
time.sleep(late)
answers = [refusal(plan, None, timeout=timeout) for plan in plans]
print(json.dumps(answers), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def ranks(*plans: list[str], timeout: float = 60.0, late: tuple[float, ...] = (0.0, 0.0)) -> list[Any]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", _RANK, str(rank), port, json.dumps(own), str(timeout), str(wait), str(len(plans))],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[1],
            env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"},
        )
        for rank, (own, wait) in enumerate(zip(plans, late, strict=True))
    ]
    return [json.loads(run.communicate(timeout=120)[0]) for run in runs]


def test_equal_plans_are_used_and_one_that_differs_stops_all() -> None:
    first, second = ranks(["a", "b", DECLINED, "d"], ["a", "x", DECLINED, DECLINED])
    told = "rank 1 planned otherwise than rank 0; give all ranks the same costs and options"
    assert first == second == [None, told, None, told]


def test_a_rank_that_does_not_report_does_not_hang_the_others_and_reads_the_same_decision() -> None:
    first, second = ranks(["a"], ["a"], timeout=0.5, late=(0.0, 3.0))
    assert first == second == ["rank 1 did not report a plan within 0.5 s"]


def test_without_torch_distributed_nobody_is_asked() -> None:
    assert agreement.refusal("a", None, timeout=0.0) is None


def test_no_outcome_is_a_declined_one() -> None:
    assert agreement.digest(None) == DECLINED
