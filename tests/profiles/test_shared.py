"""Every public profile reads completely: rows, device time and overlap against a few independent lines of pandas."""

from __future__ import annotations

import configparser
import itertools
import json
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pytest

from autostream.profiles import Core, read_profile
from autostream.profiles.clock import recover_clock
from autostream.profiles.extras import read_collectives, read_op_totals, read_step_times
from autostream.profiles.reading import read

#: Rows of the file, rows that are kernels, rejected rows.
FILES = {
    "gpt_training_910b1/kernel_details.csv": (591, 591, 0),
    "megatron_pp2dp2_910b4/kernel_details.csv": (2463, 2463, 0),
    "resnet_ddp_level0/kernel_details.csv": (191, 191, 0),
    "resnet_ddp_level1/kernel_details.csv": (191, 191, 0),
    "resnet_ddp_level2/kernel_details.csv": (191, 191, 0),
    "sample_2023/kernel_details.csv": (21, 20, 1),
    "sample_2023/op_summary_1.csv": (21, 20, 1),
}


@pytest.fixture(params=sorted(FILES))
def path(request: pytest.FixtureRequest, shared: Path) -> Path:
    return shared / "data" / "profiles" / request.param


def frame(path: Path) -> pd.DataFrame:
    """Return the whole rows of a file as text columns under the names of kernel_details, with times in whole nanoseconds."""
    data = pd.read_csv(path, dtype=str, keep_default_na=False)
    names = {"Op Name": "Name", "Task Type": "Accelerator Core", "Task Duration(us)": "Duration(us)", "OP Type": "Type"}
    data = data.rename(columns=names | {"Task Start Time(us)": "Start Time(us)"})
    data = data[data[data.columns[-1]] != ""]  # a row with a field missing
    for column, name in (("Start Time(us)", "start"), ("Duration(us)", "duration")):
        data[name] = [round(Decimal(cell.strip()) * 1000) for cell in data[column]]
    return data


def busy_points(data: pd.DataFrame) -> pd.DataFrame:
    """Return the elementary intervals between all starts and ends: their length and how many rows of each stream cover them."""
    start, end = data["start"].to_numpy(), (data["start"] + data["duration"]).to_numpy()
    points = sorted({*start.tolist(), *end.tolist()})
    streams = data["lane"].to_numpy()
    rows = []
    for low, high in itertools.pairwise(points):
        covering = (start <= low) & (end >= high)
        rows.append(
            (high - low, len(set(streams[covering])), *(bool(covering[data[kind]].any()) for kind in ("comm", "compute")))
        )
    return pd.DataFrame(rows, columns=["length", "lanes", "comm", "compute"])


def test_rows_and_device_time(path: Path) -> None:
    rows, kernels, rejected = FILES["/".join(path.parts[-2:])]
    profile, data = read_profile(path), frame(path)
    assert (profile.rows, len(profile.kernels), len(profile.rejected), profile.duplicates) == (rows, kernels, rejected, 0)
    assert len(data) == kernels
    assert profile.device_time == data["duration"].sum()
    assert sorted(kernel.start for kernel in profile.kernels) == sorted(data["start"])
    if "Type" in data and (data["Type"] != "N/A").any():
        named = data[~data["Type"].isin(["N/A", "0"])]
        assert {kernel.type for kernel in profile.kernels} >= set(named["Type"])


def test_overlap_by_stream(path: Path) -> None:
    reading, data = read(read_profile(path)), frame(path)
    data["comm"] = data["Accelerator Core"].isin(["HCCL", "COMMUNICATION"])
    data["compute"] = ~data["comm"]
    known = data["Stream ID"] if "Stream ID" in data else pd.Series("N/A", index=data.index)
    data["lane"] = known.where(known != "N/A", data["comm"].map({True: "communication", False: "not said"}))
    points = busy_points(data.reset_index(drop=True))
    by_lane = {lane: busy_points(rows.reset_index(drop=True)) for lane, rows in data.groupby("lane")}
    assert {one.stream: one.busy for one in reading.streams} == {
        lane: one.loc[one["lanes"] > 0, "length"].sum() for lane, one in by_lane.items()
    }
    overlap, length = reading.overlap, points["length"]
    assert overlap.span == length.sum()
    assert overlap.two_streams == length[points["lanes"] >= 2].sum()
    assert overlap.computing == length[points["compute"]].sum()
    assert overlap.communication == length[points["comm"]].sum()
    assert overlap.communication_not_overlapped == length[points["comm"] & ~points["compute"]].sum()
    assert overlap.free == length[points["lanes"] == 0].sum()


