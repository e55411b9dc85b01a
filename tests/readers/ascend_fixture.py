"""Writes captures of the Ascend PyTorch Profiler with exactly known times: a small golden one and large ones.

An independent writer of the formats: it shares nothing with the readers. Times of the golden capture are µs after ``OFF``;
``FRAMEWORK/`` holds them in ns without ``OFF``, everything of CANN with it.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
import sqlite3
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OFF = 1_700_000_000_000_000_000
PID = 1000
MAIN, BACKWARD, DEQUEUE = 1001, 1002, 1003
STAMP = "20231115061320"
RUN_NAME = f"host_1000_{STAMP}000_ascend_pt"
PROF_NAME = f"PROF_000001_{STAMP}000_ABCDEF"

CANN_PID = (PID << 10) | (7 << 5) | 31
HARDWARE_PID = (PID << 10) | (14 << 5) | 0
COMMUNICATION_PID = (PID << 10) | (16 << 5) | 0
OVERLAP_PID = (PID << 10) | (20 << 5) | 0

MIB = 1 << 20


def ns(us: float) -> int:
    return round(us * 1000)


# --- FRAMEWORK: framing -------------------------------------------------------------------------------------------------


def tagged(kind: int, fixed: bytes, fields: Mapping[int, str | bytes]) -> bytes:
    """One record: type, length, fixed struct, then id, length and text of each field."""
    body = bytearray(fixed)
    for number, text in fields.items():
        raw = text.encode() if isinstance(text, str) else text
        body += struct.pack("<HI", number, len(raw)) + raw
    return struct.pack("<HI", kind, len(body)) + bytes(body)


def op_range(
    name: str,
    start_ns: int,
    end_ns: int,
    *,
    tid: int = MAIN,
    pid: int = PID,
    sequence: int = -1,
    forward: int = 0,
    scope: int = 0,
    types: str = "",
    shapes: str = "",
    stack: str = "",
    module: str = "",
    more: Mapping[int, str | bytes] | None = None,
) -> bytes:
    fixed = struct.pack("<3q4QB?", start_ns, end_ns, sequence, pid, tid, tid, forward, scope, False)
    fields: dict[int, str | bytes] = {2: name}
    for number, text in ((3, types), (4, shapes), (8, stack), (9, module)):
        if text:
            fields[number] = text
    return tagged(1, fixed, {**fields, **(more or {})})


def op_mark(category: int, time_ns: int, correlation: int, name: str, *, tid: int, pid: int = PID) -> bytes:
    return tagged(2, struct.pack("<q4Q", time_ns, category, correlation, tid, pid), {1: name})


def memory_usage(
    address: int,
    time_ns: int,
    size: int,
    *,
    event: int = 0,
    allocated: int = 0,
    reserved: int = 20 * MIB,
    active: int = 0,
    stream: int = 77,
    device_type: int = 20,
    device: int = 0,
    component: int = 0,
    allocator: int = 0,
    tid: int = MAIN,
    pid: int = PID,
) -> bytes:
    return tagged(
        3,
        struct.pack(
            "<7q2b3B2Q", address, time_ns, size, allocated, reserved, active, stream,
            device_type, device, component, event, allocator, tid, pid,
        ),
        {},
    )  # fmt: skip


def python_name(key: int, text: str | bytes) -> bytes:
    return tagged(4, struct.pack("<Q", key), {1: text})


def parameter(key: int, module: str = "", optimizer: str = "") -> bytes:
    fields: dict[int, str | bytes] = {number: text for number, text in ((1, module), (2, optimizer)) if text}
    return tagged(5, struct.pack("<Q", key), fields)


def python_event(time_ns: int, key: int, tag: int, *, tid: int = MAIN, pid: int = PID) -> bytes:
    return struct.pack("<4QB", time_ns, tid, pid, key, tag)


def collection(start_ns: int, end_ns: int, *, pid: int = PID) -> bytes:
    return struct.pack("<3Q", pid, start_ns, end_ns)


def write_framework(run: Path, files: Mapping[str, Iterable[bytes]]) -> Path:
    folder = run / "FRAMEWORK"
    folder.mkdir(parents=True, exist_ok=True)
    for name, records in files.items():
        (folder / name).write_bytes(b"".join(records))
    return folder


# --- FRAMEWORK: the golden records ---------------------------------------------------------------------------------------


def golden_ops() -> list[bytes]:
    shapes = {"types": "float;float"}
    return [
        op_range("ProfilerStep#0", ns(1), ns(100)),
        op_range("aten::linear", ns(2), ns(30), sequence=5, shapes="2,3;4,3", stack="a.py(1): f;b.py(2): g", **shapes),
        op_range("aten::mm", ns(4), ns(20), sequence=6, shapes="2,3;3,4", stack="a.py(9): h;b.py(2): g", **shapes),
        op_range(
            "autograd::engine::evaluate_function: LinearBackward0",
            ns(40), ns(70), tid=BACKWARD, sequence=5, forward=1, scope=1,
        ),
        op_range("aten::mm", ns(45), ns(60), tid=BACKWARD),
        op_range("ProfilerStep#1", ns(100.001), ns(200)),
        op_range("aten::add", ns(110), ns(120), shapes="2;2", **shapes),
    ]  # fmt: skip


def stepless_ops() -> list[bytes]:
    return [
        op_range("aten::mm", ns(4), ns(20)),
        op_range("aten::mmb", ns(45), ns(60), tid=BACKWARD),
        op_range("aten::add", ns(110), ns(120)),
    ]


def interleaved_ops() -> list[bytes]:
    """Calls of two threads that overlap in time."""
    return [
        op_range("ProfilerStep#0", ns(1), ns(100)),
        op_range("A", ns(2), ns(10)),
        op_range("B", ns(3), ns(20), tid=BACKWARD),
        op_range("C", ns(4), ns(9)),
        op_range("D", ns(12), ns(19)),
    ]


#: correlation id, task, enqueue start and end µs, its thread, dequeue start and end µs
GOLDEN_QUEUE = (
    (1, "aclnnMm", 5, 6, MAIN, 7, 9),
    (2, "aclnnMmB", 47, 48, BACKWARD, 49, 52),
    (3, "aclnnAdd", 111, 112, MAIN, 113, 115),
)


def golden_marks() -> list[bytes]:
    return [
        op_mark(category, ns(us), correlation, name, tid=tid)
        for correlation, name, begin, end, enqueue_tid, dequeued, done in GOLDEN_QUEUE
        for category, us, tid in (
            (0, begin, enqueue_tid),
            (1, end, enqueue_tid),
            (2, dequeued, DEQUEUE),
            (3, done, DEQUEUE),
        )
    ]


def golden_memory() -> list[bytes]:
    return [
        memory_usage(0x100, ns(4.5), 2 * MIB, allocated=2 * MIB, active=2 * MIB),
        memory_usage(0x100, ns(19), -2 * MIB, event=1, allocated=0, active=2 * MIB),
        memory_usage(0x100, ns(21), -2 * MIB, event=2, allocated=0, active=0),
        memory_usage(0x200, ns(8), 512, tid=DEQUEUE, component=1, allocated=512, active=512),
        memory_usage(0x300, ns(112.5), 1024, allocated=1024, active=1024),
        memory_usage(0x400, ns(111.5), 4096, allocated=4096, reserved=0, stream=0, device_type=0, device=-1),
    ]


def golden_framework(ops: Sequence[bytes] | None = None, *, queue: bool = True) -> dict[str, list[bytes]]:
    files = {
        "torch.op_range": list(golden_ops() if ops is None else ops),
        "torch.memory_usage": golden_memory(),
        "torch.python_tracer_func": [
            python_event(ns(1.5), 11, 0),
            python_event(ns(1.6), 12, 0),
            python_event(ns(1.7), 13, 2),
            python_event(ns(1.8), 13, 3),
            python_event(ns(35), 12, 1),
        ],
        "torch.python_tracer_hash": [
            python_name(11, "a.py(1): f"),
            python_name(12, "Linear######140"),
            python_name(13, "<built-in method x>"),
        ],
        "torch.gc_record": [collection(ns(80), ns(90))],
    }
    if queue:
        files["torch.op_mark"] = golden_marks()
    return files


# --- side files ----------------------------------------------------------------------------------------------------------


def profiler_info(
    *,
    level: str = "Level1",
    export: Sequence[str] = ("text",),
    cpu_only: bool = False,
    start_info: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    activities = ["ProfilerActivity.CPU"] + ([] if cpu_only else ["ProfilerActivity.NPU"])
    return {
        "config": {
            "common_config": {
                "activities": activities, "schedule": None, "record_shapes": True, "profile_memory": True,
                "with_stack": True, "with_flops": False, "with_modules": False,
            },
            "experimental_config": {
                "_profiler_level": level, "_aic_metrics": "ACL_AICORE_PIPE_UTILIZATION", "_l2_cache": False,
                "_msprof_tx": False, "_mstx": False, "_data_simplification": False, "record_op_args": False,
                "_export_type": list(export), "_host_sys": [], "_op_attr": False, "_gc_detect_threshold": 1,
                "_mstx_domain_include": [], "_mstx_domain_exclude": [], "_sys_io": False, "_sys_interconnection": False,
            },
        },
        "start_info": {"syscnt_enable": False, "freq": 0, "start_cnt": 0, "start_monotonic": 0, **(start_info or {})},
        "end_info": {"collectionTimeEnd": OFF + 1_000_000, "MonotonicTimeEnd": 1_000_000},
        "torch_npu_version": "2.7.1",
        "cann_version": "8.3.RC1",
        "rank_id": 0,
    }  # fmt: skip


def write_json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def write_prof(run: Path) -> Path:
    """The raw part of a ``PROF_*`` directory: nothing exported."""
    prof = run / PROF_NAME
    (prof / "device_0" / "data").mkdir(parents=True)
    write_json(prof / "host" / "start_info", {"collectionTimeBegin": str(OFF // 1000), "clockMonotonicRaw": "0"})
    write_json(prof / "host" / "info.json", {"CPU": [{"Frequency": "100.0"}]})
    return prof


# --- CANN, text ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kernel:
    connection: int
    name: str
    launch_us: float
    start_us: float
    duration_us: float
    core: str


GOLDEN_KERNELS = (
    Kernel(1, "MatMulV3", 8, 20, 5, "AI_CORE"),
    Kernel(2, "MatMulV3b", 50, 55, 7.5, "AI_CORE"),
    Kernel(3, "Add", 114, 116, 2.25, "AI_VECTOR_CORE"),
)


def us_text(time_ns: int) -> str:
    """Unix ns as µs with three decimals."""
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


def at(us: float) -> str:
    return us_text(OFF + ns(us))


def process(pid: int, name: str, label: str, sort: int) -> list[dict[str, Any]]:
    return [
        {"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": {"name": name}},
        {"name": "process_labels", "ph": "M", "pid": pid, "tid": 0, "args": {"labels": label}},
        {"name": "process_sort_index", "ph": "M", "pid": pid, "tid": 0, "args": {"sort_index": sort}},
    ]


def timeline_head() -> list[dict[str, Any]]:
    return [
        *process(CANN_PID, "CANN", "CPU", 7),
        *process(HARDWARE_PID, "Ascend Hardware", "NPU 0", 14),
        *process(COMMUNICATION_PID, "Communication", "NPU 0", 16),
        *process(OVERLAP_PID, "Overlap Analysis", "NPU 0", 20),
    ]


def span(name: str, pid: int, tid: int, us: float, duration: float, **args: Any) -> dict[str, Any]:
    return {"name": name, "pid": pid, "tid": tid, "ts": at(us), "dur": duration, "ph": "X", "args": args}


def golden_timeline(kernels: Sequence[Kernel] = GOLDEN_KERNELS) -> list[dict[str, Any]]:
    events = timeline_head()
    for kernel in kernels:
        flow = kernel.connection << 32
        flow_event = {"name": f"HostToDevice{flow}", "cat": "HostToDevice", "id": str(flow)}
        events += [
            span("Node@launch", CANN_PID, DEQUEUE, kernel.launch_us, 0.5, connection_id=kernel.connection),
            span(
                kernel.name, HARDWARE_PID, 2, kernel.start_us, kernel.duration_us,
                **{"Task Type": kernel.core, "connection_id": kernel.connection},
            ),
            {**flow_event, "ph": "s", "pid": CANN_PID, "tid": DEQUEUE, "ts": at(kernel.launch_us)},
            {**flow_event, "ph": "f", "bp": "e", "pid": HARDWARE_PID, "tid": 2, "ts": at(kernel.start_us)},
            span("Computing", OVERLAP_PID, 0, kernel.start_us, kernel.duration_us),
        ]  # fmt: skip
    return [
        *events,
        span("Communication", OVERLAP_PID, 1, 22, 10),
        span("Communication(Not Overlapped)", OVERLAP_PID, 2, 25, 7),
        span("hcom_receive__123_0_1", COMMUNICATION_PID, 0, 22, 4),
        span("Free", OVERLAP_PID, 3, 32, 23),
        span("Free", OVERLAP_PID, 3, 62.5, 53.5),
    ]


OP_SUMMARY = (
    "Device_id", "Model ID", "Task ID", "Stream ID", "Op Name", "OP Type", "Task Type", "Task Start Time(us)",
    "Task Duration(us)", "Task Wait Time(us)", "Block Num", "Input Shapes",
)  # fmt: skip


def golden_tables(kernels: Sequence[Kernel] = GOLDEN_KERNELS) -> dict[str, list[Sequence[Any]]]:
    """Kind of CSV file -> its header and rows; times carry a trailing tab, as CANN writes them."""
    return {
        "op_summary": [
            OP_SUMMARY,
            *(
                (
                    0, 4294967295, k.connection, 2, k.name, k.name, "AI_CORE", at(k.start_us) + "\t", k.duration_us, 0,
                    20, '"2,3;3,4"',
                )
                for k in kernels
            ),
        ],
        "memory_record": [
            ("Device_id", "Component", "Timestamp(us)", "Total Allocated(KB)", "Total Reserved(KB)", "Device"),
            (0, "GE", at(10) + "\t", 1024, 2048, "NPU:0"),
        ],
        "operator_memory": [
            (
                "Device_id", "Name", "Size(KB)", "Allocation Time(us)", "Duration(us)", "Allocation Total Allocated(KB)",
                "Allocation Total Reserved(KB)", "Release Total Allocated(KB)", "Release Total Reserved(KB)", "Device",
            ),
            (0, "GeOp", 16.0, at(10) + "\t", 2.5, 1024, 2048, 0, 2048, "NPU:0"),
        ],
        "npu_mem": [
            ("Device_id", "event", "ddr(KB)", "hbm(KB)", "memory(KB)", "timestamp(us)"),
            (0, "APP", 0, 2048, 2048, at(9) + "\t"),
            (0, "Device", 0, 4096, 4096, at(9) + "\t"),
        ],
        "npu_module_mem": [
            ("Device_id", "Component", "Timestamp(us)", "Total Reserved(KB)", "Device"),
            (0, "APP", at(9) + "\t", 4096.0, "NPU:0"),
        ],
    }  # fmt: skip


def write_csv(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", newline="") as handle:
        csv.writer(handle).writerows(rows)


def golden_communication() -> dict[str, Any]:
    unused = {
        "Transit Size(MB)": 0,
        "Transit Time(ms)": 0,
        "Bandwidth(GB/s)": 0,
        "Large Packet Ratio": 0,
        "Size Distribution": {},
    }
    hccs = {
        "Transit Size(MB)": 8, "Transit Time(ms)": 0.5, "Bandwidth(GB/s)": 16, "Large Packet Ratio": 1.0,
        "Size Distribution": {"8.0": [1, 0.5]},
    }  # fmt: skip
    bandwidth = {name: hccs if name == "HCCS" else unused for name in ("RDMA", "HCCS", "PCIE", "SDMA", "SIO")}
    rows = (
        ("hcom_allReduce__123_0_1@g0", at(22), 2.0, 0.5, 0.25, 0.25, 0.1),
        ("hcom_allReduce__123_1_1@g0", at(23), 1.0, 0.5, 0, 0, 0.1),
        ("hcom_receive__123_0_1@g1", at(24), 1.0, 0.25, 0.75, 0, 0),
        ("Total Op Info", "0", 0, 0, 0, 0, 0),
    )
    return {
        name: {
            "Communication Time Info": {
                "Start Timestamp(us)": float(start), "Elapse Time(ms)": elapse, "Transit Time(ms)": transit,
                "Wait Time(ms)": wait, "Synchronization Time(ms)": sync, "Idle Time(ms)": idle,
                "Wait Time Ratio": 0.5, "Synchronization Time Ratio": 0.1,
            },
            "Communication Bandwidth Info": bandwidth,
        }
        for name, start, elapse, transit, wait, sync, idle in rows
    }  # fmt: skip


def golden_matrix() -> dict[str, Any]:
    rows = (
        ("hcom_allReduce__123_0_1@g0", "0-1", 4, 0.5, 8),
        ("hcom_allReduce__123_0_1@g0", "1-0", 4, 0.25, 16),
        ("hcom_allReduce__123_1_1@g0", "0-1", 4, 0.25, 16),
        ("hcom_receive__123_0_1@g1", "1-0", 1, 0.5, 2),
        ("Total Op Info", "0-1", 1, 1, 1),
    )
    matrix: dict[str, Any] = {}
    for name, link, size, time, bandwidth in rows:
        matrix.setdefault(name, {})[link] = {
            "Transport Type": "HCCS", "Transit Size(MB)": size, "Transit Time(ms)": time, "Bandwidth(GB/s)": bandwidth,
        }  # fmt: skip
    return matrix


def write_text_export(prof: Path, kernels: Sequence[Kernel] = GOLDEN_KERNELS) -> None:
    """``mindstudio_profiler_output`` and ``analyze`` as msprof writes them in text."""
    out = prof / "mindstudio_profiler_output"
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / f"msprof_{STAMP}.json", golden_timeline(kernels))
    for kind, rows in golden_tables(kernels).items():
        write_csv(out / f"{kind}_{STAMP}.csv", rows)
    write_json(prof / "analyze" / "communication.json", golden_communication())
    write_json(prof / "analyze" / "communication_matrix.json", golden_matrix())


# --- CANN, database ------------------------------------------------------------------------------------------------------


def write_table(connection: sqlite3.Connection, name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
    connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows)


#: table of msprof_<n>.db -> its columns
DATABASE = {
    "STRING_IDS": "id INTEGER PRIMARY KEY, value TEXT",
    "ENUM_API_TYPE": "id INTEGER PRIMARY KEY, name TEXT",
    "CANN_API": "startNs INTEGER, endNs INTEGER, type INTEGER, globalTid INTEGER, connectionId INTEGER PRIMARY KEY, name INTEGER",
    "TASK": "startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER, globalTaskId INTEGER, globalPid INTEGER, "
    "taskType INTEGER, contextId INTEGER, streamId INTEGER, taskId INTEGER, modelId INTEGER",
    "COMPUTE_TASK_INFO": "name INTEGER, globalTaskId INTEGER PRIMARY KEY, blockDim INTEGER",
    "COMMUNICATION_OP": "opName INTEGER, startNs INTEGER, endNs INTEGER, connectionId INTEGER, groupName INTEGER, "
    "opId INTEGER PRIMARY KEY",
    "NPU_OP_MEM": "operatorName INTEGER, addr INTEGER, type INTEGER, size INTEGER, timestampNs INTEGER, globalTid INTEGER, "
    "totalAllocate NUMERIC, totalReserve NUMERIC, component INTEGER, deviceId INTEGER",
}
#: table of communication_analyzer.db -> its columns
ANALYSIS_DATABASE = {
    "CommAnalyzerTime": "hccl_op_name TEXT, group_name TEXT, start_timestamp NUMERIC, elapse_time NUMERIC, "
    "transit_time NUMERIC, wait_time NUMERIC, synchronization_time NUMERIC, idle_time NUMERIC",
    "CommAnalyzerBandwidth": "hccl_op_name TEXT, group_name TEXT, transport_type TEXT, transit_size NUMERIC, "
    "transit_time NUMERIC, bandwidth NUMERIC, large_packet_ratio NUMERIC, package_size NUMERIC, count NUMERIC, "
    "total_duration NUMERIC",
    "CommAnalyzerMatrix": "hccl_op_name TEXT, group_name TEXT, src_rank TEXT, dst_rank TEXT, transport_type TEXT, "
    "transit_size NUMERIC, transit_time NUMERIC, bandwidth NUMERIC",
}


def write_database(path: Path, columns: Mapping[str, str], rows: Mapping[str, Iterable[Sequence[Any]]]) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for table, declared in columns.items():
            connection.execute(f"CREATE TABLE {table} ({declared})")
            places = ", ".join("?" * len(declared.split(",")))
            connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows[table])


def write_db_export(prof: Path, *, launch_id: int = 9) -> None:
    """``msprof_<n>.db`` and ``analyze/communication_analyzer.db`` as msprof writes them."""
    thread = (PID << 32) | DEQUEUE

    def when(us: float) -> int:
        return OFF + ns(us)

    strings = ["MatMulV3", "MatMulV3b", "Add", "hcom_receive__123_0_1", "g1", "release", "allocate", "GeOp"]
    launches = ((1, 8, 8.5), (2, 50, 50.5), (3, 114, 114.5), (4, 50.6, 50.7))
    tasks = ((1, 20, 25), (2, 55, 62.5), (3, 116, 118.25), (4, 22, 32))
    rows: dict[str, list[Sequence[Any]]] = {
        "STRING_IDS": [*enumerate(strings, 1), (launch_id, "launch")],
        "ENUM_API_TYPE": [(20000, "acl"), (15000, "model"), (10000, "node"), (5500, "communication"), (5000, "runtime")],
        "CANN_API": [(when(begin), when(end), 10000, thread, number, launch_id) for number, begin, end in launches],
        "TASK": [
            (when(begin), when(end), 0, number, number, PID, 0, 0, 3 if number == 4 else 2, number, 0)
            for number, begin, end in tasks
        ],
        "COMPUTE_TASK_INFO": [(1, 1, 20), (2, 2, 20), (3, 3, 20)],
        "COMMUNICATION_OP": [(4, when(22), when(32), 4, 5, 1)],
        "NPU_OP_MEM": [
            (8, 1, 7, 16384, when(10), thread, 1048576, 2097152, 0, 0),
            (8, 1, 6, 16384, when(12.5), thread, 0, 2097152, 0, 0),
        ],
    }
    write_database(prof / f"msprof_{STAMP}.db", DATABASE, rows)
    (prof / "analyze").mkdir(exist_ok=True)
    analysis: dict[str, list[Sequence[Any]]] = {
        "CommAnalyzerTime": [
            ("hcom_allReduce__123_0_1", "g0", "1700000000000022.0", 2.0, 0.5, 0.25, 0.25, 0.1),
            ("hcom_receive__123_0_1", "g1", "1700000000000024.0", 1.0, 0.25, 0.75, 0, 0),
            ("Total Op Info", "g0", "0", 1, 1, 1, 1, 1),
        ],
        "CommAnalyzerBandwidth": [("hcom_allReduce__123_0_1", "g0", "HCCS", 8, 0.5, 16, 1, 8, 1, 0.5)],
        "CommAnalyzerMatrix": [("hcom_allReduce__123_0_1", "g0", "0", "1", "HCCS", 4, 0.5, 8)],
    }
    write_database(prof / "analyze" / "communication_analyzer.db", ANALYSIS_DATABASE, analysis)


# --- whole captures ------------------------------------------------------------------------------------------------------


def write_golden(
    parent: Path,
    *,
    level: str = "Level1",
    export: str = "text",
    exported: bool = True,
    ops: Sequence[bytes] | None = None,
    queue: bool = True,
    cpu_only: bool = False,
    framework: bool = True,
    launch_id: int = 9,
    name: str = RUN_NAME,
) -> Path:
    """The golden capture; its run directory.

    Args:
        parent: folder that gets the run directory.
        level: profiler level in profiler_info.
        export: "text" or "db".
        exported: whether the device data has been exported already.
        ops: records of torch.op_range in place of the golden ones.
        queue: whether torch.op_mark exists.
        cpu_only: no PROF directory and no NPU activity.
        framework: whether FRAMEWORK exists.
        launch_id: string id of "launch" in the database.
        name: name of the run directory.
    """
    run = parent / name
    run.mkdir(parents=True)
    write_json(run / "profiler_info_0.json", profiler_info(level=level, export=[export], cpu_only=cpu_only))
    write_json(run / "profiler_metadata.json", {"k": {"a": 1}})
    if framework:
        write_framework(run, golden_framework(ops, queue=queue))
    if not cpu_only:
        prof = write_prof(run)
        if exported:
            write_db_export(prof, launch_id=launch_id) if export == "db" else write_text_export(prof)
    return run


def write_msprof(folder: Path, *, seconds: float = 0.0, returns: int = 0, install: bool = True) -> Path:
    """A stand-in for CANN's ``msprof``: copies prepared exports and notes its arguments; the folder to put on PATH.

    Args:
        folder: gets an installation like CANN's, ``tools/profiler/bin/msprof``, and ``calls.txt``.
        seconds: how long each call takes.
        returns: exit status.
        install: whether the rest of the installation is there, by which a real one is known.
    """
    bin_folder = folder / "tools" / "profiler" / "bin"
    bin_folder.mkdir(parents=True)
    if install:
        script = folder / "tools" / "profiler" / "profiler_tool" / "analysis" / "msprof" / "msprof.py"
        script.parent.mkdir(parents=True)
        script.write_text("")
    prepared = {}
    for kind, write in (("text", write_text_export), ("db", write_db_export)):
        prepared[kind] = folder / "prepared" / kind
        prepared[kind].mkdir(parents=True)
        write(prepared[kind])
    command = bin_folder / "msprof"
    command.write_text(
        f"""#!/bin/sh
