"""How much memory the allocator keeps from the device without any tensor using it."""

from __future__ import annotations

import polars as pl

from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.trace import Trace

COLUMNS = table_schema(
    "device_type: String, device: Int32, component: String, step, reserved_bytes, allocated_bytes, unused_bytes, "
    "unused_percent: Float64, most_unused_bytes, mean_unused_bytes: Float64"
)


def fragmentation(trace: Trace) -> pl.DataFrame:
    """What each allocator reserved beyond what was allocated, per step and over the whole window (``step`` null).

    Totals are those of the allocator right after an event. ``reserved_bytes`` is its highest one; ``allocated_bytes`` the
    highest allocated total while that much was reserved, ``unused_bytes`` their difference and ``unused_percent`` its share
    of what was reserved: what a better fit would have saved. ``most_unused_bytes`` and ``mean_unused_bytes`` (weighed with
    the time until the next event) are of reserved - allocated over all events.

    Source: ``memory``. Events without a reserved total, and allocators that reserve nothing (the CPU's), give no rows.
    """
    lane = ["device_type", "device", "component"]
    unused = pl.col("reserved") - pl.col("allocated")
    events = (
        trace.required("memory")
        .select(*lane, "time_ns", "reserved", "allocated")
        .filter((pl.col("reserved") > 0) & pl.col("allocated").is_not_null())
        .sort("time_ns", maintain_order=True)
        .with_columns(pl.col("device_type", "component").cast(pl.String))
        .with_columns(unused=unused, lasting=(pl.col("time_ns").shift(-1) - pl.col("time_ns")).over(lane).fill_null(0))
    )
    ranges = trace.required("steps").sort("start_ns").select(step="id", start_ns="start_ns", until_ns="end_ns")
    events_of_steps = events.join_asof(ranges, left_on="time_ns", right_on="start_ns", strategy="backward").filter(
        pl.col("time_ns") < pl.col("until_ns")
    )
    all_events = events.with_columns(step=pl.lit(None, dtype=pl.Int64))
    figures = pl.concat([_unused_memory(all_events, lane), _unused_memory(events_of_steps, lane)]).collect()
    return figures.sort(*lane, "step", nulls_last=False).select(cast_columns(COLUMNS))


def _unused_memory(events: pl.LazyFrame, lane: list[str]) -> pl.LazyFrame:
    reserved, allocated = pl.col("reserved"), pl.col("allocated")
    unused, lasting = pl.col("unused"), pl.col("lasting")
    return (
        events.group_by(*lane, "step")
        .agg(
            reserved_bytes=reserved.max(),
            allocated_bytes=allocated.filter(reserved == reserved.max()).max(),
            most_unused_bytes=unused.max(),
            mean_unused_bytes=pl.when(lasting.sum() > 0).then((unused * lasting).sum() / lasting.sum()).otherwise(unused.mean()),
        )
        .with_columns(unused_bytes=pl.col("reserved_bytes") - pl.col("allocated_bytes"))
        .with_columns(unused_percent=pl.col("unused_bytes") * 100 / pl.col("reserved_bytes"))
    )
