"""The events of a window themselves: what overlaps it, and the statistics of a selection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from steplens.timeline.layout import Lane, Timeline
from steplens.timeline.rows import Int64Array

#: events that are added up at a time, and what that gives
_PIECE = 1 << 19
_SUMS = pl.Schema(
    {
        "source": pl.Int64, "name": pl.UInt32, "count": pl.Int64, "total_ns": pl.Int64, "min_ns": pl.Int64, "max_ns": pl.Int64,
        "longest": pl.Int64,
    }
)  # fmt: skip


def overlapping_events(timeline: Timeline, row: int, start_ns: int, end_ns: int) -> Int64Array:
    """Ids of the events of a row that overlap ``[start_ns, end_ns)``; a moment overlaps where it lies inside."""
    low, high = _overlap_bounds(timeline, row, start_ns, end_ns)
    if not timeline.crossing[row]:
        return np.arange(low, high)
    is_inside = (timeline.end[low:high] > start_ns) | (timeline.start[low:high] >= start_ns)
    return np.flatnonzero(is_inside) + low


def _overlap_bounds(timeline: Timeline, row: int, start_ns: int, end_ns: int) -> tuple[int, int]:
    """First and behind the last of the events of a row that may overlap a window; where none cross, all between do."""
    first, last = int(timeline.offsets[row]), int(timeline.offsets[row + 1])
    start = timeline.start[first:last]
    high = int(np.searchsorted(start, end_ns, side="left"))
    if timeline.crossing[row]:
        return first, first + high
    # the events of a row end in the order in which they begin, unless they cross
    ends_later = int(np.searchsorted(timeline.end[first : first + high], start_ns, side="right"))
    begins_later = int(np.searchsorted(start[:high], start_ns, side="left"))
    return first + min(ends_later, begins_later), first + high


def summarize_window(
    timeline: Timeline, lanes: Sequence[Lane], start_ns: int, end_ns: int
) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """What happened in a window on some lanes.

    Times are the parts of the events inside the window. A call and the calls that it makes both count under their names;
    ``covered_ns`` of a lane is the time in which its outermost events run.

    Args:
        timeline: of a trace.
        lanes: of it.
        start_ns: from the origin.
        end_ns: from the origin.

    Returns:
        per lane source and name: source, name, count, total_ns, min_ns, max_ns (of the whole events), longest (id of an event),
        largest total first; and per lane: lane, count and covered_ns.
    """
    sources = {lane.source.id: place for place, lane in enumerate(lanes)}
    parts = [pl.DataFrame(schema=_SUMS)]
    covered = []
    for lane in lanes:
        count = outermost = 0
        for depth in range(lane.rows):
            for events in _overlapping_pieces(timeline, lane.first_row + depth, start_ns, end_ns):
                overlap_ns = np.minimum(timeline.end[events], end_ns) - np.maximum(timeline.start[events], start_ns)
                parts.append(
                    _sums_by_name(timeline, events, overlap_ns).select(pl.lit(sources[lane.source.id]).alias("source"), pl.all())
                )
                count += len(overlap_ns)
                outermost += int(overlap_ns.sum()) if depth == 0 else 0
        covered.append({"lane": lane.id, "count": count, "covered_ns": outermost})
    ids = {place: name for name, place in sources.items()}
    grouped = (
        pl.concat([part.cast(_SUMS) for part in parts])
        .group_by("source", "name")
        .agg(
            count=pl.col("count").sum(),
            total_ns=pl.col("total_ns").sum(),
            min_ns=pl.col("min_ns").min(),
            max_ns=pl.col("max_ns").max(),
            longest=pl.col("longest").get(pl.col("max_ns").arg_max()),
        )
        .with_columns(pl.col("source").replace_strict(ids, default=None, return_dtype=pl.String))
    )
    texts = pl.Series([timeline.names[place] for place in grouped["name"].to_list()], dtype=pl.String)
    order = ["total_ns", "source", "name"]
    return grouped.with_columns(name=texts).sort(order, descending=[True, False, False]), covered


def _overlapping_pieces(timeline: Timeline, row: int, start_ns: int, end_ns: int) -> Iterator[slice | Int64Array]:
    """The events of a row that overlap a window, some at a time, so that a selection of everything takes little memory."""
    if timeline.crossing[row]:
        events = overlapping_events(timeline, row, start_ns, end_ns)
        yield from (events[low : low + _PIECE] for low in range(0, len(events), _PIECE))
        return
    low, high = _overlap_bounds(timeline, row, start_ns, end_ns)
    yield from (slice(place, min(place + _PIECE, high)) for place in range(low, high, _PIECE))


def _sums_by_name(timeline: Timeline, events: slice | Int64Array, inside_ns: Int64Array) -> pl.DataFrame:
    """Some events by name."""
    ids = np.arange(events.start, events.stop) if isinstance(events, slice) else events
    frame = pl.DataFrame(
        {
            "name": timeline.name[events],
            "inside_ns": inside_ns,
            "whole_ns": timeline.end[events] - timeline.start[events],
            "event": ids,
        }
    )
    return frame.group_by("name").agg(
        count=pl.len(),
        total_ns=pl.col("inside_ns").sum(),
        min_ns=pl.col("whole_ns").min(),
        max_ns=pl.col("whole_ns").max(),
        longest=pl.col("event").get(pl.col("whole_ns").arg_max()),
    )
