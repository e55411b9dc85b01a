"""Reads what an analysis of communication left in a database: ``analysis.db``, and CANN's ``communication_analyzer.db``."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from steplens.readers.ascend.database.cann_layout import report_unread
from steplens.readers.common.microseconds import text_ns, with_possible_times
from steplens.readers.common.sqlite_file import SqliteFile
from steplens.readers.common.trace_rows import source_rows
from steplens.trace.health import COMMUNICATION_TIMES, COMMUNICATION_VOLUME, HealthLog
from steplens.trace.schema import NAME

_TIME = "CommAnalyzerTime"
_BANDWIDTH = "CommAnalyzerBandwidth"
_MATRIX = "CommAnalyzerMatrix"
_STEPS = "StepTraceTime"
_TABLES = (_TIME, _BANDWIDTH, _MATRIX, _STEPS)
#: what a duration that cannot be makes unsafe
_UNSAFE = {
    "communication_times": COMMUNICATION_TIMES,
    "communication_bandwidth": COMMUNICATION_VOLUME,
    "communication_matrix": COMMUNICATION_VOLUME,
}

_POINT_TO_POINT = r"(?i)^hcom_(send|receive|batchsendrecv)"
#: rows that sum up others
_TOTAL = r"(?i)^total"
_SELECTION = r"-(top\d*|middle|bottom\d*|total)$"

_KEYS = {"hccl_op_name": pl.String(), "group_name": pl.String(), "step": pl.String(), "type": pl.String()}


def read_analysis(path: Path, health: HealthLog) -> dict[str, pl.DataFrame]:
    """``communication_times``, ``communication_bandwidth``, ``communication_matrix`` and ``source_tables`` of one file.

    ``source_tables`` holds StepTraceTime, the step times that another analysis computed. CANN's own file has neither
    steps nor kinds: the step is null there, the kind that of the name.

    Raises:
        InputError: the file is no database.
    """
    with SqliteFile(path, health) as database:
        report_unread(database, _TABLES, health)
        tables = {
            "communication_times": _times(database),
            "communication_bandwidth": _bandwidth(database),
            "communication_matrix": _matrix(database),
            "source_tables": _step_times(database),
        }
    for name, unsafe in _UNSAFE.items():
        tables[name] = with_possible_times(tables[name], path.name, health, unsafe)
    return {name: frame for name, frame in tables.items() if frame.height}


def _read(database: SqliteFile, table: str, numbers: tuple[str, ...], texts: tuple[str, ...] = ()) -> pl.DataFrame:
    wanted = {**_KEYS, **dict.fromkeys(texts, pl.String()), **dict.fromkeys(numbers, pl.Float64())}
    frame = database.read(table, wanted)
    if not frame.height:
        return pl.DataFrame()
    missing = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in wanted.items() if name not in frame.columns]
    frame = frame.with_columns(missing).filter(~pl.col("hccl_op_name").str.contains(_TOTAL).fill_null(True))
    by_name = pl.when(pl.col("hccl_op_name").str.contains(_POINT_TO_POINT)).then(pl.lit("p2p")).otherwise(pl.lit("collective"))
    return frame.with_columns(
        name=pl.col("hccl_op_name").cast(NAME),
        group=pl.col("group_name").cast(NAME),
        kind=pl.coalesce("type", by_name).cast(NAME),
        step=pl.col("step").str.extract(r"(\d+)$").cast(pl.Int64, strict=False),
    )


def _times(database: SqliteFile) -> pl.DataFrame:
    parts = ("elapse", "transit", "wait", "synchronization", "idle")
    frame = _read(database, _TIME, tuple(f"{part}_time" for part in parts), ("start_timestamp",))
    if not frame.height:
        return frame
    return frame.select(
        "name",
        "group",
        "kind",
        "step",
        start_ns=text_ns(frame["start_timestamp"].fill_null("")),
        **{f"{part}_ms": f"{part}_time" for part in parts},
    )


def elapsed_sums(times: pl.DataFrame) -> pl.DataFrame:
    """How long the collectives of each step took together: rows of ``source_tables`` under ``CommAnalyzerTime``.

    They are a check where a text file measured the same operations, whose times are the ones that are read.

    Args:
        times: ``communication_times`` of the database.
    """
    known = times.drop_nulls(["step", "elapse_ms"])
    sums = known.group_by("step").agg(operations=pl.len(), elapse_time=pl.col("elapse_ms").sum()).sort("step")
    return source_rows(_TIME, sums, absent=None)


def _bandwidth(database: SqliteFile) -> pl.DataFrame:
    numbers = ("transit_size", "transit_time", "bandwidth", "large_packet_ratio", "package_size", "count", "total_duration")
    frame = _read(database, _BANDWIDTH, numbers, ("transport_type",))
    if not frame.height:
        return frame
    # a transport without packets has one row of zeros
    used = (pl.col("count").fill_null(0) != 0) | (pl.col("package_size").fill_null(0) != 0)
    return frame.select(
        "name",
        "group",
        "kind",
        "step",
        transport=pl.col("transport_type").cast(NAME),
        size_mb="transit_size",
        transit_ms="transit_time",
        bandwidth_gbps="bandwidth",
        large_packet_ratio="large_packet_ratio",
        package_mb=pl.when(used).then("package_size"),
        count=pl.col("count").cast(pl.Int64, strict=False),
        duration_ms="total_duration",
    )


def _matrix(database: SqliteFile) -> pl.DataFrame:
    texts = ("src_rank", "dst_rank", "transport_type", "op_name")
    frame = _read(database, _MATRIX, ("transit_size", "transit_time", "bandwidth"), texts)
    if not frame.height:
        return frame
    name = pl.col("hccl_op_name")
    return frame.select(
        "group",
        "kind",
        "step",
        name=name.str.replace(_SELECTION, "").cast(NAME),
        selection=name.str.extract(_SELECTION).cast(NAME),
        op_name=pl.when(pl.col("op_name") != "").then("op_name").cast(NAME),
        source=pl.col("src_rank").cast(pl.Int32, strict=False),
        destination=pl.col("dst_rank").cast(pl.Int32, strict=False),
        transport=pl.col("transport_type").cast(NAME),
        size_mb="transit_size",
        transit_ms="transit_time",
        bandwidth_gbps="bandwidth",
    )


def _step_times(database: SqliteFile) -> pl.DataFrame:
    """StepTraceTime as it is, µs; every column, older files have fewer."""
    names = database.column_names(_STEPS)
    frame = database.read(_STEPS, {name: pl.String() for name in names})
    return source_rows(_STEPS, frame, absent=None) if frame.height else frame
