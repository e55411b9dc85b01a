"""What memory was used for when it was highest: the blocks alive at the peak, by who allocated them."""

from __future__ import annotations

from typing import Any

import polars as pl

from steplens.analysis.memory.memory import operator_memory, queue_threads_of, user_of, with_owner
from steplens.analysis.steps.phases import phase_of_calls
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.analysis.tools.source_lines import source_line
from steplens.trace.schema import BLOCK_FREE, FREE
from steplens.trace.trace import Trace

#: kinds of row: blocks whose allocation was recorded; what the allocator counted before; what no event accounts for
ALLOCATED, BEFORE, MISSING = "allocated", "before the window", "not recorded"

KEYS: dict[str, tuple[str, ...]] = {
    "operator": ("name",),
    "module": ("module",),
    "line": ("line",),
    "phase": ("allocated_in", "released_in"),
    "block": ("address", "allocation_ns", "release_ns", "name", "module", "line", "allocated_in", "released_in"),
}
_TYPES = table_schema("address, allocation_ns, release_ns")
_PLACE = table_schema("device_type: String, device: Int32, component: String, peak_ns, kind: String")
_SUMS = table_schema("blocks, bytes, percent: Float64")

_ALLOCATOR = ["device_type", "device", "component"]
_BLOCK = [*_ALLOCATOR, "address", "allocation_ns", "release_ns", "bytes", "op", "release_op"]


def schema_of(by: str) -> dict[str, Any]:
    """Columns of ``memory_peak``."""
    return {**_PLACE, **{key: _TYPES.get(key, pl.String()) for key in KEYS[by]}, **_SUMS}


def memory_peak(trace: Trace, by: str = "operator") -> pl.DataFrame:
    """The memory that was in use when each allocator's total was highest, in groups, the largest first.

    1. The peak is the first event at which the allocator's own total ``allocated`` is highest.
    2. A block is alive there when the last event of its address up to then allocated it (``kind`` "allocated").
    3. What the allocator had counted before its first recorded event, less what of it was released until the peak, is one
       row of ``kind`` "before the window". Blocks from before whose release was recorded are known by no more than that.
    4. ``bytes`` add up to the peak. Where events are missing, the rest is a row of ``kind`` "not recorded"; it is negative
       where releases are missing.

    Groups, null where unknown: "operator" (``name`` of the call that wanted the block, see
    ``analysis.memory.memory.user_of``), "module", "line"
    (of the user's code), "phase" (``allocated_in``, and ``released_in``, null for blocks that stay until the window ends:
    from forward to backward are activations, from backward on what outlives it gradients, from optimizer on its state), "block".
    ``percent`` is the share of the peak; null for an allocator of which releases are missing, since its blocks exceed the peak.

    Source: ``memory``; for components whose events are paired by the source ``allocations``, whose times decide then.

    Args:
        trace: one rank, recorded with memory.
        by: what makes a group.

    Returns:
        device_type, device, component (the allocator), peak_ns (Unix ns), kind, the group, blocks, bytes, percent.

    Raises:
        ValueError: ``by`` is none of ``KEYS``.
    """
    if by not in KEYS:
        raise ValueError(f"memory_peak(by={by!r}): by must be one of {', '.join(KEYS)}")
    columns = schema_of(by)
    peaks, alive, unattributed = trace.once(_at_peak)
    if peaks.is_empty():
        return pl.DataFrame(schema=columns)
    keys = list(KEYS[by])
    peak_rows = alive.group_by(*_ALLOCATOR, *keys).agg(blocks=pl.len(), bytes=pl.col("bytes").sum())
    peak_rows = peak_rows.with_columns(kind=pl.lit(ALLOCATED))
    return (
        pl.concat([peak_rows, unattributed], how="diagonal_relaxed")
        .join(peaks.select(*_ALLOCATOR, "peak_ns", "peak"), on=_ALLOCATOR, nulls_equal=True)
        .with_columns(exceeds=(pl.col("bytes") < 0).any().over(_ALLOCATOR))
        .with_columns(percent=pl.when((pl.col("peak") > 0) & ~pl.col("exceeds")).then(pl.col("bytes") * 100 / pl.col("peak")))
        .sort(*_ALLOCATOR, "bytes", "kind", *keys, descending=[False] * 3 + [True] + [False] * (1 + len(keys)))
        .select(cast_columns(columns))
    )


