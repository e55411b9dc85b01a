"""Results made again from recorded Ascend runs, against the files that came with the recordings."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from steplens.common import rundir
from steplens.readers.ascend.database import ascend_db
from steplens.readers.ascend.text import ascend_text
from steplens.trace.trace import Trace
from steplens.writers.result import DATABASE, TEXT, Settings, write_result

from ..shared_data import shared

#: what the recordings call by another name
RENAMED = {"Block Dim": "Block Num", "Mix Block Dim": "Mix Block Num"}


def recording(sample: str, rank: int = 0) -> Path:
    return shared("ascend_pytorch", sample, f"rank{rank}_ascend_pt")


def read(folder: Path) -> Trace:
    """The trace, without the cache that opening would leave beside the data."""
    reader = ascend_text if "text" in folder.parent.name else ascend_db
    return reader.read_trace(folder / rundir.OUTPUT_DIRECTORY, folder)


@pytest.fixture
def remade(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """The folder of the recorded results and that of those made again."""

    def make(sample: str, rank: int = 0, export: str = TEXT) -> tuple[Path, Path]:
        folder = recording(sample, rank)
        level = sample.rpartition("_")[2].replace("level", "Level")
        statuses = write_result(read(folder), tmp_path, Settings(level=level), export_types=[export])
        assert not [status for status in statuses.values() if status.status == "failed"], statuses
        return folder / rundir.OUTPUT_DIRECTORY, tmp_path / rundir.OUTPUT_DIRECTORY

    return make


def table(path: Path) -> list[dict[str, str]]:
    rows = csv.DictReader(io.StringIO(path.read_bytes().decode(), newline=""))
    return [{RENAMED.get(key, key): value.strip("\t\r") for key, value in row.items()} for row in rows]


def number(cell: str) -> Decimal | None:
    try:
        return Decimal(cell)
    except ArithmeticError:
        return None


def assert_equal_cells(own: list[dict[str, str]], again: list[dict[str, str]], base: str, tolerance: str = "0.001") -> None:
    """Every cell of the recording is there again; times of the day count from another base, numbers differ by rounding."""
    assert len(own) == len(again)
    shift = None
    for one, other in zip(own, again, strict=True):
        for column, cell in one.items():
            a, b = number(cell), number(other[column])
            if a is None or b is None:
                assert cell == other[column], column
            elif column.startswith(base):
                shift = shift if shift is not None else a - b
                assert abs(a - b - shift) <= Decimal(tolerance), column
            else:
                assert abs(a - b) <= Decimal(tolerance), column


@pytest.mark.parametrize("rank", [0, 1])
def test_kernel_details(remade: Callable[..., tuple[Path, Path]], rank: int) -> None:
    own, again = remade("text_level1", rank)
    assert_equal_cells(table(own / "kernel_details.csv"), table(again / "kernel_details.csv"), "Start Time")
    header = list(table(again / "kernel_details.csv")[0])
    recorded = list(table(own / "kernel_details.csv")[0])
    assert [column for column in header if column != "Device_id"] == recorded


@pytest.mark.parametrize("sample", ["text_level0", "text_level1"])
def test_memory(remade: Callable[..., tuple[Path, Path]], sample: str) -> None:
    own, again = remade(sample)
    for name in ("memory_record.csv", "npu_module_mem.csv"):
        assert_equal_cells(table(own / name), table(again / name), "Timestamp", "0")
    # the graph engine's rows come in order of time here, and in another order in the recording
    columns = (
        "Name",
        "Size(KB)",
        "Duration(us)",
        "Active Duration(us)",
        "Allocation Total Allocated(MB)",
        "Release Total Active(MB)",
    )
    counts = [
        Counter(tuple(number(row[column]) or row[column] for column in columns) for row in table(folder / "operator_memory.csv"))
        for folder in (own, again)
    ]
    assert counts[0] == counts[1]


def test_statistics(remade: Callable[..., tuple[Path, Path]]) -> None:
    own, again = remade("text_level1")
    # sums of durations that were rounded one by one
    assert_equal_cells(table(own / "op_statistic.csv"), table(again / "op_statistic.csv"), "-", "0.003")
    for name in ("api_statistic.csv", "l2_cache.csv"):
        assert (again / name).read_bytes().replace(b"\r", b"") == (own / name).read_bytes().replace(b"\r", b"")


def test_api_statistic_from_the_calls_of_the_timeline(tmp_path: Path) -> None:
    folder = recording("text_level1")
    trace = read(folder)
    tables = {name: trace.required(name) for name in trace if name != "source_tables"}
    write_result(Trace(trace.source, tables), tmp_path, Settings(level="Level1"))
    rows = table(folder / rundir.OUTPUT_DIRECTORY / "api_statistic.csv")
    own = [{**row, "Level": row["Level"].replace("hccl", "communication")} for row in rows]
    again = {(row["Level"], row["API Name"]): row for row in table(tmp_path / rundir.OUTPUT_DIRECTORY / "api_statistic.csv")}
    assert_equal_cells(own, [again[row["Level"], row["API Name"]] for row in own], "-", "0.0011")
    assert len(again) == len(own)


@pytest.mark.parametrize("rank", [0, 1])
def test_communication(remade: Callable[..., tuple[Path, Path]], rank: int) -> None:
    own, again = remade("text_level1", rank)

    def load(folder: Path, name: str) -> Any:
        return json.loads((folder / name).read_bytes())

    def near(one: Any, other: Any) -> None:
        if isinstance(one, dict):
            # the totals of the recording lack their bandwidth, and starts count from another base
            assert set(one) == set(other) - ({"Bandwidth(GB/s)"} - set(one))
            for key in one:
                if key != "Start Timestamp(us)":
                    near(one[key], other[key])
        else:
            assert one == (pytest.approx(other, rel=1e-12) if isinstance(other, float) else other)

    near(load(own, "communication.json"), load(again, "communication.json"))
    near(load(own, "communication_matrix.json"), load(again, "communication_matrix.json"))


@pytest.mark.parametrize(
    ("sample", "rank", "expected"),
    [
        ("text_level0", 0, (8827.473, 81515.607, 85516.889, 25908.102, 116251.182, 19358.190)),
        ("text_level1", 0, (8873.756, 101963.203, 105991.878, 25744.050, 136581.009, 17902.502)),
        ("text_level1", 1, (8878.295, 96359.047, 100375.286, 26675.274, 131912.616, 20433.190)),
        ("db_level0", 0, (8843.91, 85881.122, 89880.576, 25900.158, 120625.19, 16681.808)),
        ("db_level2", 0, (8900.456, 90080.699, 94107.521, 25238.587, 124219.742, 17894.588)),
    ],
)
@pytest.mark.parametrize("export", [TEXT, DATABASE])
def test_step_times(
    remade: Callable[..., tuple[Path, Path]], sample: str, rank: int, expected: tuple[float, ...], export: str
) -> None:
    _, again = remade(sample, rank, export)
    if export == TEXT:
        (row,) = table(again / "step_trace_time.csv")
        columns = ("Computing", "Communication(Not Overlapped)", "Communication", "Free", "Stage", "Preparing")
        found = tuple(float(row[column]) for column in columns)
    else:
        connection = sqlite3.connect(again / "analysis.db")
        query = "SELECT computing, communication_not_overlapped, communication, free, stage, preparing FROM StepTraceTime"
        (found,) = connection.execute(query).fetchall()
        connection.close()
    assert found == expected


@pytest.mark.parametrize("name", ["CommAnalyzerTime", "CommAnalyzerBandwidth", "CommAnalyzerMatrix"])
def test_every_cell_about_communication_comes_back(remade: Callable[..., tuple[Path, Path]], name: str) -> None:
    found = []
    for folder in remade("db_level2", 0, DATABASE):
        connection = sqlite3.connect(f"file:{folder / 'analysis.db'}?mode=ro&immutable=1", uri=True)
        found.append(Counter(connection.execute(f"SELECT * FROM {name}")))
        connection.close()
    assert found[0] == found[1] and found[0]


#: tables of a recorded database whose rows come back exactly; columns that differ by design are left out
SAME_ROWS = {
    "TASK": "startNs, endNs, deviceId, connectionId, globalPid, contextId, streamId, taskId, modelId",
    "CANN_API": "startNs, endNs, type, globalTid, connectionId, name",
    "COMMUNICATION_OP": "opName, startNs, endNs, connectionId, groupName, dataType, algType, count",
    "STEP_TIME": "id, startNs, endNs",
    "MEMORY_RECORD": "component, timestamp, totalAllocated, totalReserved, totalActive, streamPtr, deviceId",
    "OP_MEMORY": "name, size, allocationTime, releaseTime, activeReleaseTime, duration, activeDuration, "
    "allocationTotalAllocated, releaseTotalReserved, releaseTotalActive, streamPtr, deviceId",
    "NPU_MEM": "type, ddr, hbm, timestampNs, deviceId",
    "NPU_MODULE_MEM": "moduleId, timestampNs, totalReserved, deviceId",
    "HBM": "deviceId, timestampNs, bandwidth, hbmId, type",
    "LLC": "deviceId, llcId, timestampNs, hitRate, throughput, mode",
    "ACC_PMU": "accId, readBwLevel, writeBwLevel, readOstLevel, writeOstLevel, timestampNs, deviceId",
    "SOC_BANDWIDTH_LEVEL": "l2BufferBwLevel, mataBwLevel, timestampNs, deviceId",
    "AICORE_FREQ": "deviceId, timestampNs, freq",
    "RANK_DEVICE_MAP": "rankId, deviceId",
    "SESSION_TIME_INFO": "startTimeNs, endTimeNs",
    "NPU_INFO": "id, name",
    "HOST_INFO": "hostUid, hostName",
}
TEXTS = {"name", "component", "opName", "groupName", "algType", "opType", "mode"}


@pytest.mark.parametrize("sample", ["db_level0", "db_level2"])
def test_a_database_made_again_has_the_same_rows(remade: Callable[..., tuple[Path, Path]], sample: str) -> None:
    own, again = remade(sample, export=DATABASE)
    counts = []
    for folder in (own, again):
        path = folder / "ascend_pytorch_profiler_0.db"
        connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
        texts = dict(connection.execute("SELECT id, value FROM STRING_IDS"))
        found: dict[str, Counter[tuple[Any, ...]]] = {}
        for name, columns in SAME_ROWS.items():
            is_text = [column in TEXTS or (column == "type" and name != "CANN_API") for column in columns.split(", ")]
            named = [text and name != "NPU_INFO" for text in is_text]
            rows = connection.execute(f"SELECT {columns} FROM {name}")
            found[name] = Counter(
                tuple(texts.get(value, value) if text else value for value, text in zip(row, named, strict=True)) for row in rows
            )
        # ids of tasks are numbered anew: what belongs to a task is compared with the task
        parts: dict[str, tuple[str, ...]] = {
            "COMPUTE_TASK_INFO": ("name", "inputFormats", "inputDataTypes", "inputShapes", "outputShapes"),
        }
        if sample != "db_level0":
            # Level0 says "N/A" of what the tasks themselves tell, and nothing of what a collective consists of
            parts["COMPUTE_TASK_INFO"] += ("taskType", "opType")
            parts["COMMUNICATION_TASK_INFO"] = ("name", "taskType", "groupName")
        for name, columns in parts.items():
            chosen = ", ".join(f"i.{column}" for column in columns)
            query = f"SELECT t.startNs, t.endNs, t.streamId, {chosen} FROM {name} i JOIN TASK t USING (globalTaskId)"
            rows = connection.execute(query)
            found[name] = Counter((*row[:3], *(texts[value] for value in row[3:])) for row in rows)
        calls = connection.execute("SELECT startNs, endNs, globalTid, name, sequenceNumber, fwdThreadId, type FROM PYTORCH_API")
        found["PYTORCH_API"] = Counter((int(row[0]), int(row[1]), row[2], texts[row[3]].split("@")[0], *row[4:]) for row in calls)
        connection.close()
        counts.append(found)
    for name in counts[0]:
        assert sum(counts[0][name].values()) > 0, name
        assert counts[0][name] == counts[1][name], name
