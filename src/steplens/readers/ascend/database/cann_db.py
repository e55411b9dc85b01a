"""Reads the device half of Ascend databases: the tables that CANN writes, in ``msprof_*.db`` and in profiler databases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from steplens.common import json_text
from steplens.common.errors import InputError
from steplens.formats.ascend_database import CANN_TABLES, DEVICE_TABLES, INNER_ENUMS, INNER_TASKS, NO_MARK_CONNECTION
from steplens.formats.ascend_terms import ACL, LAUNCH, MARKER_EX, NODE, OLDER_LAYERS, OS_LAYER
from steplens.readers.ascend.database import cann_samples, cann_tasks
from steplens.readers.ascend.database.cann_names import ProfilerDatabase, thread_of
from steplens.readers.common.trace_rows import meta_rows, source_rows
from steplens.trace.health import RUNTIME_CALLS, USER_MARKS, WARNING, HealthLog
from steplens.trace.schema import MARK_KINDS, MARKER, NAME

#: names of kinds of marks -> ours
_MARK_KINDS = {**{kind: kind for kind in MARK_KINDS}, MARKER_EX: MARKER}
#: inner tasks of collectives whose details are kept; more would fill the memory, and health reports the rest
_DETAIL_LIMIT = 500_000

_INNER = (
    "globalTaskId", "name", "taskType", "planeId", "groupName", "notifyId", "rdmaType", "srcRank", "dstRank", "transportType",
    "size", "dataType", "linkType", "opId", "isMaster",
)  # fmt: skip


def read_cann(path: Path, health: HealthLog) -> dict[str, pl.DataFrame]:
    """The raw tables of the device half of one database; see ``cann_tables``.

    Args:
        path: ``msprof_*.db`` or a profiler database.
        health: gets what the file lacks, what is damaged and where it differs from the current layout.

    Raises:
        InputError: the file is no database, or holds no table of CANN's.
    """
    with ProfilerDatabase(path, health) as database:
        if not any(table in database for table in CANN_TABLES):
            raise InputError(path, "holds none of CANN's tables", "Give msprof_<number>.db or ascend_pytorch_profiler_<rank>.db")
        database.load_names(CANN_TABLES, DEVICE_TABLES, cann_samples.TABLES)
        tables = cann_tables(database)
        database.report_names()
        return tables


def cann_tables(database: ProfilerDatabase) -> dict[str, pl.DataFrame]:
    """The device half of an open database as raw tables of a trace; a table without rows is left out.

    ``kernels`` and ``communication`` carry ``launch_ns``, ``launch_pid`` and ``launch_tid``: the start of the call that
    launched them, "launch" on the node level or, for tasks without one (copies, events), the call on the acl level.
    ``kernels.wait_ns`` is CANN's Wait Time: among the tasks of a device that compute or communicate, in order of start, the
    time since the end of the one before, at least 0.
    """
    api = _read_api_calls(database)
    tasks = cann_tasks.read_tasks(database)
    meta = _read_metadata(database)
    communication = cann_tasks.read_collectives(database, tasks, meta.get("parallel_group_info"))
    details = database.complete(INNER_TASKS, _INNER)
    kernels = cann_tasks.with_launches(cann_tasks.kernels(database, tasks, details), api)
    communication = cann_tasks.with_launches(communication, api)
    kernels = cann_tasks.number_kernels(kernels, communication)
    numbers = kernels.select("id", "globalTaskId").drop_nulls() if kernels.height else pl.DataFrame()
    tables = {
        "kernels": kernels.drop("globalTaskId", strict=False),
        "communication": communication,
        "kernel_metrics": cann_tasks.read_kernel_metrics(database, numbers),
        "api": api.drop("launches", strict=False),
        "marks": _read_marks(database, tasks),
        "source_tables": _communication_details(database, details, numbers),
        **cann_samples.read(database),
    }
    tables["meta"] = meta_rows({**meta, **_device_metadata(database, tables["kernels"])}, nulls=False)
    return {name: frame for name, frame in tables.items() if frame.height}


def _read_api_calls(database: ProfilerDatabase) -> pl.DataFrame:
    """``api``, and ``launches``: how fit a call is to be the one that launched a task, 0 is best."""
    calls, texts = database.valid_ranges("CANN_API", RUNTIME_CALLS), database.texts
    layer = database.enums.of("ENUM_API_TYPE", calls["type"]).cast(pl.String).replace(OLDER_LAYERS)
    is_launch = pl.col("name").is_in(texts.ids_of(LAUNCH))
    frame = calls.with_columns(layer=layer).select(
        name=texts.names_of(calls["name"]),
        layer=pl.col("layer").cast(NAME),
        start_ns="startNs",
        end_ns="endNs",
        **thread_of("globalTid"),
        correlation="connectionId",
        launches=pl.when(pl.col("layer") == NODE)
        .then(pl.when(is_launch).then(0).otherwise(1))
        .otherwise(pl.when(pl.col("layer") == ACL).then(2).otherwise(3)),
    )
    system = database.valid_ranges("OSRT_API", RUNTIME_CALLS)
    if system.height:
        layer = pl.lit(OS_LAYER, dtype=NAME)
        rows = system.select(
            name=texts.of(system["name"]), layer=layer, start_ns="startNs", end_ns="endNs", **thread_of("globalTid")
        )
        frame = pl.concat([frame, rows], how="diagonal")
    return frame


def _read_marks(database: ProfilerDatabase, tasks: pl.DataFrame) -> pl.DataFrame:
    """``marks`` from MSTX_EVENTS; the stream is that of the device task that the mark waited for."""
    columns = ("startNs", "endNs", "eventType", "message", "globalTid", "domainId", "connectionId")
    rows = database.in_time(database.complete("MSTX_EVENTS", columns), ["startNs"], "MSTX_EVENTS", USER_MARKS)
    if not rows.height:
        return pl.DataFrame()
    kind = database.enums.of("ENUM_MSTX_EVENT_TYPE", rows["eventType"]).cast(pl.String)
    streams = tasks.drop_nulls("connectionId").unique("connectionId", keep="first").select("connectionId", "streamId")
    rows = rows.with_columns(
        message=database.texts.of(rows["message"]),
        domain=database.texts.of(rows["domainId"]),
        kind=pl.Series(kind),
        is_point=pl.Series(kind.str.starts_with("marker")).fill_null(False),
        connectionId=pl.when(pl.col("connectionId") != NO_MARK_CONNECTION).then("connectionId"),
    ).join(streams, on="connectionId", how="left", maintain_order="left")
    return rows.select(
        "domain",
        "message",
        start_ns="startNs",
        end_ns=pl.when(pl.col("is_point")).then("startNs").otherwise(pl.max_horizontal("startNs", "endNs")),
        **thread_of("globalTid"),
        stream="streamId",
        correlation="connectionId",
        kind=pl.col("kind").replace_strict(_MARK_KINDS, default=None, return_dtype=pl.String).cast(NAME),
    )


def _communication_details(database: ProfilerDatabase, inner: pl.DataFrame, numbers: pl.DataFrame) -> pl.DataFrame:
    """COMMUNICATION_TASK_INFO as rows of ``source_tables``: ids as texts, and ``kernel``, the task in ``kernels``.

    Where the level of the recording left the tasks without details there are no rows.
    """
    if not inner.height or not numbers.height:
        return pl.DataFrame()
    inner = inner.filter(database.texts.available("taskType").is_not_null())
    inner = inner.join(numbers.unique("globalTaskId", keep="first"), on="globalTaskId", how="inner", maintain_order="left")
    if inner.height > _DETAIL_LIMIT:
        message = f"inner tasks of collectives are without their ranks and transport; the first {_DETAIL_LIMIT} have them"
        database.health.add("details_left_out", WARNING, inner.height - _DETAIL_LIMIT, message, RUNTIME_CALLS)
        inner = inner.head(_DETAIL_LIMIT)
    names_of = {column: database.texts.of(inner[column]) for column in ("name", "taskType", "groupName")}
    names_of |= {column: database.enums.of(table, inner[column]) for column, table in INNER_ENUMS.items()}
    rows = inner.with_columns(**names_of).select("id", *_INNER[1:]).rename({"id": "kernel"})
    return source_rows(INNER_TASKS, rows, absent=None)


def _read_metadata(database: ProfilerDatabase) -> dict[str, Any]:
    """What META_DATA holds: the schema's version and what the run recorded about itself."""
    values: dict[str, Any] = {}
    for name, value in database.whole_table("META_DATA").drop_nulls().iter_rows():
        if name == "SCHEMA_VERSION":
            values["schema_version"] = value
        elif not name.startswith("SCHEMA_VERSION_"):
            values[name] = _decode_json(value)
    return values


