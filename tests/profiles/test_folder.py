"""Finding profiles below an output folder, and choosing among devices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autostream.errors import InputError
from autostream.profiles import read_profile
from tests.profiles.files import ADD, HCOM, MATMUL, NEW, table

ANONYMOUS = [name for name in NEW if name != "Device_id"]


def rank(folder: Path, number: int, rows: list[dict[str, str]]) -> None:
    """Write what the framework profiler leaves of one rank, msprof's own output included."""
    output = folder / f"host_{number}_ascend_pt"
    (output / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
    (output / f"profiler_info_{number}.json").write_text("{}")
    (output / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").write_text(table(rows, columns=ANONYMOUS))
    inner = output / "PROF_000001" / "mindstudio_profiler_output"
    inner.mkdir(parents=True)
    (inner / "op_summary_20240101.csv").write_text(table([*rows, *rows], columns=ANONYMOUS))


def test_one_rank_at_any_depth_and_msprof_below_it_is_not_read_twice(tmp_path: Path) -> None:
    rank(tmp_path / "run" / "today", 5, [MATMUL, ADD])
    profile = read_profile(tmp_path)
    assert (len(profile.kernels), profile.device) == (2, "5")
    assert [path.name for path in profile.files] == ["kernel_details.csv"]


def test_several_ranks_are_listed_and_one_is_chosen(tmp_path: Path) -> None:
    rank(tmp_path, 2, [MATMUL])
    rank(tmp_path, 10, [ADD])
    with pytest.raises(InputError, match=r"profiles of 2 devices: 2 \(host_2_ascend_pt.*\), 10 \(.*choose one with device"):
        read_profile(tmp_path)
    assert [kernel.type for kernel in read_profile(tmp_path, device="10").kernels] == ["Add"]
    assert [kernel.type for kernel in read_profile(tmp_path, device=2).kernels] == ["MatMulV3"]
    with pytest.raises(InputError, match=r"no device '11'.*there are: 2 .*, 10 "):
        read_profile(tmp_path, device="11")


def test_msprof_alone(tmp_path: Path) -> None:
    output = tmp_path / "PROF_000001_2024" / "mindstudio_profiler_output"
    output.mkdir(parents=True)
    (tmp_path / "PROF_000001_2024" / "device_3").mkdir()
    # A long table comes in slices, which belong together.
    (output / "op_summary_slice_0_2024.csv").write_text(table([MATMUL], columns=ANONYMOUS))
    (output / "op_summary_slice_1_2024.csv").write_text(table([ADD], columns=ANONYMOUS))
    profile = read_profile(tmp_path)
    assert (len(profile.kernels), profile.rows, profile.device, len(profile.files)) == (2, 2, "3", 2)


def test_folders_that_name_no_device_are_told_apart_by_name(tmp_path: Path) -> None:
    for name, row in (("before", MATMUL), ("after", ADD)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kernel_details.csv").write_text(table([row], columns=ANONYMOUS))
    with pytest.raises(InputError, match=r"after \(after\), before \(before\)|before \(before\)"):
        read_profile(tmp_path)
    assert [kernel.type for kernel in read_profile(tmp_path, device="after").kernels] == ["Add"]


def event(name: str, start: str, stream: int, task: str = "AI_CORE") -> dict[str, object]:
    return {"ph": "X", "pid": 1, "tid": stream, "name": name, "ts": start, "dur": 50.5, "args": {"Task Type": task}}


def write_trace(path: Path, events: list[object]) -> None:
    process = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "Ascend Hardware"}}
    path.write_text(json.dumps([process, *events]))


def test_level0_takes_its_streams_from_the_trace_beside_it(tmp_path: Path) -> None:
    columns = ["Step Id", "Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)", "Wait Time(us)", "Block Dim"]
    rows = [{**row, "Type": "N/A", "Accelerator Core": "N/A", "Block Dim": "0"} for row in (MATMUL, ADD)]
    (tmp_path / "kernel_details.csv").write_text(table(rows, columns=columns))
    starts = [row["Start Time(us)"].strip() for row in rows]
    write_trace(
        tmp_path / "trace_view.json", [event(MATMUL["Name"], starts[0], 2), event(ADD["Name"], starts[1], 13), 7, "no event"]
    )
    for where in (tmp_path, tmp_path / "kernel_details.csv"):
        profile = read_profile(where)
        assert [kernel.stream for kernel in profile.kernels] == [2, 13]
        assert "streams of 2 kernels from trace_view.json" in profile.notes
    (tmp_path / "trace_view.json").write_text("[")
    profile = read_profile(tmp_path)
    assert [kernel.stream for kernel in profile.kernels] == [None, None]
    assert any("not JSON" in note for note in profile.notes)


def test_a_trace_alone_is_a_profile(tmp_path: Path) -> None:
    write_trace(
        tmp_path / "msprof_2024.json", [event("Add_1", "1764246877079027.201", 4), event("EVENT_WAIT", "1", 4, "EVENT_WAIT_SQE")]
    )
    profile = read_profile(tmp_path)
    (kernel,) = profile.kernels
    assert (kernel.type, kernel.start, kernel.stream) == ("Add", 1764246877079027201, 4)
    assert profile.rejections() == {"no kernel: task type EVENT_WAIT_SQE": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("3", "not a Chrome trace"),
        ("[]", "without any task of an Ascend device"),
        ('{"traceEvents": 1}', "not a Chrome"),
    ],
)
def test_a_trace_that_is_none(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "trace_view.json").write_text(text)
    with pytest.raises(InputError, match=message):
        read_profile(tmp_path / "trace_view.json")


def test_nothing_there(tmp_path: Path) -> None:
    (tmp_path / "kernel_detail.txt").write_text("x")
    with pytest.raises(
        InputError, match=r"no profiler output in this folder or below \(1 file\) .did you mean 'kernel_detail.txt'"
    ):
        read_profile(tmp_path)
    with pytest.raises(InputError, match=r"kernel_details.csv: no such file or folder .did you mean 'kernel_detail.txt'"):
        read_profile(tmp_path / "kernel_details.csv")
    with pytest.raises(InputError, match=r"there is no folder"):
        read_profile(tmp_path / "gone" / "kernel_details.csv")
    with pytest.raises(InputError, match="must be a path, not int"):
        read_profile(7)  # type: ignore[arg-type]


def test_the_same_bytes_have_the_same_digest_wherever_they_lie(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kernel_details.csv").write_text(table([MATMUL, HCOM]))
    (tmp_path / "c.csv").write_text(table([MATMUL]))
    one, two, other = (read_profile(tmp_path / name) for name in ("a", "b", "c.csv"))
    assert one.digest == two.digest != other.digest
