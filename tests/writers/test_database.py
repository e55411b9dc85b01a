"""The databases: their layout, and the rows of the text files in them."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.analysis.cluster.measured_communication import group_hash
from steplens.common import rundir
from steplens.formats.ascend_database import PROFILER_TABLES
from steplens.trace.trace import Trace
from steplens.writers.common.output import NothingToWriteError, Output
from steplens.writers.database.database import write
from steplens.writers.database.database_file import FRAMEWORK_TEXTS, MEMORY_TEXTS, DatabaseFile
from steplens.writers.result import DATABASE, TEXT, Settings, write_result

from .ascend import BANDWIDTH, GROUP, TIMES, ascend_run, ns
from .builder import BASE_NS, MAIN, PID, build, kernel, op, synthetic, training_step

MISSING = 4294967295
CONNECTION = 5 << 28


class Database:
    """An open database; ids of texts are looked up by ``text``."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        self.texts = dict(self.rows("SELECT id, value FROM STRING_IDS")) if "STRING_IDS" in self.tables() else {}

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(query).fetchall()

    def tables(self) -> set[str]:
        return {name for (name,) in self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def columns(self, table: str) -> list[tuple[str, str, int]]:
        return [(name, kind, key) for _, name, kind, _, _, key in self.rows(f"PRAGMA table_info({table})")]

    def text(self, number: int | None) -> str | None:
        return None if number is None else self.texts[number]


@pytest.fixture
def result(tmp_path: Path) -> Iterator[Callable[..., tuple[Path, Database, Database]]]:
    opened = []

    def make(trace: Trace, level: str = "Level1", **more: Any) -> tuple[Path, Database, Database]:
        statuses = write_result(trace, tmp_path, Settings(level=level), export_types=(TEXT, DATABASE), **more)
        assert not [status for status in statuses.values() if status.status == "failed"], statuses
        folder = tmp_path / rundir.OUTPUT_DIRECTORY
        suffix = f"_{trace.recorded_rank}" if trace.recorded_rank >= 0 else ""
        profiler = Database(folder / f"ascend_pytorch_profiler{suffix}.db")
        # a run without device work has nothing to analyse
        analysis = Database(folder / "analysis.db") if (folder / "analysis.db").exists() else profiler
        opened.extend([profiler.connection, analysis.connection])
        return folder, profiler, analysis

    yield make
    for connection in opened:
        connection.close()


def cells(folder: Path, name: str) -> list[dict[str, str]]:
    text = (folder / name).read_bytes().decode()
    return [{key: value.strip("\t") for key, value in row.items()} for row in csv.DictReader(io.StringIO(text, newline=""))]


def time_ns(cell: str, base: int = 0) -> int | None:
    """A printed time of µs as ns, exactly."""
    if not cell:
        return None
    whole, _, fraction = cell.partition(".")
    return int(whole) * 1000 + int(fraction.ljust(3, "0")) + base


#: the contract's tables and columns, for those whose columns clients name
EXPECTED_COLUMNS = {
    "TASK": "startNs endNs deviceId connectionId globalTaskId globalPid taskType contextId streamId taskId modelId",
    "COMPUTE_TASK_INFO": "name globalTaskId blockNum mixBlockNum taskType opType inputFormats inputDataTypes inputShapes "
    "outputFormats outputDataTypes outputShapes attrInfo opState hf32Eligible gridDim blockDim",
    "COMMUNICATION_OP": "opName startNs endNs connectionId groupName opId relay retry dataType algType count opType "
    "deviceId rankSize",
    "COMMUNICATION_TASK_INFO": "name globalTaskId taskType planeId groupName notifyId rdmaType srcRank dstRank "
    "transportType size dataType linkType opId isMaster bandwidth",
    "CANN_API": "startNs endNs type globalTid connectionId name",
    "PYTORCH_API": "startNs endNs globalTid connectionId name sequenceNumber fwdThreadId inputDtypes inputShapes callchainId "
    "type",
    "CONNECTION_IDS": "id connectionId",
    "PYTORCH_CALLCHAINS": "id stack stackDepth",
    "MEMORY_RECORD": "component timestamp totalAllocated totalReserved totalActive streamPtr deviceId",
    "STEP_TIME": "id startNs endNs",
    "GC_RECORD": "startNs endNs globalTid",
    "RANK_DEVICE_MAP": "rankId deviceId",
    "MSTX_EVENTS": "startNs endNs eventType rangeId category message globalTid endGlobalTid domainId connectionId",
    "NPU_MEM": "type ddr hbm timestampNs deviceId",
    "LLC": "deviceId llcId timestampNs hitRate throughput mode",
    "TASK_PMU_INFO": "globalTaskId name value",
}  # fmt: skip


def test_tables_of_an_ascend_run(result: Callable[..., Any]) -> None:
    _, database, analysis = result(ascend_run())
    enums = {name for name in database.tables() if name.startswith("ENUM_")}
    assert database.tables() - enums == {
        "STRING_IDS", "SESSION_TIME_INFO", "NPU_INFO", "HOST_INFO", "RANK_DEVICE_MAP", "META_DATA", "STEP_TIME", "TASK",
        "COMPUTE_TASK_INFO", "COMMUNICATION_OP", "COMMUNICATION_TASK_INFO", "MEMCPY_INFO", "TASK_PMU_INFO", "CANN_API",
        "PYTORCH_API", "CONNECTION_IDS", "PYTORCH_CALLCHAINS", "MEMORY_RECORD", "OP_MEMORY", "GC_RECORD", "MSTX_EVENTS",
        "OVERLAP_ANALYSIS", "NPU_MEM", "NPU_MODULE_MEM", "AICORE_FREQ", "HBM", "LLC", "SOC_BANDWIDTH_LEVEL",
    }  # fmt: skip
    for table, expected in EXPECTED_COLUMNS.items():
        assert [name for name, _, _ in database.columns(table)] == expected.split(), table
    for table in database.tables():
        for name, kind, _ in database.columns(table):
            if name.lower().endswith("ns") or name.endswith("Time"):
                assert kind == "INTEGER", (table, name)
    keys = {(table, name) for table in database.tables() for name, _, key in database.columns(table) if key}
    assert keys - {(table, "id") for table in enums} == {
        ("STRING_IDS", "id"), ("COMPUTE_TASK_INFO", "globalTaskId"), ("COMMUNICATION_OP", "opId"), ("CANN_API", "connectionId"),
        ("OVERLAP_ANALYSIS", "id"),
    }  # fmt: skip
    assert analysis.tables() == {"StepTraceTime", "CommAnalyzerTime", "CommAnalyzerBandwidth", "CommAnalyzerMatrix"}


def test_description_of_the_run(result: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / rundir.METADATA_FILE).write_text('{"mine": {"a": 1}}')
    _, database, _ = result(ascend_run())
    metadata = dict(database.rows("SELECT name, value FROM META_DATA"))
    assert metadata.pop("SCHEMA_VERSION") == "1.2.0"
    assert [metadata.pop(f"SCHEMA_VERSION_{part}") for part in ("MAJOR", "MINOR", "MICRO")] == ["1", "2", "0"]
    assert {name: json.loads(value) for name, value in metadata.items()} == {
        "ENV_VARIABLES": {"HCCL_ALGO": ""}, "parallel_group_info": {GROUP: {"group_name": "dp"}}, "mine": {"a": 1},
    }  # fmt: skip
    assert database.rows("SELECT * FROM RANK_DEVICE_MAP") == [(0, 0)]
    assert database.rows("SELECT * FROM HOST_INFO") == [("123", "node1")]
    assert database.rows("SELECT * FROM NPU_INFO") == [(0, "Ascend910B")]
    assert database.rows("SELECT * FROM SESSION_TIME_INFO") == [(ns(1), ns(200))]
    assert database.rows("SELECT * FROM STEP_TIME") == [(0, ns(1), ns(100)), (1, ns(100.001), ns(200))]
    assert database.rows("SELECT * FROM GC_RECORD") == [(ns(80), ns(90), PID << 32 | PID)]


def test_tasks_and_what_is_known_of_them(result: Callable[..., Any]) -> None:
    _, database, _ = result(ascend_run())
    tasks = {row[0]: row[1:] for row in database.rows("SELECT globalTaskId, taskType, connectionId, contextId, taskId FROM TASK")}
    assert {number: database.text(row[0]) for number, row in tasks.items()} == {
        1: "KERNEL_AICORE", 2: "KERNEL_AICORE", 3: "KERNEL_AIVEC", 5: "MEMCPY_ASYNC", 6: "Notify Wait", 7: "SDMA",
    }  # fmt: skip
    assert tasks[1][1:] == (1, MISSING, 101)
    (row,) = database.rows("SELECT * FROM COMPUTE_TASK_INFO WHERE globalTaskId = 1")
    texts = [database.text(value) for index, value in enumerate(row) if index not in (1, 2, 3, 15, 16)]
    assert texts == [
        "MatMulV3", "AI_CORE", "MatMulV3", "ND;ND", "FLOAT;FLOAT", '"2,3;3,4"', "ND", "FLOAT", '"2,4"', "N/A", "dynamic", "NO",
    ]  # fmt: skip
    assert row[2:4] == (20, 0)
    assert database.rows("SELECT * FROM MEMCPY_INFO") == [(5, 512, 65535)]
    metrics = database.rows("SELECT name, value FROM TASK_PMU_INFO WHERE globalTaskId = 2")
    assert [(database.text(name), value) for name, value in metrics] == [
        ("aic_total_time", 7250), ("aic_total_cycles", 13050), ("aic_mac_time", 6001), ("aic_mac_ratio", 0.828),
        ("aiv_vec_time", 0), ("cube_utilization", 80.5),
    ]  # fmt: skip


def test_collectives_and_their_tasks(result: Callable[..., Any]) -> None:
    _, database, _ = result(ascend_run())
    ((name, *times, connection, group, number, relay, retry, dtype, algorithm, count, type_, device, size),) = database.rows(
        "SELECT * FROM COMMUNICATION_OP"
    )
    assert [database.text(value) for value in (name, group, algorithm, type_)] == [
        "hcom_allReduce__123_0_1", GROUP, "MESH-RING", "hcom_allReduce_",
    ]  # fmt: skip
    assert (times, connection, number, relay, retry, dtype, count, device, size) == (
        [ns(140), ns(160.5)], 4, 1, None, None, 4, 256, 0, 8,
    )  # fmt: skip
    rows = database.rows(
        "SELECT globalTaskId, taskType, planeId, notifyId, srcRank, dstRank, transportType, size, dataType, linkType, opId "
        "FROM COMMUNICATION_TASK_INFO ORDER BY globalTaskId"
    )
    assert [(row[0], database.text(row[1]), *row[2:]) for row in rows] == [
        (6, "Notify_Wait", 1, 92, 0, 1, 2, 0, 65535, 65535, 1),
        (7, "Memcpy", 0, 9223372036854775807, 0, 0, 0, 4000, 4, 0, 1),
    ]


def test_inner_tasks_without_details_say_so(result: Callable[..., Any]) -> None:
    _, database, _ = result(ascend_run(without=["source_tables"]))
    rows = database.rows(
        "SELECT globalTaskId, taskType, notifyId, srcRank, dstRank, transportType, opId FROM COMMUNICATION_TASK_INFO"
    )
    assert [(row[0], database.text(row[1]), *row[2:]) for row in rows] == [
        (6, "Notify_Wait", 9223372036854775807, 0, MISSING, 65535, 1),
        (7, "Memcpy", 9223372036854775807, 0, MISSING, 65535, 1),
    ]


def test_connections_tie_operators_to_tasks_and_halves_to_each_other(result: Callable[..., Any]) -> None:
    _, database, _ = result(ascend_run())
    linked = database.rows(
        "SELECT p.name, p.startNs, c.connectionId FROM PYTORCH_API p JOIN CONNECTION_IDS c ON p.connectionId = c.id"
    )
    found = {(database.text(name), (start - BASE_NS) / 1000): set() for name, start, _ in linked}
    for name, start, connection in linked:
        found[database.text(name), (start - BASE_NS) / 1000].add(connection)
    pair = CONNECTION + 5
    assert found == {
        ("Enqueue@aclnnMm", 5.0): {CONNECTION + 1}, ("Dequeue@aclnnMm", 7.0): {CONNECTION + 1},
        ("Enqueue@aclnnMmB", 47.0): {CONNECTION + 2}, ("Dequeue@aclnnMmB", 49.0): {CONNECTION + 2},
        ("Enqueue@aclnnAdd", 111.0): {CONNECTION + 3}, ("Dequeue@aclnnAdd", 113.0): {CONNECTION + 3},
        ("Enqueue@HcclAllreduce", 131.0): {CONNECTION + 4}, ("Dequeue@HcclAllreduce", 133.0): {CONNECTION + 4},
        ("aten::linear", 2.0): {pair}, ("autograd::engine::evaluate_function: LinearBackward0", 40.0): {pair},
        ("aten::mm", 4.0): {1, 11}, ("aten::mm", 45.0): {2}, ("aten::add", 110.0): {3}, ("c10d::allreduce_", 130.0): {4},
    }  # fmt: skip
    launches = database.rows(
        "SELECT a.connectionId, t.globalTaskId FROM CANN_API a JOIN TASK t ON a.connectionId = t.connectionId ORDER BY 2"
    )
    assert launches == [(1, 1), (2, 2), (3, 3), (11, 5), (4, 6), (4, 7)]


def test_calls_of_the_framework(result: Callable[..., Any]) -> None:
    _, database, _ = result(ascend_run())
    rows = database.rows("SELECT name, type, sequenceNumber, fwdThreadId, inputDtypes, inputShapes, callchainId FROM PYTORCH_API")
    assert [type_ for _, type_, *_ in rows] == [50003] * 2 + [50002] * 8 + [50001] * 8
    assert [database.text(name) for name, *_ in rows[:2]] == ["a.py(1): f", "nn.Module: Linear_0"]
    assert all(more == (None,) * 5 for _, _, *more in ((a, b, tuple(rest)) for a, b, *rest in rows[:10]) for more in more)
    linear = rows[11]
    assert (database.text(linear[0]), linear[2:4]) == ("aten::linear", (5, 0))
    assert (database.text(linear[4]), database.text(linear[5])) == ("float;\r\nfloat", "2,3;\r\n4,3")
    stack = database.rows(f"SELECT stack, stackDepth FROM PYTORCH_CALLCHAINS WHERE id = {linear[6]} ORDER BY 2")
    assert [(database.text(frame), depth) for frame, depth in stack] == [("a.py(1): f", 0), ("b.py(2): g", 1)]
    assert min(name for name, *_ in rows) >= FRAMEWORK_TEXTS
    values = list(database.texts.values())
    assert len(values) == len(set(values))


def test_samples(result: Callable[..., Any]) -> None:
    _, database, _ = result(ascend_run())
    mb = 1 << 20
    assert database.rows("SELECT deviceId, timestampNs, freq FROM AICORE_FREQ") == [(0, ns(3), 1800)]
    hbm = database.rows("SELECT timestampNs, bandwidth, hbmId, type FROM HBM")
    assert [(*row[:3], database.text(row[3])) for row in hbm] == [(ns(3), 27 * mb, 0, "read"), (ns(3), mb // 2, 0, "write")]
    llc = database.rows("SELECT llcId, timestampNs, hitRate, throughput, mode FROM LLC")
    assert [(*row[:4], database.text(row[4])) for row in llc] == [(0, ns(4), 85.1, 64 * mb, "read")]
    memory = database.rows("SELECT type, ddr, hbm, timestampNs FROM NPU_MEM")
    assert [(database.text(row[0]), *row[1:]) for row in memory] == [("app", 0, 2 * mb, ns(9))]
    assert database.rows("SELECT l2BufferBwLevel, mataBwLevel, timestampNs FROM SOC_BANDWIDTH_LEVEL") == [(3, 4, ns(5))]
    modules = dict(database.rows("SELECT id, name FROM ENUM_MODULE"))
    found = database.rows("SELECT moduleId, totalReserved FROM NPU_MODULE_MEM")
    assert [(modules[module], reserved) for module, reserved in found] == [("APP", 4 * mb), ("AML", 1024)]
    assert modules[33] == "APP" and len(modules) == 79


@pytest.mark.parametrize(
    ("group", "names", "table"),
    [
        ("NIC", ["Port 0/bandwidth", "Port 0/rxPackets"], "NIC"),
        ("RoCE", ["Port 1/txBytes"], "ROCE"),
        ("HCCS", ["HCCS/Tx"], "HCCS"),
        ("PCIe", ["txPostAvg", "rxCplMax"], "PCIE"),
        ("DDR", ["DDR/Read", "DDR/Write"], "DDR"),
        ("Acc PMU", ["read_ost 3"], "ACC_PMU"),
    ],
)
def test_samples_of_connections(result: Callable[..., Any], group: str, names: list[str], table: str) -> None:
    rows = [
        {"group": group, "name": name, "unit": None, "time_ns": ns(at), "value": 2.0 + at, "device": 0}
        for at in (3, 4)
        for name in [*names, "something else"]
    ]
    _, database, _ = result(ascend_run(counters=rows))
    columns = [name for name, _, _ in database.columns(table)]
    found = [dict(zip(columns, row, strict=True)) for row in database.rows(f"SELECT * FROM {table} ORDER BY timestampNs")]
    assert [row["timestampNs"] for row in found] == [ns(3), ns(4)]
    known = {"HCCS": 1 << 20, "DDR": 1 << 20}.get(table, 1)
    for row, at in zip(found, (3, 4), strict=True):
        values = [
            value
            for name, value in row.items()
            if value is not None and name not in ("deviceId", "timestampNs", "funcId", "accId")
        ]
        assert values == [(2 + at) * known] * len(names)


def test_marks_and_overlap(result: Callable[..., Any]) -> None:
    _, database, _ = result(ascend_run())
    marks = database.rows("SELECT startNs, endNs, eventType, message, domainId, connectionId FROM MSTX_EVENTS")
    assert [(*row[:3], database.text(row[3]), database.text(row[4]), row[5]) for row in marks] == [
        (ns(30), ns(30), 0, "point", "default", 4_000_000_000),
        (ns(31), ns(33), 2, "range", "mine", 4_000_000_000),
    ]
    lanes = database.rows("SELECT type, count(*), sum(endNs - startNs) FROM OVERLAP_ANALYSIS GROUP BY type")
    assert lanes == [(0, 3, 14750), (1, 1, 20500), (2, 1, 20500), (3, 3, 105250)]


def test_memory(result: Callable[..., Any]) -> None:
    folder, database, _ = result(ascend_run())
    record = cells(folder, "memory_record.csv")
    found = database.rows("SELECT component, timestamp, totalAllocated, totalReserved, totalActive, streamPtr FROM MEMORY_RECORD")
    expected = [
        (row["Component"], time_ns(row["Timestamp(us)"], BASE_NS), *(megabytes(row[f"Total {what}(MB)"]) for what in TOTALS),
         int(row["Stream Ptr"]) if row["Stream Ptr"] else None)
        for row in record if row["Component"] != "APP"
    ]  # fmt: skip
    assert [(database.text(row[0]), *row[1:]) for row in found] == expected
    assert min(row[0] for row in found) >= MEMORY_TEXTS
    pairs = cells(folder, "operator_memory.csv")
    rows = database.rows("SELECT name, size, allocationTime, releaseTime, activeReleaseTime, duration, streamPtr FROM OP_MEMORY")
    assert [(database.texts.get(row[0], ""), *row[1:]) for row in rows] == [
        (row["Name"].removeprefix("cann::"), int(float(row["Size(KB)"]) * 1024), time_ns(row["Allocation Time(us)"], BASE_NS),
         time_ns(row["Release Time(us)"], BASE_NS), time_ns(row["Active Release Time(us)"], BASE_NS),
         time_ns(row["Duration(us)"]), int(row["Stream Ptr"]) if row["Stream Ptr"] else None)
        for row in pairs
    ]  # fmt: skip


TOTALS = ("Allocated", "Reserved", "Active")


def megabytes(cell: str) -> int | None:
    return round(float(cell) * (1 << 20)) if cell else None


def test_analysis_has_the_rows_of_the_text_files(result: Callable[..., Any]) -> None:
    folder, _, analysis = result(ascend_run())
    steps = [[float(value) for value in row.values()] for row in cells(folder, "step_trace_time.csv")]
    assert [[float(value) for value in row] for row in analysis.rows("SELECT * FROM StepTraceTime")] == steps
    found = json.loads((folder / "communication.json").read_bytes())
    expected = {
        (
            step,
            kind,
            *key.split("@"),
            *(info["Communication Time Info"][f"{part} Time(ms)"] for part in ("Elapse", "Transit", "Wait")),
        )
        for step, classes in found.items()
        for kind, operations in classes.items()
        for key, info in operations.items()
        if key != "Total Op Info"
    }
    rows = analysis.rows(
        "SELECT step, type, hccl_op_name, group_name, elapse_time, transit_time, wait_time FROM CommAnalyzerTime"
    )
    assert set(rows) == expected and len(rows) == len(TIMES)
    bandwidth = analysis.rows(
        "SELECT transport_type, transit_size, bandwidth, package_size, count, step FROM CommAnalyzerBandwidth"
    )
    assert Counter(bandwidth) == {("HCCS", 8, 16, 8, 1, "step1"): 2, ("HCCS", 8, 16, 8, 1, "step0"): 1}
    assert len(BANDWIDTH) == 15
    matrix = json.loads((folder / "communication_matrix.json").read_bytes())
    links = {
        (step, kind, *key.split("@"), *pair.split("-"), info["Bandwidth(GB/s)"], info.get("Op Name", ""))
        for step, classes in matrix.items()
        for kind, selected in classes.items()
        for key, pairs in selected.items()
        for pair, info in pairs.items()
    }
    query = "SELECT step, type, hccl_op_name, group_name, src_rank, dst_rank, bandwidth, op_name FROM CommAnalyzerMatrix"
    assert set(analysis.rows(query)) == links


def test_communication_that_was_not_measured_has_its_elapsed_time_only(result: Callable[..., Any]) -> None:
    communication = [
        {"name": "gloo:all_reduce", "kind": "collective", "group": "dp", "device": 0, "start_ns": ns(5), "end_ns": ns(1005)},
    ]
    folder, _, analysis = result(build(ops=[op("a", 1, 2000)], kernels=[kernel("k", 1, 2)], communication=communication))
    ((*_, elapse, transit, wait, sync, idle, step, kind),) = analysis.rows("SELECT * FROM CommAnalyzerTime")
    assert (elapse, transit, wait, sync, idle, step, kind) == (1.0, None, None, None, None, "step", "collective")
    group = str(group_hash("dp"))
    name = f"hcom_allReduce__{group[-3:]}_0_0@{group}"
    times = json.loads((folder / "communication.json").read_bytes())
    start = (ns(5) - json.loads((folder / rundir.STATUS_FILE).read_bytes())["base_time_ns"]) / 1000
    assert times == {
        "step": {
            "p2p": {},
            "collective": {
                name: {
                    "Communication Time Info": {"Start Timestamp(us)": start, "Elapse Time(ms)": 1.0},
                    "Communication Bandwidth Info": {},
                },
                "Total Op Info": {"Communication Time Info": {"Elapse Time(ms)": 1.0}, "Communication Bandwidth Info": {}},
            },
        }
    }


_COPY = {"core": "CUDA", "kind": "copy", "type": "gpu_memcpy"}


def cuda(name: str, start: float, **values: Any) -> dict[str, Any]:
    """A runtime call of one µs."""
    times = {"start_ns": ns(start), "end_ns": ns(start + 1), "pid": PID, "tid": MAIN}
    return {"name": name, "layer": "cuda_runtime", **times, **values}


TRACES: dict[str, Callable[[], Trace]] = {
    "ascend": ascend_run,
    "cpu": training_step,
    "gpu": lambda: build(
        meta={"rank": 3},
        ops=[op("aten::mm", 1, 9, stack="x"), op("nccl:all_reduce", 10, 20)],
        api=[
            cuda("cudaLaunchKernel", 2, correlation=7),
            cuda("cudaMemcpyAsync", 4, correlation=8),
            cuda("cudaDeviceSynchronize", 6),
        ],
        kernels=[
            kernel("gemm", 10, 20, core="CUDA", stream=7, correlation=7, op=0, type="kernel"),
            kernel("Memcpy HtoD (Pageable -> Device)", 5, 6, **_COPY, stream=7, correlation=8, bytes=64),
            kernel("ncclKernel_AllReduce", 21, 29, core="CUDA", stream=9, correlation=9, kind="communication", op=1),
        ],
        communication=[
            {"name": "ncclKernel_AllReduce", "kind": "collective", "group": "dp", "dtype": "Float", "start_ns": ns(21),
             "end_ns": ns(29), "device": 0, "stream": 9, "correlation": 9, "op": 1},
        ],
        gc=[{"start_ns": ns(30), "end_ns": ns(31), "pid": PID, "tid": PID}],
    ),
}  # fmt: skip


@pytest.fixture(params=TRACES)
def trace(request: pytest.FixtureRequest) -> Trace:
    return TRACES[request.param]()


def test_text_and_database_agree(result: Callable[..., Any], trace: Trace) -> None:
    """Same rows: operator calls, device tasks, collectives, runtime calls, collections, steps, with names and times."""
    folder, database, _ = result(trace)
    timeline = json.loads((folder / "trace_view.json").read_bytes())
    names = {event["pid"]: event["args"]["name"] for event in timeline if event["name"] == "process_name"}

    def drawn(process: str, category: str | None = None) -> Counter[Any]:
        return Counter(
            (event["name"], BASE_NS + round(event["ts"] * 1000), round(event["dur"] * 1000))
            for event in timeline
            if event["ph"] == "X"
            and names[event["pid"]] == process
            and event.get("cat") == category
            and "plane" not in event.get("args", {})
        )

    def stored(query: str, prefix: Callable[[int], str] = lambda _: "") -> Counter[Any]:
        return Counter(
            (prefix(key) + str(database.text(name)), start, end - start) for name, start, end, key in database.rows(query)
        )

    api = "SELECT name, startNs, endNs, type FROM PYTORCH_API WHERE type"
    assert stored(f"{api} = 50001") == drawn("Python", "cpu_op")
    assert stored(f"{api} = 50003") == drawn("Python", "python_function")
    assert stored(f"{api} = 50002") == drawn("Python", "enqueue") + drawn("Python", "dequeue")
    collectives = drawn("Communication")
    if "COMMUNICATION_OP" in database.tables():
        assert stored("SELECT opName, startNs, endNs, 0 FROM COMMUNICATION_OP") == collectives
    else:
        assert not collectives
    hardware = drawn("Ascend Hardware")
    times = Counter((start, end - start) for start, end in database.rows("SELECT startNs, endNs FROM TASK"))
    assert times == Counter({(start, length): 0 for _, start, length in hardware}) + Counter(
        (start, length) for _, start, length in hardware.elements()
    )
    if trace.has_accelerator:
        prefixes = {20000: "AscendCL@", 10000: "Node@", 5500: "Communication@", 5000: "Runtime@"}
        npu = "MatMulV3" in {name for name, _, _ in hardware}
        found = stored("SELECT name, startNs, endNs, type FROM CANN_API", lambda kind: prefixes[kind] if npu else "")
        assert found == drawn("CANN")
    if "GC_RECORD" in database.tables():
        collections = Counter((start, end - start) for start, end in database.rows("SELECT startNs, endNs FROM GC_RECORD"))
        assert collections == Counter((start, length) for _, start, length in drawn("Python GC", "GC").elements())
    listed = cells(folder, "kernel_details.csv")
    details = Counter(
        (row["Name"], time_ns(row["Start Time(us)"], BASE_NS), time_ns(row["Duration(us)"]))
        for row in listed
        if "Memcpy" not in row["Name"]
    )
    computing = "SELECT c.name, t.startNs, t.endNs, 0 FROM COMPUTE_TASK_INFO c JOIN TASK t USING (globalTaskId)"
    # kernel_details.csv lists a GPU's kernels by their own names
    recorded = {
        event["name"]: event.get("args", {}).get("recorded as", event["name"]) for event in timeline if event["ph"] == "X"
    }
    kernels = Counter({(recorded[name], start, length): count for (name, start, length), count in collectives.items()})
    assert stored(computing) + kernels == details
    totals = {(row["OP Type"], row["Core Type"]): int(row["Count"]) for row in cells(folder, "op_statistic.csv")}
    types = database.rows("SELECT opType, taskType, count(*) FROM COMPUTE_TASK_INFO GROUP BY 1, 2")
    copies = {key: count for key, count in totals.items() if "memcpy" in key[0]}
    assert {(database.text(type_), database.text(core)): count for type_, core, count in types} == {
        key: count for key, count in totals.items() if key not in copies
    }


def test_a_gpu_speaks_the_clients_language(result: Callable[..., Any]) -> None:
    _, database, _ = result(TRACES["gpu"]())
    types = [database.text(type_) for (type_,) in database.rows("SELECT taskType FROM TASK ORDER BY startNs")]
    assert types == ["MEMCPY_ASYNC", "CUDA", "CUDA"]
    assert database.rows("SELECT * FROM MEMCPY_INFO") == [(1, 64, 1)]
    assert database.rows("SELECT dataType FROM COMMUNICATION_OP") == [(4,)]
    owners = database.rows("SELECT i.globalTaskId, o.opId FROM COMMUNICATION_TASK_INFO i JOIN COMMUNICATION_OP o USING (opId)")
    assert owners == [(2, 1)]
    assert [number for (number,) in database.rows("SELECT connectionId FROM CANN_API ORDER BY startNs")] == [7, 8, 10]
    assert database.rows("SELECT * FROM RANK_DEVICE_MAP") == [(3, 0)]


def test_a_task_of_the_cpu_is_its_own_launch(result: Callable[..., Any]) -> None:
    _, database, _ = result(training_step())
    rows = database.rows(
        "SELECT a.startNs, a.endNs, a.globalTid, a.name, a.type, t.startNs, p.name "
        "FROM CANN_API a JOIN TASK t USING (connectionId) JOIN CONNECTION_IDS c USING (connectionId) "
        "JOIN PYTORCH_API p ON p.connectionId = c.id ORDER BY 1"
    )
    assert [
        (start, end, tid, database.text(name), kind, task, database.text(owner))
        for start, end, tid, name, kind, task, owner in rows
    ] == [
        (ns(4), ns(4), PID << 32 | MAIN, "launch", 10000, ns(4), "aten::mm"),
        (ns(80), ns(80), PID << 32 | MAIN, "launch", 10000, ns(80), "aten::add"),
    ]


def test_an_unknown_rank_has_no_suffix_and_no_device(result: Callable[..., Any]) -> None:
    folder, database, _ = result(build(ops=[op("a", 1, 2)], kernels=[kernel("k", 1, 2)]))
    assert (folder / "ascend_pytorch_profiler.db").is_file()
    assert database.rows("SELECT * FROM RANK_DEVICE_MAP") == [(-1, -1)]
    assert database.rows("SELECT * FROM HOST_INFO") == [("unknown", "unknown")]


def test_marks_of_operators_have_a_type_of_their_own(result: Callable[..., Any]) -> None:
    _, database, _ = result(build(ops=[op("mstx_mark_op", 1, 2), op("a", 3, 4)]))
    rows = database.rows("SELECT name, type FROM PYTORCH_API")
    assert [(database.text(name), kind) for name, kind in rows] == [("a", 50001), ("mstx_mark_op", 50004)]


def test_modules_of_hooks_are_calls_of_python(result: Callable[..., Any]) -> None:
    _, database, _ = result(build(ops=[op("nn.Module: Net_0", 1, 9, scope=100), op("a", 3, 4, parent=0)]))
    rows = database.rows("SELECT name, type FROM PYTORCH_API")
    assert [(database.text(name), kind) for name, kind in rows] == [("nn.Module: Net_0", 50003), ("a", 50001)]


def test_clients_can_search_by_time_and_connection(result: Callable[..., Any]) -> None:
    _, database, _ = result(ascend_run())
    indexed = {
        (table, sql.split("(")[1].rstrip(")"))
        for table, sql in database.rows("SELECT tbl_name, sql FROM sqlite_master WHERE type = 'index'")
    }
    assert {("TASK", "startNs, globalTaskId"), ("TASK", "connectionId"), ("CONNECTION_IDS", "connectionId")} <= indexed
    plan = database.rows("EXPLAIN QUERY PLAN SELECT * FROM PYTORCH_API WHERE connectionId = 3")
    assert "USING INDEX" in str(plan)


def test_hostile_names_are_values(result: Callable[..., Any]) -> None:
    name = "x'); DROP TABLE TASK; --\x00\U0001f600"
    _, database, _ = result(build(ops=[op(name, 1, 2, stack=name, input_shapes=name)], kernels=[kernel(name, 1, 2)]))
    assert [database.text(value) for (value,) in database.rows("SELECT name FROM PYTORCH_API")] == [name]
    assert database.rows("SELECT count(*) FROM TASK") == [(1,)]


def test_numbers_that_damaged_data_has_fail_nothing(result: Callable[..., Any]) -> None:
    huge = 2**63 - 1
    tasks = [
        kernel("k", 1, 2, id=7, core="AI_CORE", correlation=huge, stream=huge, model_id=-huge, op=10**9),
        kernel("k", 2, 3, id=7, core="AI_CORE", correlation=-5, device=2**31 - 1),
        kernel("k", 3, 4, id=8, core="AI_CORE", correlation=MISSING),
        kernel("k", 3, 4, id=9, core="AI_CORE", correlation=3),
    ]
    queue = {"correlation": huge, "pid": PID, "enqueue_tid": huge, "enqueue_start_ns": ns(1), "enqueue_end_ns": ns(2)}
    api = [{"name": "launch", "layer": "node", "start_ns": ns(1), "end_ns": ns(2), "correlation": 3, "tid": huge}] * 2
    metrics = [{"kernel": 9, "name": "m", "value": value} for value in (float("nan"), float("inf"), 2.5)]
    _, database, _ = result(
        build(ops=[op("a", 1, 2, tid=-1, sequence=huge)], kernels=tasks, task_queue=[queue], api=api, kernel_metrics=metrics)
    )
    connections = [number for (number,) in database.rows("SELECT connectionId FROM TASK ORDER BY startNs, globalTaskId")]
    assert connections == [4, 5, 6, 3]
    assert database.rows("SELECT connectionId FROM CANN_API") == [(3,), (7,)]
    assert database.rows("SELECT globalTaskId FROM COMPUTE_TASK_INFO") == [(7,), (8,), (9,)]
    assert database.rows("SELECT globalTaskId, value FROM TASK_PMU_INFO") == [(9, 2.5)]


def test_a_failure_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("disk full")

    monkeypatch.setattr("steplens.writers.database.database.database_framework.write_memory", fail)
    statuses = write_result(ascend_run(), tmp_path, Settings(level="Level1"), export_types=[DATABASE])
    assert statuses["ascend_pytorch_profiler_0.db"].reason == "RuntimeError: disk full"
    assert statuses["analysis.db"].status == "done"
    assert sorted(path.name for path in (tmp_path / rundir.OUTPUT_DIRECTORY).iterdir()) == [rundir.STATUS_FILE, "analysis.db"]


def test_export_types(tmp_path: Path) -> None:
    folder = tmp_path / rundir.OUTPUT_DIRECTORY
    databases = {"ascend_pytorch_profiler_0.db", "analysis.db"}

    def written(**options: Any) -> set[str]:
        statuses = write_result(ascend_run(), tmp_path, Settings(level="Level1"), **options)
        found = {path.name for path in folder.iterdir()} - {rundir.STATUS_FILE, rundir.COMPLETION_MARKER}
        assert found == {name for name, status in statuses.items() if status.status == "done"}
        assert (folder / rundir.COMPLETION_MARKER).exists()
        assert all(path.stat().st_mode & 0o777 == 0o640 for path in folder.iterdir())
        return found

    both = written(export_types=[TEXT, DATABASE])
    assert databases < both
    assert written() == both - databases
    assert written(export_types=[DATABASE]) == databases
    for wrong in ([], ["excel"]):
        with pytest.raises(ValueError, match="export_types"):
            write_result(ascend_run(), tmp_path, Settings(), export_types=wrong)


def test_levels_of_the_databases(tmp_path: Path) -> None:
    statuses = write_result(ascend_run(), tmp_path, Settings(level="Level_none"), export_types=[DATABASE])
    assert {name: status.status for name, status in statuses.items()} == {
        "ascend_pytorch_profiler_0.db": "done", "analysis.db": "skipped",
    }  # fmt: skip
    without = ascend_run(without=["communication_times", "communication_bandwidth", "communication_matrix", "communication"])
    write_result(without, tmp_path, Settings(level="Level0"), export_types=[DATABASE])
    path = tmp_path / rundir.OUTPUT_DIRECTORY / "analysis.db"
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall() == [("StepTraceTime",)]
    connection.close()


def test_nothing_to_write(tmp_path: Path) -> None:
    with pytest.raises(NothingToWriteError, match="no events"):
        write(Output(build(), BASE_NS), tmp_path / "x.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("count", [0, 1, 89, 90, 91, 20_000, 20_001, 45_678])
def test_rows_at_the_edges_of_pieces(tmp_path: Path, count: int) -> None:
    path = tmp_path / "x.db"
    frame = pl.DataFrame({"endNs": pl.int_range(count, eager=True), "id": pl.int_range(count, eager=True) * 7}).with_columns(
        startNs=None
    )
    with DatabaseFile(path, PROFILER_TABLES) as file:
        file.frame("STEP_TIME", frame)
    connection = sqlite3.connect(path)
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    assert tables == ((1,) if count else (0,))
    if count:
        assert connection.execute("SELECT id, startNs, endNs FROM STEP_TIME").fetchall() == [
            (7 * n, None, n) for n in range(count)
        ]
    connection.close()


def test_a_text_has_one_id(tmp_path: Path) -> None:
    with DatabaseFile(tmp_path / "x.db", PROFILER_TABLES) as file:
        first = file.text_ids(pl.Series(["a", None, "b", "a"]), FRAMEWORK_TEXTS, missing="none")
        assert first.to_list() == [FRAMEWORK_TEXTS, FRAMEWORK_TEXTS + 2, FRAMEWORK_TEXTS + 1, FRAMEWORK_TEXTS]
        assert file.text_ids(pl.Series(["c", "b"])).to_list() == [0, FRAMEWORK_TEXTS + 1]
        assert file.text_ids(pl.Series([None, "c"], dtype=pl.String), missing=MISSING).to_list() == [MISSING, 0]
        assert file.text_ids(pl.Series([None], dtype=pl.String)).to_list() == [None]
        assert file.text_ids(pl.Series([], dtype=pl.Categorical())).to_list() == []


@pytest.mark.slow
def test_a_million_rows(tmp_path: Path) -> None:
    trace = synthetic(ops=200_000, kernels=100_000, memory_events=100_000)
    write(Output(trace, BASE_NS, "Level1"), tmp_path / "x.db")
    database = Database(tmp_path / "x.db")
    assert database.rows("SELECT count(*), sum(endNs - startNs) FROM TASK") == [(100_000, 100_000 * 9_123)]
    assert database.rows("SELECT count(*) FROM PYTORCH_API") == [(200_000,)]
    assert database.rows("SELECT count(*) FROM MEMORY_RECORD") == [(200_000,)]
    database.connection.close()
