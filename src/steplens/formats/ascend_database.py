"""The databases of Ascend: their files, tables with columns and types, the values of their enumerations, and what is indexed.

The layout is that of CANN's schema 1.2.0 with the framework's tables. Times are integers of Unix ns, sizes bytes; a name is
an id of STRING_IDS unless its column is TEXT.
"""

from __future__ import annotations

import re

from steplens.formats.ascend_terms import NOT_AVAILABLE

#: of a result; the group is the rank
PROFILER_DATABASE = re.compile(r"^ascend_(?:pytorch|mindspore)_profiler(?:_(\d+))?\.db$")
ANALYSIS_DATABASE = "analysis.db"
#: what CANN calls its analysis of communication
CANN_ANALYSIS_DATABASE = "communication_analyzer.db"

#: what any database begins with
SQLITE_START = b"SQLite format 3\0"

SCHEMA_VERSION = (1, 2, 0)

#: the connection of a mark that no task of a device belongs to
NO_MARK_CONNECTION = 4_000_000_000
#: the notification of a task that has none
NO_NOTIFY = 9223372036854775807
#: bits of a globalTid that hold the thread; the process is above them
THREAD_BITS = 32

_TYPES = {"": "INTEGER", "*": "TEXT", "#": "NUMERIC", "~": "REAL", "!": "INTEGER PRIMARY KEY"}

#: measured values of a network card, and of PCIe
NETWORK_VALUES = (
    "bandwidth",
    *(f"{way}{what}" for way in ("rx", "tx") for what in ("PacketRate", "ByteRate", "Packets", "Bytes", "Errors", "Dropped")),
)
PCIE_VALUES = tuple(
    f"{kind}{value}"
    for kind in ("txPost", "txNonpost", "txCpl", "txNonpostLatency", "rxPost", "rxNonpost", "rxCpl")
    for value in ("Min", "Max", "Avg")
)
_NETWORK = f"deviceId timestampNs {' '.join(column + '#' for column in NETWORK_VALUES)} funcId"

