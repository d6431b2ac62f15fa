"""Real processes over gloo on this machine, and worlds of threads over stores of torch."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed
from torch import fx
from torch._C._distributed_c10d import FileStore, HashStore, PrefixStore

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
answers = [refusal(plan, (), timeout=timeout) for plan in plans]
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
    assert agreement.refusal("a", (), timeout=0.0) is None


def test_no_outcome_is_a_declined_one() -> None:
    assert agreement.digest(None) == DECLINED


class _Distributed:
    """What `agreement` takes of torch.distributed, for one rank of a world of threads; groups are named ``"0,1"``."""

    def __init__(self, rank: int, world: int, store: Any) -> None:
        self._rank, self._world = rank, world
        self._store = PrefixStore("default_pg", store)
        self.distributed_c10d = self
        self.PrefixStore = PrefixStore

    def get_rank(self) -> int:
        return self._rank

    def get_world_size(self) -> int:
        return self._world

    def get_process_group_ranks(self, group: str) -> list[int]:
        return [int(rank) for rank in group.split(",")]

    def _get_default_store(self) -> Any:
        return self._store

    def _resolve_process_group(self, name: str) -> str:
        return name


def _graph(*groups: str) -> Any:
    return [SimpleNamespace(group=group) for group in groups]


def _answers(
    monkeypatch: pytest.MonkeyPatch, store: Any, plans: list[str], graphs: list[Any], timeout: float = 10.0
) -> list[Any]:
    """What every rank is told, each in a thread of its own and, as it were, a process that was just started."""
    here = threading.local()
    monkeypatch.setattr(agreement, "_distributed", lambda: here.rank)
    monkeypatch.setattr(agreement, "_process", uuid.uuid4().hex)

    def ask(rank: int) -> Any:
        here.rank = _Distributed(rank, len(plans), store)
        return agreement.refusal(plans[rank], graphs[rank], timeout=timeout)

    with ThreadPoolExecutor(len(plans)) as threads:
        return list(threads.map(ask, range(len(plans))))


def test_ranks_whose_groups_cross_agree_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and columns of a 2 x 2 mesh: each rank knows of three, and no two of the same three."""
    mesh = [_graph("0,1", "0,2"), _graph("0,1", "1,3"), _graph("2,3", "0,2"), _graph("2,3", "1,3")]
    assert _answers(monkeypatch, HashStore(), ["a"] * 4, mesh) == [None] * 4
    told = "rank 3 planned otherwise than rank 0; give all ranks the same costs and options"
    assert _answers(monkeypatch, HashStore(), ["a", "a", "a", "b"], mesh) == [told] * 4


def test_a_group_that_holds_the_others_is_asked_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [_graph("0,1"), _graph("0,1"), _graph("2,3"), _graph("2,3")]
    told = "rank 3 planned otherwise than rank 2; give all ranks the same costs and options"
    assert _answers(monkeypatch, HashStore(), ["a", "a", "a", "b"], pairs) == [None, None, told, told]


def test_a_rank_that_fails_to_capture_counts_the_same_graphs_as_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows the FX graph alone; taken for one of all ranks, it would compare its later plans with others' earlier ones."""
    uncaptured = fx.Graph()
    given = uncaptured.placeholder("x")
    uncaptured.call_function(torch.ops._c10d_functional.all_reduce.default, (given, "sum", "0,1"))
    store, alone = HashStore(), [_graph("2,3"), _graph("2,3")]
    told = "rank 1 planned otherwise than rank 0; give all ranks the same costs and options"
    first = _answers(monkeypatch, store, ["a", DECLINED, "a", "a"], [_graph("0,1"), uncaptured, *alone])
    assert first == [told, told, None, None]


def test_a_decision_of_an_earlier_run_is_not_followed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A store in a file outlives the processes: what they agreed on says nothing of the plans of the next ones."""
    store = FileStore(str(tmp_path / "store"), 2)
    graphs = [_graph(), _graph()]
    assert _answers(monkeypatch, store, ["a", "a"], graphs) == [None, None]
    told = "the store of torch.distributed holds the plans of earlier processes; give every run a store of its own"
    assert _answers(monkeypatch, store, ["a", "b"], graphs) == [told, told]


def test_a_store_that_goes_between_report_and_decision_is_a_reason_to_decline(monkeypatch: pytest.MonkeyPatch) -> None:
    class Going(HashStore):
        def compare_set(self, key: str, expected: str, desired: str) -> bytes:
            raise RuntimeError("broken pipe")

    monkeypatch.setattr(_Distributed, "PrefixStore", lambda self, name, store: store, raising=False)
    monkeypatch.setattr(_Distributed, "__init__", _without_prefix)
    told = "the store of torch.distributed cannot be reached: broken pipe"
    assert _answers(monkeypatch, Going(), ["a", "a"], [_graph(), _graph()]) == [told, told]


def test_a_store_that_is_gone_is_a_reason_to_decline(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def set(self, key: str, value: str) -> None:
            raise RuntimeError("connection reset by peer")

    monkeypatch.setattr(_Distributed, "PrefixStore", lambda self, name, store: Gone(), raising=False)
    monkeypatch.setattr(_Distributed, "__init__", _without_prefix)
    told = "the store of torch.distributed cannot be reached: connection reset by peer"
    assert _answers(monkeypatch, HashStore(), ["a", "a"], [_graph(), _graph()]) == [told, told]


def _without_prefix(self: _Distributed, rank: int, world: int, store: Any) -> None:
    self._rank, self._world, self._store, self.distributed_c10d = rank, world, store, self


_PASS = """
import json, sys
import torch.distributed as dist
rank, port, options = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
import autostream
from autostream import offline
offline.activate()
from autostream.graph.programs import to_aten
from tests import models
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
module = to_aten(*models.mixture(8)).graph_module
before = str(module.graph)
autostream.StreamPass(chip="910B2", options={"plan_cache": False, **options})(module)
print(json.dumps([autostream.reports()[-1].verdict.code, str(module.graph) == before]), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def passes(*options: dict[str, int]) -> list[list[Any]]:
    """Run the pass in one process per rank; return the verdict and whether the graph is as it was, rank by rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", _PASS, str(rank), port, json.dumps(chosen)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[1],
            env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"},
        )
        for rank, chosen in enumerate(options)
    ]
    return [json.loads(run.communicate(timeout=120)[0].splitlines()[-1]) for run in runs]


def test_the_pass_leaves_the_graph_alone_on_every_rank_if_one_has_another_plan(npu_host: None) -> None:
    """vLLM RFC #50738: plans are agreed over ranks while they compile; a mismatch means that nobody schedules."""
    assert passes({"side_streams": 1}, {"side_streams": 1}) == [["accepted", False], ["accepted", False]]
    assert passes({"side_streams": 1}, {"side_streams": 0}) == [["ranks-disagree", True], ["nothing-to-overlap", True]]