def _at_peak(trace: Trace) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The peaks, the blocks alive at them and what no block accounts for; the same for every kind of group."""
    events = _allocator_events(trace)
    peaks = _allocator_peaks(events)
    if peaks.is_empty():
        return peaks, pl.DataFrame(), pl.DataFrame()
    blocks = [_alive_blocks(trace, events, peaks)]
    if trace.required("allocations").select(pl.len()).collect().item():
        blocks.append(_alive_pairs(trace, peaks))
    alive = _describe_blocks(trace, pl.concat(blocks, how="vertical_relaxed"))
    return peaks, alive, _unattributed_memory(events, peaks, alive)


def _allocator_events(trace: Trace) -> pl.DataFrame:
    """Allocations and releases in the order of time, numbered by ``order``; ``gain`` is what the total changes by.

    ``space`` is a number for the address of one allocator and process.
    """
    kind = pl.col("event").cast(pl.String)
    memory = trace.required("memory")
    # one number per address space and address: comparing one column is several times faster than comparing five
    several = memory.select(pl.any_horizontal(pl.col(*_ALLOCATOR, "pid").n_unique() > 1)).collect().item()
    space = pl.struct(*_ALLOCATOR, "pid", "address").rank("dense").cast(pl.Int64) if several else pl.col("address")
    gain = pl.when(kind == FREE).then(-pl.col("bytes").abs()).otherwise("bytes")
    return (
        memory.filter(kind.ne_missing(BLOCK_FREE))
        .select(*_ALLOCATOR, "pid", "tid", "address", "time_ns", "allocated", "op", gain=gain, space=space)
        .sort("time_ns", maintain_order=True)
        .with_row_index("order")
        .collect()
    )


def _allocator_peaks(events: pl.DataFrame) -> pl.DataFrame:
    """The peak of every allocator: its event, time and total; counted: its total before the first event, 0 where unknown."""
    total = pl.col("allocated")
    return (
        events.filter(total.is_not_null())
        .group_by(_ALLOCATOR)
        .agg(
            pl.col("order", "time_ns").get(total.arg_max()),
            peak=total.max(),
            # an event that does not say by how much it changed the total tells nothing of the time before it
            counted=(total - pl.col("gain").fill_null(total)).first(),
        )
        .rename({"order": "peak_order", "time_ns": "peak_ns"})
        .filter(pl.col("peak") > 0)
    )


def _alive_blocks(trace: Trace, events: pl.DataFrame, peaks: pl.DataFrame) -> pl.DataFrame:
    """The blocks whose last event up to the peak allocated them."""
    with_address = events.filter(pl.col("address").is_not_null() & (pl.col("gain") != 0))
    with_address = with_address.join(
        peaks.select(*_ALLOCATOR, "peak_order"), on=_ALLOCATOR, nulls_equal=True, maintain_order="left"
    )
    until = pl.col("order") <= pl.col("peak_order")
    blocks = with_address.filter(until).unique("space", keep="last", maintain_order=True).filter(pl.col("gain") > 0)
    later = with_address.filter(~until).join(blocks.select("space"), on="space", how="semi")
    ends = later.unique("space", keep="first", maintain_order=True).filter(pl.col("gain") < 0)
    blocks = blocks.join(ends.select("space", release_ns="time_ns", release_op="op"), on="space", how="left")
    blocks = blocks.rename({"time_ns": "allocation_ns", "gain": "bytes"})
    return with_owner(trace, blocks, queue_threads_of(trace)).select(_BLOCK)


def _alive_pairs(trace: Trace, peaks: pl.DataFrame) -> pl.DataFrame:
    """The same of allocators whose events the source has paired."""
    paired = trace.required("allocations").select(pl.col("component").unique()).collect()
    rows = operator_memory(trace).join(paired, on="component", how="semi", nulls_equal=True)
    rows = rows.join(peaks, on=_ALLOCATOR, nulls_equal=True)
    until = pl.col("release_ns").is_null() | (pl.col("release_ns") > pl.col("peak_ns"))
    rows = rows.filter((pl.col("allocation_ns") <= pl.col("peak_ns")) & until)
    return rows.with_columns(address=pl.lit(None, dtype=pl.Int64), release_op=pl.lit(None, dtype=pl.Int32)).select(_BLOCK)


def _describe_blocks(trace: Trace, blocks: pl.DataFrame) -> pl.DataFrame:
    """Blocks with the module, line and phase of the call that owns them, and the phase of the one that released them."""
    ops = trace.required("ops").select("name", "module", "stack").collect()
    phases = phase_of_calls(trace)
    owner, ender = (_valid_call_ids(blocks[column], ops.height) for column in ("op", "release_op"))
    return blocks.select(
        *_ALLOCATOR,
        "address",
        "allocation_ns",
        "release_ns",
        "bytes",
        name=ops["name"].gather(user_of(trace, owner)).cast(pl.String),
        module=ops["module"].gather(owner).cast(pl.String),
        line=source_line(ops["stack"].gather(owner)),
        allocated_in=phases.gather(owner),
        released_in=phases.gather(ender),
    )


def _valid_call_ids(ids: pl.Series, count: int) -> pl.Series:
    """Ids of calls that there are; null for others."""
    return pl.select(pl.when((ids >= 0) & (ids < count)).then(ids)).to_series()


def _unattributed_memory(events: pl.DataFrame, peaks: pl.DataFrame, alive: pl.DataFrame) -> pl.DataFrame:
    """What was there before the window, and what no event accounts for."""
    with_address = events.filter(pl.col("address").is_not_null() & (pl.col("gain") != 0)).select(
        *_ALLOCATOR, "space", "order", "gain"
    )
    with_address = with_address.sort("space", "order")
    # a release that no allocation of its address comes before
    before = pl.when(pl.col("space") == pl.col("space").shift()).then(pl.col("gain").shift())
    lone = with_address.filter((pl.col("gain") < 0) & (before.is_null() | (before < 0)))
    lone = lone.join(peaks.select(*_ALLOCATOR, "peak_order"), on=_ALLOCATOR, nulls_equal=True)
    released = lone.filter(pl.col("order") <= pl.col("peak_order")).group_by(_ALLOCATOR).agg(released=pl.col("gain").sum())
    attributed = alive.group_by(_ALLOCATOR).agg(known=pl.col("bytes").sum())
    unattributed = peaks.join(released, on=_ALLOCATOR, how="left", nulls_equal=True).join(
        attributed, on=_ALLOCATOR, how="left", nulls_equal=True
    )
    unattributed = unattributed.with_columns(pl.col("released", "known").fill_null(0)).with_columns(
        earlier=(pl.col("counted") + pl.col("released")).clip(lower_bound=0)
    )
    missing = pl.col("peak") - pl.col("known") - pl.col("earlier")
    parts = [
        unattributed.select(*_ALLOCATOR, kind=pl.lit(BEFORE), bytes="earlier"),
        unattributed.select(*_ALLOCATOR, kind=pl.lit(MISSING), bytes=missing),
    ]
    return pl.concat(parts).filter(pl.col("bytes") != 0).with_columns(blocks=pl.lit(None, dtype=pl.Int64))
