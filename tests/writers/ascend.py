"""A hand-built Ascend run with exactly known times: two steps, a task queue, kernels, collectives, memory, samples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from steplens.readers.ascend.ascend_link import through_queue
from steplens.trace.building.build import build_trace, conform_to_schema
from steplens.trace.health import HealthLog
from steplens.trace.schema import SCHEMA, SCOPE_BACKWARD, SCOPE_USER
from steplens.trace.trace import Trace

from .builder import BACKWARD, BASE_NS, MAIN, PID

DEQUEUE = 1003
MB = 1 << 20
GROUP = "90.91.105.46%eth0_60000_0_1736414082311975"

#: columns by which readers link device tasks to what launched them
_LAUNCH = {"launch_ns": pl.Int64(), "launch_pid": pl.Int64(), "launch_tid": pl.Int64()}


def ns(us: float) -> int:
    """µs after the base as Unix ns."""
    return BASE_NS + round(us * 1000)


def raw(name: str, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """``rows`` as a raw table: the columns of the schema that some row has, and the launch columns of device tasks."""
    schema = {**SCHEMA[name], **(_LAUNCH if name in ("kernels", "communication") else {})}
    known = [column for column in schema if any(column in row for row in rows)]
    return pl.DataFrame([{column: row.get(column) for column in known} for row in rows], schema={c: schema[c] for c in known})


def call(name: str, start: float, end: float, **values: Any) -> dict[str, Any]:
    return {"name": name, "start_ns": ns(start), "end_ns": ns(end), "pid": PID, "tid": MAIN, "scope": 0, **values}


def task(number: int, name: str, start: float, end: float, launch: float, **values: Any) -> dict[str, Any]:
    """A device task of stream 2 that a runtime call on the launching thread launched."""
    return {
        "id": number, "name": name, "type": name, "kind": "compute", "core": "AI_CORE", "device": 0, "stream": 2,
        "start_ns": ns(start), "end_ns": ns(end), "wait_ns": 0, "correlation": number, "task_id": 100 + number,
        "model_id": 4294967295, "launch_ns": ns(launch), "launch_pid": PID, "launch_tid": DEQUEUE, **values,
    }  # fmt: skip


SHAPES = {
    "input_shapes": "2,3;3,4", "input_types": "FLOAT;FLOAT", "input_formats": "ND;ND", "output_shapes": "2,4",
    "output_types": "FLOAT", "output_formats": "ND", "state": "dynamic", "blocks": 20, "mix_blocks": 0, "hf32": "NO",
}  # fmt: skip

OPS = [
    call("ProfilerStep#0", 1, 100, scope=SCOPE_USER),
    call(
        "aten::linear", 2, 30, sequence=5, input_shapes="2,3;4,3", input_types="float;float",
        stack="a.py(1): f;b.py(2): g",
    ),
    call("aten::mm", 4, 20, sequence=6, input_shapes="2,3;3,4", input_types="float;float", stack="a.py(9): h;b.py(2): g"),
    call(
        "autograd::engine::evaluate_function: LinearBackward0", 40, 70, tid=BACKWARD, sequence=5, forward_tid=1,
        scope=SCOPE_BACKWARD,
    ),
    call("aten::mm", 45, 60, tid=BACKWARD),
    call("ProfilerStep#1", 100.001, 200, scope=SCOPE_USER),
    call("aten::add", 110, 120, input_types="float;float", input_shapes="2;2"),
    call("c10d::allreduce_", 130, 140),
]  # fmt: skip

QUEUE = [
    ("aclnnMm", 1, (5, 6, MAIN), (7, 9)),
    ("aclnnMmB", 2, (47, 48, BACKWARD), (49, 52)),
    ("aclnnAdd", 3, (111, 112, MAIN), (113, 115)),
    ("HcclAllreduce", 4, (131, 132, MAIN), (133, 136)),
]

KERNELS = [
    task(1, "MatMulV3", 20, 25, 8, **SHAPES),
    task(2, "MatMulV3b", 55, 62.5, 50, type="MatMulV3", **SHAPES),
    task(3, "Add", 116, 118.25, 114, core="AI_VECTOR_CORE", wait_ns=53_500, input_shapes=""),
    task(
        4, "hcom_allReduce__123_0_1", 140, 160.5, 134, type="hcom_allReduce_", kind="communication", core="HCCL", stream=3,
        task_id=None, wait_ns=21_750,
    ),
    task(5, "MEMCPY_ASYNC", 18, 19, 8.4, kind="copy", core="PCIE_DMA_SQE", type=None, correlation=11, wait_ns=None, bytes=512),
    task(6, "Notify_Wait", 141, 150, 134, kind="other", core="Notify Wait", type=None, correlation=4, stream=3, wait_ns=None),
    task(7, "Memcpy", 150, 152, 134, kind="other", core="SDMA", type=None, correlation=4, stream=3, wait_ns=None),
]  # fmt: skip

COMMUNICATION = [
    {
        "name": "hcom_allReduce__123_0_1", "kind": "collective", "operation": "allreduce", "group": GROUP, "ranks": 8,
        "elements": 256, "bytes": 1024, "dtype": "FP32", "algorithm": "MESH-RING", "start_ns": ns(140), "end_ns": ns(160.5),
        "correlation": 4, "device": 0, "stream": 3, "launch_ns": ns(134), "launch_pid": PID, "launch_tid": DEQUEUE,
    },
]  # fmt: skip

METRICS = [
    ("aicore_time(us)", (4.5, 7.25, 0.0)),
    ("aic_total_cycles", (8100, 13050, 0)),
    ("aic_mac_time(us)", (3.125, 6.001, 0.0)),
    ("aic_mac_ratio", (0.694, 0.828, 0.0)),
    ("aiv_vec_time(us)", (0.0, 0.0, 1.75)),
    ("cube_utilization(%)", (66.301, 80.5, 0.0)),
]

API = [
    ("aclnnMm", "acl", 7.5, 8.9, 10),
    ("launch", "node", 8, 8.3, 1),
    ("aclrtMemcpyAsync", "acl", 8.4, 8.8, 11),
    ("launch", "node", 50, 50.5, 2),
    ("launch", "node", 114, 114.5, 3),
    ("launch", "node", 134, 134.5, 4),
    ("Launch_Ffts", "communication", 134.1, 134.4, 12),
    ("rtStreamSynchronize", "runtime", 180, 190, 13),
]

INNER = [
    {
        "kernel": "6", "name": "hcom_allReduce__123_0_1", "taskType": "Notify_Wait", "planeId": "1", "notifyId": "92",
        "srcRank": "0", "dstRank": "1", "transportType": "LOCAL", "size": "0", "dataType": "INVALID_TYPE",
        "linkType": "INVALID_TYPE", "rdmaType": "INVALID_TYPE",
    },
    {
        "kernel": "7", "name": "hcom_allReduce__123_0_1", "taskType": "Memcpy", "planeId": "0",
        "notifyId": "9223372036854775807", "srcRank": "0", "dstRank": "0", "transportType": "SDMA", "size": "4000",
        "dataType": "FP32", "linkType": "ON_CHIP", "rdmaType": "INVALID_TYPE",
    },
]  # fmt: skip

_NPU = {"device_type": "NPU", "device": 0, "pid": PID}


def _memory() -> list[dict[str, Any]]:
    pta = {**_NPU, "component": "PTA", "stream": 77, "reserved": 20 * MB, "tid": MAIN}

    def event(us: float, kind: str, address: int, size: int, allocated: int, active: int, **more: Any) -> dict[str, Any]:
        return {
            "time_ns": ns(us), "event": kind, "address": address, "bytes": size, "allocated": allocated, "active": active,
            **pta, **more,
        }  # fmt: skip

    return [
        event(4.5, "allocate", 0x100, 2 * MB, 2 * MB, 2 * MB),
        event(19, "free", 0x100, -2 * MB, 0, 2 * MB),
        event(21, "block_free", 0x100, -2 * MB, 0, 0),
        event(8, "allocate", 0x200, 512, 512, 512, component="WORKSPACE", tid=DEQUEUE),
        event(112.5, "allocate", 0x300, 1024, 1024, 1024),
        {"time_ns": ns(10), "component": "GE", "allocated": MB, "reserved": 2 * MB, **_NPU},
        {"time_ns": ns(9), "component": "APP", "reserved": 2 * MB, **_NPU},
    ]


def _allocations() -> list[dict[str, Any]]:
    ge = {"name": "cann::GeOp", "bytes": 16384, "allocation_ns": ns(10), "release_ns": ns(12.5), "component": "GE"}
    totals = {"allocation_allocated": MB, "allocation_reserved": 2 * MB, "release_allocated": 0, "release_reserved": 2 * MB}
    return [{**ge, **totals, "device_type": "NPU", "device": 0}]


def _counters() -> list[dict[str, Any]]:
    rows = [
        ("AI Core Freq", "AI Core Freq", "MHz", 3, 1800.0),
        ("HBM", "HBM 0/Read", "MB/s", 3, 27.0),
        ("HBM", "HBM 0/Write", "MB/s", 3, 0.5),
        ("LLC", "LLC 0 Read/Throughput", "MB/s", 4, 64.0),
        ("LLC", "LLC 0 Read/Hit Rate", "%", 4, 85.1),
        ("NPU MEM", "APP/DDR", "KB", 9, 0.0),
        ("NPU MEM", "APP/HBM", "KB", 9, 2048.0),
        ("Stars Soc Info", "L2 Buffer Bw Level", None, 5, 3.0),
        ("Stars Soc Info", "Mata Bw Level", None, 5, 4.0),
        ("QoS", "QoS OTHERS", None, 6, 1876.0),
        ("npu_module_mem", "APP", "KB", 9, 4096.0),
        ("npu_module_mem", "AML", "KB", 9, 1.0),
    ]
    return [
        {"group": group, "name": name, "unit": unit, "time_ns": ns(us), "value": value, "device": 0}
        for group, name, unit, us, value in rows
    ]


TRANSPORTS = ("RDMA", "HCCS", "PCIE", "SDMA", "SIO")


def times(name: str, group: str, start: float, *ms: float, kind: str = "collective", step: int | None = None) -> dict[str, Any]:
    parts = ("elapse_ms", "transit_ms", "wait_ms", "synchronization_ms", "idle_ms")
    return {"name": name, "group": group, "kind": kind, "step": step, "start_ns": ns(start), **dict(zip(parts, ms, strict=True))}


def bandwidth(name: str, group: str, kind: str = "collective", step: int | None = None) -> list[dict[str, Any]]:
    unused = {"size_mb": 0.0, "transit_ms": 0.0, "bandwidth_gbps": 0.0, "large_packet_ratio": 0.0}
    used = {
        "size_mb": 8.0, "transit_ms": 0.5, "bandwidth_gbps": 16.0, "large_packet_ratio": 1.0, "package_mb": 8.0, "count": 1,
        "duration_ms": 0.5,
    }  # fmt: skip
    keys = {"name": name, "group": group, "kind": kind, "step": step}
    return [{**keys, "transport": transport, **(used if transport == "HCCS" else unused)} for transport in TRANSPORTS]


def link(name: str, group: str, pair: tuple[int, int], size: float, ms: float, gbps: float, **more: Any) -> dict[str, Any]:
    values = {"size_mb": size, "transit_ms": ms, "bandwidth_gbps": gbps, "transport": "HCCS", "kind": "collective"}
    return {"name": name, "group": group, "source": pair[0], "destination": pair[1], **values, **more}


#: measurements of the two collectives and the receive of the golden run
TIMES = [
    times("hcom_allReduce__123_0_1", "11", 140, 2.0, 0.5, 0.25, 0.25, 0.1),
    times("hcom_allReduce__123_1_1", "11", 165, 1.0, 0.5, 0.0, 0.0, 0.1),
    times("hcom_receive__123_0_1", "12", 24, 1.0, 0.25, 0.75, 0.0, 0.0, kind="p2p"),
]
BANDWIDTH = [
    *bandwidth("hcom_allReduce__123_0_1", "11"),
    *bandwidth("hcom_allReduce__123_1_1", "11"),
    *bandwidth("hcom_receive__123_0_1", "12", kind="p2p"),
]
MATRIX = [
    link("hcom_allReduce__123_0_1", "11", (0, 1), 4, 0.5, 8),
    link("hcom_allReduce__123_0_1", "11", (1, 0), 4, 0.25, 16),
    link("hcom_allReduce__123_1_1", "11", (0, 1), 4, 0.25, 16),
    link("hcom_receive__123_0_1", "12", (1, 0), 1, 0.5, 2, kind="p2p"),
]

META = {
    "rank": 0, "source_format": "ascend_raw", "pid": PID, "device_ids": [0], "chip": "Ascend910B", "hostname": "node1",
    "host_uid": "123", "ENV_VARIABLES": {"HCCL_ALGO": ""}, "parallel_group_info": {GROUP: {"group_name": "dp"}},
}  # fmt: skip


def _rows() -> dict[str, list[dict[str, Any]]]:
    queue = []
    for name, correlation, (start, end, tid), (begin, finish) in QUEUE:
        enqueue = {"enqueue_tid": tid, "enqueue_start_ns": ns(start), "enqueue_end_ns": ns(end)}
        dequeue = {"dequeue_tid": DEQUEUE, "dequeue_start_ns": ns(begin), "dequeue_end_ns": ns(finish)}
        queue.append({"name": name, "correlation": correlation, "pid": PID, **enqueue, **dequeue})
    api = [
        {
            "name": name, "layer": layer, "start_ns": ns(start), "end_ns": ns(end), "pid": PID, "tid": DEQUEUE,
            "correlation": number,
        }
        for name, layer, start, end, number in API
    ]  # fmt: skip
    metrics = [
        {"kernel": number, "name": name, "value": float(value)}
        for name, values in METRICS
        for number, value in enumerate(values, 1)
    ]
    inner = [{"table": "COMMUNICATION_TASK_INFO", "row": row, "record": json.dumps(record)} for row, record in enumerate(INNER)]
    cache = {"Stream Id": "2", "Task Id": "101", "Hit Rate": "N/A", "Victim Rate": "0.23", "Op Name": "MatMulV3"}
    steps = [
        {"id": 0, "start_ns": ns(1), "end_ns": ns(100), "pid": PID, "tid": MAIN},
        {"id": 1, "start_ns": ns(100.001), "end_ns": ns(200), "pid": PID, "tid": MAIN},
    ]
    return {
        "ops": OPS,
        "task_queue": queue,
        "kernels": KERNELS,
        "communication": COMMUNICATION,
        "kernel_metrics": metrics,
        "api": api,
        "memory": _memory(),
        "allocations": _allocations(),
        "counters": _counters(),
        "communication_times": TIMES,
        "communication_bandwidth": BANDWIDTH,
        "communication_matrix": MATRIX,
        "steps": steps,
        "gc": [{"start_ns": ns(80), "end_ns": ns(90), "pid": PID, "tid": PID}],
        "python": [
            {"id": 0, "name": "a.py(1): f", "start_ns": ns(1.5), "end_ns": ns(35), "pid": PID, "tid": MAIN},
            {"id": 1, "name": "nn.Module: Linear_0", "start_ns": ns(1.6), "end_ns": ns(35), "pid": PID, "tid": MAIN, "parent": 0},
        ],
        "marks": [
            {
                "domain": "default",
                "message": "point",
                "start_ns": ns(30),
                "end_ns": ns(30),
                "pid": PID,
                "tid": MAIN,
                "kind": "marker",
            },
            {
                "domain": "mine",
                "message": "range",
                "start_ns": ns(31),
                "end_ns": ns(33),
                "pid": PID,
                "tid": MAIN,
                "kind": "start/end",
            },
        ],
        "source_tables": [*inner, {"table": "l2_cache", "row": 0, "record": json.dumps(cache)}],
        "meta": [{"key": key, "value": json.dumps(value)} for key, value in META.items()],
    }


def ascend_run(without: Sequence[str] = (), **tables: Sequence[Mapping[str, Any]]) -> Trace:
    """The run as a linked trace.

    Args:
        without: tables that it lacks.
        tables: rows in place of its own.
    """
    rows = {**_rows(), **tables}
    frames = {name: raw(name, own) for name, own in rows.items() if name not in without and own}
    # the launch points as they are behind the task queue: at the enqueue
    for name in ("kernels", "communication"):
        if name in frames and "task_queue" in frames:
            frames[name] = through_queue(frames[name], conform_to_schema("task_queue", frames["task_queue"]))
    return build_trace(Path("hand-built"), frames, HealthLog(), cpu_is_device=False)
