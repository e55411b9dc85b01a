"""CANN's tables: tasks, launches, collectives, metrics, counters, marks; generated files, and recorded ones against SQL."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.common.errors import InputError
from steplens.readers.ascend.database import cann_db
from steplens.readers.ascend.database.analysis_db import read_analysis
from steplens.trace.building.build import build_trace
from steplens.trace.health import HealthLog

from ..shared_data import shared
from .ascend_database import LAUNCHER, MAIN, OFF, PID, Database, golden, thread, when

Tables = dict[str, pl.DataFrame]


def read(database: Database, tmp_path: Path) -> tuple[Tables, HealthLog]:
    health = HealthLog()
    path = tmp_path / "msprof_20231115061320.db"
    path.unlink(missing_ok=True)
    return cann_db.read_cann(database.write(path), health), health


def checks(health: HealthLog) -> dict[str, int]:
    return {finding.check: finding.count for finding in health.findings}


def rows(frame: pl.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Rows with times in µs after OFF and names as text."""
    return frame.select(
        ((pl.col(column) - OFF) / 1000 if column.endswith("_ns") and column != "wait_ns" else pl.col(column)).alias(column)
        for column in columns
    ).rows()


# --- launches -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first_text", [0, 1])
def test_the_node_launch_comes_first(tmp_path: Path, first_text: int) -> None:
    database = Database(first_text=first_text)
    database.text("launch")
    # a connection has one row in CANN's own files; others may repeat it
    for number, (kind, name, start, tid) in enumerate(
        (
            ("runtime", "KernelLaunch", 1, 11),
            ("acl", "aclnnMm", 2, 12),
            ("node", "hcom", 3, 13),
            ("node", "launch", 4, 14),
            ("node", "launch", 5, 15),
        )
    ):
        database.call(kind, name, start, start + 0.5, 7, tid)
        database.call(kind, name, start + 10, start + 10.5, 100 + number, tid)
    database.kernel(7, 20, 25, "MatMul")
    for number in range(5):
        database.task(100 + number, 30 + number, 30.5 + number, "EVENT_RECORD")
    database.task(200, 40, 41, "EVENT_RECORD")
    tables, _ = read(database, tmp_path)
    found = {correlation: rest for correlation, *rest in rows(tables["kernels"], "correlation", "launch_ns", "launch_tid")}
    assert found[7] == [4, 14]
    # whatever launched a task without a node launch: the only call with its connection
    assert [found[100 + number] for number in range(5)] == [[11 + number, 11 + number] for number in range(5)]
    assert found[200] == [None, None]
    assert set(tables["kernels"]["launch_pid"].drop_nulls()) == {PID}


def test_api_layers(tmp_path: Path) -> None:
    database = Database()
    database.enums["ENUM_API_TYPE"] = {20000: "acl", 5500: "hccl", 10000: "node"}
    for index, kind in enumerate(("acl", "communication", "node", "model", "runtime")):
        database.call(kind, f"call{index}", index, index + 0.25, index)
    database.add("OSRT_API", name="pthread_create", globalTid=thread(MAIN), startNs=when(9), endNs=when(9.5))
    tables, health = read(database, tmp_path)
    assert rows(tables["api"], "name", "layer", "start_ns", "end_ns", "pid", "tid", "correlation") == [
        ("call0", "acl", 0, 0.25, PID, LAUNCHER, 0),
        ("call1", "communication", 1, 1.25, PID, LAUNCHER, 1),
        ("call2", "node", 2, 2.25, PID, LAUNCHER, 2),
        ("call3", "model", 3, 3.25, PID, LAUNCHER, 3),
        ("call4", "runtime", 4, 4.25, PID, LAUNCHER, 4),
        ("pthread_create", "os_runtime", 9, 9.5, PID, MAIN, None),
    ]
    # two numbers were named as in the current layout
    assert checks(health)["missing_enums"] == 1


# --- tasks ----------------------------------------------------------------------------------------------------------------


