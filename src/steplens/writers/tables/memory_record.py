"""memory_record.csv: the totals of each allocator after every one of its events; what the files of memory share is here too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from steplens.formats.ascend_results import COMPONENT, DEVICE_TYPE, STREAM_POINTER, TIMESTAMP, TOTALS
from steplens.formats.ascend_terms import APP, GE, PTA, PTA_AND_GE
from steplens.writers.common.output import NothingToWriteError, Output
from steplens.writers.common.text import microseconds_text, write_csv

_CPU = "CPU"


def write(output: Output, path: Path) -> None:
    """Write memory_record.csv: times µs after the time base, sizes in MB of 2**20 bytes.

    The process's own samples (``APP``) come first, then the events of the allocators in order of time. PTA (the framework's
    allocator) and GE (the graph engine's) share a device, so each of their rows is followed by a ``PTA+GE`` row that adds
    the last totals of the other side. Other components have rows of their own only.
    """
    rows = memory_record(output)
    if rows.is_empty():
        raise NothingToWriteError("no allocator events were recorded")
    table = rows.select(
        *totals_after_events(output),
        pl.col("stream").alias(STREAM_POINTER),
        pl.col("tag").alias(DEVICE_TYPE),
    )
    write_csv(table, path)


def totals_after_events(output: Output) -> list[pl.Expr]:
    """The columns that every memory_record.csv begins with, of rows of ``memory_record``."""
    return [
        pl.col("component").alias(COMPONENT),
        microseconds_text(pl.col("time_ns") - output.base_ns).alias(TIMESTAMP),
        *(to_megabytes(pl.col(column)).alias(f"{title}(MB)") for column, title in TOTALS.items()),
    ]


def memory_record(output: Output) -> pl.DataFrame:
    """The rows of memory_record.csv: component, time_ns, allocated, reserved, active (bytes), tag, device and stream."""
    types_written = device_types(output)
    events = (
        output.trace.required("memory")
        .filter(pl.col("device_type").cast(pl.String).is_in(types_written))
        .select("time_ns", *TOTALS, "device_type", "device", "stream", "component")
        .with_columns(pl.col("component").cast(pl.String).fill_null(PTA))
        .sort(pl.col("component") != APP, "time_ns", maintain_order=True)
        .collect()
    )
    return _with_sums(
        events.select(
            "component",
            "time_ns",
            *TOTALS,
            pl.lit(device_tag(events)).alias("tag"),
            pl.col("device").fill_null(0),
            stream_pointer(events).alias("stream"),
        )
    )


def _with_sums(rows: pl.DataFrame) -> pl.DataFrame:
    """``rows`` with a ``PTA+GE`` row behind each row of either."""
    sums = rows
    if (rows["component"] == GE).any():
        sums = rows.with_columns(_sum_of_sides(column) for column in TOTALS).with_columns(
            pl.coalesce("stream", _last_of(GE, "stream"), _last_of(PTA, "stream"))
        )
    order = np.arange(rows.height)
    summed = rows["component"].is_in([PTA, GE]).to_numpy()
    both = pl.concat([rows, sums.filter(pl.Series(summed)).with_columns(component=pl.lit(PTA_AND_GE))])
    # Row i keeps its place, its sum comes right behind it.
    place = np.argsort(np.concatenate((order, order[summed])), kind="stable")
    return both.select(pl.all().gather(pl.Series(place)))


def _sum_of_sides(column: str) -> pl.Expr:
    """The last value of both allocators of the device; null only while neither has one."""
    sides = [_last_of(side, column) for side in (PTA, GE)]
    has_side = pl.any_horizontal(side.is_not_null() for side in sides)
    total = pl.sum_horizontal(side.fill_null(0) for side in sides)
    return pl.when(has_side).then(total).alias(column)


def _last_of(component: str, column: str) -> pl.Expr:
    return pl.when(pl.col("component") == component).then(pl.col(column)).forward_fill().over("tag")


def device_types(output: Output) -> list[str]:
    """Device types whose events the memory files hold: the accelerators', or the CPU's on a run without accelerator."""
    types = (output.trace.required(table).select(pl.col("device_type").cast(pl.String)) for table in ("memory", "allocations"))
    present = pl.concat(types).unique().collect().to_series()
    accelerators = sorted(set(present.drop_nulls()) - {_CPU})
    if accelerators or output.trace.has_accelerator:
        if not accelerators:
            raise NothingToWriteError("no allocator event of an accelerator was recorded")
        return accelerators
    if present.is_empty():
        raise NothingToWriteError("no allocator events were recorded")
    return [_CPU]


def to_megabytes(bytes_: pl.Expr) -> pl.Expr:
    """Bytes as MB of 2**20; exact, because the divisor is a power of two."""
    return bytes_.cast(pl.Float64) / 1_048_576.0


def stream_pointer(frame: pl.DataFrame) -> pl.Expr:
    """The stream's address; the CPU has no streams, which reads 0, and an unknown stream stays empty."""
    on_cpu = pl.col("device_type").cast(pl.String) == _CPU
    if frame["stream"].null_count() == 0:
        return pl.col("stream")
    return pl.when(on_cpu).then(pl.col("stream").fill_null(0)).otherwise(pl.col("stream"))


def device_tag(frame: pl.DataFrame) -> pl.Series:
    """``CPU`` or ``NPU:<device>``; CUDA devices carry the NPU tag too, because clients match that prefix literally."""
    pairs = frame.select(pl.col("device_type").cast(pl.String), pl.col("device").fill_null(0))
    return pairs.select(
        pl.when(pl.col("device_type") == _CPU).then(pl.lit(_CPU)).otherwise(pl.format("NPU:{}", "device")).alias(DEVICE_TYPE)
    ).to_series()
