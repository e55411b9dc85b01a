"""operator_memory.csv: one row per allocation, with the operator that made it and the release that ended it."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from steplens.analysis.memory import operator_memory
from steplens.writers.memory_rows import device_tag, device_types, megabytes, stream_pointer
from steplens.writers.output import NothingToWriteError, Output
from steplens.writers.text import microseconds_text, names, write_csv


def write(output: Output, path: Path) -> None:
    """Write operator_memory.csv: times µs after the time base, sizes in KB and MB of 2**10 and 2**20 bytes.

    The active release (the block's return to the pool) stays empty: no source so far reports it.
    """
    rows = operator_memory(output.trace, device_types(output))
    if rows.is_empty():
        raise NothingToWriteError("no allocation was recorded")
    nothing = pl.lit(None, pl.String)
    write_csv(
        rows.select(
            names(rows["name"]).alias("Name"),
            (pl.col("bytes").cast(pl.Float64) / 1024.0).alias("Size(KB)"),
            microseconds_text(pl.col("allocation_ns") - output.base_ns).alias("Allocation Time(us)"),
            microseconds_text(pl.col("release_ns") - output.base_ns).alias("Release Time(us)"),
            nothing.alias("Active Release Time(us)"),
            microseconds_text(pl.col("release_ns") - pl.col("allocation_ns")).alias("Duration(us)"),
            nothing.alias("Active Duration(us)"),
            megabytes(pl.col("allocation_allocated")).alias("Allocation Total Allocated(MB)"),
            megabytes(pl.col("allocation_reserved")).alias("Allocation Total Reserved(MB)"),
            megabytes(pl.col("allocation_active")).alias("Allocation Total Active(MB)"),
            megabytes(pl.col("release_allocated")).alias("Release Total Allocated(MB)"),
            megabytes(pl.col("release_reserved")).alias("Release Total Reserved(MB)"),
            megabytes(pl.col("release_active")).alias("Release Total Active(MB)"),
            stream_pointer(rows).alias("Stream Ptr"),
            device_tag(rows),
        ),
        path,
    )
