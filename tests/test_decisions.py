from __future__ import annotations

import pytest

from autostream.decisions import why_nothing_overlaps
from autostream.options import Options
from autostream.scheduling.problem import MAIN, Problem
from tests.scheduling.problems import comm, cube, problem, vector


@pytest.mark.parametrize(
    ("given", "serial", "why"),
    [
        (problem([cube("a", 10), vector("b", 10)], ["a>b"]), 20, "every operator waits for the one before it"),
        (problem([]), 0, "no operator of the graph takes any time"),
        (problem([cube("a", 10), cube("b", 10)]), 20, "its branches need the same cores"),
        (problem([vector("a", 10), vector("b", 10)]), 20, "its branches need the same cores"),
        (problem([comm("a", 10), comm("b", 15)]), 25, "its branches need the communication engine"),
        (
            problem([cube(f"c{n}", 10, aic=0, stream=MAIN) for n in range(3)]),
            30,
            "what could run at once has to stay on one stream",
        ),
        (problem([cube("a", 10), vector("b", 2)], sync=5), 12, "what could run at once is worth less than the waits"),
    ],
)
def test_the_reason_names_what_the_branches_share(given: Problem, serial: int, why: str) -> None:
    assert why_nothing_overlaps(given, serial, Options()).startswith(why)


@pytest.mark.parametrize("options", [Options(strategy="serial"), Options(side_streams=0)])
def test_options_that_open_no_stream_are_the_reason(options: Options) -> None:
    assert why_nothing_overlaps(problem([cube("a", 10), vector("b", 10)]), 20, options).startswith("the options open no side")
