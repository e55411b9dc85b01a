"""The current layout of Ascend databases, what a file has instead, and the texts that its numbers stand for."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl

from steplens.readers.common.sqlite_file import SqliteFile
from steplens.trace.health import ERROR, EVERYTHING, INFO, KERNEL_DETAILS, WARNING, HealthLog
from steplens.trace.schema import NAME

#: stands for a text that was not recorded
MISSING_TEXT_ID = 4294967295
#: "there is none" of unsigned 32-bit columns (context, model)
NO_ID = 4294967295
#: what the source writes where a value is not available, and what a call without a name is called here
NOT_AVAILABLE = "N/A"

_NETWORK_DIRECTION = ("PacketRate", "ByteRate", "Packets", "Bytes", "Errors", "Dropped")
_NETWORK = " ".join(["bandwidth", *(f"{way}{what}" for way in ("rx", "tx") for what in _NETWORK_DIRECTION), "funcId"])
_PCIE_KINDS = [*(f"{way}{what}" for way in ("tx", "rx") for what in ("Post", "Nonpost", "Cpl")), "txNonpostLatency"]
_PCIE = " ".join(f"{kind}{value}" for kind in _PCIE_KINDS for value in ("Min", "Max", "Avg"))

#: table -> columns, in CANN's schema 1.2.0; "*" marks columns of text
CANN_LAYOUT: dict[str, str] = {
    "STRING_IDS": "id value*",
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
    "AICORE_FREQ": "deviceId timestampNs freq dieId",
    "HCCS": "deviceId timestampNs txThroughput rxThroughput",
    "NIC": "deviceId timestampNs " + _NETWORK,
    "ROCE": "deviceId timestampNs " + _NETWORK,
    "PCIE": "deviceId timestampNs " + _PCIE,
    "CPU_USAGE": "timestampNs cpuId usage",
    "HOST_MEM_USAGE": "timestampNs usage",
    "HOST_DISK_USAGE": "timestampNs readRate writeRate usage",
    "HOST_NETWORK_USAGE": "timestampNs usage speed",
    "SESSION_TIME_INFO": "startTimeNs endTimeNs",
    "NPU_INFO": "id name*",
    "HOST_INFO": "hostUid* hostName*",
    "RANK_DEVICE_MAP": "rankId deviceId",
    "META_DATA": "name* value*",
}

#: the tables that every database with data of a device has
CANN_TABLES = ("STRING_IDS", "TASK", "COMPUTE_TASK_INFO", "CANN_API")

#: what an enum table means where the file has none, or lacks a row
ENUMS: dict[str, dict[int, str]] = {
    "ENUM_API_TYPE": {
        20000: "acl", 15000: "model", 10000: "node", 5500: "communication", 5000: "runtime",
        50001: "op", 50002: "queue", 50003: "trace", 50004: "mstx",
    },
    "ENUM_MSTX_EVENT_TYPE": {0: "marker", 1: "push/pop", 2: "start/end", 3: "marker_ex"},
    "ENUM_MEMCPY_OPERATION": {
        0: "host to host", 1: "host to device", 2: "device to host", 3: "device to device", 4: "managed memory",
        5: "addr device to device", 6: "host to device ex", 7: "device to host ex", 65535: "other",
    },
    "ENUM_HCCL_DATA_TYPE": {
        0: "INT8", 1: "INT16", 2: "INT32", 3: "FP16", 4: "FP32", 5: "INT64", 6: "UINT64", 7: "UINT8", 8: "UINT16", 9: "UINT32",
        10: "FP64", 11: "BFP16", 12: "INT128", 14: "HIF8", 15: "FP8E4M3", 16: "FP8E5M2", 17: "FP8E8M0", 255: "RESERVED",
        65534: "N/A", 65535: "INVALID_TYPE",
    },
    "ENUM_HCCL_LINK_TYPE": {
        0: "ON_CHIP", 1: "HCCS", 2: "PCIE", 3: "ROCE", 4: "SIO", 5: "HCCS_SW", 6: "STANDARD_ROCE", 7: "UB", 8: "UBoE",
        255: "RESERVED", 65534: "N/A", 65535: "INVALID_TYPE",
    },
    "ENUM_HCCL_TRANSPORT_TYPE": {0: "SDMA", 1: "RDMA", 2: "LOCAL", 3: "UB", 4: "ROCE", 65534: "N/A", 65535: "INVALID_TYPE"},
    "ENUM_HCCL_RDMA_TYPE": {0: "RDMA_SEND_NOTIFY", 1: "RDMA_SEND_PAYLOAD", 65534: "N/A", 65535: "INVALID_TYPE"},
    "ENUM_MODULE": {3: "HCCL", 7: "RUNTIME", 33: "APP", 36: "AICPU", 45: "GE", 48: "ASCENDCL"},
}  # fmt: skip

#: bytes of one element, by the name of its type in ENUM_HCCL_DATA_TYPE
ELEMENT_BYTES = {
    **dict.fromkeys(("INT8", "UINT8", "HIF8", "FP8E4M3", "FP8E5M2", "FP8E8M0"), 1),
    **dict.fromkeys(("INT16", "UINT16", "FP16", "BFP16"), 2),
    **dict.fromkeys(("INT32", "UINT32", "FP32"), 4),
    **dict.fromkeys(("INT64", "UINT64", "FP64"), 8),
    "INT128": 16,
}

#: later than any event: sums of two times stay in 64 bits
_LATEST_NS = 1 << 62

#: results of other programs' computations, which steplens makes itself
_DERIVED_TABLES = {"OVERLAP_ANALYSIS"}


class Texts:
    """The texts of STRING_IDS, and what the ids of other tables stand for.

    Ids may be any numbers, 0 included; one text may have several. A text that says "not available" is none.

    Attributes:
        unknown: how many ids had no text so far.
    """

    def __init__(self, database: SqliteFile) -> None:
        frame = database.read("STRING_IDS", {"id": pl.Int64(), "value": pl.String()})
        if frame.width < 2:
            frame = pl.DataFrame(schema={"id": pl.Int64, "value": pl.String})
        frame = frame.drop_nulls("id").unique("id", keep="first", maintain_order=True).sort("id")
        unavailable = (frame["value"] == NOT_AVAILABLE).fill_null(True)
        self._ids = frame["id"].to_numpy()
        self._texts = frame["value"].set(unavailable, None)
        self._unavailable = pl.Series([*frame["id"].filter(unavailable).to_list(), MISSING_TEXT_ID], dtype=pl.Int64)
        self._names = self._texts.cast(NAME)
        self._shapes: pl.Series | None = None
        self._lists: pl.Series | None = None
        self.unknown = 0

    def of(self, column: pl.Series) -> pl.Series:
        """The texts of a column of ids, as a Categorical; null for null, for what is not available and for an unknown id."""
        return self._gather(self._names, column)

    def shapes(self, column: pl.Series) -> pl.Series:
        """Like ``of``, without the quotes that CANN puts around lists of dimensions."""
        if self._shapes is None:
            self._shapes = self._texts.str.strip_chars('"').cast(NAME)
        return self._gather(self._shapes, column)

    def lists(self, column: pl.Series) -> pl.Series:
        """Like ``of``, for the framework's lists: what parts their elements, ";" and a line break, becomes ";"."""
        if self._lists is None:
            self._lists = self._texts.str.replace_all(r";\r?\n", ";").cast(NAME)
        return self._gather(self._lists, column)

    def ids_of(self, *texts: str) -> list[int]:
        """Every id of these texts."""
        return [int(number) for number in self._ids[self._texts.is_in(texts).fill_null(False).to_numpy()]]

    def ids_matching(self, pattern: str) -> list[int]:
        """Every id of the texts that a regular expression finds something in."""
        return [int(number) for number in self._ids[self._texts.str.contains(pattern).fill_null(False).to_numpy()]]

    def available(self, column: str) -> pl.Expr:
        """A column of ids with null for ids whose text is not available."""
        return pl.when(~pl.col(column).is_in(self._unavailable.implode())).then(pl.col(column))

    def _gather(self, texts: pl.Series, column: pl.Series) -> pl.Series:
        ids = column.fill_null(MISSING_TEXT_ID)
        if not len(self._ids):
            self.unknown += int((ids != MISSING_TEXT_ID).sum())
            return nothing(column.name, len(column))
        found = np.minimum(np.searchsorted(self._ids, ids.to_numpy()), len(self._ids) - 1)
        unknown = self._ids[found] != ids.to_numpy()
        self.unknown += int((pl.Series(unknown) & (ids != MISSING_TEXT_ID)).sum())
        result: pl.Series = texts.gather(pl.Series(found, dtype=pl.Int64).set(pl.Series(unknown), None)).alias(column.name)
        return result

    def report(self, health: HealthLog) -> None:
        """Report ids without a text."""
        if self.unknown:
            severity = WARNING if len(self._ids) else ERROR
            health.add("missing_names", severity, self.unknown, "names are missing in STRING_IDS", EVERYTHING)


