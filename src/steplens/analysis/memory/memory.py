"""Who allocated memory, for how long, and how high it rose."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from steplens.trace.schema import ALLOCATE, BLOCK_FREE, FREE, MODULE_PREFIX, SCOPE_BACKWARD, SCOPE_FUNCTION
from steplens.trace.together import once_for_traces
from steplens.trace.trace import Trace

#: wrappers of the allocator itself: the operator that wanted the memory is the one around them
_NOT_AN_OWNER = ("empty_tensor", "malloc_workspace")

#: operators that do nothing but allocate
_ALLOCATORS = tuple(
    f"aten::{name}" for name in ("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "resize_")
)

#: what owns memory that a task of the task queue allocates: the task is a part of such an operator
_QUEUE_OWNER = r"^(aten|npu)"

_ADDRESS_SPACE = ["pid", "device_type", "device", "address"]
_TOTALS = ("allocated", "reserved", "active")

_ALLOCATED, _FREED, _BLOCK_FREED = 0, 1, 2
_KINDS = {ALLOCATE: _ALLOCATED, FREE: _FREED, BLOCK_FREE: _BLOCK_FREED}

COLUMNS = (
    "op", "bytes", "allocation_ns", "release_ns", "active_release_ns",
    *(f"{end}_{total}" for end in ("allocation", "release") for total in _TOTALS),
    "stream", "device_type", "device", "component", "name",
)  # fmt: skip


def operator_memory(trace: Trace, device_types: list[str] | None = None) -> pl.DataFrame:
    """Every allocation with what ended it, in order of allocation time.

    1. Events of one address (per process, device type and device) are put in time order; simultaneous ones keep the
       order in which they were recorded. Events without a kind allocate or free by their sign.
    2. An allocation is ended by the events of its address that follow it directly: one release (the tensor let go of the
       memory) and one block release (the block went back to the pool), in either order. Without them it stays open:
       either the memory outlives the window or the records were lost.
    3. The release totals are those of the release or, where only the block release was recorded, of that.
    4. Releases without an allocation before them (memory from before the window) are not rows.
    5. Components whose allocations a source pairs itself (the ``allocations`` table) are taken from there.

    The owner is the innermost operator around the allocation that is no wrapper of the allocator; of an allocation by a
    task of the task queue it is the nearest call around the enqueue whose name begins with ``aten`` or ``npu``, where
    there is one.

    Source: the ``memory``, ``allocations``, ``ops`` and ``task_queue`` tables; times in ns since the Unix epoch, sizes in
    bytes, totals as the allocator counted them right after the event.

    Args:
        trace: the tables of the rank.
        device_types: only events of these ("CPU", "CUDA", "NPU"); None keeps all.

    Returns:
        One row per allocation, columns as in ``COLUMNS``: op (id of the call that owns it) and name, null when it
        happened outside every call; allocation_ns, release_ns and active_release_ns (of the block).
    """
    if device_types is not None:
        return _operator_memory(trace, device_types)
    return once_for_traces(_every_operator_memory, (trace,))


def _every_operator_memory(traces: Sequence[Trace]) -> pl.DataFrame:
    return _operator_memory(traces[0], None)


def _operator_memory(trace: Trace, device_types: list[str] | None) -> pl.DataFrame:
    rows = with_owner(trace, _pair_events(_of_devices(trace.required("memory"), device_types)), queue_threads_of(trace))
    recorded = _of_devices(trace.required("allocations"), device_types).select(COLUMNS).collect()
    if recorded.is_empty():
        return rows
    paired = recorded["component"].cast(pl.String).unique()
    if paired.null_count():
        return recorded.sort("allocation_ns", maintain_order=True)
    unpaired = rows.filter(~pl.col("component").cast(pl.String).is_in(paired.implode()).fill_null(False))
    return pl.concat([unpaired, recorded]).sort("allocation_ns", maintain_order=True)


def _of_devices(frame: pl.LazyFrame, device_types: list[str] | None) -> pl.LazyFrame:
    return frame if device_types is None else frame.filter(pl.col("device_type").cast(pl.String).is_in(device_types))


def _pair_events(events: pl.LazyFrame) -> pl.DataFrame:
    """One row per allocation, in order of allocation time; with pid and tid, without the owner's name."""
    by_sign = pl.when(pl.col("bytes") > 0).then(_ALLOCATED).when(pl.col("bytes") < 0).then(_FREED)
    recorded = pl.col("event").cast(pl.String).replace_strict(_KINDS, default=None, return_dtype=pl.Int32)
    has_kinds = bool(events.select(pl.col("event").is_not_null().any()).collect().item())
    # A dense number per address space and one sort on two integers is twice as fast as sorting on five columns.
    space = pl.struct(_ADDRESS_SPACE).rank("dense") if _many_spaces(events) else pl.col("address")
    ordered = (
        events.with_row_index("order")
        .with_columns(space=space, kind=pl.coalesce(recorded, by_sign) if has_kinds else by_sign)
        .sort("space", "time_ns", "order")
    )
    # without kinds a release is all that can end an allocation, and one event of look-ahead is enough
    second = 2 if has_kinds else 1
    after = {
        f"{column}_{distance}": pl.col(column).shift(-distance)
        for distance in range(1, second + 1)
        for column in ("space", "kind", "time_ns", *_TOTALS)
    }
    ends = (pl.col("space") == pl.col("space_1")) & (pl.col("kind_1") != _ALLOCATED)
    ends_too = pl.lit(False)
    if has_kinds:
        ends_too = ends & (pl.col("space") == pl.col("space_2")) & (pl.col("kind_2") != _ALLOCATED)
        ends_too &= pl.col("kind_2") != pl.col("kind_1")

    def time_of(kind: int) -> pl.Expr:
        first, later = ends & (pl.col("kind_1") == kind), ends_too & (pl.col(f"kind_{second}") == kind)
        return pl.when(first).then("time_ns_1").when(later).then(f"time_ns_{second}")

    freed_later = ends_too & (pl.col(f"kind_{second}") == _FREED)
    return (
        ordered.with_columns(**after)
        .filter((pl.col("kind") == _ALLOCATED) & (pl.col("bytes") > 0))
        .select(
            "op",
            "bytes",
            pl.col("time_ns").alias("allocation_ns"),
            time_of(_FREED).alias("release_ns"),
            time_of(_BLOCK_FREED).alias("active_release_ns"),
            *(pl.col(total).alias(f"allocation_{total}") for total in _TOTALS),
            *(
                pl.when(freed_later).then(f"{total}_{second}").when(ends).then(f"{total}_1").alias(f"release_{total}")
                for total in _TOTALS
            ),
            "stream",
            "device_type",
            "device",
            "component",
            "order",
            "pid",
            "tid",
        )
        .sort("allocation_ns", "order")
        .drop("order")
        .collect()
    )