def test_kinds_of_tasks(tmp_path: Path) -> None:
    database = Database()
    database.kernel(1, 0, 5, "MatMul", taskType="AI_CORE", opState="static", hf32Eligible="NO", blockNum=24, mixBlockNum=48)
    # the parent of a task that runs in parts
    database.task(2, 0, 5.5, "KERNEL_AICORE", connectionId=1)
    database.task(3, 6, 7, "MEMCPY_ASYNC")
    database.add("MEMCPY_INFO", globalTaskId=3, size=4096, memcpyOperation=1)
    database.task(4, 8, 9, "SDMA")
    database.task(5, 10, 11, "EVENT_WAIT")
    # Level0: the database has names and hardware types, and no more
    database.kernel(6, 12, 13, "Relu", taskType="N/A", opType="N/A", inputShapes="N/A")
    database.task(7, 14, 15, "AI_CPU")
    database.add("COMMUNICATION_SCHEDULE_TASK_INFO", name="hcomAicpuKernel", globalTaskId=7, taskType="AI_CPU", opType="hcom_x")
    database.kernel(8, 16, 17, "AllGatherAivKernel")
    database.kernel(9, 18, 19, "hcom_broadcast_", taskType="HCCL")
    database.kernel(11, 22, 23, "hcom_broadcast_", taskType="COMMUNICATION")
    database.kernel(12, 24, 25, "allgather", taskType="HCCL_AI_CPU")
    database.task(10, 20, 21, "SOMETHING", contextId=3, modelId=8, streamId=9, deviceId=1)
    tables, health = read(database, tmp_path)
    columns = ("start_ns", "name", "kind", "type", "core")
    assert sorted(rows(tables["kernels"], *columns)) == [
        (0, "KERNEL_AICORE", "other", "KERNEL_AICORE", "KERNEL_AICORE"),
        (0, "MatMul", "compute", "MatMul", "AI_CORE"),
        (6, "MEMCPY_ASYNC", "copy", "host to device", "MEMCPY_ASYNC"),
        (8, "SDMA", "copy", "SDMA", "SDMA"),
        (10, "EVENT_WAIT", "other", "EVENT_WAIT", "EVENT_WAIT"),
        (12, "Relu", "compute", None, "KERNEL_AICORE"),
        (14, "hcomAicpuKernel", "other", "hcom_x", "AI_CPU"),
        (16, "AllGatherAivKernel", "other", "AllGatherAivKernel", "AI_CORE"),
        (18, "hcom_broadcast_", "other", "hcom_broadcast_", "HCCL"),
        (20, "SOMETHING", "other", "SOMETHING", "SOMETHING"),
        (22, "hcom_broadcast_", "other", "hcom_broadcast_", "COMMUNICATION"),
        (24, "allgather", "other", "allgather", "HCCL_AI_CPU"),
    ]
    by_start = {
        row[0]: row[1:] for row in rows(tables["kernels"], "start_ns", "bytes", "context_id", "model_id", "stream", "device")
    }
    assert by_start[6] == (4096, None, 4294967295, 2, 0)
    assert by_start[20] == (None, 3, 8, 9, 1)
    kernel = tables["kernels"].filter(pl.col("name") == "MatMul").row(0, named=True)
    assert (kernel["state"], kernel["hf32"], kernel["blocks"], kernel["mix_blocks"]) == ("static", "NO", 24, 48)
    level0 = tables["kernels"].filter(pl.col("name") == "Relu").row(0, named=True)
    assert (level0["input_shapes"], level0["state"], level0["blocks"]) == (None, None, None)
    # in order of device, stream and start, and numbered so
    assert tables["kernels"]["id"].to_list() == list(range(12))
    order = tables["kernels"].select("device", "stream", "start_ns").rows()
    assert order == sorted(order)
    assert "damaged_values" not in checks(health)


def test_wait_times_equal_a_walk(tmp_path: Path) -> None:
    generator = random.Random(5)
    database = Database()
    tasks = []
    time = 0.0
    for number in range(300):
        time += generator.choice([0.5, 1, 3])
        start, device = time, generator.randrange(2)
        end = start + generator.choice([0.25, 2, 5])
        more: dict[str, Any] = {"deviceId": device, "streamId": generator.randrange(3)}
        if generator.random() < 0.6:
            database.kernel(number, start, end, f"k{number}", **more)
            tasks.append((start, end, device, f"k{number}"))
        elif generator.random() < 0.5:
            name = f"hcom_allReduce__1_{number}_1"
            database.add(
                "COMMUNICATION_OP",
                opName=name, startNs=when(start), endNs=when(end), connectionId=number, opId=number, deviceId=device, count=1,
            )  # fmt: skip
            tasks.append((start, end, device, name))
        else:
            database.task(number, start, end, "EVENT_WAIT", **more)
    expected = {}
    before: dict[int, float] = {}
    for start, end, device, name in tasks:
        expected[name] = round(max(start - before.get(device, start), 0) * 1000)
        before[device] = end
    tables, _ = read(database, tmp_path)
    assert dict(rows(tables["kernels"].drop_nulls("wait_ns"), "name", "wait_ns")) == expected