def test_the_row_that_lost_its_duration_is_told_by_line(shared: Path) -> None:
    profile = read_profile(shared / "data" / "profiles" / "sample_2023" / "kernel_details.csv")
    (rejected,) = profile.rejected
    assert (rejected.file, rejected.line) == ("kernel_details.csv", 17)
    assert rejected.reason == "31 fields where the header has 32"


@pytest.mark.parametrize(
    ("folder", "ini", "off"),
    [
        ("gpt_training_910b1", "Ascend910B1", 0.0),
        ("sample_2023", "Ascend910B1", 0.0),
        ("resnet_ddp_level1", "Ascend910B2", 0.0),
        ("resnet_ddp_level2", "Ascend910B2", 0.0),
        # The ini says 1500 MHz; this chip of the 910B4 class ran at 1650, a tenth faster.
        ("megatron_pp2dp2_910b4", "Ascend910B4", 0.1),
    ],
)
def test_clock_and_cores_are_those_of_platform_config(folder: str, ini: str, off: float, shared: Path) -> None:
    parser = configparser.ConfigParser()
    parser.read(shared / "data" / "platform_config" / f"{ini}.ini")
    clock = recover_clock(read_profile(shared / "data" / "profiles" / folder / "kernel_details.csv").kernels)
    assert clock.aic == int(parser["SoCInfo"]["cube_core_cnt"])
    assert clock.aiv == int(parser["SoCInfo"]["vector_core_cnt"])
    nominal = float(parser["AICoreSpec"]["cube_freq"])
    assert clock.mhz / nominal - 1 == pytest.approx(off, abs=0.001)
    assert clock.agreeing >= 0.97 * clock.asked > 0


def test_what_the_profiler_says_of_the_step_is_what_we_read(shared: Path) -> None:
    folder = shared / "data" / "profiles" / "resnet_ddp_level2"
    overlap = read(read_profile(folder), step=50).overlap
    (step,) = read_step_times(folder / "step_trace_time.csv")
    assert step.step == "50"
    # The profiler sums rounded microseconds.
    assert overlap.computing == pytest.approx(step.computing, abs=100)
    assert overlap.communication == pytest.approx(step.communication, abs=100)
    assert overlap.communication_not_overlapped == pytest.approx(step.communication_not_overlapped, abs=100)
    assert overlap.communication - overlap.communication_not_overlapped == pytest.approx(step.overlapped, abs=100)
    assert overlap.free == pytest.approx(step.free, abs=100)


def test_totals_by_type_are_those_of_op_statistic(shared: Path) -> None:
    folder = shared / "data" / "profiles" / "resnet_ddp_level2"
    kernels = read_profile(folder).kernels
    totals = read_op_totals(folder / "op_statistic.csv")
    assert len(totals) == 33
    compared = 0
    for total in totals:
        own = [kernel for kernel in kernels if kernel.type == total.type and kernel.core.value == total.core]
        if own:
            compared += 1
            assert (len(own), sum(kernel.duration for kernel in own)) == (total.count, pytest.approx(total.total, abs=1000))
    assert compared >= 30


def test_collectives_of_communication_json(shared: Path) -> None:
    folder = shared / "data" / "profiles" / "resnet_ddp_level2"
    rows = {kernel.name: kernel.duration for kernel in read_profile(folder).kernels if kernel.core is Core.COMMUNICATION}
    found = read_collectives(folder / "communication.json")
    assert sorted(one.name for one in found) == sorted(rows)
    for one in found:
        assert one.elapsed == pytest.approx(rows[one.name], rel=0.01)
        assert one.nbytes > 0 and one.transit + one.wait <= one.elapsed


def test_the_trace_tells_the_same_kernels_and_their_streams(shared: Path) -> None:
    folder = shared / "data" / "profiles" / "resnet_ddp_level1"
    table, trace = read_profile(folder), read_profile(folder / "trace_view.json")
    assert len(json.loads((folder / "trace_view.json").read_text())) == 10112
    assert trace.rows == len(trace.kernels) + len(trace.rejected) == 539
    for ours, theirs in zip(trace.kernels, table.kernels, strict=True):
        assert (ours.name, ours.stream, ours.communicates) == (theirs.name, theirs.stream, theirs.communicates)
        # Collectives are rounded once more on their way into the table.
        assert abs(ours.start - theirs.start) <= theirs.communicates
    assert sum(trace.rejections().values()) == 348
    assert "no kernel: task type EVENT_WAIT_SQE" in trace.rejections()