def _many_spaces(events: pl.LazyFrame) -> bool:
    """Whether an address alone may mean two things: several processes or devices."""
    return bool(
        events.select(pl.any_horizontal(pl.col(column).n_unique() > 1 for column in _ADDRESS_SPACE if column != "address"))
        .collect()
        .item()
    )


def queue_threads_of(trace: Trace) -> pl.DataFrame:
    """The threads that launch the tasks of the task queue: pid, tid."""
    return trace.required("task_queue").select("pid", tid="dequeue_tid").drop_nulls().unique().collect()


def with_owner(trace: Trace, rows: pl.DataFrame, queue_threads: pl.DataFrame) -> pl.DataFrame:
    """Replace ``op`` by the nearest enclosing operator that can own memory, add its name, drop the thread.

    Args:
        trace: one rank.
        rows: allocations, with op, pid and tid.
        queue_threads: of ``queue_threads_of``.
    """
    queued = None
    if queue_threads.height:
        threads = queue_threads.with_columns(queued=pl.lit(True))
        queued = rows.select("pid", "tid").join(threads, on=["pid", "tid"], how="left", maintain_order="left")["queued"]
    rows = rows.drop("pid", "tid")
    ops = trace.required("ops").select("id", "name", "parent").collect()
    if ops.is_empty():
        return rows.with_columns(op=pl.lit(None, pl.Int32), name=pl.lit(None, pl.Categorical()))
    # ``id`` is the row number (schema), so ids index the columns directly.
    name = ops["name"]
    distinct = name.unique()
    text = distinct.cast(pl.String)
    owner = rows["op"].to_frame("op")["op"]
    owner = owner.set(owner.is_not_null() & ((owner < 0) | (owner >= ops.height)), None)
    owner = _nearest_caller(owner, distinct.filter(text.is_in(_NOT_AN_OWNER) | text.str.starts_with(MODULE_PREFIX)), ops)
    if queued is not None and queued.any():
        upper_owner = _nearest_caller(owner, distinct.filter(~text.str.contains(_QUEUE_OWNER)), ops)
        owner = pl.select(pl.when(queued).then(pl.coalesce(upper_owner, owner)).otherwise(owner)).to_series()
    return rows.with_columns(owner.alias("op"), name=name.gather(owner))