def test_damaged_tasks(tmp_path: Path) -> None:
    database = Database()
    database.kernel(1, 10, 12, "good")
    database.task(2, 10, 9, "backwards")
    database.task(3, 1, 2, "no end", endNs=None)
    database.task(4, 1, 2, "before 1970", startNs=-5)
    database.task(5, 1, 2, "far", endNs=2**63 - 1)
    database.task(1, 20, 21, "same id")
    tables, health = read(database, tmp_path)
    assert rows(tables["kernels"], "name", "start_ns", "end_ns") == [("good", 10, 12), ("backwards", 10, 10), ("good", 20, 21)]
    found = checks(health)
    assert (found["impossible_times"], found["negative_duration"], found["repeated_task_ids"]) == (3, 1, 2)


def test_metrics_in_the_order_of_the_source(tmp_path: Path) -> None:
    database = Database()
    database.kernel(7, 10, 12, "a")
    database.kernel(3, 5, 6, "b")
    for name in ("aic_total_time", "aic_mac_ratio"):
        for number in (7, 3, 99):
            database.add("TASK_PMU_INFO", globalTaskId=number, name=name, value=number / 8)
    database.add("TASK_PMU_INFO", globalTaskId=7, name="aic_total_cycles", value=None)
    tables, _ = read(database, tmp_path)
    ids = dict(tables["kernels"].select("name", "id").rows())
    assert tables["kernel_metrics"].select("kernel", "name", "value").rows() == [
        (ids["a"], "aic_total_time", 0.875), (ids["b"], "aic_total_time", 0.375),
        (ids["a"], "aic_mac_ratio", 0.875), (ids["b"], "aic_mac_ratio", 0.375),
    ]  # fmt: skip


# --- collectives ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "op_type", "kind", "operation", "task_type"),
    [
        ("hcom_allReduce__586_0_1", "hcom_allReduce_", "collective", "allreduce", "hcom_allReduce_"),
        ("hcom_allReduce__586_0_1", "N/A", "collective", "allreduce", "hcom_allReduce_"),
        ("hcom_reduceScatter__5_0_1", "N/A", "collective", "reducescatter", "hcom_reduceScatter_"),
        ("hcom_alltoallvc__5_0_1", "N/A", "collective", "alltoallvc", "hcom_alltoallvc_"),
        ("HCOM_Receive__5_0_1", "N/A", "receive", "receive", "HCOM_Receive_"),
        ("hcom_send__5_0_1", "hcom_send_", "send", "send", "hcom_send_"),
        ("hcom_batchSendRecv__5_0_1", "N/A", "collective", "batchsendrecv", "hcom_batchSendRecv_"),
        ("custom", "N/A", "collective", None, None),
    ],
)
def test_kinds_of_collectives(
    tmp_path: Path, name: str, op_type: str, kind: str, operation: str | None, task_type: str | None
) -> None:
    database = Database()
    database.kernel(1, 0, 1, "k")
    database.add("COMMUNICATION_OP", opName=name, opType=op_type, startNs=when(2), endNs=when(3), connectionId=2, opId=1)
    tables, _ = read(database, tmp_path)
    assert rows(tables["communication"], "name", "kind", "operation") == [(name, kind, operation)]
    tasks = tables["kernels"].filter(pl.col("kind") == "communication")
    assert rows(tasks, "name", "type", "core", "start_ns", "end_ns") == [(name, task_type, "HCCL", 2, 3)]


@pytest.mark.parametrize(
    ("number", "dtype", "size"), [(0, "INT8", 1), (3, "FP16", 2), (4, "FP32", 4), (11, "BFP16", 2), (10, "FP64", 8)]
)
def test_sizes_of_collectives(tmp_path: Path, number: int, dtype: str, size: int) -> None:
    database = Database()
    database.add(
        "COMMUNICATION_OP", opName="hcom_x", startNs=when(2), endNs=when(3), connectionId=2, opId=1, dataType=number, count=10
    )
    tables, _ = read(database, tmp_path)
    assert rows(tables["communication"], "dtype", "elements", "bytes") == [(dtype, 10, 10 * size)]


@pytest.mark.parametrize("number", [65534, 4711])
def test_unknown_sizes_stay_unknown(tmp_path: Path, number: int) -> None:
    database = Database()
    database.add(
        "COMMUNICATION_OP", opName="hcom_x", startNs=when(2), endNs=when(3), connectionId=2, opId=1, dataType=number, count=10
    )
    tables, health = read(database, tmp_path)
    assert rows(tables["communication"], "dtype", "bytes") == [(None if number == 65534 else "4711", None)]
    assert ("unknown_enum_values" in checks(health)) == (number == 4711)


