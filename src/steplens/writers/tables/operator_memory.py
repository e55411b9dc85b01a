"""operator_memory.csv: one row per allocation, with the operator that made it and the release that ended it."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from steplens.analysis.memory.memory import operator_memory
from steplens.formats.ascend_results import ACTIVE_RELEASE_TIME, ALLOCATION_TIME, ALLOCATION_TOTALS, RELEASE_TIME, STREAM_POINTER
from steplens.formats.ascend_terms import CANN_PREFIX, GE
from steplens.writers.common.output import NothingToWriteError, Output
from steplens.writers.common.text import microseconds_text, names, write_csv
from steplens.writers.tables.memory_record import device_tag, device_types, stream_pointer, to_megabytes


def write(output: Output, path: Path) -> None:
    """Write operator_memory.csv: times µs after the time base, sizes in KB and MB of 2**10 and 2**20 bytes.

    The active release (the block's return to the pool) stays empty where the source does not report it.
    """
    rows = operator_allocations(output)
    if rows.is_empty():
        raise NothingToWriteError("no allocation was recorded")
    graph_engine = pl.col("component").cast(pl.String).eq_missing(GE)
    table = rows.select(
        pl.when(graph_engine)
        .then(pl.lit(CANN_PREFIX) + pl.lit(rows["name"].cast(pl.String).str.strip_prefix(CANN_PREFIX)).fill_null(""))
        .otherwise(pl.lit(names(rows["name"])))
        .alias("Name"),
        (pl.col("bytes").cast(pl.Float64) / 1024.0).alias("Size(KB)"),
        microseconds_text(pl.col("allocation_ns") - output.base_ns).alias(ALLOCATION_TIME),
        microseconds_text(pl.col("release_ns") - output.base_ns).alias(RELEASE_TIME),
        microseconds_text(pl.col("active_release_ns") - output.base_ns).alias(ACTIVE_RELEASE_TIME),
        microseconds_text(pl.col("release_ns") - pl.col("allocation_ns")).alias("Duration(us)"),
        microseconds_text(pl.col("active_release_ns") - pl.col("allocation_ns")).alias("Active Duration(us)"),
        *(to_megabytes(pl.col(column)).alias(f"{title}(MB)") for column, title in ALLOCATION_TOTALS.items()),
        stream_pointer(rows).alias(STREAM_POINTER),
        device_tag(rows),
    )
    write_csv(table, path)


def operator_allocations(output: Output) -> pl.DataFrame:
    """The rows of operator_memory.csv, as ``analysis.memory.memory.operator_memory`` has them; the graph engine's come last."""
    rows = operator_memory(output.trace, device_types(output))
    return rows.sort(pl.col("component").cast(pl.String).eq_missing(GE), maintain_order=True)
