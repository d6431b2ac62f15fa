from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autostream.scheduling import plans
from autostream.scheduling.lists.greedy import Greedy
from autostream.scheduling.plans import Kept
from autostream.scheduling.problem import Mode, Precedence, Problem, Schedule, Task


class Counted:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def solve(self, problem: Problem) -> Schedule:
        self.asked += 1
        return Greedy().solve(problem)


def problem(duration: int = 1_000) -> Problem:
    modes = (Mode(duration=duration, aic=24),), (Mode(duration=3_000, aiv=48),), (Mode(duration=2_000, aic=24),)
    return Problem(
        tasks=tuple(Task(name=name, modes=mode) for name, mode in zip("abc", modes, strict=True)),
        precedences=(Precedence(before="a", after="c"),),
        streams=("default", "side"),
        aic=24,
        aiv=48,
        sync=100,
    )


def test_a_problem_is_solved_once(tmp_path: Path) -> None:
    inner = Counted()
    kept = Kept(inner, tmp_path / "new" / "plans", identity="x")
    first = kept.solve(problem())
    assert kept.solve(problem()) == first and inner.asked == 1
    assert Kept(inner, tmp_path / "new" / "plans", identity="x").solve(problem()) == first and inner.asked == 1
    assert [path.suffix for path in (tmp_path / "new" / "plans").iterdir()] == [".json"]


def test_another_problem_or_identity_is_another_plan(tmp_path: Path) -> None:
    inner = Counted()
    Kept(inner, tmp_path, identity="x").solve(problem())
    Kept(inner, tmp_path, identity="x").solve(problem(1_001))
    Kept(inner, tmp_path, identity="y").solve(problem())
    Kept(inner, tmp_path, identity="x").solve(replace(problem(), sync=0))
    assert inner.asked == 4


@pytest.mark.parametrize("damage", ["", "{", "null", '{"placements": []}', "\x00" * 10, "[" * 100_000])
def test_a_damaged_file_is_solved_anew_and_mended(damage: str, tmp_path: Path) -> None:
    inner = Counted()
    kept = Kept(inner, tmp_path, identity="x")
    first = kept.solve(problem())
    (file,) = tmp_path.iterdir()
    file.write_text(damage)
    assert kept.solve(problem()) == first and inner.asked == 2
    assert kept.solve(problem()) == first and inner.asked == 2


def test_a_foreign_schedule_is_not_believed(tmp_path: Path) -> None:
    inner = Counted()
    kept = Kept(inner, tmp_path, identity="x")
    kept.solve(problem())
    (first,) = tmp_path.iterdir()
    kept.solve(problem(5_000))
    (second,) = set(tmp_path.iterdir()) - {first}
    os.replace(second, first)
    assert kept.solve(problem()) == Greedy().solve(problem()) and inner.asked == 3


def test_a_folder_that_cannot_be_written_costs_nothing_but_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    inner = Counted()
    kept = Kept(inner, tmp_path / "file", identity="x")
    assert kept.solve(problem()) == Greedy().solve(problem())


def test_old_plans_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "KEPT", 3)
    kept = Kept(Counted(), tmp_path, identity="x")
    for duration in range(1_000, 1_006):
        kept.solve(problem(duration))
    assert len(list(tmp_path.iterdir())) == 3


def test_two_processes_at_once(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.scheduling.test_plans import Counted, problem;"
        "from autostream.scheduling.plans import Kept; kept = Kept(Counted(), Path(sys.argv[1]), identity='x');"
        "[kept.solve(problem(1_000 + n % 7)) for n in range(40)]"
    )
    runs = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=Path(__file__).parents[2]) for _ in range(2)]
    assert [run.wait() for run in runs] == [0, 0]
    inner = Counted()
    for duration in range(1_000, 1_007):
        Kept(inner, tmp_path, identity="x").solve(problem(duration))
    assert inner.asked == 0 and len(list(tmp_path.iterdir())) == 7