def test_device_and_stream_of_older_collectives(tmp_path: Path) -> None:
    database = Database(old=True)
    for number, (device, stream) in enumerate(((4, 6), (5, 7))):
        name = f"hcom_allGather__{number}"
        database.add("COMMUNICATION_OP", opName=name, startNs=when(1), endNs=when(9), connectionId=50 + number, opId=number)
        for part, at in enumerate((3, 2)):
            kind = {"connectionId": 50 + number, "deviceId": device, "streamId": stream + part}
            database.task(10 * number + part, at, at + 0.5, "Notify Wait", **kind)
    tables, _ = read(database, tmp_path)
    assert rows(tables["communication"], "name", "device", "stream") == [("hcom_allGather__0", 4, 7), ("hcom_allGather__1", 5, 8)]


@pytest.mark.parametrize("core", ["CPU", "CUDA"])
def test_runs_without_an_npu(tmp_path: Path, core: str) -> None:
    """What steplens writes of such runs: collectives are tasks like others on a GPU and no tasks on a CPU."""
    database = Database()
    database.kernel(1, 0, 5, "aten::mm", taskType=core, streamId=MAIN)
    name = "gloo:all_reduce" if core == "CPU" else "ncclKernel_AllReduce"
    if core == "CUDA":
        database.kernel(2, 6, 8, name, taskType=core)
    database.add("COMMUNICATION_OP", opName=name, startNs=when(6), endNs=when(8), connectionId=2, opId=1, deviceId=0)
    tables, _ = read(database, tmp_path)
    found = rows(tables["kernels"], "name", "kind", "core")
    assert sorted(found) == sorted([("aten::mm", "compute", core), *([] if core == "CPU" else [(name, "communication", core)])])
    assert rows(tables["communication"], "name", "start_ns") == [(name, 6)]
    # waiting on a GPU is since the launch, and not CANN's
    assert "wait_ns" not in tables["kernels"].columns


def test_details_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database()
    for number in range(20):
        database.task(number, number, number + 0.5, "SDMA")
        database.add(
            "COMMUNICATION_TASK_INFO", name="hcom", globalTaskId=number, taskType="Memcpy" if number < 15 else "N/A", size=8
        )
    monkeypatch.setattr(cann_db, "_DETAIL_LIMIT", 10)
    tables, health = read(database, tmp_path)
    assert tables["source_tables"].height == 10
    assert checks(health)["details_left_out"] == 5
    assert tables["kernels"]["bytes"].to_list() == [8] * 20


# --- marks, counters, memory ----------------------------------------------------------------------------------------------


def test_marks(tmp_path: Path) -> None:
    database = Database()
    database.task(5, 30, 31, "EVENT_RECORD", streamId=12)
    mark = {"globalTid": thread(MAIN), "endGlobalTid": thread(MAIN), "domainId": "train", "category": 4294967295}
    for kind, message, start, end, connection in ((0, "here", 1, 1, 4_000_000_000), (1, "range", 2, 6, 5), (2, "other", 3, 4, 9)):
        database.add(
            "MSTX_EVENTS", eventType=kind, message=message, startNs=when(start), endNs=when(end), connectionId=connection, **mark
        )
    tables, _ = read(database, tmp_path)
    assert tables["marks"]["kind"].to_list() == ["marker", "push/pop", "start/end"]
    assert rows(tables["marks"], "domain", "message", "start_ns", "end_ns", "pid", "tid", "stream", "correlation") == [
        ("train", "here", 1, 1, PID, MAIN, None, None),
        ("train", "range", 2, 6, PID, MAIN, 12, 5),
        ("train", "other", 3, 4, PID, MAIN, None, 9),
    ]


