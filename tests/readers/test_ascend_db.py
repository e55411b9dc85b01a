"""Profiler databases: the golden run in both layouts, what is missing or damaged, and recorded captures against plain SQL."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import time
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.analysis.steps.ascend_step_times import ascend_step_times
from steplens.common.errors import InputError
from steplens.formats.ascend_database import FRAMEWORK_TABLES
from steplens.readers.ascend.database import ascend_db, database_captures, database_files
from steplens.readers.contents import contents_of
from steplens.trace.health import HealthLog
from steplens.trace.schema import SCHEMA, SCOPE_BACKWARD, SCOPE_FUNCTION, SCOPE_USER
from steplens.trace.trace import Trace
from steplens.writers.common.output import Output, time_base_ns
from steplens.writers.database import database as database_writer

from ..shared_data import shared
from . import ascend_database as builder
from .ascend_database import BACKWARD, LAUNCHER, MAIN, OFF, PID, Database, golden, thread, when

NAME = "ascend_pytorch_profiler_0.db"


def run_directory(tmp_path: Path, database: Database | None, *, name: str = NAME, info: dict[str, Any] | None = None) -> Path:
    run = tmp_path / "host_1000_20231115061320000_ascend_pt"
    output = run / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True, exist_ok=True)
    if database is not None:
        database.write(output / name)
    if info is not None:
        (run / "profiler_info_0.json").write_text(json.dumps(info))
    return run


def open_run(run: Path) -> Trace:
    return ascend_db.read_trace(run / "ASCEND_PROFILER_OUTPUT", run)


def checks(trace: Trace) -> dict[str, int]:
    health = trace.required("health").collect()
    return dict(zip(health["check"], health["count"], strict=True))


def rows(frame: pl.DataFrame | None, *columns: str) -> list[tuple[Any, ...]]:
    """Rows with times in µs after OFF and names as text."""
    assert frame is not None
    return frame.select(
        ((pl.col(column) - OFF) / 1000 if column.endswith("_ns") else pl.col(column)).alias(column) for column in columns
    ).rows()


def text(frame: pl.DataFrame, *columns: str) -> list[tuple[str | None, ...]]:
    return frame.select(pl.col(columns).cast(pl.String)).rows()


# --- the golden run -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["new", "old", "texts from 0"])
def golden_trace(request: pytest.FixtureRequest, tmp_path: Path) -> Trace:
    # with ids from 0 the first text, "launch", has the id 0
    database = golden(old=request.param == "old", first_text=0 if request.param == "texts from 0" else 1)
    return open_run(run_directory(tmp_path, database, info={"rank_id": 0, "config": {"a": 1}}))


def test_golden_step_times(golden_trace: Trace) -> None:
    times = ascend_step_times(golden_trace)
    names = ["computing", "communication_not_overlapped", "overlapped", "communication", "free", "stage", "bubble"]
    columns = ["step", *(f"{name}_ns" for name in [*names, "exclude_receive", "preparing"])]
    assert times.select(columns).rows() == [
        (0, 12_500, 7_000, 3_000, 10_000, 23_000, 32_500, 10_000, 0, 19_000),
        (1, 2_250, 0, 0, 0, 0, 2_250, 0, 0, 15_999),
    ]


def test_golden_links(golden_trace: Trace) -> None:
    ops = golden_trace.ops
    assert rows(ops, "name", "start_ns", "end_ns", "tid", "depth", "step") == [
        ("ProfilerStep#0", 1, 100, MAIN, 0, 0),
        ("aten::linear", 2, 30, MAIN, 1, 0),
        ("aten::mm", 4, 20, MAIN, 2, 0),
        ("ProfilerStep#1", 100.001, 200, MAIN, 0, 1),
        ("aten::add", 110, 120, MAIN, 1, 1),
        ("autograd::engine::evaluate_function: LinearBackward0", 40, 70, BACKWARD, 0, 0),
        ("aten::mm", 45, 60, BACKWARD, 1, 0),
    ]
    assert ops["device_self_ns"].to_list() == [0, 0, 5000, 0, 2250, 0, 17_500]
    assert ops["device_total_ns"].to_list() == [5000, 5000, 5000, 2250, 2250, 17_500, 17_500]
    kernels = golden_trace.kernels
    found = {name: (op, launch) for name, op, launch in rows(kernels, "name", "op", "launch_ns")}
    # launch points went back through the queue to the enqueue inside the operator
    assert found["MatMulV3"] == (2, 5.0)
    assert found["MatMulV3b"] == (6, 47.0)
    assert found["Add"] == (4, 111.0)
    assert found["Memcpy"] == found["hcom_receive__123_0_1"] == (6, 47.0)
    assert rows(golden_trace.communication, "name", "op", "launch_ns", "step") == [("hcom_receive__123_0_1", 6, 47.0, 0)]


def test_golden_tables(golden_trace: Trace) -> None:
    ops = golden_trace.ops
    linear = ops.row(1, named=True)
    assert (linear["input_shapes"], linear["sequence"], linear["stack"]) == ("2,3;4,3", 5, "a.py(1): f;b.py(2): g")
    assert ops.row(0, named=True)["sequence"] is None
    assert ops["scope"].to_list() == [7, 0, 0, 7, 0, SCOPE_BACKWARD, 0]
    assert (SCOPE_USER, SCOPE_FUNCTION) == (7, 0)
    queue = golden_trace.task_queue
    columns = ("name", "enqueue_tid", "enqueue_start_ns", "enqueue_end_ns", "dequeue_tid", "dequeue_start_ns", "dequeue_end_ns")
    assert rows(queue, *columns) == [
        ("aclnnMm", MAIN, 5, 6, LAUNCHER, 7, 9),
        ("aclnnMmB", BACKWARD, 47, 48, LAUNCHER, 49, 52),
        ("aclnnAdd", MAIN, 111, 112, LAUNCHER, 113, 115),
    ]
    assert queue["correlation"].to_list() == [1342177281, 1342177282, 1342177283]
    assert rows(golden_trace.python, "id", "name", "start_ns", "end_ns", "parent") == [
        (0, "a.py(1): f", 1.5, 99, None),
        (1, "nn.Module: Linear_0", 1.6, 35, 0),
        (2, "<built-in method x>", 1.7, 1.8, 1),
    ]
    assert rows(golden_trace.flows, "kind", "from_ns", "from_tid", "to_ns", "to_tid") == [("fwdbwd", 2, MAIN, 40, BACKWARD)]
    assert rows(golden_trace.gc, "start_ns", "end_ns", "pid", "tid") == [(80, 90, PID, PID)]
    assert rows(golden_trace.steps, "id", "start_ns", "end_ns", "tid") == [(0, 1, 100, MAIN), (1, 100.001, 200, MAIN)]
    kernel = golden_trace.kernels.filter(pl.col("name") == "MatMulV3").row(0, named=True)
    assert (kernel["blocks"], kernel["input_shapes"], kernel["input_types"]) == (20, "2,3;3,4", "FLOAT;FLOAT")
    assert (kernel["kind"], kernel["core"], kernel["type"], kernel["context_id"]) == ("compute", "AI_CORE", "MatMulV3", None)
    # CANN's wait time: since the end of the task before, among those that compute or communicate
    waits = {name: wait for name, wait in rows(golden_trace.kernels, "name", "wait_ns") if wait is not None}
    assert set(waits) == {"MatMulV3", "hcom_receive__123_0_1", "MatMulV3b", "Add"}
    waits_ns = dict(golden_trace.kernels.drop_nulls("wait_ns").select("name", "wait_ns").rows())
    assert waits_ns == {"MatMulV3": 0, "hcom_receive__123_0_1": 0, "MatMulV3b": 23_000, "Add": 53_500}
    meta = golden_trace.meta_values()
    assert (meta["rank"], meta["device_ids"], meta["hostname"], meta["chip"]) == (0, [0], "node-a", "Ascend910B")
    assert (meta["k"], meta["config"], meta["source_format"], meta["pid"]) == ({"a": 1}, {"a": 1}, "ascend_db", PID)


def test_golden_communication(golden_trace: Trace) -> None:
    row = golden_trace.communication.row(0, named=True)
    assert (row["kind"], row["operation"], row["group"], row["dtype"], row["algorithm"]) == (
        "receive", "receive", "g1", "FP32", "RING",
    )  # fmt: skip
    assert (row["elements"], row["bytes"], row["device"], row["stream"]) == (1000, 4000, 0, 3)
    task = golden_trace.kernels.filter(pl.col("name") == "Memcpy").row(0, named=True)
    assert (task["kind"], task["core"], task["type"], task["bytes"], task["wait_ns"]) == ("other", "SDMA", "Memcpy", 4000, None)
    details = golden_trace.source_table("COMMUNICATION_TASK_INFO")
    assert details is not None
    assert details.select("kernel", "transportType", "linkType", "dataType", "size").rows() == [
        (str(task["id"]), "SDMA", "HCCS", "FP32", "4000")
    ]


def test_layouts_give_the_same_tables(tmp_path: Path) -> None:
    new = open_run(run_directory(tmp_path / "new", golden()))
    old = open_run(run_directory(tmp_path / "old", golden(old=True)))
    assert set(new) == set(old)
    for name in sorted(set(new) - {"meta", "health", "source_tables"}):
        columns = [column for column in SCHEMA[name] if column != "ranks"]
        assert text(new.table(name), *columns) == text(old.table(name), *columns), name
    assert new.communication["ranks"].to_list() == [2]
    assert old.communication["ranks"].to_list() == [None]
    assert "schema_differences" not in checks(new)
    (message,) = old.health.filter(pl.col("check") == "schema_differences")["message"]
    for part in (
        "COMPUTE_TASK_INFO lacks blockNum, mixBlockNum, opState, hf32Eligible, gridDim",
        "COMMUNICATION_OP lacks deviceId, rankSize",
        "COMMUNICATION_TASK_INFO lacks isMaster, bandwidth",
        "PYTORCH_API has startNs, endNs as text",
    ):
        assert part in message
    assert (new.meta_values()["schema_version"], old.meta_values()["schema_version"]) == ("1.2.0", "1.0.0")


def test_sizes_of_groups_from_the_metadata(tmp_path: Path) -> None:
    database = golden(old=True)
    groups = {"g1": {"group_name": "default_group", "group_rank": 0, "global_ranks": [0, 1, 2, 3]}, "g2": {"global_ranks": 7}}
    database.add("META_DATA", name="parallel_group_info", value=json.dumps(groups))
    database.add("META_DATA", name="broken", value="[" * 5000)
    trace = open_run(run_directory(tmp_path, database))
    assert trace.communication["ranks"].to_list() == [4]
    assert trace.meta_values()["parallel_group_info"] == groups
    assert trace.meta_values()["broken"] == "[" * 5000


# --- what decides the links ---------------------------------------------------------------------------------------------------


def test_without_a_queue_the_call_around_the_launch_counts(tmp_path: Path) -> None:
    database = golden()
    database.rows["PYTORCH_API"] = [row for row in database.rows["PYTORCH_API"] if row["type"] != 50002]
    for row in database.rows["CANN_API"]:
        row["globalTid"] = thread(MAIN)
    database.rows["CONNECTION_IDS"] = []
    trace = open_run(run_directory(tmp_path, database))
    found = dict(rows(trace.kernels, "name", "op"))
    # 8 us lies in mm and 114 in add; 50 and 50.6 in no operator but the step
    assert (found["MatMulV3"], found["Add"], found["MatMulV3b"]) == (2, 4, 0)


def test_connections_decide_where_the_queue_cannot(tmp_path: Path) -> None:
    database = golden()
    # the enqueue of the second task is lost: its dequeue leads nowhere, and no operator runs on that thread
    enqueue = database.texts["Enqueue@aclnnMmB"]
    database.rows["PYTORCH_API"] = [row for row in database.rows["PYTORCH_API"] if row["name"] != enqueue]
    trace = open_run(run_directory(tmp_path, database))
    found = dict(rows(trace.kernels, "name", "op"))
    assert (found["MatMulV3"], found["MatMulV3b"], found["Add"]) == (2, 6, 4)
    assert rows(trace.communication, "op") == [(6,)]
    assert checks(trace)["half_queued_tasks"] == 1


def test_neither_queue_nor_connections(tmp_path: Path) -> None:
    database = golden()
    run = run_directory(tmp_path, None)
    database.write(run / "ASCEND_PROFILER_OUTPUT" / NAME, without=("CONNECTION_IDS",))
    database.rows["PYTORCH_API"] = [row for row in database.rows["PYTORCH_API"] if row["type"] != 50002]
    lost = run_directory(tmp_path / "lost", None)
    database.write(lost / "ASCEND_PROFILER_OUTPUT" / NAME, without=("CONNECTION_IDS",))
    # without connections the ids of the two halves differ, and names alone pair nothing
    for path in (run, lost):
        trace = open_run(path)
        assert trace.kernels["op"].null_count() == trace.kernels.height
        assert trace.flows is None
        assert checks(trace)["kernels_without_operator"] == 4


def test_queue_rows_without_names(tmp_path: Path) -> None:
    database = golden()
    for row in database.rows["PYTORCH_API"]:
        if row["type"] == 50002:
            row["name"] = 4294967295
    trace = open_run(run_directory(tmp_path, database))
    assert rows(trace.task_queue, "enqueue_tid", "enqueue_start_ns", "dequeue_tid", "dequeue_start_ns") == [
        (MAIN, 5, LAUNCHER, 7), (BACKWARD, 47, LAUNCHER, 49), (MAIN, 111, LAUNCHER, 113),
    ]  # fmt: skip
    assert dict(rows(trace.kernels, "name", "op"))["MatMulV3b"] == 6


def test_a_repeated_connection_pairs_in_order(tmp_path: Path) -> None:
    database = Database()
    for index, (enqueue, dequeue) in enumerate(((10, 20), (30, 40), (50, 60))):
        database.torch("queue", "Enqueue", enqueue, enqueue + 1, MAIN, connectionId=7)
        database.torch("queue", f"Dequeue@op{index}", dequeue, dequeue + 1, LAUNCHER, connectionId=7)
    trace = open_run(run_directory(tmp_path, database))
    assert rows(trace.task_queue, "name", "enqueue_start_ns", "dequeue_start_ns") == [
        ("op0", 10, 20), ("op1", 30, 40), ("op2", 50, 60),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["op", "mstx"])
def test_marks_of_the_user_are_operator_calls(tmp_path: Path, kind: str) -> None:
    database = golden()
    database.torch(kind, "mstx_mark_op", 130, 140, MAIN, sequenceNumber=-1, fwdThreadId=0)
    trace = open_run(run_directory(tmp_path, database))
    assert trace.ops["name"].to_list().count("mstx_mark_op") == 1


def test_two_ids_of_one_text(tmp_path: Path) -> None:
    database = golden()
    database.extra_texts = [(1 << 28, "aten::mm"), ((1 << 28) + 1, "Add")]
    mm = [row for row in database.rows["PYTORCH_API"] if row["name"] == database.texts["aten::mm"]]
    mm[1]["name"] = 1 << 28
    trace = open_run(run_directory(tmp_path, database))
    assert trace.ops["name"].to_list().count("aten::mm") == 2
    assert "missing_names" not in checks(trace)


# --- what a database may lack ---------------------------------------------------------------------------------------------------


ALL_TABLES = sorted({*golden().rows, "STRING_IDS", *builder.ENUMS})


@pytest.mark.parametrize("table", ALL_TABLES)
def test_every_table_may_be_missing(tmp_path: Path, table: str) -> None:
    run = run_directory(tmp_path, None)
    golden().write(run / "ASCEND_PROFILER_OUTPUT" / NAME, without=(table,))
    trace = open_run(run)
    for name in trace:
        assert trace.table(name).height
    found = checks(trace)
    if table in ("STRING_IDS", "TASK", "COMPUTE_TASK_INFO", "CANN_API", "PYTORCH_API"):
        (message,) = trace.health.filter(pl.col("check") == "schema_differences")["message"]
        assert f"there is no {table}" in message
    if table == "STRING_IDS":
        assert trace.health.filter(pl.col("check") == "missing_names")["severity"].to_list() == ["error"]
        assert set(trace.ops["name"].cast(pl.String)) == {"N/A"}
    if table == "ENUM_API_TYPE":
        assert found["missing_enums"] == 1
        assert trace.ops.height == 7
    if table == "TASK":
        # a collective has rows of its own; no task is made up
        assert text(trace.kernels, "name", "kind") == [("hcom_receive__123_0_1", "communication")]
    if table == "STEP_TIME":
        assert trace.steps.height == 2


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("table", sorted(golden().rows))
def test_every_column_may_be_missing(tmp_path: Path, table: str, kept: int) -> None:
    columns = builder.NEW[table].split()
    database = golden()
    database.layout[table] = " ".join(columns[kept::2])
    trace = open_run(run_directory(tmp_path, database))
    (message,) = trace.health.filter(pl.col("check") == "schema_differences")["message"]
    assert f"{table} lacks {', '.join(columns[1 - kept :: 2])}" in message
    for name in trace:
        assert trace.table(name).columns == list(SCHEMA[name])


def test_an_enum_of_the_file_wins(tmp_path: Path) -> None:
    database = golden()
    database.enums["ENUM_HCCL_DATA_TYPE"] = {4: "BFP16"}
    database.enums["ENUM_API_TYPE"] = {**database.enums["ENUM_API_TYPE"], 10000: "node", 5500: "hccl"}
    database.call("communication", "Launch_Ffts", 9, 9.5, 77)
    trace = open_run(run_directory(tmp_path, database))
    assert text(trace.communication, "dtype", "bytes") == [("BFP16", "2000")]
    # what older files call hccl
    assert ("Launch_Ffts", "communication") in text(trace.api, "name", "layer")


def test_steps_that_are_no_operator_calls(tmp_path: Path) -> None:
    database = golden()
    steps = [database.texts["ProfilerStep#0"], database.texts["ProfilerStep#1"]]
    database.rows["PYTORCH_API"] = [row for row in database.rows["PYTORCH_API"] if row["name"] not in steps]
    trace = open_run(run_directory(tmp_path, database))
    assert rows(trace.steps, "id", "start_ns", "end_ns", "pid", "tid") == [
        (0, 1, 100, PID, MAIN), (1, 100.001, 200, PID, MAIN),
    ]  # fmt: skip
    assert ascend_step_times(trace)["computing_ns"].to_list() == [12_500, 2_250]


def test_only_the_framework(tmp_path: Path) -> None:
    """A run on the CPU only: its operator calls are its device work; an NPU run that lost its device is none."""
    database = Database()
    builder.framework(database)
    cpu = {"config": {"common_config": {"activities": ["ProfilerActivity.CPU"]}}}
    trace = open_run(run_directory(tmp_path / "cpu", database, info=cpu))
    assert set(trace.kernels["core"].cast(pl.String)) == {"CPU"}
    assert not trace.has_accelerator
    npu = {"config": {"common_config": {"activities": ["ProfilerActivity.CPU", "ProfilerActivity.NPU"]}}}
    assert open_run(run_directory(tmp_path / "npu", database, info=npu)).kernels is None
    assert open_run(run_directory(tmp_path / "unknown", database)).kernels is None


def test_only_the_device(tmp_path: Path) -> None:
    database = golden()
    for table in ("PYTORCH_API", "CONNECTION_IDS", "PYTORCH_CALLCHAINS", "STEP_TIME", "GC_RECORD"):
        del database.rows[table]
    trace = open_run(run_directory(tmp_path, database))
    assert trace.ops is None
    assert trace.kernels.height == 5
    assert "kernels_without_operator" not in checks(trace)


# --- memory ---------------------------------------------------------------------------------------------------------------


def test_memory(tmp_path: Path) -> None:
    database = golden()
    mib = 1 << 20
    for component, at, allocated in (("PTA", 4.5, 2 * mib), ("PTA+GE", 4.5, 2 * mib), ("WORKSPACE", 8, 512), ("GE", 10, mib)):
        database.add(
            "MEMORY_RECORD",
            component=component, timestamp=when(at), totalAllocated=allocated, totalReserved=20 * mib, totalActive=allocated,
            streamPtr=None if component == "GE" else 77, deviceId=0,
        )  # fmt: skip
    for name, at, release, stream in (("aten::mm", 4.5, 19, 77), ("GeOp", 10, 12.5, None), (None, 30, None, 77)):
        database.add(
            "OP_MEMORY",
            name=name, size=2 * mib, allocationTime=when(at), releaseTime=release and when(release), activeReleaseTime=None,
            allocationTotalAllocated=mib, allocationTotalReserved=2 * mib, allocationTotalActive=stream and mib,
            releaseTotalAllocated=0, releaseTotalReserved=2 * mib, releaseTotalActive=stream and 0, streamPtr=stream, deviceId=0,
        )  # fmt: skip
    event = {"operatorName": "GeOp", "addr": 1, "globalTid": thread(LAUNCHER), "totalReserve": 2 * mib, "component": "GE"}
    database.add("NPU_OP_MEM", **event, type="allocate", size=16384, timestampNs=when(10), totalAllocate=mib, deviceId=0)
    database.add("NPU_OP_MEM", **event, type="release", size=16384, timestampNs=when(12.5), totalAllocate=0, deviceId=0)
    database.add("NPU_MEM", type="app", ddr=1024, hbm=4096, timestampNs=when(9), deviceId=0)
    database.add("NPU_MEM", type="device", ddr=0, hbm=9999, timestampNs=when(9), deviceId=0)
    trace = open_run(run_directory(tmp_path, database))
    # sums follow from their parts and are no events; those of the graph engine are in the framework's table
    assert rows(trace.memory, "component", "time_ns", "allocated", "reserved", "active", "stream", "device_type") == [
        ("PTA", 4.5, 2 * mib, 20 * mib, 2 * mib, 77, "NPU"),
        ("WORKSPACE", 8, 512, 20 * mib, 512, 77, "NPU"),
        ("APP", 9, None, 5120, None, None, "NPU"),
        ("GE", 10, mib, 20 * mib, mib, None, "NPU"),
    ]
    columns = ("name", "component", "bytes", "allocation_ns", "release_ns", "allocation_active", "stream")
    assert rows(trace.allocations, *columns) == [
        ("aten::mm", "PTA", 2 * mib, 4.5, 19, mib, 77),
        ("cann::GeOp", "GE", 2 * mib, 10, 12.5, None, None),
        (None, "PTA", 2 * mib, 30, None, mib, 77),
    ]
    assert rows(trace.counters, "group", "name", "unit", "value") == [
        ("NPU MEM", "APP/DDR", "KB", 1), ("NPU MEM", "Device/DDR", "KB", 0), ("NPU MEM", "APP/HBM", "KB", 4),
        ("NPU MEM", "Device/HBM", "KB", 9999 / 1024),
    ]  # fmt: skip
    # without the framework's tables CANN's own events remain
    for table in ("MEMORY_RECORD", "OP_MEMORY"):
        del database.rows[table]
    trace = open_run(run_directory(tmp_path / "cann", database))
    assert rows(trace.memory.filter(pl.col("component") == "GE"), "time_ns", "event", "address", "bytes", "allocated") == [
        (10, "allocate", 1, 16384, mib), (12.5, "free", 1, -16384, 0),
    ]  # fmt: skip
    assert rows(trace.allocations, "name", "bytes", "allocation_ns", "release_ns", "release_reserved") == [
        ("cann::GeOp", 16384, 10, 12.5, 2 * mib)
    ]


# --- folders, names and damage -----------------------------------------------------------------------------------------------


def test_detect_and_sources(tmp_path: Path) -> None:
    run = run_directory(tmp_path, None, info={})
    output = run / "ASCEND_PROFILER_OUTPUT"
    assert database_captures.READER.find_run(contents_of(run)) is None
    golden().write(output / NAME)
    (output / "analysis.db").write_bytes(b"")
    (run / "profiler_metadata.json").write_text("{}")
    assert database_captures.READER.find_run(contents_of(run)) is not None
    assert {path.name for path in database_files.sources(output, run)} == {
        NAME, "analysis.db", "profiler_info_0.json", "profiler_metadata.json",
    }  # fmt: skip


def test_analysis_without_a_profiler_database(tmp_path: Path) -> None:
    run = run_directory(tmp_path, None)
    shutil.copy(golden().write(tmp_path / "x.db"), run / "ASCEND_PROFILER_OUTPUT" / "analysis.db")
    with pytest.raises(InputError, match=r"holds analysis\.db and no profiler database"):
        open_run(run)


def test_a_stray_journal(tmp_path: Path) -> None:
    run = run_directory(tmp_path, None)
    journal = run / "ASCEND_PROFILER_OUTPUT" / f"{NAME}-journal"
    journal.write_bytes(b"x" * 600)
    with pytest.raises(InputError, match="the journal of a profiler database"):
        open_run(run)
    journal.unlink()
    golden().write(journal.with_name(NAME))
    journal.write_bytes(b"x" * 600)
    assert checks(open_run(run))["unfinished_database"] == 1
    assert journal.exists()


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no profiler database"):
        open_run(run_directory(tmp_path, None))


def test_several_databases(tmp_path: Path) -> None:
    run = run_directory(tmp_path, golden(), name="ascend_pytorch_profiler_10.db")
    golden().write(run / "ASCEND_PROFILER_OUTPUT" / "ascend_pytorch_profiler_2.db")
    trace = open_run(run)
    assert checks(trace)["several_databases"] == 1
    assert trace.rank == 2


@pytest.mark.parametrize(
    ("name", "info_name", "info", "rank"),
    [
        (NAME, "profiler_info_0.json", {"rank_id": 3}, 3),
        ("ascend_pytorch_profiler_5.db", "profiler_info_4.json", {}, 4),
        ("ascend_pytorch_profiler_5.db", "other.json", {}, 5),
        ("ascend_pytorch_profiler.db", "profiler_info.json", {"rank_id": -1}, 0),
    ],
)
def test_rank(tmp_path: Path, name: str, info_name: str, info: dict[str, Any], rank: int) -> None:
    run = run_directory(tmp_path, golden(), name=name)
    (run / info_name).write_text(json.dumps(info))
    # the last one has it from RANK_DEVICE_MAP
    assert open_run(run).rank == rank


def test_a_database_of_something_else(tmp_path: Path) -> None:
    run = run_directory(tmp_path, None)
    with contextlib.closing(sqlite3.connect(run / "ASCEND_PROFILER_OUTPUT" / NAME)) as connection, connection:
        connection.execute("CREATE TABLE StepTraceTime (step TEXT)")
    with pytest.raises(InputError, match="is a database of something else"):
        open_run(run)


def test_one_file_of_any_name(tmp_path: Path) -> None:
    database = golden()
    trace = ascend_db.read_file_trace(database.write(tmp_path / "copy.sqlite"))
    assert (trace.ops.height, trace.kernels.height, trace.kernels["op"].null_count()) == (7, 5, 0)
    for table in FRAMEWORK_TABLES:
        database.rows.pop(table, None)
    trace = ascend_db.read_file_trace(database.write(tmp_path / "msprof_1.db"))
    assert (trace.ops, trace.kernels.height) == (None, 5)
    assert "schema_differences" not in checks(trace)
    database.rows = {"NPU_INFO": [{"id": 0, "name": "Ascend910B"}]}
    with pytest.raises(InputError, match="holds no event"):
        ascend_db.read_file_trace(database.write(tmp_path / "empty.db"))


def test_a_damaged_analysis_costs_only_itself(tmp_path: Path) -> None:
    run = run_directory(tmp_path, golden())
    (run / "ASCEND_PROFILER_OUTPUT" / "analysis.db").write_bytes(b"nothing that SQLite knows")
    trace = open_run(run)
    assert trace.kernels.height == 5
    assert checks(trace)["damaged_analysis"] == 1


@pytest.mark.parametrize("kind", ["empty", "text", "random"])
def test_files_that_are_no_database(tmp_path: Path, kind: str) -> None:
    run = run_directory(tmp_path, None)
    content = {"empty": b"", "text": b"startNs,endNs\n1,2\n" * 500, "random": b"SQLite format 3\0" + os.urandom(20_000)}[kind]
    (run / "ASCEND_PROFILER_OUTPUT" / NAME).write_bytes(content)
    with pytest.raises(InputError, match=r"is empty|is no SQLite database|is damaged|breaks off"):
        open_run(run)


def test_truncated_databases(tmp_path: Path) -> None:
    whole = golden()
    for index in range(3000):
        whole.torch("op", f"aten::op{index % 7}", 300 + index, 300.5 + index, MAIN, sequenceNumber=-1)
    data = whole.write(tmp_path / "whole.db").read_bytes()
    read = 0
    for part in range(1, 20):
        run = run_directory(tmp_path / str(part), None)
        (run / "ASCEND_PROFILER_OUTPUT" / NAME).write_bytes(data[: len(data) * part // 20])
        try:
            trace = open_run(run)
        except InputError:
            continue
        read += 1
        assert checks(trace)["damaged_database"] >= 1
        assert all(trace.table(name).columns == list(SCHEMA[name]) for name in trace)
    assert read > 10


def test_values_from_hell(tmp_path: Path, million_steps_s: float) -> None:
    """Numbers at the ends of 64 bits, texts in the place of numbers, missing ids: no crash, and health speaks."""
    database = golden()
    extreme: list[Any] = [2**63 - 1, -(2**63), None, "text", 1e300, b"\xff", 0, "9" * 30]
    for table, columns in builder.NEW.items():
        for value in extreme:
            database.add(table, **dict.fromkeys(columns.split(), value))
        for index, column in enumerate(columns.split()):
            database.add(table, **{**dict.fromkeys(columns.split(), 1), column: extreme[index % len(extreme)]})
    begin = time.process_time()
    trace = open_run(run_directory(tmp_path, database))
    assert time.process_time() - begin < 1000 * million_steps_s
    found = checks(trace)
    assert {"impossible_times", "damaged_values", "missing_names"} <= set(found)
    for name in trace:
        assert trace.table(name).height
    assert {"aten::linear", "ProfilerStep#0"} <= set(trace.ops["name"].cast(pl.String))
    ascend_step_times(trace)


def test_hostile_objects_are_refused(tmp_path: Path) -> None:
    database = golden()
    database.statements = [
        "CREATE VIEW OP_MEMORY AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS name FROM n",
        "CREATE TRIGGER bomb AFTER INSERT ON TASK BEGIN DELETE FROM TASK; END",
    ]
    run = run_directory(tmp_path, database)
    trace = open_run(run)
    assert trace.allocations is None
    assert trace.kernels.height == 5
    assert checks(trace)["refused_database_objects"] == 2


def test_unknown_tables_are_named(tmp_path: Path) -> None:
    database = golden()
    database.statements = [
        "CREATE TABLE SOMETHING_NEW (a INTEGER)",
        "INSERT INTO SOMETHING_NEW VALUES (1)",
        "CREATE TABLE EMPTY_NEW (a INTEGER)",
        "CREATE TABLE OVERLAP_ANALYSIS (id INTEGER PRIMARY KEY, deviceId INTEGER)",
        "INSERT INTO OVERLAP_ANALYSIS VALUES (1, 0)",
        "ALTER TABLE PYTORCH_API ADD COLUMN depth INTEGER",
    ]
    trace = open_run(run_directory(tmp_path, database))
    (message,) = trace.health.filter(pl.col("check") == "tables_not_read")["message"]
    assert message == "tables of the database are not used (SOMETHING_NEW)"
    (message,) = trace.health.filter(pl.col("check") == "schema_differences")["message"]
    assert message.endswith("PYTORCH_API has also depth")


def test_the_source_is_left_alone(tmp_path: Path) -> None:
    run = run_directory(tmp_path, golden(), info={})
    path = run / "ASCEND_PROFILER_OUTPUT" / NAME
    before = (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns, sorted(os.listdir(path.parent)))
    open_run(run)
    assert (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns, sorted(os.listdir(path.parent))) == before


# --- what steplens writes -------------------------------------------------------------------------------------------------


def _written(trace: Trace, path: Path) -> Trace:
    database_writer.write(Output(trace, time_base_ns(trace), "Level1"), path)
    return ascend_db.read_file_trace(path)


def _same(first: Trace, second: Trace, *but: str) -> None:
    """The same rows in every table of both, but for the columns named."""
    for name in sorted((set(first) | set(second)) - {"meta", "health", "source_tables"}):
        columns = [column for column in SCHEMA[name] if f"{name}.{column}" not in but]
        assert Counter(text(first.table(name), *columns)) == Counter(text(second.table(name), *columns)), name


def test_a_written_database_gives_the_same_trace(tmp_path: Path) -> None:
    trace = open_run(run_directory(tmp_path, golden()))
    again = _written(trace, tmp_path / "written.db")
    # numbers that only tell calls apart
    _same(trace, again, "ops.external_id", "task_queue.correlation", "flows.flow_id", "communication.stream", "kernels.stream")
    assert ascend_step_times(again).equals(ascend_step_times(trace))
    assert not {"schema_differences", "tables_not_read", "missing_names"} & set(checks(again))


def test_a_written_database_of_a_cpu_run(tmp_path: Path) -> None:
    framework = Database()
    builder.framework(framework)
    cpu = {"config": {"common_config": {"activities": ["ProfilerActivity.CPU"]}}}
    trace = open_run(run_directory(tmp_path, framework, info=cpu))
    tasks = text(trace.ops.filter(pl.col("scope") < 2), "name", "id")
    assert text(trace.kernels, "name", "op") == tasks
    assert {("aten::linear", "1"), ("aten::mm", "2"), ("aten::add", "4"), ("aten::mm", "6")} < set(tasks)
    again = _written(trace, tmp_path / "written.db")
    assert not again.has_accelerator
    assert again.api is None
    columns = ["name", "start_ns", "end_ns", "kind", "core", "device", "stream", "op", "step", "launch_ns", "wait_ns"]
    assert again.kernels.select(columns).rows() == trace.kernels.select(columns).rows()
    assert again.ops["device_total_ns"].to_list() == trace.ops["device_total_ns"].to_list()
    assert ascend_step_times(again).equals(ascend_step_times(trace))


# --- recorded captures ----------------------------------------------------------------------------------------------------


class Capture:
    """A recorded capture: its trace, and its database for plain SQL."""

    def __init__(self, name: str, run: Path, trace: Trace) -> None:
        self.name = name
        self.run = run
        self.trace = trace
        self.output = run / "ASCEND_PROFILER_OUTPUT"

    def sql(self, query: str, database: str = NAME) -> list[tuple[Any, ...]]:
        uri = f"file:{self.output / database}?mode=ro&immutable=1"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture(params=["db_level0", "db_level2"], scope="module")
def capture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Capture:
    source = shared("ascend_pytorch", request.param, "rank0_ascend_pt")
    run = tmp_path_factory.mktemp(request.param) / "rank0_ascend_pt"
    shutil.copytree(source, run)
    return Capture(request.param, run, open_run(run))


EXACT_US = {
    "db_level0": (8843.91, 85881.122, 89880.576, 25900.158, 120625.19, 16681.808),
    "db_level2": (8900.456, 90080.699, 94107.521, 25238.587, 124219.742, 17894.588),
}


def test_recorded_step_times(capture: Capture) -> None:
    names = ["computing", "communication_not_overlapped", "communication", "free", "stage", "preparing"]
    times = ascend_step_times(capture.trace)
    assert times["step"].to_list() == [50]
    assert times.select((pl.col(f"{name}_ns") / 1000).alias(name) for name in names).rows() == [EXACT_US[capture.name]]
    # what the other analysis has computed, kept beside it
    table = capture.trace.source_table("StepTraceTime")
    assert table is not None
    assert tuple(float(table[name][0]) for name in names) == EXACT_US[capture.name]
    assert table.columns == [row[1] for row in capture.sql("PRAGMA table_info(StepTraceTime)", "analysis.db")]


def test_recorded_host_calls(capture: Capture) -> None:
    trace = capture.trace
    assert (trace.ops.height, trace.python.height, trace.task_queue.height) == (860, 1282, 159)
    assert trace.task_queue.null_count().select(pl.sum_horizontal(pl.all())).item() == 0
    names = (
        "SELECT s.value, p.startNs, p.endNs, p.globalTid FROM PYTORCH_API p JOIN STRING_IDS s ON s.id = p.name WHERE type = {}"
    )
    for table, kind in ((trace.ops, 50001), (trace.python, 50003)):
        expected = Counter((name, int(start), int(end), tid) for name, start, end, tid in capture.sql(names.format(kind)))
        columns = ("name", "start_ns", "end_ns", (pl.col("pid") * 2**32 + pl.col("tid")).alias("thread"))
        assert Counter(table.select(*columns).rows()) == expected
    halves = capture.sql(names.format(50002))
    assert len(halves) == 318
    found = Counter()
    for row in trace.task_queue.iter_rows(named=True):
        for side, name in (("enqueue", "Enqueue"), ("dequeue", f"Dequeue@{row['name']}")):
            thread_ = row["pid"] << 32 | row[f"{side}_tid"]
            found[name, row[f"{side}_start_ns"], row[f"{side}_end_ns"], thread_] += 1
    assert found == Counter((name, int(start), int(end), tid) for name, start, end, tid in halves)
    assert trace.flows.height == 27
    assert (trace.flows["to_ns"] > trace.flows["from_ns"]).all()
    python = trace.python
    assert python["id"].to_list() == list(range(1282))
    parents = python.filter(pl.col("parent").is_not_null())
    around = python[parents["parent"].to_list()]
    assert (around["start_ns"] <= parents["start_ns"]).all() and (around["end_ns"] >= parents["end_ns"]).all()


def test_recorded_stacks_and_shapes(capture: Capture) -> None:
    calls = capture.sql(
        "SELECT p.startNs, p.globalTid, n.value, s.value, t.value, p.callchainId FROM PYTORCH_API p "
        "JOIN STRING_IDS n ON n.id = p.name LEFT JOIN STRING_IDS s ON s.id = p.inputShapes "
        "LEFT JOIN STRING_IDS t ON t.id = p.inputDtypes WHERE p.type = 50001"
    )
    frames: dict[int, list[str]] = {}
    for chain, frame in capture.sql(
        "SELECT c.id, s.value FROM PYTORCH_CALLCHAINS c JOIN STRING_IDS s ON s.id = c.stack ORDER BY c.id, c.stackDepth"
    ):
        frames.setdefault(chain, []).append(frame)

    def one_line(value: str | None) -> str | None:
        return None if value is None else value.replace(";\r\n", ";")

    expected = Counter(
        (int(start), tid, name, one_line(shapes), one_line(types), ";".join(frames[chain]) if chain in frames else None)
        for start, tid, name, shapes, types, chain in calls
    )
    thread_ = pl.col("pid") * 2**32 + pl.col("tid")
    found = capture.trace.ops.select("start_ns", thread_.alias("t"), "name", "input_shapes", "input_types", "stack").rows()
    assert Counter(found) == expected
    assert sum(stack is not None for *_, stack in found) == 316


def test_recorded_links_agree_with_the_connections(capture: Capture) -> None:
    owners: dict[int, set[tuple[int, int]]] = {}
    query = "SELECT c.connectionId, p.startNs, p.globalTid FROM PYTORCH_API p JOIN CONNECTION_IDS c ON c.id = p.connectionId"
    for connection, start, tid in capture.sql(f"{query} WHERE p.type = 50001"):
        owners.setdefault(connection, set()).add((int(start), tid))
    trace = capture.trace
    ops = trace.ops
    thread_ = (ops["pid"] * 2**32 + ops["tid"]).to_list()
    linked = 0
    for table in (trace.kernels, trace.communication):
        for connection, op in table.select("correlation", "op").rows():
            if connection in owners:
                assert owners[connection] == {(ops["start_ns"][op], thread_[op])}
                linked += 1
    computing = trace.kernels.filter(pl.col("kind").cast(pl.String).is_in(["compute", "communication"]))
    assert computing.height == 191
    assert computing["op"].null_count() == 0
    # every compute task, inner task of a collective and collective, the latter in both tables
    assert linked == 187 + 313 + 4 + 4
    # the same without the queue, by the connections alone
    database = capture.run.parent / "cut"
    shutil.copytree(capture.run, database)
    path = database / "ASCEND_PROFILER_OUTPUT" / NAME
    path.chmod(0o600)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM PYTORCH_API WHERE type = 50002")
    other = open_run(database)
    assert (
        other.kernels.select("id", "op").filter(pl.col("id").is_in(computing["id"].implode())).rows()
        == computing.select("id", "op").rows()
    )
    shutil.rmtree(database)


def test_recorded_device_times_of_operators(capture: Capture) -> None:
    """What the connections of the database give: kernels and collectives, without the parts of either."""
    computing = (
        "SELECT connectionId, endNs - startNs FROM TASK WHERE globalTaskId IN (SELECT globalTaskId FROM COMPUTE_TASK_INFO)"
    )
    lengths: Counter[int] = Counter()
    for connection, length in capture.sql(f"{computing} UNION ALL SELECT connectionId, endNs - startNs FROM COMMUNICATION_OP"):
        lengths[connection] += length
    query = "SELECT p.startNs, p.globalTid, c.connectionId FROM PYTORCH_API p JOIN CONNECTION_IDS c ON c.id = p.connectionId"
    expected: Counter[tuple[int, int]] = Counter()
    for start, tid, connection in capture.sql(f"{query} WHERE p.type = 50001"):
        expected[int(start), tid] += lengths[connection]
    trace = capture.trace
    copies = trace.kernels.filter(pl.col("kind") == "copy").select("op", length=pl.col("end_ns") - pl.col("start_ns"))
    assert copies.height == 24
    of_copies = dict(copies.group_by("op").agg(pl.col("length").sum()).rows())
    thread_ = (pl.col("pid") * 2**32 + pl.col("tid")).alias("thread")
    for op, start, tid, device in trace.ops.select("id", "start_ns", thread_, "device_self_ns").rows():
        assert device == expected[start, tid] + of_copies.get(op, 0)
    roots = trace.ops.filter(pl.col("parent").is_null())
    assert roots["device_total_ns"].sum() == trace.ops["device_self_ns"].sum()


def test_recorded_memory(capture: Capture) -> None:
    record = capture.sql(
        "SELECT s.value, timestamp, totalAllocated, totalReserved, totalActive, streamPtr, deviceId FROM MEMORY_RECORD "
        "JOIN STRING_IDS s ON s.id = component"
    )
    memory = capture.trace.memory
    columns = ["component", "time_ns", "allocated", "reserved", "active", "stream", "device"]
    framework = memory.filter(pl.col("component").cast(pl.String) != "APP").select(columns).rows()
    assert Counter(framework) == Counter(row for row in record if row[0] != "PTA+GE")
    # nothing is lost with the sums: they follow from the parts, row by row
    last = {"PTA": (0, 0, 0), "GE": (0, 0, 0)}
    sums = []
    ordered = memory.filter(pl.col("component").cast(pl.String).is_in(["PTA", "GE"])).sort("time_ns", maintain_order=True)
    for component, time_ns, *totals, _, _ in ordered.select(columns).rows():
        last[component] = tuple(totals)
        sums.append((time_ns, *(a + b for a, b in zip(last["PTA"], last["GE"], strict=True))))
    assert sums == [row[1:5] for row in record if row[0] == "PTA+GE"]
    app = memory.filter(pl.col("component").cast(pl.String) == "APP")
    expected = capture.sql("SELECT timestampNs, ddr + hbm FROM NPU_MEM JOIN STRING_IDS s ON s.id = type WHERE s.value = 'app'")
    assert app.select("time_ns", "reserved").rows() == expected
    assert set(memory["device_type"].cast(pl.String)) == {"NPU"}


def test_recorded_allocations(capture: Capture) -> None:
    rows_ = capture.sql(
        "SELECT s.value, size, allocationTime, releaseTime, activeReleaseTime, allocationTotalAllocated, "
        "allocationTotalReserved, allocationTotalActive, releaseTotalAllocated, "
        " releaseTotalReserved, releaseTotalActive, streamPtr, deviceId "
        "FROM OP_MEMORY LEFT JOIN STRING_IDS s ON s.id = name ORDER BY OP_MEMORY.rowid"
    )
    columns = [
        "name", "bytes", "allocation_ns", "release_ns", "active_release_ns", "allocation_allocated", "allocation_reserved",
        "allocation_active", "release_allocated", "release_reserved", "release_active", "stream", "device",
    ]  # fmt: skip
    found = capture.trace.allocations
    assert found.height == 184
    assert [(name.removeprefix("cann::") if name else name, *rest) for name, *rest in found.select(columns).rows()] == rows_
    graph_engine = {name for (name,) in capture.sql("SELECT s.value FROM NPU_OP_MEM JOIN STRING_IDS s ON s.id = operatorName")}
    for name, component in text(found, "name", "component"):
        assert (component == "GE") == ((name or "").removeprefix("cann::") in graph_engine)
        assert (component == "GE") == (name or "").startswith("cann::")


def test_recorded_communication_measurements(capture: Capture) -> None:
    trace = capture.trace
    if capture.name == "db_level0":
        assert trace.communication_times is None
        return
    times = capture.sql("SELECT * FROM CommAnalyzerTime", "analysis.db")
    columns = ["name", "group", "elapse_ms", "transit_ms", "wait_ms", "synchronization_ms", "idle_ms", "step", "kind"]
    assert trace.communication_times.select(columns).rows() == [
        (name, group, *values, 50, kind) for name, group, _, *values, _, kind in times
    ]
    assert trace.communication_times["start_ns"].to_list() == [round(row[2] * 10) * 100 for row in times]
    bandwidth = capture.sql("SELECT * FROM CommAnalyzerBandwidth", "analysis.db")
    columns = [
        "name", "group", "transport", "size_mb", "transit_ms", "bandwidth_gbps", "large_packet_ratio", "package_mb", "count",
        "duration_ms", "step", "kind",
    ]  # fmt: skip
    expected = [(*row[:7], row[7] if row[8] else None, *row[8:10], 50, row[11]) for row in bandwidth]
    assert trace.communication_bandwidth.select(columns).rows() == expected
    matrix = capture.sql("SELECT * FROM CommAnalyzerMatrix", "analysis.db")
    columns = ["group", "source", "destination", "transport", "size_mb", "transit_ms", "bandwidth_gbps", "step", "kind"]
    found = trace.communication_matrix
    assert found.select(columns).rows() == [(*row[1:2], int(row[2]), int(row[3]), *row[4:8], 50, row[9]) for row in matrix]
    joined = found.select(pl.format("{}-{}", pl.col("name").cast(pl.String), pl.col("selection").cast(pl.String))).to_series()
    assert joined.to_list() == [row[0] for row in matrix]
    assert found["op_name"].fill_null("").cast(pl.String).to_list() == [row[10] or "" for row in matrix]


def test_recorded_run(capture: Capture) -> None:
    trace = capture.trace
    meta = trace.meta_values()
    assert (trace.rank, meta["device_ids"], meta["hostname"], meta["chip"]) == (0, [0], "ubuntu", "Ascend910B")
    assert meta["config"]["experimental_config"]["_profiler_level"] in ("Level0", "Level2")
    assert isinstance(meta["ENV_VARIABLES"], dict)
    assert checks(trace)["schema_differences"] == 6
    assert not {"missing_names", "missing_enums", "tables_not_read", "half_queued_tasks"} & set(checks(trace))
    again = _written(trace, capture.run.parent / "written.db")
    # links of forward and backward calls are found anew, and numbers only tell calls apart
    trace = Trace(trace.source, {name: trace.table(name) for name in trace if not name.startswith("communication_")})
    _same(trace, again, "ops.external_id", "task_queue.correlation", *(f"flows.{column}" for column in SCHEMA["flows"]))
    assert trace.health.filter(pl.col("severity") == "error").is_empty()


def test_recorded_files_are_left_alone(capture: Capture) -> None:
    paths = [path for path in sorted(capture.run.rglob("*")) if path.is_file()]
    before = [(path, hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns) for path in paths]
    source = shared("ascend_pytorch", capture.name, "rank0_ascend_pt")
    original = [(path.name, path.stat().st_mtime_ns) for path in sorted(source.rglob("*"))]
    health = HealthLog()
    ascend_db.read(capture.output, capture.run, health)
    ascend_db.read(source / "ASCEND_PROFILER_OUTPUT", source, health)
    assert [(path, hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns) for path in paths] == before
    assert [path for path in sorted(capture.run.rglob("*")) if path.is_file()] == paths
    assert [(path.name, path.stat().st_mtime_ns) for path in sorted(source.rglob("*"))] == original