def user_of(trace: Trace, owner: pl.Series) -> pl.Series:
    """Who wanted the memory that each call allocated: the nearest operator at or above it that does more than allocate.

    A call of ``aten::empty`` that no operator encloses is its own.

    Args:
        trace: one rank.
        owner: ids of calls, as in ``operator_memory``.
    """
    ops = trace.required("ops").select("id", "name", "parent", "scope").collect()
    distinct = ops["name"].unique()
    allocators = distinct.filter(distinct.cast(pl.String).is_in(_ALLOCATORS))
    upper_owner = _nearest_caller(owner, allocators, ops)
    fits = ops["scope"].gather(upper_owner).is_in([SCOPE_FUNCTION, SCOPE_BACKWARD]).fill_null(False)
    users: pl.Series = pl.select(pl.when(fits).then(upper_owner).otherwise(owner)).to_series()
    return users


def _nearest_caller(owner: pl.Series, passed_over: pl.Series, ops: pl.DataFrame) -> pl.Series:
    """The nearest call at or around each of ``owner`` with none of the names ``passed_over``; null where there is none."""
    if not len(passed_over):
        return owner
    unfit = ops["name"].is_in(passed_over.implode())
    while True:
        climbing = unfit.gather(owner).fill_null(False)
        if not climbing.any():
            return owner
        upper = ops["parent"].gather(owner)
        owner = pl.select(pl.when(climbing).then(pl.when(upper >= 0).then(upper)).otherwise(owner)).to_series()


def memory_summary(trace: Trace) -> pl.DataFrame:
    """The peak of every device, from the ``memory`` table.

    Totals are those of the allocator right after an event, so the peak between two events is not missed; memory that
    another allocator holds is not in them. Times in ns since the Unix epoch, sizes in bytes.

    Returns:
        device_type, device, peak_allocated, peak_allocated_ns (when it was first reached), peak_reserved, peak_active,
        allocations, allocated_bytes (sum over all allocations), open_allocations and open_bytes (not released within
        the window), sorted by device type and device.
    """
    if "memory" not in trace and "allocations" not in trace:
        return _summary_of_nothing()
    return _memory_summary(trace)


@functools.cache
def _summary_of_nothing() -> pl.DataFrame:
    return _memory_summary(Trace(Path(), {}))


def _memory_summary(trace: Trace) -> pl.DataFrame:
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
    open_ = pl.col("release_ns").is_null() & pl.col("active_release_ns").is_null()
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