#: table -> columns; the sign behind a name is its type: none INTEGER, * TEXT, # NUMERIC, ~ REAL, ! the primary key
CANN_TABLES = {
    "STRING_IDS": "id! value*",
    "TASK": "startNs endNs deviceId connectionId globalTaskId globalPid taskType contextId streamId taskId modelId",
    "COMPUTE_TASK_INFO": "name globalTaskId! blockNum mixBlockNum taskType opType inputFormats inputDataTypes inputShapes "
    "outputFormats outputDataTypes outputShapes attrInfo opState hf32Eligible gridDim blockDim",
    "COMMUNICATION_OP": "opName startNs endNs connectionId groupName opId! relay retry dataType algType count# opType deviceId "
    "rankSize",
    "COMMUNICATION_TASK_INFO": "name globalTaskId taskType planeId groupName notifyId rdmaType srcRank dstRank transportType "
    "size dataType linkType opId isMaster bandwidth#",
    "COMMUNICATION_SCHEDULE_TASK_INFO": "name globalTaskId taskType opType",
    "CANN_API": "startNs endNs type globalTid connectionId! name",
    "OSRT_API": "name globalTid startNs endNs",
    "NPU_OP_MEM": "operatorName addr type size timestampNs globalTid totalAllocate# totalReserve# component deviceId",
    "NPU_MEM": "type ddr# hbm# timestampNs deviceId",
    "NPU_MODULE_MEM": "moduleId timestampNs totalReserved# deviceId",
    "MSTX_EVENTS": "startNs endNs eventType rangeId category message globalTid endGlobalTid domainId connectionId",
    "MEMCPY_INFO": "globalTaskId size memcpyOperation",
    "TASK_PMU_INFO": "globalTaskId name value#",
    "HBM": "deviceId timestampNs bandwidth# hbmId type",
    "DDR": "deviceId timestampNs read# write#",
    "LLC": "deviceId llcId timestampNs hitRate~ throughput# mode",
    "AICORE_FREQ": "deviceId timestampNs freq dieId",
    "HCCS": "deviceId timestampNs txThroughput# rxThroughput#",
    "NIC": _NETWORK,
    "ROCE": _NETWORK,
    "PCIE": f"deviceId timestampNs {' '.join(column + '#' for column in PCIE_VALUES)}",
    "CPU_USAGE": "timestampNs cpuId usage#",
    "HOST_MEM_USAGE": "timestampNs usage#",
    "HOST_DISK_USAGE": "timestampNs readRate# writeRate# usage#",
    "HOST_NETWORK_USAGE": "timestampNs usage# speed#",
    "SESSION_TIME_INFO": "startTimeNs endTimeNs",
    "NPU_INFO": "id name*",
    "HOST_INFO": "hostUid* hostName*",
    "RANK_DEVICE_MAP": "rankId deviceId",
    "META_DATA": "name* value*",
}
#: what the framework adds
FRAMEWORK_TABLES = {
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
#: column of OP_MEMORY -> total of the allocator at an end of an allocation
ALLOCATION_TOTALS = {
    f"{end}Total{total.capitalize()}": f"{end}_{total}"
    for end in ("allocation", "release")
    for total in ("allocated", "reserved", "active")
}
#: column of COMPUTE_TASK_INFO that holds ids of texts -> what it tells of a task
COMPUTE_TEXTS = {
    "inputFormats": "input_formats",
    "inputDataTypes": "input_types",
    "outputFormats": "output_formats",
    "outputDataTypes": "output_types",
    "hf32Eligible": "hf32",
}
#: the same of lists of dimensions, which are quoted
COMPUTE_SHAPES = {"inputShapes": "input_shapes", "outputShapes": "output_shapes"}
#: a result of other programs' computations, and samples of which nobody compares the columns
_OTHER_TABLES = {
    "OVERLAP_ANALYSIS": "id! deviceId startNs endNs type",
    "ACC_PMU": "accId readBwLevel# writeBwLevel# readOstLevel# writeOstLevel# timestampNs deviceId",
    "SOC_BANDWIDTH_LEVEL": "l2BufferBwLevel mataBwLevel timestampNs deviceId",
    "SAMPLE_PMU_TIMELINE": "deviceId timestampNs totalCycle# usage# freq# coreId coreType",
}
PROFILER_TABLES = {**CANN_TABLES, **FRAMEWORK_TABLES, **_OTHER_TABLES}

STEP_TABLE = "StepTraceTime"
TIME_TABLE, BANDWIDTH_TABLE, MATRIX_TABLE = "CommAnalyzerTime", "CommAnalyzerBandwidth", "CommAnalyzerMatrix"
#: of analysis.db
ANALYSIS_TABLES = {
    STEP_TABLE: "deviceId step* computing# communication_not_overlapped# overlapped# communication# free# stage# bubble# "
    "communication_not_overlapped_and_exclude_receive# preparing#",
    TIME_TABLE: "hccl_op_name* group_name* start_timestamp# elapse_time# transit_time# wait_time# synchronization_time# "
    "idle_time# step* type*",
    BANDWIDTH_TABLE: "hccl_op_name* group_name* transport_type* transit_size# transit_time# bandwidth# "
    "large_packet_ratio# package_size# count# total_duration# step* type*",
    MATRIX_TABLE: "hccl_op_name* group_name* src_rank* dst_rank* transport_type* transit_size# transit_time# bandwidth# "
    "step* type* op_name*",
}

#: column of CommAnalyzerMatrix, and of CommAnalyzerBandwidth -> what it tells of a link, or a transport
MATRIX_COLUMNS = {
    "transport_type": "transport",
    "transit_size": "size_mb",
    "transit_time": "transit_ms",
    "bandwidth": "bandwidth_gbps",
}
BANDWIDTH_COLUMNS = {
    **MATRIX_COLUMNS,
    "large_packet_ratio": "large_packet_ratio",
    "package_size": "package_mb",
    "count": "count",
    "total_duration": "duration_ms",
}

#: the tables that every database with data of a device has, and those that every one of a framework has
DEVICE_TABLES = ("STRING_IDS", "TASK", "COMPUTE_TASK_INFO", "CANN_API")
PYTORCH_TABLES = ("PYTORCH_API",)
#: the parts of collectives
INNER_TASKS = "COMMUNICATION_TASK_INFO"

#: index -> table and its indexed columns; created once the rows are there
INDICES = {
    "TaskIndex": ("TASK", "startNs, globalTaskId"),
    "TaskConnectionIndex": ("TASK", "connectionId"),
    "TaskIdIndex": ("TASK", "globalTaskId"),
    "CommunicationTaskIndex": ("COMMUNICATION_TASK_INFO", "globalTaskId"),
    "TaskPmuIndex": ("TASK_PMU_INFO", "globalTaskId"),
    "PytorchApiIndex": ("PYTORCH_API", "startNs, endNs"),
    "PytorchApiConnectionIndex": ("PYTORCH_API", "connectionId"),
    "ConnectionIndex": ("CONNECTION_IDS", "connectionId"),
    "CallchainIndex": ("PYTORCH_CALLCHAINS", "id"),
}

ENUM_PREFIX = "ENUM_"
ENUM_COLUMNS = "id! name*"

NO_TYPE = 65535
_NO_TYPES = {NOT_AVAILABLE: 65534, "INVALID_TYPE": NO_TYPE}

API_TYPES = {
    "runtime": 5000, "communication": 5500, "node": 10000, "model": 15000, "acl": 20000,
    "op": 50001, "queue": 50002, "trace": 50003, "mstx": 50004,
}  # fmt: skip

DATA_TYPES = {
    "INT8": 0, "INT16": 1, "INT32": 2, "FP16": 3, "FP32": 4, "INT64": 5, "UINT64": 6, "UINT8": 7, "UINT16": 8, "UINT32": 9,
    "FP64": 10, "BFP16": 11, "INT128": 12, "HIF8": 14, "FP8E4M3": 15, "FP8E5M2": 16, "FP8E8M0": 17, "RESERVED": 255,
    **_NO_TYPES,
}  # fmt: skip

OVERLAP_TYPES = {"COMPUTE": 0, "COMMUNICATION": 1, "COMM_NOT_OVERLAP_COMP": 2, "FREE": 3, "RESERVE": NO_TYPE}

MARK_TYPES = {"marker": 0, "push/pop": 1, "start/end": 2, "marker_ex": 3}

#: words of a copy's name, or its whole name, that say from where to where
MEMCPY_OPERATIONS = {
    "host to host": 0, "host to device": 1, "device to host": 2, "device to device": 3, "managed memory": 4,
    "addr device to device": 5, "host to device ex": 6, "device to host ex": 7, "other": NO_TYPE,
}  # fmt: skip

#: names of the software modules of an NPU by id, as npu_module_mem counts their memory
MODULES = [
    "SLOG", "IDEDD", "IDEDH", "HCCL", "FMK", "HIAIENGINE", "DVPP", "RUNTIME", "CCE", "HDC", "DRV", "MDCFUSION",
    "MDCLOCATION", "MDCPERCEPTION", "MDCFSM", "MDCCOMMON", "MDCMONITOR", "MDCBSWP", "MDCDEFAULT", "MDCSC", "MDCPNC",
    "MLL", "DEVMM", "KERNEL", "LIBMEDIA", "CCECPU", "ASCENDDK", "ROS", "HCCP", "ROCE", "TEFUSION", "PROFILING", "DP",
    "APP", "TS", "TSDUMP", "AICPU", "LP", "TDT", "FE", "MD", "MB", "ME", "IMU", "IMP", "GE", "MDCFUSA", "CAMERA",
    "ASCENDCL", "TEEOS", "ISP", "SIS", "HSM", "DSS", "PROCMGR", "BBOX", "AIVECTOR", "TBE", "FV", "MDCMAP", "TUNE",
    "HSS", "FFTS", "OP", "UDF", "HICAID", "TSYNC", "AUDIO", "TPRT", "ASCENDCKERNEL", "ASYS", "ATRACE", "RTC",
    "SYSMONITOR", "AMP", "ADETECT", "MBUFF", "CUSTOM",
]  # fmt: skip

#: table -> name -> number
ENUMS = {
    "ENUM_API_TYPE": API_TYPES,
    "ENUM_HCCL_DATA_TYPE": DATA_TYPES,
    "ENUM_HCCL_LINK_TYPE": {
        "ON_CHIP": 0, "HCCS": 1, "PCIE": 2, "ROCE": 3, "SIO": 4, "HCCS_SW": 5, "STANDARD_ROCE": 6, "UB": 7, "UBoE": 8,
        "RESERVED": 255, **_NO_TYPES,
    },
    "ENUM_HCCL_TRANSPORT_TYPE": {"SDMA": 0, "RDMA": 1, "LOCAL": 2, "UB": 3, "ROCE": 4, **_NO_TYPES},
    "ENUM_HCCL_RDMA_TYPE": {"RDMA_SEND_NOTIFY": 0, "RDMA_SEND_PAYLOAD": 1, **_NO_TYPES},
    "ENUM_OVERLAP_ANALYSIS_TYPE": OVERLAP_TYPES,
    "ENUM_MSTX_EVENT_TYPE": MARK_TYPES,
    "ENUM_MEMCPY_OPERATION": MEMCPY_OPERATIONS,
    "ENUM_MODULE": {name: number for number, name in enumerate(MODULES)},
}  # fmt: skip
#: the columns of COMMUNICATION_TASK_INFO that hold numbers of an enumeration
INNER_ENUMS = {
    "rdmaType": "ENUM_HCCL_RDMA_TYPE",
    "transportType": "ENUM_HCCL_TRANSPORT_TYPE",
    "dataType": "ENUM_HCCL_DATA_TYPE",
    "linkType": "ENUM_HCCL_LINK_TYPE",
}


def is_result_database(name: str) -> bool:
    """Whether a file of this name is a database of results."""
    return name == ANALYSIS_DATABASE or PROFILER_DATABASE.match(name) is not None


def columns(layout: str) -> list[str]:
    """Names of the columns of a table, from its entry above."""
    return [word.rstrip("*#~!") for word in layout.split()]


def definition(layout: str) -> str:
    """The columns of a table for CREATE TABLE, from its entry above."""
    return ", ".join(f"{name} {_TYPES[word[len(name) :]]}" for word, name in zip(layout.split(), columns(layout), strict=True))


def holds_integers(layout: str) -> bool:
    """Whether every column of a table is one of integers, from its entry above."""
    return not any(word.endswith(("*", "#", "~")) for word in layout.split())


def key_of(layout: str) -> str:
    """The column of a table that is its primary key, from its entry above; empty where it has none."""
    return next((word[:-1] for word in layout.split() if word.endswith("!")), "")
