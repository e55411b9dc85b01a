"""Reads what an analysis of communication left in a database: ``analysis.db``, and CANN's ``communication_analyzer.db``."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from steplens.common.errors import InputError
from steplens.formats import ascend_database as formats
from steplens.formats.ascend_results import COLLECTIVE, OPERATION_TIMES, POINT_TO_POINT
from steplens.formats.ascend_terms import POINT_TO_POINT_OPERATIONS, SELECTION
from steplens.readers.ascend.database.cann_names import report_unread
from steplens.readers.common.microseconds import text_ns, with_possible_times
from steplens.readers.common.sqlite_file import SqliteFile
from steplens.readers.common.trace_rows import source_rows
from steplens.trace.health import COMMUNICATION_TIMES, COMMUNICATION_VOLUME, WARNING, HealthLog
from steplens.trace.schema import NAME

#: what a duration that cannot be makes unsafe
_UNSAFE = {
    "communication_times": COMMUNICATION_TIMES,
    "communication_bandwidth": COMMUNICATION_VOLUME,
    "communication_matrix": COMMUNICATION_VOLUME,
}

_POINT_TO_POINT = f"(?i)^({'|'.join(POINT_TO_POINT_OPERATIONS)})"
#: rows that sum up others
_TOTAL = r"(?i)^total"

_KEYS = {"hccl_op_name": pl.String(), "group_name": pl.String(), "step": pl.String(), "type": pl.String()}


def read_analysis(path: Path, health: HealthLog) -> dict[str, pl.DataFrame]:
    """``communication_times``, ``communication_bandwidth``, ``communication_matrix`` and ``source_tables`` of one file.

    ``source_tables`` holds StepTraceTime, the step times that another analysis computed. CANN's own file has neither
    steps nor kinds: the step is null there, the kind that of the name.

    Raises:
        InputError: the file is no database.
    """
    with SqliteFile(path, health) as database:
        report_unread(database, formats.ANALYSIS_TABLES)
        tables = {
            "communication_times": _operation_times(database),
            "communication_bandwidth": _transport_bandwidth(database),
            "communication_matrix": _communication_matrix(database),
            "source_tables": _step_times(database),
        }
    for name, unsafe in _UNSAFE.items():
        tables[name] = with_possible_times(tables[name], path.name, health, unsafe)
    return {name: frame for name, frame in tables.items() if frame.height}


def read_analysis_beside(path: Path, health: HealthLog) -> dict[str, pl.DataFrame]:
    """What ``read_analysis`` gives for a file beside other results: without it these are still read, and health says so."""
    try:
        return read_analysis(path, health)
    except InputError as error:
        message = f"{path.name} {error.problem}, so what it measured of communication is missing"
        health.add("damaged_analysis", WARNING, 1, message, COMMUNICATION_TIMES)
        return {}


def _read_operation_rows(database: SqliteFile, table: str, numbers: tuple[str, ...], texts: tuple[str, ...] = ()) -> pl.DataFrame:
    columns = {**_KEYS, **dict.fromkeys(texts, pl.String()), **dict.fromkeys(numbers, pl.Float64())}
    frame = database.complete(table, columns, **columns)
    if not frame.height:
        return pl.DataFrame()
    frame = frame.filter(~pl.col("hccl_op_name").str.contains(_TOTAL).fill_null(True))
    by_name = (
        pl.when(pl.col("hccl_op_name").str.contains(_POINT_TO_POINT)).then(pl.lit(POINT_TO_POINT)).otherwise(pl.lit(COLLECTIVE))
    )
    return frame.with_columns(
        name=pl.col("hccl_op_name").cast(NAME),
        group=pl.col("group_name").cast(NAME),
        kind=pl.coalesce("type", by_name).cast(NAME),
        step=pl.col("step").str.extract(r"(\d+)$").cast(pl.Int64, strict=False),
    )


def _operation_times(database: SqliteFile) -> pl.DataFrame:
    frame = _read_operation_rows(
        database, formats.TIME_TABLE, tuple(f"{part}_time" for part in OPERATION_TIMES), ("start_timestamp",)
    )
    if not frame.height:
        return frame
    return frame.select(
        *("name", "group", "kind", "step"),
        start_ns=text_ns(frame["start_timestamp"].fill_null("")),
        **{f"{part}_ms": f"{part}_time" for part in OPERATION_TIMES},
    )


def elapsed_sums(times: pl.DataFrame) -> pl.DataFrame:
    """How long the collectives of each step took together: rows of ``source_tables`` under ``CommAnalyzerTime``.

    They are a check where a text file measured the same operations, whose times are the ones that are read.

    Args:
        times: ``communication_times`` of the database.
    """
    measured = times.drop_nulls(["step", "elapse_ms"])
    sums = measured.group_by("step").agg(operations=pl.len(), elapse_time=pl.col("elapse_ms").sum()).sort("step")
    return source_rows(formats.TIME_TABLE, sums, absent=None)


def _transport_bandwidth(database: SqliteFile) -> pl.DataFrame:
    frame = _read_operation_rows(database, formats.BANDWIDTH_TABLE, tuple(formats.BANDWIDTH_COLUMNS)[1:], ("transport_type",))
    if not frame.height:
        return frame
    # a transport without packets has one row of zeros
    used = (pl.col("count").fill_null(0) != 0) | (pl.col("package_size").fill_null(0) != 0)
    columns = {
        **{ours: pl.col(column) for column, ours in formats.BANDWIDTH_COLUMNS.items()},
        "transport": pl.col("transport_type").cast(NAME),
        "package_mb": pl.when(used).then("package_size"),
        "count": pl.col("count").cast(pl.Int64, strict=False),
    }
    return frame.select("name", "group", "kind", "step", **columns)


def _communication_matrix(database: SqliteFile) -> pl.DataFrame:
    texts = ("src_rank", "dst_rank", "transport_type", "op_name")
    frame = _read_operation_rows(database, formats.MATRIX_TABLE, tuple(formats.MATRIX_COLUMNS)[1:], texts)
    if not frame.height:
        return frame
    name = pl.col("hccl_op_name")
    return frame.select(
        *("group", "kind", "step"),
        name=name.str.replace(SELECTION, "").cast(NAME),
        selection=name.str.extract(SELECTION).cast(NAME),
        op_name=pl.when(pl.col("op_name") != "").then("op_name").cast(NAME),
        source=pl.col("src_rank").cast(pl.Int32, strict=False),
        destination=pl.col("dst_rank").cast(pl.Int32, strict=False),
        **{ours: pl.col(column) for column, ours in formats.MATRIX_COLUMNS.items() if ours != "transport"},
        transport=pl.col("transport_type").cast(NAME),
    )


def _step_times(database: SqliteFile) -> pl.DataFrame:
    """StepTraceTime as it is, µs; every column, older files have fewer."""
    names = database.column_names(formats.STEP_TABLE)
    frame = database.read(formats.STEP_TABLE, {name: pl.String() for name in names})
    return source_rows(formats.STEP_TABLE, frame, absent=None) if frame.height else frame
