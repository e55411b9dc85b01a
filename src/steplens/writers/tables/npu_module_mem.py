"""npu_module_mem.csv: memory that each module of the NPU's software holds on the device."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from steplens.formats.ascend_results import COMPONENT, DEVICE, TIMESTAMP, TOTALS
from steplens.formats.ascend_terms import MODULE_MEMORY
from steplens.writers.common.output import NothingToWriteError, Output
from steplens.writers.common.text import guard_formula, microseconds_text, render_distinct, write_csv
from steplens.writers.tables.memory_record import to_megabytes

#: bytes per unit
_BYTES = {"B": 1, "Bytes": 1, "bytes": 1, "KB": 1 << 10, "MB": 1 << 20}
_DEFAULT_UNIT = "KB"


def write(output: Output, path: Path) -> None:
    """Write npu_module_mem.csv: times µs after the time base, sizes in MB of 2**20 bytes, in the order of the source."""
    rows = module_memory(output)
    if rows.is_empty():
        raise NothingToWriteError("no memory of modules was sampled")
    table = rows.select(
        pl.col("device").alias(DEVICE),
        render_distinct(rows["name"], guard_formula).alias(COMPONENT),
        microseconds_text(pl.col("time_ns") - output.base_ns).alias(TIMESTAMP),
        to_megabytes(pl.col("bytes")).alias(f"{TOTALS['reserved']}(MB)"),
        # not pl.format, which panics beside a series of texts where polars has one thread (polars 2.1)
        (pl.lit("NPU:") + pl.col("device").cast(pl.String)).alias("Device"),
    )
    write_csv(table, path)


def module_memory(output: Output) -> pl.DataFrame:
    """name, time_ns, bytes (floating point) and device of each sample, in the order of the source."""
    unit = pl.col("unit").cast(pl.String).fill_null(_DEFAULT_UNIT)
    return (
        output.trace.required("counters")
        .filter((pl.col("group").cast(pl.String) == MODULE_MEMORY) & pl.col("value").is_finite())
        .select(
            "name",
            "time_ns",
            bytes=pl.col("value") * unit.replace_strict(_BYTES, default=_BYTES[_DEFAULT_UNIT], return_dtype=pl.Float64),
            device=pl.col("device").fill_null(0),
        )
        .collect()
    )
