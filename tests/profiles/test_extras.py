"""The files beside a kernel table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from autostream.errors import InputError
from autostream.profiles.extras import read_collectives, read_op_totals, read_step_times

STEPS = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free\n50,1.5,2,0.5,2.5,7\n"


def test_step_times(tmp_path: Path) -> None:
    path = tmp_path / "step_trace_time.csv"
    path.write_text(STEPS)
    (step,) = read_step_times(path)
    assert (step.step, step.computing, step.communication, step.free) == ("50", 1500, 2500, 7000)


def collective(entry: object) -> str:
    return json.dumps({"step1": {"collective": {"hcom_allReduce__1@7": entry, "Total Op Info": entry}}})


def test_collectives(tmp_path: Path) -> None:
    path = tmp_path / "communication.json"
    times = {"Elapse Time(ms)": 2.0, "Transit Time(ms)": 0.5, "Wait Time(ms)": 1.25}
    links = {"SDMA": {"Transit Size(MB)": 3}, "HCCS": {"Transit Size(MB)": 3}, "RDMA": {"Transit Size(MB)": 1}}
    path.write_text(collective({"Communication Time Info": times, "Communication Bandwidth Info": links}))
    (one,) = read_collectives(path)
    assert (one.name, one.step) == ("hcom_allReduce__1", "step1")
    assert (one.elapsed, one.transit, one.wait, one.nbytes) == (2_000_000, 500_000, 1_250_000, 4_000_000)


@pytest.mark.parametrize(
    ("reader", "text", "message"),
    [
        (read_step_times, "Step,Computin\n1,2\n", "no column 'Computing' .did you mean 'Computin'"),
        (read_step_times, STEPS.replace("1.5", "soon"), "'soon' is no number"),
        (read_op_totals, "a\n", "no column 'OP Type'"),
        (read_op_totals, "", "no column 'OP Type'"),
        (read_collectives, "[", "not JSON"),
        (read_collectives, "[]", "not a communication.json"),
        (read_collectives, collective(3), "an object is expected where 3 stands"),
        (read_collectives, collective({}), "not a communication.json"),
    ],
)
def test_files_that_are_not_those(reader: Callable[[Path], object], text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        reader(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_collectives(tmp_path / "communication.json")
