"""Every scenario of the collection has tests that exist, or a reason."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

from tests.faults.coverage import PARTLY, TESTS

_ROOT = Path(__file__).resolve().parents[1]


@functools.cache
def _functions(file: Path) -> set[str]:
    return {node.name for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}


def test_every_scenario_of_the_collection_is_covered(shared: Path) -> None:
    told = set(re.findall(r"^### ([A-Z]\d+) ", (shared / "faults.md").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert len(told) > 50
    assert told == set(TESTS)


def test_every_test_that_is_named_exists() -> None:
    missing = [
        f"{scenario}: {test}"
        for scenario, tests in TESTS.items()
        for test in tests or ("nothing",)
        if not (_ROOT / test.partition("::")[0]).is_file()
        or test.partition("::")[2] not in _functions(_ROOT / test.partition("::")[0])
    ]
    assert missing == []


def test_what_is_shown_in_part_says_what_is_missing() -> None:
    assert set(PARTLY) <= set(TESTS)
    assert all(len(reason) > 40 for reason in PARTLY.values())


def test_every_test_here_that_bears_a_number_stands_in_the_table() -> None:
    named = {test for tests in TESTS.values() for test in tests}
    numbered = {
        f"faults/{file.name}::{name}"
        for file in sorted(Path(__file__).parent.glob("test_*.py"))
        for name in _functions(file)
        if re.match(r"test_[ag]\d\d_", name)
    }
    assert numbered - named == set()
