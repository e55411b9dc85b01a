"""The readers of Ascend's CSV files: old and new headers, units, slices, what is unknown, damage."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.readers.ascend.text import ascend_csv
from steplens.trace.health import HealthLog

from ..shared_data import shared

STAMP = "1736408883704643.212\t"
STAMP_NS = 1736408883704643212


@pytest.fixture
def health() -> HealthLog:
    return HealthLog()


@pytest.fixture
def table(tmp_path: Path) -> Any:
    """Write rows as a CSV file with CRLF or LF; every call another file."""
    written: list[Path] = []

    def write(header: Sequence[str], *rows: Sequence[Any], end: str = "\r\n") -> Path:
        path = tmp_path / f"table_{len(written)}.csv"
        with path.open("w", newline="") as handle:
            csv.writer(handle, lineterminator=end).writerows([header, *rows])
        written.append(path)
        return path

    return write


def text(frame: pl.DataFrame, column: str) -> list[str | None]:
    return frame[column].cast(pl.String).to_list()


def checks(health: HealthLog) -> dict[str, int]:
    return {finding.check: finding.count for finding in health.findings}


OP_SUMMARY = (
    "Device_id", "Model ID", "Task ID", "Stream ID", "Op Name", "OP Type", "OP State", "Task Type", "Task Start Time(us)",
    "Task Duration(us)", "Task Wait Time(us)", "Block Num", "Mix Block Num", "HF32 Eligible", "Input Shapes",
    "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types", "Output Formats", "Context ID",
    "aicore_time(us)", "aic_total_cycles", "aic_mac_ratio", "cube_utilization(%)",
)  # fmt: skip
ROW = (
    3, 4294967295, 11051, 2, "MatMul_1", "MatMulV3", "dynamic", "MIX_AIC", STAMP, "53.741", "0.5", 20, 40, "NO",
    '"32,3;3,4"', "FLOAT;FLOAT", "ND;ND", '"32,4"', "FLOAT", "ND", "N/A", "52.1", 910056, 0.186, 66.301,
)  # fmt: skip


@pytest.mark.parametrize("end", ["\r\n", "\n"])
@pytest.mark.parametrize("result", [True, False], ids=["kernel_details", "op_summary"])
def test_kernels(table: Any, health: HealthLog, end: str, result: bool) -> None:
    renames = {
        "Op Name": "Name", "OP Type": "Type", "Task Type": "Accelerator Core", "Task Start Time(us)": "Start Time(us)",
        "Task Duration(us)": "Duration(us)", "Task Wait Time(us)": "Wait Time(us)", "Block Num": "Block Dim",
        "Mix Block Num": "Mix Block Dim",
    }  # fmt: skip
    header = [renames.get(name, name) for name in OP_SUMMARY] if result else OP_SUMMARY
    kernels, metrics = ascend_csv.read_kernel_details([table(header, ROW, end=end)], health)
    row = kernels.row(0, named=True)
    assert {name: row[name] for name in row if row[name] is not None} == {
        "id": 0, "name": "MatMul_1", "type": "MatMulV3", "kind": "compute", "core": "MIX_AIC", "device": 3, "stream": 2,
        "start_ns": STAMP_NS, "end_ns": STAMP_NS + 53_741, "wait_ns": 500, "task_id": 11051, "model_id": 4294967295,
        "state": "dynamic", "blocks": 20, "mix_blocks": 40, "hf32": "NO", "input_shapes": "32,3;3,4",
        "input_types": "FLOAT;FLOAT", "input_formats": "ND;ND", "output_shapes": "32,4", "output_types": "FLOAT",
        "output_formats": "ND",
    }  # fmt: skip
    assert metrics.rows() == [
        (0, "aicore_time(us)", 52.1), (0, "aic_total_cycles", 910056.0), (0, "aic_mac_ratio", 0.186),
        (0, "cube_utilization(%)", 66.301),
    ]  # fmt: skip
    assert health.findings == []


def test_the_short_layout_of_level0(table: Any, health: HealthLog) -> None:
    header = ("Step Id", "Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)", "Wait Time(us)", "Block Dim")
    path = table(
        header,
        (50, "trans_TransData_0", "N/A", "N/A", STAMP, 50.621, 0, 0),
        ("", "hcom_allReduce__868_0_1", "N/A", "HCCL", STAMP, 72994.438, 320.026, 0),
    )
    kernels, metrics = ascend_csv.read_kernel_details([path], health)
    assert kernels.select("type", "device", "stream", "step").rows() == [(None, None, None, 50), (None, None, None, None)]
    assert text(kernels, "kind") == ["compute", "communication"]
    assert text(kernels, "core") == [None, "HCCL"]
    assert metrics.is_empty()


def test_kinds(table: Any, health: HealthLog) -> None:
    header = ("Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)")
    rows = [
        ("MatMul", "MatMulV3", "AI_CORE"),
        ("x", "N/A", "N/A"),
        ("Random", "DSAGenBitMask", "DSA_SQE"),
        ("hcom_broadcast__1_0_1", "hcom_broadcast_", "HCCL"),
        ("hcom_broadcast__1_1_1", "hcom_broadcast_", "COMMUNICATION"),
        ("hcom_allReduceAicpuKernel", "AllReduce", "AI_CPU"),
        ("aten::mm", "mm", "CPU"),
        ("void gemm<float>", "N/A", "CUDA"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD", "CUDA"),
        ("ncclDevKernel_AllReduce_Sum_f32", "N/A", "CUDA"),
    ]
    kernels, _ = ascend_csv.read_kernel_details([table(header, *((*row, STAMP, 1) for row in rows))], health)
    assert text(kernels, "kind") == [
        "compute", "compute", "compute", "communication", "communication", "other", "compute", "compute", "copy",
        "communication",
    ]  # fmt: skip


def test_slices_have_the_union_of_their_columns(table: Any, health: HealthLog) -> None:
    base = ("Op Name", "Task Start Time(us)", "Task Duration(us)")
    first = table((*base, "aic_mac_ratio"), ("a", STAMP, 1, 0.5))
    second = table((*base, "Block Num", "aiv_vec_ratio"), ("b", STAMP, 2, 8, 0.25), ("c", STAMP, 3, "N/A", "N/A"))
    kernels, metrics = ascend_csv.read_op_summary([first, second], health)
    assert text(kernels, "name") == ["a", "b", "c"]
    assert kernels["blocks"].to_list() == [None, 8, None]
    assert metrics.rows() == [(0, "aic_mac_ratio", 0.5), (1, "aiv_vec_ratio", 0.25)]
    reverse, _ = ascend_csv.read_op_summary([second, first], health)
    assert text(reverse, "name") == ["b", "c", "a"]


def test_unknown_and_empty_shapes_differ(table: Any, health: HealthLog) -> None:
    header = ("Name", "Start Time(us)", "Input Shapes")
    kernels, _ = ascend_csv.read_kernel_details(
        [table(header, ("a", STAMP, '""'), ("b", STAMP, "N/A"), ("c", STAMP, "2,3"))], health
    )
    assert text(kernels, "input_shapes") == ["", None, "2,3"]


def test_times_count_from_a_base_and_guards_are_taken_off(table: Any, health: HealthLog) -> None:
    base = 7_889_238_000_000_000 * 220
    path = table(("Name", "Type", "Start Time(us)"), ("'=cmd()", "'-x", "12.345\t"), ("'quoted", "y", STAMP))
    kernels, _ = ascend_csv.read_kernel_details([path], health, base_ns=base)
    assert kernels["start_ns"].to_list() == [base + 12_345, STAMP_NS]
    assert text(kernels, "name") == ["=cmd()", "'quoted"]
    assert text(kernels, "type") == ["-x", "y"]


# --- memory ---------------------------------------------------------------------------------------------------------------


def test_memory_record_of_a_result(table: Any, health: HealthLog) -> None:
    header = (
        "Component", "Timestamp(us)", "Total Allocated(MB)", "Total Reserved(MB)", "Total Active(MB)", "Stream Ptr",
        "Device Type",
    )  # fmt: skip
    path = table(
        header,
        ("APP", STAMP, "", 2109.6015625, "", "", "NPU:1"),
        ("PTA", STAMP, 954.3701171875, 1452.0, 954.3701171875, 897357296, "NPU:1"),
        ("GE", STAMP, 5.8125, 74.75, "", "", "NPU:1"),
        ("PTA+GE", STAMP, 1, 2, 3, 897357296, "NPU:1"),
        ("WORKSPACE", STAMP, 0.00048828125, 1, 0, 77, "NPU:1"),
        ("PTA", STAMP, 1, 0, "", 0, "CPU"),
    )
    memory = ascend_csv.read_memory_record([path], health)
    assert memory.select("component", "allocated", "reserved", "active", "stream", "device_type", "device").rows() == [
        ("APP", None, 2212077568, None, None, "NPU", 1),
        ("PTA", 1000729600, 1522532352, 1000729600, 897357296, "NPU", 1),
        ("GE", 6094848, 78381056, None, None, "NPU", 1),
        ("WORKSPACE", 512, 1048576, 0, 77, "NPU", 1),
        ("PTA", 1048576, 0, None, 0, "CPU", 0),
    ]
    assert memory["time_ns"].unique().to_list() == [STAMP_NS]


def test_memory_files_of_cann(table: Any, health: HealthLog) -> None:
    record = table(
        ("Device_id", "Component", "Timestamp(us)", "Total Allocated(KB)", "Total Reserved(KB)", "Device"),
        (2, "GE", STAMP, 1024, 2048, "NPU:2"),
    )
    assert ascend_csv.read_memory_record([record], health).select("component", "allocated", "reserved", "device").rows() == [
        ("GE", 1 << 20, 2 << 20, 2)
    ]
    npu = table(
        ("Device_id", "event", "ddr(KB)", "hbm(KB)", "memory(KB)", "timestamp(us)"),
        (2, "APP", 0, 2048, 2048, STAMP),
        (2, "Device", 0, 4096, 4096, STAMP),
    )
    assert ascend_csv.read_npu_mem([npu], health).select("component", "time_ns", "reserved", "device_type", "device").rows() == [
        ("APP", STAMP_NS, 2 << 20, "NPU", 2)
    ]
    header = (
        "Device_id", "Name", "Size(KB)", "Allocation Time(us)", "Duration(us)", "Allocation Total Allocated(KB)",
        "Allocation Total Reserved(KB)", "Release Total Allocated(KB)", "Release Total Reserved(KB)", "Device",
    )  # fmt: skip
    operator = table(
        header, (2, "GeOp", 16.0, STAMP, 2.5, 1024, 2048, 0, 2048, "NPU:2"), (2, "Open", 16.0, STAMP, "", 1, 2, "", "", "NPU:2")
    )
    rows = ascend_csv.read_operator_memory([operator], health).rows(named=True)
    assert {name: value for name, value in rows[0].items() if value is not None} == {
        "name": "cann::GeOp", "bytes": 16384, "allocation_ns": STAMP_NS, "release_ns": STAMP_NS + 2500,
        "allocation_allocated": 1 << 20, "allocation_reserved": 2 << 20, "release_allocated": 0, "release_reserved": 2 << 20,
        "device_type": "NPU", "device": 2, "component": "GE",
    }  # fmt: skip
    assert rows[1]["release_ns"] is None
    assert health.findings == []


def test_operator_memory_of_a_result(table: Any, health: HealthLog) -> None:
    header = (
        "Name", "Size(KB)", "Allocation Time(us)", "Release Time(us)", "Active Release Time(us)", "Duration(us)",
        "Active Duration(us)", "Allocation Total Allocated(MB)", "Allocation Total Reserved(MB)", "Allocation Total Active(MB)",
        "Release Total Allocated(MB)", "Release Total Reserved(MB)", "Release Total Active(MB)", "Stream Ptr", "Device Type",
    )  # fmt: skip
    release = "1736408883736793.940\t"
    path = table(
        header,
        (
            "aten::mm",
            25009.5,
            STAMP,
            release,
            "1736408883736793.430\t",
            "",
            "",
            978.5,
            1452,
            978.25,
            977.5,
            1451,
            977.25,
            89,
            "NPU:0",
        ),
        ("cann::ReduceSum7", 64, STAMP, "", "", "", "", 3, 74, "", "", "", "", "", "NPU:0"),
        ("", 0.5, STAMP, "", "", "", "", 3, 74, "", "", "", "", 89, "NPU:0"),
    )
    rows = ascend_csv.read_operator_memory([path], health).rows(named=True)
    assert rows[0] == {
        "name": "aten::mm", "bytes": 25609728, "allocation_ns": STAMP_NS, "release_ns": 1736408883736793940,
        "active_release_ns": 1736408883736793430, "allocation_allocated": 1026031616, "allocation_reserved": 1522532352,
        "allocation_active": 1025769472, "release_allocated": 1024983040, "release_reserved": 1521483776,
        "release_active": 1024720896, "stream": 89, "device_type": "NPU", "device": 0, "component": "PTA",
    }  # fmt: skip
    assert [(row["name"], row["component"], row["release_ns"]) for row in rows[1:]] == [
        ("cann::ReduceSum7", "GE", None),
        (None, "PTA", None),
    ]


@pytest.mark.parametrize(("unit", "value"), [("KB", 4096.0), ("MB", 4.0)])
def test_module_memory(table: Any, health: HealthLog, unit: str, value: float) -> None:
    path = table(("Component", "Timestamp(us)", f"Total Reserved({unit})", "Device"), ("SLOG", STAMP, value, "NPU:1"), end="\n")
    samples = ascend_csv.read_npu_module_mem([path], health)
    assert samples.select("group", "name", "unit", "time_ns", "value", "device").rows() == [
        ("npu_module_mem", "SLOG", "KB", STAMP_NS, 4096.0, 1)
    ]


# --- tables that are handed on --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ascend_csv.SOURCE_TABLES)
def test_tables_are_handed_on_unchanged(table: Any, health: HealthLog, kind: str) -> None:
    first = table(("Timestamp", "Node", "x(us)"), ("1.50\t", "=cmd|' /C calc'!A0", "N/A"), ("2", 'a "quoted"; line\nbreak', ""))
    second = table(("Node", "y"), ("ä", "7"))
    rows = ascend_csv.SOURCE_TABLES[kind]([first, second], health)
    assert rows["table"].unique().to_list() == ["data_preprocess" if kind == "aicpu" else kind]
    assert rows["row"].to_list() == [0, 1, 2]
    records = [json.loads(record) for record in rows["record"]]
    assert records == [
        {"Timestamp": "1.50\t", "Node": "=cmd|' /C calc'!A0", "x(us)": "N/A", "y": ""},
        {"Timestamp": "2", "Node": 'a "quoted"; line\nbreak', "x(us)": "", "y": ""},
        {"Timestamp": "", "Node": "ä", "x(us)": "", "y": "7"},
    ]
    assert list(records[0]) == ["Timestamp", "Node", "x(us)", "y"]


# --- damage ---------------------------------------------------------------------------------------------------------------


def test_a_cut_file_loses_its_last_row(table: Any, health: HealthLog) -> None:
    path = table(OP_SUMMARY, *[ROW] * 5)
    whole = path.read_bytes()
    line = len(whole.splitlines()[-1]) + 2
    path.write_bytes(whole[: -line // 2])
    kernels, _ = ascend_csv.read_kernel_details([path], health)
    assert kernels.height == 4
    assert checks(health) == {"truncated_file": 1}
    # a file that only lacks its last line end is whole
    path.write_bytes(whole.rstrip(b"\r\n"))
    told = HealthLog()
    assert ascend_csv.read_kernel_details([path], told)[0].height == 5
    # whether its last cell is whole nobody knows
    assert [(finding.check, finding.severity) for finding in told.findings] == [("truncated_file", "warning")]


def test_rows_without_a_time_are_told(table: Any, health: HealthLog) -> None:
    header = ("Name", "Start Time(us)", "Duration(us)", "m")
    path = table(header, ("a", STAMP, 5, 1), ("b", "N/A", 5, 2), ("c", "soon", 5, 3), ("", STAMP, 5, 4))
    kernels, metrics = ascend_csv.read_kernel_details([path], health)
    assert text(kernels, "name") == ["a"]
    assert metrics.rows() == [(0, "m", 1.0)]
    assert checks(health) == {"damaged_rows": 3}


def test_numbers_out_of_range_are_unknown(table: Any, health: HealthLog) -> None:
    header = ("Name", "Start Time(us)", "Duration(us)", "Stream ID", "Device_id", "Task ID", "Block Num")
    path = table(header, ("a", STAMP, "1e300", "1" + "0" * 40, 1e30, "2.0", "2.5"), ("b", STAMP, "nan", "-1", "x", "inf", "true"))
    kernels, _ = ascend_csv.read_kernel_details([path], health)
    assert kernels.select("stream", "device", "task_id", "blocks").rows() == [(None, None, 2, None), (-1, None, None, None)]
    assert (kernels["end_ns"] == kernels["start_ns"]).all()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n\n",
        b"Name\n",
        b"a,a,a\n1,2,3\n",
        b"\x00\x01\x02" * 50,
        b"\xef\xbb\xbfName,Start Time(us)\nx,",
        b'Name,Start Time(us)\n"never closed,1736408883704643.212\n' * 3,
        b"Name,Start Time(us)\n" + b"x" * 100_000 + b",1736408883704643.212\n",
        b"Name,Start Time(us)\nx,1,2,3,4,5,6\n",
    ],
    ids=range(9),
)
def test_hostile_files(tmp_path: Path, health: HealthLog, content: bytes) -> None:
    path = tmp_path / "kernel_details.csv"
    path.write_bytes(content)
    kernels, metrics = ascend_csv.read_kernel_details([path], health)
    assert kernels.height <= 1 and metrics.height <= 1
    for read in (ascend_csv.read_memory_record, ascend_csv.read_operator_memory, ascend_csv.read_npu_mem):
        assert read([path], health).is_empty()
    assert ascend_csv.SOURCE_TABLES["l2_cache"]([path], health).height <= 6


def test_damage_inside_a_file_costs_its_rows(table: Any, health: HealthLog) -> None:
    path = table(("Name", "Duration(us)", "Start Time(us)"), *((f"k{i}", 5, STAMP) for i in range(20)))
    lines = path.read_bytes().splitlines(keepends=True)
    lines[7] = b"\xff\x00\xfe,\x00\r\n"
    path.write_bytes(b"".join(lines))
    kernels, _ = ascend_csv.read_kernel_details([path], health)
    assert [name for name in text(kernels, "name") if name in {f"k{i}" for i in range(20)}] == [
        f"k{i}" for i in range(20) if i != 6
    ]
    assert checks(health) == {"damaged_rows": 1}


def test_a_missing_file_and_a_header_without_the_needed(tmp_path: Path, table: Any, health: HealthLog) -> None:
    assert ascend_csv.read_memory_record([tmp_path / "none.csv"], health).is_empty()
    assert ascend_csv.read_memory_record([table(("a", "b"), (1, 2))], health).is_empty()
    assert checks(health) == {"unreadable_file": 1, "unknown_layout": 1}


def damaged(health: HealthLog) -> dict[str, tuple[int, str]]:
    """The columns (or the words in front of them) of every finding about values, with its count and what is unsafe."""
    found = [finding for finding in health.findings if finding.check == "damaged_values"]
    return {
        finding.message.partition("(")[2].removesuffix(")") or finding.message: (finding.count, finding.unsafe)
        for finding in found
    }


@pytest.mark.parametrize("cell", ["abc", "1,234.5", "nan", "inf", "1e400"])
def test_cells_that_are_no_numbers_are_counted(table: Any, health: HealthLog, cell: str) -> None:
    header = ["Name", "Accelerator Core", "Start Time(us)", "Duration(us)", "Wait Time(us)", "Stream ID", "Step Id", "Block Dim",
              "aicore_time(us)", "Comment"]  # fmt: skip
    good = ["MatMul", "AI_CORE", STAMP, "5.0", "1.0", "2", "1", "24", "4.5", "text"]
    bad = ["Add", "AI_CORE", STAMP, cell, cell, cell, cell, cell, cell, "text"]
    kernels, metrics = ascend_csv.read_kernel_details([table(header, good, bad, bad)], health)
    assert (kernels["end_ns"] - kernels["start_ns"]).to_list() == [5000, 0, 0]
    assert kernels["wait_ns"].to_list() == [1000, None, None] and metrics["value"].to_list() == [4.5]
    lengths = "device tasks of kernel_details have no duration; their length counts as zero"
    assert damaged(health) == {
        "Wait Time(us)": (2, "kernel waits"),
        "Stream ID": (2, "kernel calls"),
        "Step Id": (2, "device time of steps"),
        "Block Dim, aicore_time(us)": (4, "kernel details"),
        lengths: (2, "kernel times, device time per operator, overlap and idle time"),
    }


def test_what_the_vendors_write_for_unknown_is_no_damage(table: Any, health: HealthLog) -> None:
    header = [
        "Name",
        "Start Time(us)",
        "Duration(us)",
        "Wait Time(us)",
        "Stream ID",
        "Block Dim",
        "aicore_time(us)",
        "Context ID",
    ]
    unknown = [["Add", STAMP, "5.0", *([cell] * 5)] for cell in ("N/A", "", "NA", " N/A\t")]
    ascend_csv.read_kernel_details([table(header, *unknown)], health)
    header = ["Name", "Size(KB)", "Allocation Time(us)", "Release Time(us)", "Release Total Reserved(MB)", "Stream Ptr"]
    ascend_csv.read_operator_memory([table(header, ["aten::mm", "4.0", STAMP, "", "", "N/A"])], health)
    assert not health.findings


def test_a_task_without_a_duration_is_told(table: Any, health: HealthLog) -> None:
    """Every writer knows how long a task took: N/A is damage there."""
    path = table(["Name", "Start Time(us)", "Duration(us)"], ["Add", STAMP, "N/A"], ["Mul", STAMP, "2"])
    kernels, _ = ascend_csv.read_kernel_details([path], health)
    assert (kernels["end_ns"] - kernels["start_ns"]).to_list() == [0, 2000]
    assert [count for count, _ in damaged(health).values()] == [1]


def test_sizes_that_are_no_numbers_are_counted(table: Any, health: HealthLog) -> None:
    header = ["Name", "Size(KB)", "Allocation Time(us)", "Release Time(us)", "Device Type"]
    rows = [["a", "4.0", STAMP, STAMP, "NPU:0"], ["b", "abc", STAMP, "never", "NPU:0"], ["c", "1e30", "no time", "", "NPU:0"]]
    assert ascend_csv.read_operator_memory([table(header, *rows)], health)["bytes"].to_list() == [4096, None]
    assert damaged(health) == {"Release Time(us), Size(KB)": (3, "memory")}
    assert checks(health)["damaged_rows"] == 1

    log = HealthLog()
    header = ["Component", "Timestamp(us)", "Total Allocated(MB)", "Total Reserved(MB)", "Device Type"]
    rows = [["PTA", STAMP, "1.0", "2.0", "NPU:0"], ["PTA", STAMP, "", "x", "NPU:0"]]
    assert ascend_csv.read_memory_record([table(header, *rows)], log)["reserved"].to_list() == [2 << 20, None]
    assert damaged(log) == {"Total Reserved(MB)": (1, "memory")}

    log = HealthLog()
    header = ["Component", "Timestamp(us)", "Total Reserved(KB)", "Device_id"]
    rows = [["SLOG", STAMP, "1.0", "0"], ["SLOG", STAMP, "x", "y"]]
    assert ascend_csv.read_npu_module_mem([table(header, *rows)], log).height == 1
    assert damaged(log) == {"Device_id": (1, "counters")} and checks(log)["damaged_rows"] == 1


READERS = {
    "kernel_details": ascend_csv.read_kernel_details,
    "op_summary": ascend_csv.read_op_summary,
    "memory_record": ascend_csv.read_memory_record,
    "operator_memory": ascend_csv.read_operator_memory,
    "npu_mem": ascend_csv.read_npu_mem,
    "npu_module_mem": ascend_csv.read_npu_module_mem,
}


def test_no_recorded_table_has_cells_that_count_as_damage() -> None:
    """What the profiler itself writes for unknown is none."""
    read = 0
    for path in sorted(shared("ascend_pytorch").rglob("*.csv")):
        reader = next((READERS[name] for name in READERS if re.fullmatch(rf"{name}(_\d+)*\.csv", path.name)), None)
        if reader is not None:
            health = HealthLog()
            reader([path], health)
            assert not damaged(health), path
            read += 1
    assert read
