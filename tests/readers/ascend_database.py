"""Writes small databases in the layouts of CANN and of the Ascend PyTorch Profiler, old and new.

An independent writer of the formats: it shares nothing with the readers. Texts are given as text and get ids in
STRING_IDS where a column holds ids.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import defaultdict
from pathlib import Path
from typing import Any

NEW = {
    "TASK": "startNs endNs deviceId connectionId globalTaskId globalPid taskType contextId streamId taskId modelId",
    "COMPUTE_TASK_INFO": "name globalTaskId blockNum mixBlockNum taskType opType inputFormats inputDataTypes inputShapes "
    "outputFormats outputDataTypes outputShapes attrInfo opState hf32Eligible gridDim blockDim",
    "COMMUNICATION_OP": "opName startNs endNs connectionId groupName opId relay retry dataType algType count opType deviceId "
    "rankSize",
    "COMMUNICATION_TASK_INFO": "name globalTaskId taskType planeId groupName notifyId rdmaType srcRank dstRank transportType "
    "size dataType linkType opId isMaster bandwidth",
    "COMMUNICATION_SCHEDULE_TASK_INFO": "name globalTaskId taskType opType",
    "CANN_API": "startNs endNs type globalTid connectionId name",
    "OSRT_API": "name globalTid startNs endNs",
    "NPU_OP_MEM": "operatorName addr type size timestampNs globalTid totalAllocate totalReserve component deviceId",
    "NPU_MEM": "type ddr hbm timestampNs deviceId",
    "NPU_MODULE_MEM": "moduleId timestampNs totalReserved deviceId",
    "MSTX_EVENTS": "startNs endNs eventType rangeId category message globalTid endGlobalTid domainId connectionId",
    "MEMCPY_INFO": "globalTaskId size memcpyOperation",
    "TASK_PMU_INFO": "globalTaskId name value",
    "HBM": "deviceId timestampNs bandwidth hbmId type",
    "DDR": "deviceId timestampNs read write",
    "LLC": "deviceId llcId timestampNs hitRate throughput mode",
    "NIC": "deviceId timestampNs bandwidth rxPacketRate rxBytes funcId",
    "AICORE_FREQ": "deviceId timestampNs freq dieId",
    "ACC_PMU": "accId readBwLevel writeBwLevel readOstLevel writeOstLevel timestampNs deviceId",
    "SOC_BANDWIDTH_LEVEL": "l2BufferBwLevel mataBwLevel timestampNs deviceId",
    "CPU_USAGE": "timestampNs cpuId usage",
    "HOST_MEM_USAGE": "timestampNs usage",
    "HOST_INFO": "hostUid hostName",
    "NPU_INFO": "id name",
    "RANK_DEVICE_MAP": "rankId deviceId",
    "META_DATA": "name value",
    "SESSION_TIME_INFO": "startTimeNs endTimeNs",
    "PYTORCH_API": "startNs endNs globalTid connectionId name sequenceNumber fwdThreadId inputDtypes inputShapes callchainId "
    "type",
    "CONNECTION_IDS": "id connectionId",
    "PYTORCH_CALLCHAINS": "id stack stackDepth",
    "MEMORY_RECORD": "component timestamp totalAllocated totalReserved totalActive streamPtr deviceId",
    "OP_MEMORY": "name size allocationTime releaseTime activeReleaseTime duration activeDuration allocationTotalAllocated "
    "allocationTotalReserved allocationTotalActive releaseTotalAllocated releaseTotalReserved releaseTotalActive streamPtr "
    "deviceId",
    "STEP_TIME": "id startNs endNs",
    "GC_RECORD": "startNs endNs globalTid",
}

#: what schema 1.0.0 has instead
OLD = {
    **NEW,
    "COMPUTE_TASK_INFO": "name globalTaskId blockDim mixBlockDim taskType opType inputFormats inputDataTypes inputShapes "
    "outputFormats outputDataTypes outputShapes attrInfo",
    "COMMUNICATION_OP": "opName startNs endNs connectionId groupName opId relay retry dataType algType count opType",
    "COMMUNICATION_TASK_INFO": "name globalTaskId taskType planeId groupName notifyId rdmaType srcRank dstRank transportType "
    "size dataType linkType opId",
    "AICORE_FREQ": "deviceId timestampNs freq",
}
_RENAMED = {"blockNum": "blockDim", "mixBlockNum": "mixBlockDim"}

_IDS = {
    "taskType", "name", "opType", "inputFormats", "inputDataTypes", "inputShapes", "outputFormats", "outputDataTypes",
    "outputShapes", "attrInfo", "opState", "hf32Eligible", "opName", "groupName", "algType", "operatorName", "component",
    "message", "domainId", "mode", "stack",
}  # fmt: skip
#: columns named like the above that hold something else, and the reverse
_PLAIN = {("NPU_INFO", "name"), ("META_DATA", "name")}
_MORE_IDS = {("NPU_OP_MEM", "type"), ("NPU_MEM", "type"), ("HBM", "type")}

_TEXT_COLUMNS = {("HOST_INFO", "hostUid"), ("HOST_INFO", "hostName"), *_PLAIN, ("META_DATA", "value")}

API_TYPES = {"acl": 20000, "model": 15000, "node": 10000, "communication": 5500, "runtime": 5000}
FRAMEWORK_TYPES = {"op": 50001, "queue": 50002, "trace": 50003, "mstx": 50004}
ENUMS = {
    "ENUM_API_TYPE": {number: name for name, number in {**API_TYPES, **FRAMEWORK_TYPES}.items()},
    "ENUM_HCCL_DATA_TYPE": {0: "INT8", 3: "FP16", 4: "FP32", 65534: "N/A"},
    "ENUM_HCCL_TRANSPORT_TYPE": {0: "SDMA", 1: "RDMA"},
    "ENUM_HCCL_LINK_TYPE": {0: "ON_CHIP", 1: "HCCS"},
    "ENUM_HCCL_RDMA_TYPE": {65535: "INVALID_TYPE"},
    "ENUM_MEMCPY_OPERATION": {0: "host to host", 1: "host to device"},
    "ENUM_MSTX_EVENT_TYPE": {0: "marker", 1: "push/pop", 2: "start/end"},
    "ENUM_MODULE": {3: "HCCL", 33: "APP"},
}

OFF = 1_700_000_000_000_000_000
PID, MAIN, BACKWARD, LAUNCHER = 1000, 1001, 1002, 1003


def when(us: float) -> int:
    """µs after OFF as Unix ns."""
    return OFF + round(us * 1000)


def thread(tid: int, pid: int = PID) -> int:
    return pid << 32 | tid


class Database:
    """A database in the making.

    Args:
        old: the layout of schema 1.0.0: other columns, times of PYTORCH_API as text.
        first_text: the id of the first text that is used.
    """

    def __init__(self, *, old: bool = False, first_text: int = 1) -> None:
        self.layout = dict(OLD if old else NEW)
        self.old = old
        self.enums: dict[str, dict[int, str]] = {name: dict(values) for name, values in ENUMS.items()}
        self.texts: dict[str, int] = {}
        self.extra_texts: list[tuple[int, str]] = []
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.statements: list[str] = []
        self._next = first_text

    def text(self, value: str) -> int:
        if value not in self.texts:
            self.texts[value] = self._next
            self._next += 1
        return self.texts[value]

    def add(self, table: str, **row: Any) -> None:
        """Add one row; texts of id columns as text, the rest as it goes into the file."""
        self.rows[table].append({key: self._cell(table, key, value) for key, value in row.items()})

    def _cell(self, table: str, column: str, value: Any) -> Any:
        is_id = (column in _IDS and (table, column) not in _PLAIN) or (table, column) in _MORE_IDS
        return self.text(value) if is_id and isinstance(value, str) else value

    def task(self, number: int, start: float, end: float, task_type: str = "KERNEL_AICORE", **more: Any) -> None:
        """A device task; connection, global id and task id are ``number`` unless given otherwise."""
        row = {
            "startNs": when(start), "endNs": when(end), "deviceId": 0, "connectionId": number, "globalTaskId": number,
            "globalPid": PID, "taskType": task_type, "contextId": 4294967295, "streamId": 2, "taskId": number,
            "modelId": 4294967295,
        }  # fmt: skip
        self.add("TASK", **{**row, **more})

    def kernel(self, number: int, start: float, end: float, name: str, **more: Any) -> None:
        """A task that computes."""
        self.task(number, start, end, **{key: more.pop(key) for key in ("streamId", "deviceId", "connectionId") if key in more})
        self.add("COMPUTE_TASK_INFO", **{"name": name, "globalTaskId": number, "opType": name, "taskType": "AI_CORE", **more})

    def call(self, kind: str, name: str, start: float, end: float, connection: int, tid: int = LAUNCHER) -> None:
        """A runtime call."""
        self.add(
            "CANN_API",
            startNs=when(start), endNs=when(end), type=API_TYPES[kind], globalTid=thread(tid), connectionId=connection, name=name,
        )  # fmt: skip

    def torch(self, kind: str, name: str, start: float, end: float, tid: int = MAIN, **more: Any) -> None:
        """A row of PYTORCH_API."""
        times: dict[str, Any] = {"startNs": when(start), "endNs": when(end)}
        if self.old:
            times = {key: str(value) for key, value in times.items()}
        row = {"globalTid": thread(tid), "name": name, "type": FRAMEWORK_TYPES[kind], **times}
        self.add("PYTORCH_API", **{**row, **more})

    def write(self, path: Path, *, without: tuple[str, ...] = ()) -> Path:
        """Write the tables that have rows."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            if "STRING_IDS" not in without:
                connection.execute("CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT)")
                texts = [(number, text) for text, number in self.texts.items()]
                connection.executemany("INSERT INTO STRING_IDS VALUES (?, ?)", [*texts, *self.extra_texts])
            for name, values in self.enums.items():
                if name not in without:
                    connection.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, name TEXT)")
                    connection.executemany(f"INSERT INTO {name} VALUES (?, ?)", values.items())
            for table, rows in self.rows.items():
                if table not in without:
                    self._write_table(connection, table, rows)
            for statement in self.statements:
                connection.execute(statement)
        return path

    def _write_table(self, connection: sqlite3.Connection, table: str, rows: list[dict[str, Any]]) -> None:
        columns = self.layout[table].split()
        declared = []
        for column in columns:
            is_time = table == "PYTORCH_API" and column in ("startNs", "endNs")
            is_text = (table, column) in _TEXT_COLUMNS or (self.old and is_time)
            declared.append(f"{column} {'TEXT' if is_text else 'NUMERIC' if column == 'value' else 'INTEGER'}")
        connection.execute(f"CREATE TABLE {table} ({', '.join(declared)})")
        if self.old:
            rows = [{_RENAMED.get(key, key): value for key, value in row.items()} for row in rows]
        values = [tuple(row.get(column) for column in columns) for row in rows]
        connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", values)