def _device_metadata(database: ProfilerDatabase, kernels: pl.DataFrame) -> dict[str, Any]:
    """Rank, devices, host, process and duration of the recording."""
    values: dict[str, Any] = {"source_format": "ascend_db"}
    ranks = database.whole_table("RANK_DEVICE_MAP")
    ids = {*ranks["deviceId"].drop_nulls().to_list(), *_unique_values(kernels, "device")}
    known_ranks = sorted(rank for rank in ranks["rankId"].drop_nulls().unique().to_list() if rank >= 0)
    if len(known_ranks) == 1:
        values["rank"] = known_ranks[0]
    values["device_ids"] = sorted(device for device in ids if device >= 0)
    hosts = database.whole_table("HOST_INFO")
    if hosts.height:
        values["hostname"], values["host_uid"] = hosts["hostName"][0], hosts["hostUid"][0]
    chips = database.whole_table("NPU_INFO")["name"].drop_nulls()
    values["chip"] = chips[0] if len(chips) else None
    session = database.whole_table("SESSION_TIME_INFO").drop_nulls()
    if session.height:
        values["session_start_ns"], values["session_end_ns"] = session.row(0)
    processes = _unique_values(kernels, "pid")
    values["pid"] = processes[0] if len(processes) == 1 else None
    return values


def _unique_values(frame: pl.DataFrame, column: str) -> list[int]:
    return frame[column].drop_nulls().unique().to_list() if column in frame.columns else []


def _decode_json(text: str) -> Any:
    """The value of a JSON text; a text that is none is the value."""
    try:
        return json_text.loads(text)
    except ValueError:
        return text
