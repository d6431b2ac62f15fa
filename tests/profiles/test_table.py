"""What a reader of profiler tables must survive, one small file each; and that no row is ever lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autostream.errors import InputError
from autostream.profiles import Core, Kernel, Profile, Tensor, read_profile
from autostream.profiles.cells import core, nanoseconds, operator_type, tensors
from autostream.profiles.reader import read_text
from tests.profiles.files import ADD, HCOM, MATMUL, NEW, at, table


def only(text: str) -> Kernel:
    (kernel,) = read_text(text).kernels
    return kernel


def accounted(profile: Profile) -> int:
    return len(profile.kernels) + len(profile.rejected) + profile.duplicates + profile.other_devices


def test_one_row_of_today() -> None:
    kernel = only(table([MATMUL]))
    bf16 = {"dtype": "bfloat16", "format": "ND"}
    assert kernel == Kernel(
        name="aclnnMatmul_MatMulV3Common_MatMulV3",
        type="MatMulV3",
        core=Core.AI_CORE,
        start=1764246877079027200,
        duration=50_500,
        wait=250,
        blocks=24,
        stream=2,
        step=1,
        inputs=(Tensor(shape=(128, 64), **bf16), Tensor(shape=(64, 256), **bf16)),
        outputs=(Tensor(shape=(128, 256), **bf16),),
        aic_time=40_000,
        aic_cycles=24 * 40 * 1800,
    )


@pytest.mark.parametrize(
    "cell", ["1736408883881410.321\t", '"1736408883881410.321\t"', " 1736408883881410.321 ", "1.736408883881410321E15"]
)
def test_timestamps_keep_all_19_digits(cell: str) -> None:
    assert nanoseconds(cell) == 1736408883881410321
    assert round(float("1736408883881410.321") * 1000) != 1736408883881410321  # what a float would have made of it


@pytest.mark.parametrize("cell", ["-1", "nan", "inf", "1e999999", "12:30", "1,5", ""])
def test_what_is_no_time_is_rejected_with_its_line_and_column(cell: str) -> None:
    profile = read_text(table([MATMUL, {**ADD, "Duration(us)": cell}]))
    (rejected,) = profile.rejected
    assert rejected.line == 3 and "Duration(us)" in rejected.reason
    assert len(profile.kernels) == 1 and profile.rows == 2


def test_old_names_of_the_columns() -> None:
    rename = {
        "Name": "Op Name",
        "Type": "OP Type",
        "Accelerator Core": "Task Type",
        "Start Time(us)": "Task Start Time(us)",
        "Duration(us)": "Task Duration(us)",
        "Wait Time(us)": "Task Wait Time(us)",
        "Block Num": "Block Dim",
        "Mix Block Num": "Mix Block Dim",
    }
    assert only(table([MATMUL], rename=rename)) == only(table([MATMUL]))


def test_level0_has_eight_columns_and_no_types() -> None:
    columns = ["Step Id", "Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)", "Wait Time(us)", "Block Dim"]
    row = {"Step Id": "50", "Name": "aclnnAdd_AddAiCore_Add", "Start Time(us)": "17\t", "Duration(us)": "2", "Wait Time(us)": "0"}
    kernel = only(table([row | {"Block Dim": "0"}], columns=columns))
    assert (kernel.type, kernel.core, kernel.blocks, kernel.stream, kernel.inputs) == ("Add", Core.UNKNOWN, 0, None, ())


@pytest.mark.parametrize(
    ("cell", "name", "kind"),
    [
        ("N/A", "aclnnMm_MatMulV3Common_MatMulV3", "MatMulV3"),
        ("N/A", "aclnnInplaceRelu_Relu_Relu", "Relu"),
        ("N/A", "trans_TransData_12", "TransData"),
        ("N/A", "Conv2D1", "Conv2D"),
        ("N/A", "MatMulV212", "MatMulV2"),
        ("N/A", "Cast66", "Cast"),
        ("0", "NonZero_MemSet", "MemSet"),
        ("N/A", "hcom_allReduce__868_0_1", "hcom_allReduce_"),
        ("MatMulV2_NDNZ_ND_229955", "MatMulV2_NDNZ_ND_229955", "MatMulV2"),
        ("N/A", "MatMulV2_NDNZ_ND_229955", "MatMulV2"),
        ("RotaryPositionEmbedding", "x", "RotaryPositionEmbedding"),
    ],
)
def test_operator_types(cell: str, name: str, kind: str) -> None:
    assert operator_type(cell, name) == kind


def test_shapes_with_operands_left_out() -> None:
    shapes, dtypes, formats = '"8192,2,640;;1,16"', "DT_BF16;FLOAT16;UINT8", "FORMAT_ND;ND;NC1HWC0:1"
    assert tensors(shapes, dtypes, formats) == (
        Tensor(shape=(8192, 2, 640), dtype="bfloat16", format="ND"),
        Tensor(shape=(), dtype="float16", format="ND"),
        Tensor(shape=(1, 16), dtype="uint8", format="NC1HWC0"),
    )
    assert tensors('""', "INT32", "FORMAT_ND") == (Tensor(shape=(), dtype="int32", format="ND"),)
    assert tensors("N/A", "N/A", "N/A") == ()
    # Lists of different length: nothing is dropped.
    assert [len(tensors("2,3", "FLOAT;INT8", "")), len(tensors("", "FLOAT", "ND"))] == [2, 1]


def test_both_spellings_of_data_types_and_formats() -> None:
    for dtype, layout in (("FLOAT16", "FORMAT_ND"), ("DT_FLOAT16", "ND")):
        (tensor,) = tensors('"2"', dtype, layout)
        assert (tensor.dtype, tensor.format) == ("float16", "ND")


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        ("HCCL", Core.COMMUNICATION),
        ("COMMUNICATION", Core.COMMUNICATION),
        ("ai_core", Core.AI_CORE),
        ("MIX_AIV", Core.MIX_AIV),
        ("DSA_SQE", Core.DSA),
        ("HCCL_AI_CPU", Core.COMMUNICATION_AI_CPU),
        ("N/A", Core.UNKNOWN),
        ("SOMETHING_NEW", Core.UNKNOWN),
    ],
)
def test_core_types_of_all_years(label: str, kind: Core) -> None:
    assert core(label) is kind


def test_columns_come_and_go() -> None:
    gone = ("Step Id", "Device_id", "Model ID", "OP State", "HF32 Eligible", "aiv_time(us)", "aiv_total_cycles")
    kernel = only(table([MATMUL], columns=[name for name in NEW if name not in gone] + ["a column of tomorrow"]))
    assert kernel.step is None and kernel.aic_cycles > 0 and kernel.aiv_cycles == 0


def test_counters_that_are_not_there() -> None:
    kernel = only(table([{**MATMUL, "aicore_time(us)": "N/A", "aic_total_cycles": "N/A"}]))
    assert (kernel.aic_time, kernel.aic_cycles) == (0, 0)


def test_a_collective_counts_once_whichever_row_comes_first() -> None:
    twin = at(ADD, "1764246877079110.0\t", "100.125", Name="allreduce_AivKernel", Type="allreduce_AivKernel", Stream_ID="7")
    for rows in ([HCOM, twin], [twin, HCOM]):
        profile = read_text(table(rows))
        (kernel,) = profile.kernels
        assert kernel.communicates and kernel.name.startswith("hcom_")
        assert (kernel.stream, kernel.blocks) == (7, 48)  # the whole learns where it ran
        assert profile.duplicates == 1 and profile.rows == 2


def test_a_kernel_beside_a_collective_is_none_of_its_rows() -> None:
    profile = read_text(table([HCOM, at(ADD, "1764246877079110.0", "100.325")]))
    assert len(profile.kernels) == 2 and profile.duplicates == 0


def test_the_ai_cpu_part_of_a_collective_includes_waiting_and_goes_where_the_whole_is_there() -> None:
    part = {
        **HCOM,
        "Name": "hcom_allReduce_AicpuKernel",
        "Type": "AicpuKernel",
        "Start Time(us)": "1764246877079000",
        "Duration(us)": "900",
    }
    for label in ("HCCL_AI_CPU", "AI_CPU"):
        part["Accelerator Core"] = label
        assert [kernel.core for kernel in read_text(table([part, HCOM])).kernels] == [Core.COMMUNICATION]
        assert only(table([part])).core is Core.COMMUNICATION_AI_CPU
    plain = {**part, "Name": "Cast_5", "Accelerator Core": "AI_CPU"}
    assert len(read_text(table([plain, HCOM])).kernels) == 2


def test_a_row_that_is_there_twice_counts_once() -> None:
    profile = read_text(table([MATMUL, ADD, MATMUL]))
    assert len(profile.kernels) == 2 and profile.duplicates == 1


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gbk"])
def test_encodings(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "kernel_details.csv"
    path.write_bytes(table([{**MATMUL, "Name": "矩阵乘"}]).encode(encoding))
    assert read_profile(path).kernels[0].name == "矩阵乘"


def test_a_short_row_is_rejected_with_its_line() -> None:
    lines = table([MATMUL, ADD]).splitlines()
    lines.insert(2, "1,0,N/A,too short")
    profile = read_text("\n".join(lines))
    (rejected,) = profile.rejected
    assert (rejected.line, rejected.reason) == (3, f"4 fields where the header has {len(NEW)}")
    assert profile.rejections() == {rejected.reason: 1}
    assert len(profile.kernels) == 2 and profile.rows == 3


def test_rows_of_several_devices() -> None:
    text = table([MATMUL, {**ADD, "Device_id": "3"}, {**ADD, "Device_id": "10"}])
    with pytest.raises(InputError, match=r"rows of 3 devices: 0, 3, 10; choose one"):
        read_text(text)
    profile = read_text(text, device="3")
    assert [kernel.type for kernel in profile.kernels] == ["Add"]
    assert (profile.device, profile.other_devices, profile.rows) == ("3", 2, 3)
    with pytest.raises(InputError, match=r"no rows of device '11'; there are: 0, 3, 10"):
        read_text(text, device="11")
    with pytest.raises(InputError, match=r"no device '4'; it holds device 0"):
        read_text(table([MATMUL]), device="4")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty; allowed: kernel_details.csv"),
        (b"\n \n", "empty; allowed"),
        (
            b"a,b,c\n1,2,3\n",
            "not a kernel table: no column 'Name' or 'Op Name'.*its columns: a, b, c; allowed: kernel_details.csv",
        ),
        (b"Nmae,Start Time(us),Duration(us),Accelerator Core\n", "no column 'Name' or 'Op Name' .did you mean 'Nmae'"),
        (b"\xff\xfe\x00\x01", "not a text file in UTF-8 or GBK"),
        (b"PK\x03\x04\x00\x00", "not a text file"),
    ],
)
def test_a_file_that_is_no_profile(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "kernel_details.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_profile(path)
    assert str(path) in str(caught.value)


def test_a_cell_longer_than_csv_allows_by_default() -> None:
    shapes = ";".join(["1024,1024"] * 20_000)
    assert len(only(table([{**MATMUL, "Input Shapes": f'"{shapes}"'}])).inputs) == 20_000


@given(st.text(alphabet='NameTyp,;"\n\r\t 01.-N/A\ufeff\x00é', max_size=120) | st.text(max_size=60))
def test_any_text_is_read_completely_or_refused(text: str) -> None:
    try:
        profile = read_text(text)
    except InputError:
        return
    assert accounted(profile) == profile.rows


_cell = st.sampled_from(
    ["", "N/A", "0", "-1", "1.5", "7\t", '"', "2,3;;4", "nan", "hcom_x_1", "HCCL", "AI_CORE", "x,\n", "1e400"]
)


@given(st.lists(st.lists(_cell, max_size=10), max_size=8))
def test_any_rows_under_a_real_header_are_accounted_for(rows: list[list[str]]) -> None:
    columns = ["Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)", "Input Shapes", "Stream ID", "Step Id"]
    text = "\n".join([",".join(columns), *(",".join(row) for row in rows)])
    try:
        profile = read_text(text)
    except InputError:
        return
    assert accounted(profile) == profile.rows
    assert all(kernel.duration >= 0 and kernel.name for kernel in profile.kernels)


@given(st.lists(st.integers(min_value=0, max_value=10**19), min_size=1, max_size=6))
def test_times_survive_to_the_nanosecond(times: list[int]) -> None:
    rows = [at(MATMUL, f"{time // 1000}.{time % 1000:03d}\t", "1", Name=f"k{place}") for place, time in enumerate(times)]
    assert [kernel.start for kernel in read_text(table(rows)).kernels] == sorted(times)