def golden(*, old: bool = False, first_text: int = 1) -> Database:
    """The golden run of the Ascend PyTorch Profiler as a database: two steps, three kernels, one receive, a task queue."""
    database = Database(old=old, first_text=first_text)
    database.text("launch")
    calls = ((1, 8, 8.5), (2, 50, 50.5), (3, 114, 114.5), (4, 50.6, 50.7))
    for number, start, end in calls:
        database.call("node", "launch", start, end, number)
    database.kernel(1, 20, 25, "MatMulV3", blockNum=20, inputShapes='"2,3;3,4"', inputDataTypes="FLOAT;FLOAT")
    database.kernel(2, 55, 62.5, "MatMulV3b", blockNum=20)
    database.kernel(3, 116, 118.25, "Add", blockNum=20, taskType="AI_VECTOR_CORE")
    database.task(4, 22, 32, "SDMA", streamId=3)
    operation = {
        "opName": "hcom_receive__123_0_1", "startNs": when(22), "endNs": when(32), "connectionId": 4, "groupName": "g1",
        "opId": 1, "dataType": 4, "count": 1000, "algType": "RING", "opType": "hcom_receive_",
    }  # fmt: skip
    database.add("COMMUNICATION_OP", **operation, **({} if old else {"deviceId": 0, "rankSize": 2}))
    database.add(
        "COMMUNICATION_TASK_INFO",
        name="hcom_receive__123_0_1", globalTaskId=4, taskType="Memcpy", planeId=0, groupName="g1", notifyId=9, rdmaType=65535,
        srcRank=1, dstRank=0, transportType=0, size=4000, dataType=4, linkType=1, opId=1,
    )  # fmt: skip
    framework(database)
    database.add("RANK_DEVICE_MAP", rankId=0, deviceId=0)
    database.add("NPU_INFO", id=0, name="Ascend910B")
    database.add("HOST_INFO", hostUid="17", hostName="node-a")
    version = "1.0.0" if old else "1.2.0"
    for name, value in (("SCHEMA_VERSION", version), ("SCHEMA_VERSION_MAJOR", "1"), ("k", json.dumps({"a": 1}))):
        database.add("META_DATA", name=name, value=value)
    return database


