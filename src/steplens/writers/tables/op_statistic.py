"""op_statistic.csv: device tasks added up per type and core."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from steplens.analysis.device.kernels import op_statistic
from steplens.formats.ascend_results import OP_TYPE, TOTAL_TIME
from steplens.formats.ascend_terms import NOT_AVAILABLE
from steplens.trace.schema import KIND_COMMUNICATION
from steplens.trace.trace import Trace
from steplens.writers.common.output import NothingToWriteError, Output, listed_tasks
from steplens.writers.common.text import microseconds, names, write_csv


def write(output: Output, path: Path) -> None:
    """Write op_statistic.csv (times in µs), longest total first: the tasks of kernel_details.csv that do not communicate."""
    tasks = listed_tasks(output.trace).filter(~pl.col("kind").cast(pl.String).eq_missing(KIND_COMMUNICATION))
    rows = op_statistic(Trace(output.trace.source, {"kernels": tasks}))
    if rows.is_empty():
        raise NothingToWriteError("no device tasks were recorded")
    table = rows.select(
        names(rows["type"], NOT_AVAILABLE).alias(OP_TYPE),
        names(rows["core"], NOT_AVAILABLE).alias("Core Type"),
        pl.col("count").alias("Count"),
        microseconds(pl.col("total_ns")).alias(TOTAL_TIME),
        microseconds(pl.col("min_ns")).alias("Min Time(us)"),
        microseconds(pl.col("mean_ns")).alias("Avg Time(us)"),
        microseconds(pl.col("max_ns")).alias("Max Time(us)"),
        pl.col("ratio_percent").round(3).cast(pl.Decimal(38, 3)).alias("Ratio(%)"),
    )
    write_csv(table, path)