def test_counters(tmp_path: Path) -> None:
    database = Database()
    mib = 1 << 20
    at = {"timestampNs": when(1), "deviceId": 3}
    database.add("HBM", **at, bandwidth=3 * mib, hbmId=1, type="read")
    database.add("HBM", **at, bandwidth=mib // 2, hbmId=1, type="write")
    database.add("DDR", **at, read=mib, write=None)
    database.add("LLC", **at, llcId=0, hitRate=89.1, throughput=2 * mib, mode="read")
    database.add("NPU_MODULE_MEM", **at, moduleId=33, totalReserved=5000)
    database.add("NPU_MODULE_MEM", **at, moduleId=76, totalReserved=1)
    database.add("AICORE_FREQ", **at, freq=1800)
    database.add("ACC_PMU", **at, accId=9, readBwLevel=1, writeBwLevel=2, readOstLevel=3, writeOstLevel=4)
    database.add("SOC_BANDWIDTH_LEVEL", **at, l2BufferBwLevel=5, mataBwLevel=6)
    database.add("NIC", **at, bandwidth=7, rxPacketRate=8, rxBytes=9, funcId=2)
    # the number of a CPU is also the id of a text, and does not mean it
    database.add("CPU_USAGE", timestampNs=when(2), cpuId=1, usage=25)
    database.add("HOST_MEM_USAGE", timestampNs=when(2), usage=50)
    database.add("HOST_MEM_USAGE", timestampNs=-7, usage=50)
    tables, health = read(database, tmp_path)
    found = {
        (group, name): rest
        for group, name, *rest in rows(tables["counters"], "group", "name", "unit", "value", "device", "time_ns")
    }
    assert found == {
        ("HBM", "HBM 1/Read"): ["MB/s", 3, 3, 1],
        ("HBM", "HBM 1/Write"): ["MB/s", 0.5, 3, 1],
        ("DDR", "DDR/Read"): ["MB/s", 1, 3, 1],
        ("LLC", "LLC 0 Read/Throughput"): ["MB/s", 2, 3, 1],
        ("LLC", "LLC 0 Read/Hit Rate"): ["%", 89.1, 3, 1],
        ("npu_module_mem", "APP"): ["B", 5000, 3, 1],
        ("npu_module_mem", "76"): ["B", 1, 3, 1],
        ("AI Core Freq", "AI Core Freq"): ["MHz", 1800, 3, 1],
        ("Acc PMU", "read_bandwidth 9"): [None, 1, 3, 1],
        ("Acc PMU", "write_band_width 9"): [None, 2, 3, 1],
        ("Acc PMU", "read_ost 9"): [None, 3, 3, 1],
        ("Acc PMU", "write_ost 9"): [None, 4, 3, 1],
        ("Stars Soc Info", "L2 Buffer Bw Level"): [None, 5, 3, 1],
        ("Stars Soc Info", "Mata Bw Level"): [None, 6, 3, 1],
        ("NIC", "Port 2/bandwidth"): [None, 7, 3, 1],
        ("NIC", "Port 2/rxPacketRate"): [None, 8, 3, 1],
        ("NIC", "Port 2/rxBytes"): [None, 9, 3, 1],
        ("CPU Usage", "CPU 1"): ["%", 25, None, 2],
        ("Memory Usage", "Memory Usage"): ["%", 50, None, 2],
    }
    assert checks(health)["impossible_times"] == 1
    assert checks(health)["unknown_enum_values"] == 1


def test_allocations_equal_a_walk(tmp_path: Path) -> None:
    generator = random.Random(8)
    database = Database()
    expected, open_ = [], {}
    for step in range(400):
        address, device = generator.randrange(6), generator.randrange(2)
        key = (f"Op{address % 3}", address, device)
        event = {"operatorName": key[0], "addr": address, "globalTid": thread(LAUNCHER), "component": "GE", "deviceId": device}
        totals = {"totalAllocate": step * 10, "totalReserve": step * 20}
        if key in open_ and generator.random() < 0.8:
            row = open_.pop(key)
            row[3:] = [float(step), step * 10, step * 20]
            database.add("NPU_OP_MEM", **event, **totals, type="release", size=64 * (address + 1), timestampNs=when(step))
        else:
            row = [f"cann::{key[0]}", 64 * (address + 1), float(step), None, None, None]
            expected.append(row)
            open_[key] = row
            database.add("NPU_OP_MEM", **event, **totals, type="allocate", size=64 * (address + 1), timestampNs=when(step))
    generator.shuffle(database.rows["NPU_OP_MEM"])
    tables, _ = read(database, tmp_path)
    columns = ("name", "bytes", "allocation_ns", "release_ns", "release_allocated", "release_reserved")
    assert rows(tables["allocations"], *columns) == [tuple(row) for row in expected]
    memory = tables["memory"].sort("time_ns")
    assert memory.height == 400
    assert (memory["bytes"] > 0).to_list() == (memory["event"] == "allocate").to_list()


# --- whole files ----------------------------------------------------------------------------------------------------------


def test_the_device_alone(tmp_path: Path) -> None:
    database = golden()
    path = database.write(tmp_path / "msprof_1.db")
    health = HealthLog()
    trace = build_trace(path, cann_db.read_cann(path, health), health, cpu_is_device=False)
    assert trace.ops is None
    assert trace.kernels.height == 5
    assert trace.has_accelerator
    assert trace.meta_values()["chip"] == "Ascend910B"
    (message,) = trace.health.filter(pl.col("check") == "tables_not_read")["message"]
    assert "PYTORCH_API" in message


def test_files_without_cann(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE people (name TEXT)")
    with pytest.raises(InputError, match="none of CANN's tables"):
        cann_db.read_cann(path, HealthLog())


def test_analysis_of_communication_without_steps(tmp_path: Path) -> None:
    """CANN's own communication_analyzer.db: no steps, no kinds, µs as text."""
    path = tmp_path / "communication_analyzer.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TABLE CommAnalyzerTime (hccl_op_name TEXT, group_name TEXT, start_timestamp TEXT, elapse_time NUMERIC, "
            "transit_time NUMERIC, wait_time NUMERIC, synchronization_time NUMERIC, idle_time NUMERIC)"
        )
        times = [
            ("hcom_allReduce__123_0_1", "g0", "1700000000000022.125", 2.0, 0.5, 0.25, 0.25, 0.1),
            ("hcom_receive__123_0_1", "g1", "1700000000000024.0", 1.0, 0.25, 0.75, 0, 0),
            ("Total Op Info", "g0", "0", 1, 1, 1, 1, 1),
        ]
        connection.executemany("INSERT INTO CommAnalyzerTime VALUES (?, ?, ?, ?, ?, ?, ?, ?)", times)
        connection.execute(
            "CREATE TABLE CommAnalyzerMatrix (hccl_op_name TEXT, group_name TEXT, src_rank TEXT, dst_rank TEXT, "
            "transport_type TEXT, transit_size NUMERIC, transit_time NUMERIC, bandwidth NUMERIC)"
        )
        links = [
            ("hcom_allReduce__123_0_1", "g0", "0", "1", "HCCS", 4, 0.5, 8),
            ("hcom_allReduce__123_0_1", "g0", "x", "1", "", 4, 0, 8),
        ]
        connection.executemany("INSERT INTO CommAnalyzerMatrix VALUES (?, ?, ?, ?, ?, ?, ?, ?)", links)
    tables = read_analysis(path, HealthLog())
    columns = ("name", "kind", "step", "start_ns", "elapse_ms", "wait_ms", "idle_ms")
    assert rows(tables["communication_times"], *columns) == [
        ("hcom_allReduce__123_0_1", "collective", None, 22.125, 2.0, 0.25, 0.1),
        ("hcom_receive__123_0_1", "p2p", None, 24, 1.0, 0.75, 0),
    ]
    columns = ("name", "selection", "op_name", "source", "destination", "size_mb")
    assert rows(tables["communication_matrix"], *columns) == [
        ("hcom_allReduce__123_0_1", None, None, 0, 1, 4), ("hcom_allReduce__123_0_1", None, None, None, 1, 4),
    ]  # fmt: skip
    assert set(tables) == {"communication_times", "communication_matrix"}


# --- recorded captures ----------------------------------------------------------------------------------------------------


class Capture:
    """The device half of a recorded capture, and plain SQL on it."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self.health = HealthLog()
        self.tables = cann_db.read_cann(path, self.health)

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(f"file:{self.path}?mode=ro&immutable=1", uri=True)) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture(params=["db_level0", "db_level2"], scope="module")
def capture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Capture:
    capture = shared("ascend_pytorch", request.param, "rank0_ascend_pt")
    source = capture / "ASCEND_PROFILER_OUTPUT" / "ascend_pytorch_profiler_0.db"
    path = tmp_path_factory.mktemp(request.param) / "msprof_1.db"
    shutil.copy(source, path)
    before = (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns, os.listdir(path.parent))
    found = Capture(request.param, path)
    assert (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns, os.listdir(path.parent)) == before
    return found


def _no_quotes(text: str | None) -> str | None:
    return None if text in (None, "N/A") else text.strip('"')


def test_recorded_tasks(capture: Capture) -> None:
    kernels = capture.tables["kernels"]
    columns = ("start_ns", "end_ns", "device", "stream", "correlation", "task_id", "model_id")
    tasks = kernels.filter(pl.col("kind") != "communication")
    stored = capture.sql("SELECT startNs, endNs, deviceId, streamId, connectionId, taskId, modelId FROM TASK")
    assert Counter(tasks.select(columns).rows()) == Counter(stored)
    texts = ("opType", "inputShapes", "inputDataTypes", "inputFormats", "outputShapes", "outputDataTypes", "outputFormats")
    joins = "".join(f" LEFT JOIN STRING_IDS s{index} ON s{index}.id = c.{name}" for index, name in enumerate(("name", *texts)))
    values = ", ".join(f"s{index}.value" for index in range(len(texts) + 1))
    compute = capture.sql(
        f"SELECT t.startNs, t.endNs, c.blockDim, c.mixBlockDim, {values} FROM COMPUTE_TASK_INFO c "
        f"JOIN TASK t ON t.globalTaskId = c.globalTaskId{joins}"
    )
    columns = (
        "start_ns", "end_ns", "blocks", "mix_blocks", "name", "type", "input_shapes", "input_types", "input_formats",
        "output_shapes", "output_types", "output_formats",
    )  # fmt: skip
    found = tasks.filter(pl.col("kind") == "compute").select(columns).rows()
    assert Counter(found) == Counter((*row[:5], *map(_no_quotes, row[5:])) for row in compute)
    assert len(found) == 187
    core = "IFNULL(NULLIF(u.value, 'N/A'), k.value)"
    cores = capture.sql(
        f"SELECT {core}, COUNT(*) FROM COMPUTE_TASK_INFO c JOIN TASK t ON t.globalTaskId = c.globalTaskId "
        "JOIN STRING_IDS u ON u.id = c.taskType JOIN STRING_IDS k ON k.id = t.taskType GROUP BY 1"
    )
    assert Counter(tasks.filter(pl.col("kind") == "compute")["core"].cast(pl.String)) == Counter(dict(cores))
    assert kernels.filter(pl.col("kind") == "copy").height == 24


def test_recorded_launches(capture: Capture) -> None:
    launches = {
        connection: (start, tid)
        for connection, start, tid in capture.sql("SELECT connectionId, startNs, globalTid FROM CANN_API")
    }
    for table in ("kernels", "communication"):
        columns = ("correlation", "launch_ns", "launch_pid", "launch_tid")
        for connection, launch, pid, tid in capture.tables[table].select(columns).rows():
            expected = launches.get(connection)
            assert (None if launch is None else (launch, pid << 32 | tid)) == expected
    api = capture.tables["api"]
    assert api.height == len(launches)
    layers = capture.sql("SELECT e.name, COUNT(*) FROM CANN_API a JOIN ENUM_API_TYPE e ON e.id = a.type GROUP BY 1")
    assert Counter(api["layer"].cast(pl.String)) == {("communication" if name == "hccl" else name): n for name, n in layers}


def test_recorded_collectives(capture: Capture) -> None:
    stored = capture.sql(
        "SELECT n.value, c.startNs, c.endNs, c.connectionId, g.value, e.name, a.value, c.count FROM COMMUNICATION_OP c "
        "JOIN STRING_IDS n ON n.id = c.opName JOIN STRING_IDS g ON g.id = c.groupName JOIN STRING_IDS a ON a.id = c.algType "
        "JOIN ENUM_HCCL_DATA_TYPE e ON e.id = c.dataType"
    )
    columns = ("name", "start_ns", "end_ns", "correlation", "group", "dtype", "algorithm", "elements")
    found = capture.tables["communication"]
    assert found.select(columns).rows() == stored
    assert found["bytes"].to_list() == [4 * row[7] for row in stored]
    assert found.select("kind", "operation", "device", "stream").unique().rows() == [("collective", "allreduce", 0, 4)]
    tasks = capture.tables["kernels"].filter(pl.col("kind") == "communication")
    assert tasks.select("name", "start_ns", "end_ns", "correlation").rows() == [row[:4] for row in stored]


def test_recorded_details(capture: Capture) -> None:
    stored = capture.sql(
        "SELECT t.startNs, t.streamId, i.planeId, i.size, i.srcRank, i.dstRank, x.name, d.name, l.name, r.name, s.value "
        "FROM COMMUNICATION_TASK_INFO i JOIN TASK t ON t.globalTaskId = i.globalTaskId "
        "JOIN ENUM_HCCL_TRANSPORT_TYPE x ON x.id = i.transportType JOIN ENUM_HCCL_DATA_TYPE d ON d.id = i.dataType "
        "JOIN ENUM_HCCL_LINK_TYPE l ON l.id = i.linkType JOIN ENUM_HCCL_RDMA_TYPE r ON r.id = i.rdmaType "
        "JOIN STRING_IDS s ON s.id = i.taskType"
    )
    assert len(stored) == 296
    if capture.name == "db_level0":
        assert "source_tables" not in capture.tables
        return
    records = capture.tables["source_tables"]["record"].str.json_decode(
        pl.Struct(dict.fromkeys(_DETAILS, pl.String))
    ).struct.unnest()  # fmt: skip
    kernels = capture.tables["kernels"]
    rows_ = kernels[records["kernel"].cast(pl.Int64).to_list()]
    numbers = records.select(pl.col("planeId", "size", "srcRank", "dstRank").cast(pl.Int64))
    texts = records.select("transportType", "dataType", "linkType", "rdmaType", "taskType")
    found = pl.concat([rows_.select("start_ns", "stream"), numbers, texts], how="horizontal").rows()
    # what the file calls not available is nothing here only where it is a text
    assert Counter(found) == Counter(stored)


_DETAILS = (
    "kernel", "planeId", "size", "srcRank", "dstRank", "transportType", "dataType", "linkType", "rdmaType", "taskType",
)  # fmt: skip


def test_recorded_metrics(capture: Capture) -> None:
    if capture.name == "db_level0":
        assert "kernel_metrics" not in capture.tables
        return
    stored = capture.sql(
        "SELECT t.startNs, t.streamId, s.value, p.value FROM TASK_PMU_INFO p JOIN TASK t ON t.globalTaskId = p.globalTaskId "
        "JOIN STRING_IDS s ON s.id = p.name ORDER BY p.rowid"
    )
    metrics = capture.tables["kernel_metrics"].join(
        capture.tables["kernels"].select(kernel="id", start="start_ns", stream="stream"), on="kernel", maintain_order="left"
    )
    assert metrics.select("start", "stream", pl.col("name").cast(pl.String), "value").rows() == stored
    assert len(stored) == 5180
    first = capture.sql("SELECT globalTaskId FROM TASK_PMU_INFO WHERE globalTaskId = 5 LIMIT 1")
    assert first == [(5,)]
    start = capture.sql("SELECT startNs FROM TASK WHERE globalTaskId = 5")[0][0]
    values = dict(metrics.filter(pl.col("start") == start).select(pl.col("name").cast(pl.String), "value").rows())
    assert values["aic_total_time"] == 310660.7638888889
    assert values["aic_mac_ratio"] == 0.5225084748793734


def test_recorded_counters(capture: Capture) -> None:
    counters = capture.tables["counters"]
    groups = dict(counters.group_by("group").agg(pl.len()).with_columns(pl.col("group").cast(pl.String)).rows())
    counts = {table: capture.sql(f"SELECT COUNT(*) FROM {table}")[0][0] for table in _COUNTED}
    assert groups == {
        "HBM": counts["HBM"],
        "LLC": 2 * counts["LLC"],
        "NPU MEM": 2 * counts["NPU_MEM"],
        "npu_module_mem": counts["NPU_MODULE_MEM"],
        "AI Core Freq": counts["AICORE_FREQ"],
        "Acc PMU": 4 * counts["ACC_PMU"],
        "Stars Soc Info": 2 * counts["SOC_BANDWIDTH_LEVEL"],
    }
    hbm = capture.sql("SELECT timestampNs, bandwidth, hbmId, s.value FROM HBM JOIN STRING_IDS s ON s.id = type")
    expected = Counter((time, f"HBM {number}/{kind.title()}", bandwidth) for time, bandwidth, number, kind in hbm)
    samples = counters.filter(pl.col("group") == "HBM").select("time_ns", pl.col("name").cast(pl.String), pl.col("value") * 2**20)
    assert Counter(samples.rows()) == expected
    modules = capture.sql("SELECT timestampNs, e.name, totalReserved FROM NPU_MODULE_MEM JOIN ENUM_MODULE e ON e.id = moduleId")
    samples = counters.filter(pl.col("group") == "npu_module_mem").select("time_ns", pl.col("name").cast(pl.String), "value")
    assert samples.rows() == modules
    hits = capture.sql("SELECT hitRate FROM LLC")
    assert counters.filter(pl.col("name").cast(pl.String).str.contains("Hit Rate"))["value"].to_list() == [row[0] for row in hits]


_COUNTED = ("HBM", "LLC", "NPU_MEM", "NPU_MODULE_MEM", "AICORE_FREQ", "ACC_PMU", "SOC_BANDWIDTH_LEVEL")


def test_recorded_memory(capture: Capture) -> None:
    events = capture.tables["memory"].filter(pl.col("component") == "GE")
    stored = capture.sql(
        "SELECT o.value, m.addr, CASE t.value WHEN 'release' THEN -m.size ELSE m.size END, m.timestampNs, m.totalAllocate, "
        "m.totalReserve, m.globalTid FROM NPU_OP_MEM m JOIN STRING_IDS o ON o.id = m.operatorName "
        "JOIN STRING_IDS t ON t.id = m.type"
    )
    thread_ = (pl.col("pid") * 2**32 + pl.col("tid")).alias("thread")
    found = events.select("name", "address", "bytes", "time_ns", "allocated", "reserved", thread_).rows()
    assert found == stored
    # what the framework has made of the same events
    pairs = capture.sql(
        "SELECT 'cann::' || s.value, size, allocationTime, releaseTime, releaseTotalAllocated FROM OP_MEMORY "
        "JOIN STRING_IDS s ON s.id = name WHERE streamPtr IS NULL ORDER BY OP_MEMORY.rowid"
    )
    allocations = capture.tables["allocations"]
    columns = ("name", "bytes", "allocation_ns", "release_ns", "release_allocated")
    assert Counter(allocations.select(columns).rows()) == Counter(pairs)
    assert allocations["allocation_ns"].is_sorted()
    assert len(pairs) == 57
