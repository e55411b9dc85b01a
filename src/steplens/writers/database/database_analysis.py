"""``analysis.db``: step times, and what the communication library measured, as an SQLite database."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from steplens.analysis.cluster.measured_communication import (
    TOTAL,
    communication_bandwidth,
    communication_matrix,
    communication_times,
)
from steplens.formats import ascend_database as layout
from steplens.formats.ascend_results import LOCAL, OPERATION_TIMES, STEP_PARTS, STEP_PREFIX
from steplens.writers.common.communication_names import is_unmeasured, own_links, unmeasured_times
from steplens.writers.common.output import LEVEL0, NPU, NothingToWriteError, Output, device_kind, step_exists
from steplens.writers.database.database_file import DatabaseFile
from steplens.writers.tables.step_trace_time import step_rows

#: of a transport that nothing is known to have moved in packets
_ZERO = ("package_mb", "count", "duration_ms")


def write(output: Output, path: Path) -> None:
    """Write analysis.db: StepTraceTime in µs, and the rows of communication.json and communication_matrix.json, in their units.

    ``CommAnalyzerTime.start_timestamp`` is in µs since the Unix epoch, which a floating-point number resolves to a quarter
    of a µs; COMMUNICATION_OP has the exact start. Where the library measured nothing (CPU, GPU), CommAnalyzerTime has only how
    long each operation took, CommAnalyzerBandwidth its size under the library's name, and the rest is NULL; CommAnalyzerMatrix
    has the link of the rank to itself.
    """
    try:
        steps = step_rows(output)
    except NothingToWriteError:
        steps = None
    times = communication_times(output.trace)
    if output.level != LEVEL0 and (times.is_empty() or is_unmeasured(output)):
        times = unmeasured_times(output)
    if steps is None and times.is_empty():
        raise NothingToWriteError("neither device tasks nor communication were recorded")
    with DatabaseFile(path, layout.ANALYSIS_TABLES) as file:
        file.create(layout.STEP_TABLE)
        if steps is not None:
            # polars multiplies by 0.001, which ends in noise behind the ns
            values = {column: (pl.col(f"{part}_ns") / 1000).round(3) for part, (_, column) in STEP_PARTS.items()}
            step = pl.col("step").cast(pl.String).fill_null("")
            file.frame(layout.STEP_TABLE, steps.select(deviceId="device", step=step, **values))
        if output.level != LEVEL0 or times.height:
            _write_communication(file, output, times)


def _write_communication(file: DatabaseFile, output: Output, times: pl.DataFrame) -> None:
    trace = output.trace
    # whole us and the rest apart: ns since 1970 are more than a double holds, and their quotient would be another one
    start = pl.col("start_ns")
    start_us = (start // 1000).cast(pl.Float64) + (start % 1000).cast(pl.Float64) / 1000
    for table in (layout.TIME_TABLE, layout.BANDWIDTH_TABLE, layout.MATRIX_TABLE):
        file.create(table)
    has_step = pl.col("step").is_not_null() if step_exists(trace) else pl.lit(True)
    step_name = pl.concat_str(pl.lit(STEP_PREFIX), pl.col("step").cast(pl.String).fill_null(""))
    shared = {"group_name": pl.col("group").fill_null(""), "step": step_name, "type": pl.col("kind")}
    measured = {f"{part}_time": f"{part}_ms" for part in OPERATION_TIMES}
    columns = {name: pl.col(column) for name, column in measured.items() if column in times.columns}
    times_of_steps = times.filter(has_step).select(hccl_op_name="name", start_timestamp=start_us, **columns, **shared)
    file.frame(layout.TIME_TABLE, times_of_steps)
    bandwidth = communication_bandwidth(trace) if "size_mb" not in times.columns else _bandwidth_rows(times)
    bandwidth = bandwidth.filter(has_step)
    # a transport that moved nothing has no row
    used = bandwidth.filter(
        (pl.col("size_mb").fill_null(0) != 0) | (pl.col("transit_ms").fill_null(0) != 0) | pl.col("package_mb").is_not_null()
    )
    used = used.with_columns(pl.col(_ZERO).fill_null(0))
    file.frame(layout.BANDWIDTH_TABLE, used.select(hccl_op_name="name", **layout.BANDWIDTH_COLUMNS, **shared))
    matrix = communication_matrix(trace)
    if matrix.is_empty() and device_kind(trace) != NPU:
        matrix = _own_links(output)
    links = matrix.filter(has_step).select(
        hccl_op_name=pl.concat_str("type", pl.lit("-"), "selection"),
        src_rank=pl.col("source").cast(pl.String),
        dst_rank=pl.col("destination").cast(pl.String),
        **layout.MATRIX_COLUMNS,
        op_name=pl.col("op_name").fill_null(""),
        **shared,
    )
    file.frame(layout.MATRIX_TABLE, links)


def _bandwidth_rows(times: pl.DataFrame) -> pl.DataFrame:
    """``unmeasured_times`` as rows of ``communication_bandwidth``: sizes, of which nothing says how fast they moved."""
    unknown_columns = ("transit_ms", "bandwidth_gbps", "large_packet_ratio", "package_mb", "duration_ms")
    unknown = dict.fromkeys(unknown_columns, pl.lit(None, dtype=pl.Float64))
    return times.drop_nulls(["library", "size_mb"]).select(
        "name", "group", "kind", "step", "size_mb", transport="library", count=pl.lit(None, dtype=pl.Int64), **unknown
    )


def _own_links(output: Output) -> pl.DataFrame:
    """``own_links`` as rows of ``communication_matrix``: totals over which nothing was seen to move.

    No NULL: where every row has it, the cluster analysis of msprof-analyze 26.2.0 fails.
    """
    measures = dict.fromkeys(("size_mb", "transit_ms", "bandwidth_gbps"), pl.lit(0.0))
    texts = {"selection": pl.lit(TOTAL), "transport": pl.lit(LOCAL), "op_name": pl.lit(None, dtype=pl.String)}
    return own_links(output).with_columns(source="rank", destination="rank", **texts, **measures)