def framework(database: Database) -> None:
    """The framework's half of the golden run."""
    first = 5 << 28
    queue = (
        (1, "aclnnMm", 5, 6, MAIN, 7, 9),
        (2, "aclnnMmB", 47, 48, BACKWARD, 49, 52),
        (3, "aclnnAdd", 111, 112, MAIN, 113, 115),
    )
    for number, name, start, end, tid, dequeue_start, dequeue_end in queue:
        database.torch("queue", f"Enqueue@{name}", start, end, tid, connectionId=number)
        database.torch("queue", f"Dequeue@{name}", dequeue_start, dequeue_end, LAUNCHER, connectionId=number + 10)
        database.add("CONNECTION_IDS", id=number, connectionId=first + number)
        database.add("CONNECTION_IDS", id=number + 10, connectionId=first + number)
    frames = (("a.py(1): f", 1.5, 99), ("nn.Module: Linear_0", 1.6, 35), ("<built-in method x>", 1.7, 1.8))
    for name, start, end in frames:
        database.torch("trace", name, start, end)
    engine = "autograd::engine::evaluate_function: LinearBackward0"
    ops: tuple[tuple[str, float, float, int, dict[str, Any]], ...] = (
        ("ProfilerStep#0", 1, 100, MAIN, {}),
        ("aten::linear", 2, 30, MAIN, {"sequenceNumber": 5, "inputShapes": "2,3;\r\n4,3", "callchainId": 0, "connectionId": 100}),
        ("aten::mm", 4, 20, MAIN, {"sequenceNumber": 6, "callchainId": 1, "connectionId": 101}),
        (engine, 40, 70, BACKWARD, {"sequenceNumber": 5, "fwdThreadId": 1, "connectionId": 100 + 2}),
        ("aten::mm", 45, 60, BACKWARD, {"connectionId": 103}),
        ("ProfilerStep#1", 100.001, 200, MAIN, {}),
        ("aten::add", 110, 120, MAIN, {"connectionId": 104}),
    )
    for name, start, end, tid, more in ops:
        known = {"sequenceNumber": -1, "fwdThreadId": 0, **more}
        database.torch("op", name, start, end, tid, **known)
    pairs = ((100, first + 4), (102, first + 4), (101, 1), (103, 2), (103, 4), (104, 3))
    for number, connection in pairs:
        database.add("CONNECTION_IDS", id=number, connectionId=connection)
    for chain, stack in ((0, ("a.py(1): f", "b.py(2): g")), (1, ("a.py(9): h", "b.py(2): g"))):
        for depth, frame in enumerate(stack):
            database.add("PYTORCH_CALLCHAINS", id=chain, stack=frame, stackDepth=depth)
    for number, start, end in ((0, 1, 100), (1, 100.001, 200)):
        database.add("STEP_TIME", id=number, startNs=when(start), endNs=when(end))
    database.add("GC_RECORD", startNs=when(80), endNs=when(90), globalTid=thread(PID))