def thread_of(column: str) -> dict[str, pl.Expr]:
    """``pid`` and ``tid`` of a globalTid: process id in the upper 32 bits, thread id in the lower."""
    return {"pid": pl.col(column) // (1 << 32), "tid": pl.col(column) % (1 << 32)}


def in_time(frame: pl.DataFrame, columns: list[str], table: str, health: HealthLog, unsafe: str) -> pl.DataFrame:
    """The rows whose times a clock can show; health counts the others.

    Args:
        frame: rows of a table.
        columns: its columns of Unix ns that every row needs.
        table: its name.
        health: gets the finding.
        unsafe: what the rows left out make unsafe.
    """
    kept = frame.filter(pl.all_horizontal(pl.col(columns).is_between(0, _LATEST_NS)))
    if kept.height < frame.height:
        message = f"rows of {table} have no time, or one that no clock can show, and were left out"
        health.add("impossible_times", ERROR, frame.height - kept.height, message, unsafe)
    return kept


def timed(frame: pl.DataFrame, table: str, health: HealthLog, unsafe: str) -> pl.DataFrame:
    """The rows with a start and an end, the end not before the start; health counts the others."""
    kept = in_time(frame, ["startNs", "endNs"], table, health, unsafe)
    backward = int((kept["endNs"] < kept["startNs"]).sum())
    if backward:
        message = f"rows of {table} end before they start; their length counts as zero"
        health.add("negative_duration", ERROR, backward, message, unsafe)
    return kept.with_columns(endNs=pl.max_horizontal("startNs", "endNs"))


def nothing(name: str, count: int) -> pl.Series:
    """A column of names without any."""
    column: pl.Series = pl.Series(name, [None], dtype=NAME).new_from_index(0, count)
    return column


class Enums:
    """The enum tables of a file, completed by the ones of the current layout."""

    def __init__(self, database: SqliteFile) -> None:
        self._database = database
        self._known: dict[str, dict[int, str]] = {}
        self._incomplete: set[str] = set()
        self._unknown: set[str] = set()

    def of(self, table: str, column: pl.Series) -> pl.Series:
        """The names of a column of numbers, as a Categorical; a number that nobody names is its own name."""
        if table not in self._known:
            rows = self._database.read(table, {"id": pl.Int64(), "name": pl.String()})
            complete = {"id", "name"} <= set(rows.columns)
            self._known[table] = dict(rows.drop_nulls().iter_rows()) if complete else {}
        known = self._known[table]
        names = {}
        for number in column.drop_nulls().unique().to_list():
            if number not in known:
                (self._incomplete if number in ENUMS[table] else self._unknown).add(table)
            names[number] = known.get(number, ENUMS[table].get(number, str(number)))
        if not names:
            return nothing(column.name, len(column))
        translated: pl.Series = column.replace_strict(names, default=None, return_dtype=pl.String).cast(NAME)
        return translated

    def report(self, health: HealthLog) -> None:
        """Report the tables that had to be completed and the numbers that nobody names."""
        if self._incomplete:
            message = (
                f"numbers are named as in the current layout, because the file does not ({', '.join(sorted(self._incomplete))})"
            )
            health.add("missing_enums", INFO, len(self._incomplete), message)
        if self._unknown:
            message = f"numbers have no name, neither in the file nor in the current layout ({', '.join(sorted(self._unknown))})"
            health.add("unknown_enum_values", WARNING, len(self._unknown), message, KERNEL_DETAILS)


def report_differences(database: SqliteFile, layout: dict[str, str], expected: Iterable[str], health: HealthLog) -> None:
    """One finding that names everything in which a file differs from the current layout.

    Args:
        database: the file.
        layout: table -> columns, see ``CANN_LAYOUT``.
        expected: tables that every such file has; others are absent where nothing was recorded for them.
        health: gets the finding.
    """
    missing = [table for table in expected if table not in database]
    differences = [f"there is no {', '.join(missing)}"] if missing else []
    for table, columns in layout.items():
        if table in database:
            differences += _of_table(database, table, columns.split())
    if differences:
        message = f"the database differs from the current layout: {'; '.join(differences)}"
        health.add("schema_differences", INFO, len(differences) + max(len(missing) - 1, 0), message)


def _of_table(database: SqliteFile, table: str, columns: list[str]) -> list[str]:
    wanted = [column.rstrip("*") for column in columns]
    numbers = {column for column in columns if not column.endswith("*")}
    present = database.column_names(table)
    differences = []
    lacks = [column for column in wanted if column not in present]
    besides = [column for column in present if column not in wanted]
    as_text = [column.name for column in database.tables[table] if column.name in numbers and column.declared == "TEXT"]
    if lacks:
        differences.append(f"{table} lacks {', '.join(lacks)}")
    if besides:
        differences.append(f"{table} has also {', '.join(besides[:20])}")
    if as_text:
        differences.append(f"{table} has {', '.join(as_text)} as text")
    return differences


def report_unread(database: SqliteFile, read: Iterable[str], health: HealthLog) -> None:
    """Report the tables with rows that are not read."""
    passed_over = {*read, *_DERIVED_TABLES}
    unread = [
        table
        for table in database.tables
        if table not in passed_over and not table.startswith("ENUM_") and database.has_rows(table)
    ]
    if unread:
        names = ", ".join(unread[:20]) + (" ..." if len(unread) > 20 else "")
        health.add("tables_not_read", INFO, len(unread), f"tables of the database are not used ({names})")
