"""What memory is used for: the words of the memory timeline, and its events.

An *event* is a row (time_ns, action, bytes, category, device_type, device): ``bytes`` is what the category gains, so a new
version of a tensor (``INCREMENT_VERSION``) is two events, one that takes it from its old category and one that gives it
to the new one. What was there before the window has time ``BEFORE``.

Which category a tensor has follows from how operators used it, which the profiler sees only while it records
(``steplens.collect.torch_internals.memory_categories``). Allocator events alone say when memory came and went; its category is
UNKNOWN.
"""

from __future__ import annotations

import polars as pl

from steplens.formats import kineto
from steplens.trace.schema import ALLOCATE, BLOCK_FREE, FREE
from steplens.trace.trace import Trace

CATEGORIES, ACTIONS = kineto.MEMORY_CATEGORIES, kineto.MEMORY_ACTIONS
UNKNOWN = CATEGORIES.index("UNKNOWN")

#: actions; equal times are in this order
PREEXISTING, CREATE, INCREMENT_VERSION, DESTROY = range(4)

#: time of what was allocated before the window
BEFORE = -1

EVENTS: dict[str, pl.DataType] = {
    "time_ns": pl.Int64(),
    "action": pl.Int8(),
    "bytes": pl.Int64(),
    "category": pl.Int8(),
    "device_type": pl.String(),
    "device": pl.Int32(),
}

_SPACE = ["device_type", "device", "address"]


def uncategorised_events(trace: Trace) -> pl.DataFrame:
    """The events of the ``memory`` table, all of category UNKNOWN, sorted by (time, action).

    Of an allocator whose single events a source does not have, as result files, the pairs of ``allocations`` are the events.

    Memory that is released within the window without having been allocated in it was there before it, and so was what the
    allocator counted before its first event of a device and nobody released.

    Returns:
        columns as in ``EVENTS``.
    """
    rows = _single_events(trace)
    recorded = rows.select(_component_name()).to_series().unique()
    rows = pl.concat([rows, _paired_events(trace, recorded)]).sort("time_ns", maintain_order=True)
    if rows.is_empty():
        return pl.DataFrame(schema=EVENTS)
    # a release that follows no allocation of its address gives back memory from before the window
    unmatched = ~pl.col("creates") & pl.col("creates").shift(1).over(_SPACE).ne_missing(True)
    rows = rows.with_columns(before=pl.when(pl.col("address").is_not_null() & unmatched).then("size").otherwise(0))
    # every allocator counts its own
    first = rows.group_by("device_type", "device", "component", maintain_order=True).agg(
        counted=(pl.col("allocated") - pl.when("creates").then("size").otherwise(-pl.col("size"))).first(),
        released=pl.col("before").sum(),
    )
    uncategorised = (
        first.with_columns(size=(pl.col("counted").fill_null(0) - pl.col("released")).clip(lower_bound=0))
        .group_by("device_type", "device", maintain_order=True)
        .agg(pl.col("size").sum())
        .select("device_type", "device", "size", time_ns=BEFORE, action=PREEXISTING)
        .filter(pl.col("size") > 0)
    )
    before = rows.filter(pl.col("before") > 0).select(
        "device_type", "device", "size", time_ns=pl.lit(BEFORE), action=pl.lit(PREEXISTING)
    )
    within = rows.select("device_type", "device", "size", "time_ns", action=pl.when("creates").then(CREATE).otherwise(DESTROY))
    events = pl.concat([before, uncategorised.select(before.columns), within.select(before.columns)], how="vertical_relaxed")
    gain = pl.when(pl.col("action") == DESTROY).then(-pl.col("size")).otherwise(pl.col("size"))
    events = events.with_columns(bytes=gain, category=UNKNOWN).sort("time_ns", "action", maintain_order=True)
    return events.select(pl.col(name).cast(dtype) for name, dtype in EVENTS.items())


def _component_name() -> pl.Expr:
    return pl.col("component").cast(pl.String).fill_null("")


def _single_events(trace: Trace) -> pl.DataFrame:
    """Allocator events in order of time: device_type, device, component, address, time_ns, creates, size and allocated."""
    kind = pl.col("event").cast(pl.String)
    creates = pl.coalesce(
        kind.replace_strict({ALLOCATE: True, FREE: False}, default=None, return_dtype=pl.Boolean), pl.col("bytes") > 0
    )
    rows = trace.required("memory").filter(pl.col("bytes").is_not_null() & (pl.col("bytes") != 0) & kind.ne_missing(BLOCK_FREE))
    return _event_rows(rows, "time_ns", creates, "allocated", pl.col("address")).collect()


def _paired_events(trace: Trace, recorded: pl.Series) -> pl.DataFrame:
    """The ends of pairs as events, of the components whose single events were not recorded; see ``_single_events``."""
    pairs = trace.required("allocations").filter((pl.col("bytes") > 0) & ~_component_name().is_in(recorded.implode()))
    nowhere = pl.lit(None, dtype=pl.Int64)
    begins = _event_rows(pairs, "allocation_ns", pl.lit(True), "allocation_allocated", nowhere)
    ends = _event_rows(pairs, "release_ns", pl.lit(False), "release_allocated", nowhere)
    return pl.concat([begins, ends]).drop_nulls("time_ns").collect()


def _event_rows(rows: pl.LazyFrame, time: str, creates: pl.Expr, allocated: str, address: pl.Expr) -> pl.LazyFrame:
    return rows.select(
        pl.col("device_type").cast(pl.String).fill_null("CPU"),
        pl.col("device").fill_null(0),
        component=_component_name(),
        address=address,
        time_ns=time,
        creates=creates,
        size=pl.col("bytes").abs(),
        allocated=allocated,
    ).sort("time_ns", maintain_order=True)