echo "$@" >> "{folder}/calls.txt"
case "$*" in *--help*) echo "usage: msprof --export --type={{text,db}} --output"; exit 0;; esac
for argument; do case "$argument" in --output=*) out="${{argument#--output=}}";; esac; done
kind=text
case "$*" in *--type=db*) kind=db;; esac
sleep {seconds}
echo "exporting $out"
if [ {returns} -ne 0 ]; then echo "damaged data" >&2; exit {returns}; fi
case "$*" in
*--analyze=on*) mkdir -p "$out/analyze" && cp -r "{folder}/prepared/$kind/analyze/." "$out/analyze/";;
*) if [ $kind = db ]; then cp "{folder}"/prepared/db/msprof_*.db "$out/"; else
   mkdir -p "$out/mindstudio_profiler_output"
   cp "{folder}"/prepared/text/mindstudio_profiler_output/* "$out/mindstudio_profiler_output/"; fi;;
esac
"""
    )
    command.chmod(0o755)
    return bin_folder


def write_large(parent: Path, *, steps: int = 10, iterations: int = 5000, name: str = RUN_NAME) -> Path:
    """A capture for benchmarks, exported in text: per iteration of 10 µs two calls, a queued task and a kernel.

    Ten steps of 5,000 iterations are 100,010 calls, 50,000 queued tasks and kernels and 200,000 Python calls: 74.5 MB of
    FRAMEWORK and 49 MB of CANN text.
    """
    run = parent / name
    run.mkdir(parents=True)
    write_json(run / "profiler_info_0.json", profiler_info())
    write_json(run / "profiler_metadata.json", {"k": {"a": 1}})
    stacks = [
        ";".join(f"/usr/lib/{kind}_{level}.py({level * 10}): forward_{level}" for level in range(10))
        for kind in ("linear", "matmul")
    ]
    fields = {3: "float;float", 4: "32,1024;1024,1024"}
    pitch = 10_000
    first = 1_000_000
    step_ns = iterations * pitch
    # the variable part of a record repeats, so each is packed once
    tails = [
        b"".join(struct.pack("<HI", number, len(text)) + text for number, text in ((n, t.encode()) for n, t in texts.items()))
        for texts in ({2: "aten::linear", **fields, 8: stacks[0]}, {2: "aten::mm", **fields, 8: stacks[1]})
    ]
    heads = [struct.pack("<HI", 1, 58 + len(tail)) for tail in tails]
    mark_tail = struct.pack("<HI", 1, len("aclnnMm")) + b"aclnnMm"
    mark_head = struct.pack("<HI", 2, 40 + len(mark_tail))
    ops: list[bytes] = []
    marks: list[bytes] = []
    calls: list[bytes] = []
    pack_op, pack_mark, pack_call = struct.Struct("<3q4QB?").pack, struct.Struct("<q4Q").pack, struct.Struct("<4QB").pack
    for step in range(steps):
        begin = first + step * step_ns
        ops.append(op_range(f"ProfilerStep#{step}", begin, begin + step_ns - 1))
        for iteration in range(iterations):
            t = begin + iteration * pitch
            correlation = step * iterations + iteration + 1
            ops.append(heads[0] + pack_op(t, t + 9000, -1, PID, MAIN, MAIN, 0, 0, False) + tails[0])
            ops.append(heads[1] + pack_op(t + 1000, t + 8000, -1, PID, MAIN, MAIN, 0, 0, False) + tails[1])
            for category, after, tid in ((0, 2000, MAIN), (1, 3000, MAIN), (2, 4000, DEQUEUE), (3, 6000, DEQUEUE)):
                marks.append(mark_head + pack_mark(t + after, category, correlation, tid, PID) + mark_tail)
            for call in range(4):
                key = 11 + call % 2
                calls.append(pack_call(t + call * 2000 + 100, MAIN, PID, key, 0))
                calls.append(pack_call(t + call * 2000 + 1500, MAIN, PID, key, 1))
    names = [python_name(11, "train.py(10): forward"), python_name(12, "train.py(20): backward")]
    write_framework(
        run,
        {"torch.op_range": ops, "torch.op_mark": marks, "torch.python_tracer_func": calls, "torch.python_tracer_hash": names},
    )
    _write_large_export(write_prof(run), steps * iterations, first, pitch)
    return run


def _write_large_export(prof: Path, kernels: int, first: int, pitch: int) -> None:
    out = prof / "mindstudio_profiler_output"
    out.mkdir()
    with (out / f"msprof_{STAMP}.json").open("w") as handle:
        handle.write("[" + ",".join(json.dumps(event) for event in timeline_head()))
        for number in range(1, kernels + 1):
            t = OFF + first + (number - 1) * pitch
            launch, start, flow = us_text(t + 5000), us_text(t + 20_000), number << 32
            arrow = f'"name": "HostToDevice{flow}", "cat": "HostToDevice", "id": "{flow}"'
            host, device = f'"pid": {CANN_PID}, "tid": {DEQUEUE}', f'"pid": {HARDWARE_PID}, "tid": 2'
            handle.write(
                f',{{"name": "Node@launch", {host}, "ts": "{launch}", "dur": 0.5, "args": {{"Thread Id": {DEQUEUE}, '
                f'"Mode": "launch", "level": "node", "id": "0", "item_id": "MatMulV3", "connection_id": {number}}}, "ph": "X"}}'
                f',{{"name": "MatMulV3", {device}, "ts": "{start}", "dur": 7.5, "args": {{"Model Id": 4294967295, '
                f'"Task Type": "AI_CORE", "Physic Stream Id": 2, "Task Id": {number}, "Batch Id": 0, '
                f'"Subtask Id": 4294967295, "connection_id": {number}}}, "ph": "X"}}'
                f',{{{arrow}, "ph": "s", {host}, "ts": "{launch}"}},{{{arrow}, "ph": "f", {device}, "ts": "{start}", "bp": "e"}}'
                f',{{"name": "Computing", "pid": {OVERLAP_PID}, "tid": 0, "ts": "{start}", "dur": 7.5, "ph": "X"}}'
            )
        handle.write("]")
    rows = (
        (0, 4294967295, number, 2, "MatMulV3", "MatMulV3", "AI_CORE", us_text(OFF + first + (number - 1) * pitch + 20_000) + "\t",
         7.5, 0, 20, '"32,1024;1024,1024"')
        for number in range(1, kernels + 1)
    )  # fmt: skip
    write_csv(out / f"op_summary_{STAMP}.csv", [OP_SUMMARY, *rows])


def without_prof(run: Path) -> Path:
    """The capture without its device data."""
    shutil.rmtree(run / PROF_NAME)
    return run


def cut(path: Path, count: int) -> None:
    """Remove the last ``count`` bytes of a file."""
    os.truncate(path, path.stat().st_size - count)
