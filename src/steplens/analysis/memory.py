"""Who allocated memory, for how long, and how high it rose."""

from __future__ import annotations

import polars as pl

from steplens.trace.schema import MODULE_PREFIX
from steplens.trace.trace import Trace

#: wrappers of the allocator itself: the operator that wanted the memory is the one around them
_NOT_AN_OWNER = ("empty_tensor", "malloc_workspace")

_ADDRESS_SPACE = ["pid", "device_type", "device", "address"]


def operator_memory(trace: Trace, device_types: list[str] | None = None) -> pl.DataFrame:
    """Every allocation with the release that ended it, in order of allocation time.

    1. Events of one address (per process, device type and device) are put in time order; simultaneous ones keep the
       order in which they were recorded.
    2. An allocation is released by the next event of its address if that event is a release. Otherwise it stays open:
       either the memory outlives the window or the release was lost.
    3. A release without an allocation before it (memory from before the window) is not a row.

    Source: the ``memory`` table; times in ns since the Unix epoch, sizes in bytes, totals as the allocator counted them
    right after the event.

    Args:
        trace: the tables of the rank.
        device_types: only events of these ("CPU", "CUDA", "NPU"); None keeps all.

    Returns:
        One row per allocation: op (id of the call that owns it) and name, null when it happened outside every call;
        bytes, allocation_ns, release_ns, the totals allocation_/release_ allocated, reserved and active, stream,
        device_type, device, component.
    """
    events = trace.required("memory")
    if device_types is not None:
        events = events.filter(pl.col("device_type").cast(pl.String).is_in(device_types))
    # A dense number per address space and one sort on two integers is twice as fast as sorting on five columns.
    ordered = (
        events.with_row_index("order")
        .with_columns(space=pl.struct(_ADDRESS_SPACE).rank("dense") if _many_spaces(events) else pl.col("address"))
        .sort("space", "time_ns", "order")
    )
    after = {
        f"next_{column}": pl.col(column).shift(-1) for column in ("space", "bytes", "time_ns", "allocated", "reserved", "active")
    }
    released = (pl.col("space") == pl.col("next_space")) & (pl.col("next_bytes") < 0)
    rows = (
        ordered.with_columns(**after)
        .filter(pl.col("bytes") > 0)
        .select(
            "op",
            "bytes",
            pl.col("time_ns").alias("allocation_ns"),
            pl.when(released).then("next_time_ns").alias("release_ns"),
            pl.col("allocated").alias("allocation_allocated"),
            pl.col("reserved").alias("allocation_reserved"),
            pl.col("active").alias("allocation_active"),
            pl.when(released).then("next_allocated").alias("release_allocated"),
            pl.when(released).then("next_reserved").alias("release_reserved"),
            pl.when(released).then("next_active").alias("release_active"),
            "stream",
            "device_type",
            "device",
            "component",
            "order",
        )
        .sort("allocation_ns", "order")
        .drop("order")
        .collect()
    )
    return _with_owner(trace, rows)


def _many_spaces(events: pl.LazyFrame) -> bool:
    """Whether an address alone may mean two things: several processes or devices."""
    return bool(
        events.select(pl.any_horizontal(pl.col(column).n_unique() > 1 for column in _ADDRESS_SPACE if column != "address"))
        .collect()
        .item()
    )


def _with_owner(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """Replace ``op`` by the nearest enclosing operator that can own memory, and add its name."""
    ops = trace.required("ops").select("id", "name", "parent").collect()
    if ops.is_empty():
        return rows.with_columns(op=pl.lit(None, pl.Int32), name=pl.lit(None, pl.Categorical()))
    # ``id`` is the row number (schema), so ids index the columns directly.
    name = ops["name"]
    distinct = name.unique()
    text = distinct.cast(pl.String)
    skipped = distinct.filter(text.is_in(_NOT_AN_OWNER) | text.str.starts_with(MODULE_PREFIX))
    owner = rows["op"].to_frame("op")["op"]
    owner = owner.set(owner.is_not_null() & ((owner < 0) | (owner >= ops.height)), None)
    if len(skipped):
        unfit = name.is_in(skipped.implode())
        while True:
            climbing = unfit.gather(owner).fill_null(False)
            if not climbing.any():
                break
            above = ops["parent"].gather(owner)
            owner = pl.select(pl.when(climbing).then(pl.when(above >= 0).then(above)).otherwise(owner)).to_series()
    return rows.with_columns(owner.alias("op"), name=name.gather(owner))


def memory_summary(trace: Trace) -> pl.DataFrame:
    """The peak of every device, from the ``memory`` table.

    Totals are those of the allocator right after an event, so the peak between two events is not missed; memory that
    another allocator holds is not in them. Times in ns since the Unix epoch, sizes in bytes.

    Returns:
        device_type, device, peak_allocated, peak_allocated_ns (when it was first reached), peak_reserved, peak_active,
        allocations, allocated_bytes (sum over all allocations), open_allocations and open_bytes (not released within
        the window), sorted by device type and device.
    """
    keys = ["device_type", "device"]
    peaks = (
        trace.required("memory")
        .group_by(keys)
        .agg(
            peak_allocated=pl.col("allocated").max(),
            peak_allocated_ns=pl.col("time_ns").filter(pl.col("allocated") == pl.col("allocated").max()).min(),
            peak_reserved=pl.col("reserved").max(),
            peak_active=pl.col("active").max(),
        )
        .collect()
    )
    open_ = pl.col("release_ns").is_null()
    allocations = (
        operator_memory(trace)
        .group_by(keys)
        .agg(
            allocations=pl.len().cast(pl.Int64),
            allocated_bytes=pl.col("bytes").sum(),
            open_allocations=open_.sum().cast(pl.Int64),
            open_bytes=pl.col("bytes").filter(open_).sum(),
        )
    )
    return (
        peaks.join(allocations, on=keys, how="left", nulls_equal=True)
        .with_columns(
            pl.col("allocations", "allocated_bytes", "open_allocations", "open_bytes").fill_null(0),
            pl.col("device_type").cast(pl.String),
        )
        .sort(keys)
    )
