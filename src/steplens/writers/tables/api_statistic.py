"""api_statistic.csv: calls of the runtime, or of the framework on a CPU, added up per layer and name."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from steplens.analysis.device.api import api_statistic
from steplens.formats.ascend_results import API_STATISTIC_TABLE
from steplens.formats.ascend_terms import NOT_AVAILABLE
from steplens.writers.common.output import NothingToWriteError, Output
from steplens.writers.common.source_table import source_table, write_table
from steplens.writers.common.text import microseconds, names, write_csv


def write(output: Output, path: Path) -> None:
    """Write api_statistic.csv (times in µs, variance in µs squared), in order of name; as the source has it, if it has."""
    ready = source_table(output.trace, API_STATISTIC_TABLE)
    if ready is not None:
        write_table(ready, path)
        return
    rows = api_statistic(output.trace)
    if rows.is_empty():
        raise NothingToWriteError("no calls of a runtime or of the framework were recorded")
    table = rows.select(
        names(rows["layer"], NOT_AVAILABLE).alias("Level"),
        names(rows["name"], NOT_AVAILABLE).alias("API Name"),
        microseconds(pl.col("total_ns")).alias("Time(us)"),
        pl.col("count").alias("Count"),
        microseconds(pl.col("mean_ns")).alias("Avg(us)"),
        microseconds(pl.col("min_ns")).alias("Min(us)"),
        microseconds(pl.col("max_ns")).alias("Max(us)"),
        (pl.col("variance_ns2") / 1e6).round(3).alias("Variance"),
    )
    write_csv(table, path)
