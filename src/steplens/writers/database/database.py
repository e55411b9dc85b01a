"""``ascend_pytorch_profiler[_<rank>].db``: the whole trace as an SQLite database, times in Unix ns and sizes in bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from steplens.formats.ascend_database import ENUM_COLUMNS, ENUMS, PROFILER_TABLES, SCHEMA_VERSION
from steplens.formats.ascend_results import TIME_BASE_KEY
from steplens.trace.building import devices
from steplens.trace.columns import SPANS
from steplens.trace.schema import PARTIAL_STEPS, PROCESS_IDENTITY, WHOLE_STEPS
from steplens.trace.trace import Trace
from steplens.writers.common.links import assign_connection_ids
from steplens.writers.common.output import NothingToWriteError, Output, device_kind, first_event_ns, main_pid, used_devices
from steplens.writers.database import database_communication, database_device, database_framework, database_samples
from steplens.writers.database.database_file import DatabaseFile

#: what readers put into ``meta`` besides what the run recorded as its metadata
_NO_METADATA = {
    TIME_BASE_KEY, PARTIAL_STEPS, WHOLE_STEPS, "cann_version", "chip", "config", "device_ids", "end_info", "host_uid", "hostname",
    "pid", PROCESS_IDENTITY, "prof_pid", "rank", "schemaVersion", "schema_version", "session_end_ns", "session_start_ns",
    "source_format", "start_info", "steplens_version", "torch_npu_version", "torch_version", "world_size",
}  # fmt: skip

#: why some traces become no database
TOO_EARLY = "its first event lies before 1970, and the tools that read these databases know no such times; text holds them"

#: tables of which the last event ends the session
_SESSION_TABLES = ("ops", "python", "api", "kernels", "communication", "steps", "memory")

_NO_RANK = -1
_UNKNOWN_HOST = "unknown"


def write(output: Output, path: Path) -> None:
    """Write the profiler database.

    Text and numbers agree with the text files row for row. What only those have: Python parents, streams of collectives,
    wait times, floating-point operations and module paths of calls, samples of the process's memory outside of NPU_MEM.
    """
    trace = output.trace
    first = first_event_ns(trace)
    if first is None:
        raise NothingToWriteError("the trace has no events")
    if first < 0:
        raise NothingToWriteError(TOO_EARLY)
    pid = main_pid(trace)
    connection_ids = assign_connection_ids(trace)
    with DatabaseFile(path, PROFILER_TABLES) as file:
        _write_run(file, output, first)
        database_device.write_tasks(file, output, pid, connection_ids)
        database_communication.write_communication(file, output, connection_ids)
        database_device.write_runtime_calls(file, output, pid, connection_ids)
        database_device.write_marks(file, output, pid)
        database_device.write_overlap(file, output)
        more_names = database_samples.write_samples(file, output)
        database_framework.write_calls(file, output, pid, connection_ids)
        database_framework.write_steps(file, output)
        database_framework.write_collections(file, output, pid)
        database_framework.write_memory(file, output)
        file.write_texts()
        for table, names in ENUMS.items():
            rows = sorted((number, name) for name, number in {**names, **more_names.get(table, {})}.items())
            file.rows(table, rows, ENUM_COLUMNS)


def _write_run(file: DatabaseFile, output: Output, first_ns: int) -> None:
    """What the run says about itself: version, metadata, time, host, devices and rank."""
    trace, meta = output.trace, output.trace.meta_values()
    file.rows("META_DATA", _metadata_rows(output, meta))
    start, end = meta.get("session_start_ns"), meta.get("session_end_ns")
    if type(start) is not int or type(end) is not int or not 0 <= start <= end < 2**63:
        start, end = first_ns, max(_last_event_ns(trace), first_ns)
    file.rows("SESSION_TIME_INFO", [(start, end)])
    # without a host the clients leave out the map of ranks and devices
    host = meta.get("hostname") or meta.get("host_name") or _UNKNOWN_HOST
    file.rows("HOST_INFO", [(str(meta.get("host_uid") or host), str(host))])
    used = used_devices(trace)
    products = devices.product_names(trace)
    file.rows("NPU_INFO", [(device, products.get(device, device_kind(trace))) for device in used])
    pairs = [(trace.recorded_rank, device) for device in used] if trace.recorded_rank >= 0 else []
    file.rows("RANK_DEVICE_MAP", pairs or [(_NO_RANK, _NO_RANK)])


def _metadata_rows(output: Output, meta: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Rows of META_DATA: the schema's version, then what the run recorded, each value as JSON."""
    yield "SCHEMA_VERSION", ".".join(map(str, SCHEMA_VERSION))
    for part, number in zip(("MAJOR", "MINOR", "MICRO"), SCHEMA_VERSION, strict=True):
        yield f"SCHEMA_VERSION_{part}", str(number)
    for key, value in {**meta, **output.metadata}.items():
        if key not in _NO_METADATA:
            yield key, json.dumps(value, ensure_ascii=False)


def _last_event_ns(trace: Trace) -> int:
    ends = (trace.required(table).select(pl.col(SPANS[table][1]).max()).collect().item() for table in _SESSION_TABLES)
    return max((int(end) for end in ends if end is not None), default=0)
