"""The statistics of a selection: what happened in a window on some lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from steplens.server.timeline.nested import NestedRow, nested_rows
from steplens.timeline.layout import Lane, Timeline

#: events that are added up at a time, and what that gives
_PIECE = 1 << 19
_SUMS = pl.Schema(
    {
        "source": pl.Int64, "name": pl.UInt32, "count": pl.Int64, "total_ns": pl.Int64, "self_ns": pl.Int64, "min_ns": pl.Int64,
        "max_ns": pl.Int64, "longest": pl.Int64,
    }
)  # fmt: skip


def summarize_window(
    timeline: Timeline, lanes: Sequence[Lane], start_ns: int, end_ns: int
) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """What happened in a window on some lanes.

    Times are the parts of the events inside the window. A call and the calls that it makes both count under their names, and
    ``self_ns`` is what of it is left without the events directly below; see ``nested_rows``;
    ``covered_ns`` of a lane is the time in which its outermost events run, ``cut`` how many of its events reach beyond
    the window.

    Args:
        timeline: of a trace.
        lanes: of it.
        start_ns: from the origin.
        end_ns: from the origin.

    Returns:
        per lane source and name: source, name, count, total_ns, self_ns, min_ns, max_ns, longest (id of the event that runs
        longest inside), largest total first; and per lane: lane, count, cut and covered_ns.
    """
    sources = {lane.source.id: place for place, lane in enumerate(lanes)}
    parts = [pl.DataFrame(schema=_SUMS)]
    covered = []
    for lane in lanes:
        count = cut = outermost = 0
        for depth, row in enumerate(nested_rows(timeline, lane, start_ns, end_ns)):
            # some at a time, so that a selection of everything takes little memory
            for low in range(0, len(row.events), _PIECE):
                sums = _sums_by_name(timeline, row, slice(low, low + _PIECE))
                parts.append(sums.select(pl.lit(sources[lane.source.id]).alias("source"), pl.all()))
            count += len(row.events)
            cut += int(((timeline.start[row.events] < start_ns) | (timeline.end[row.events] > end_ns)).sum())
            outermost += int(row.inside_ns.sum()) if depth == 0 else 0
        covered.append({"lane": lane.id, "count": count, "cut": cut, "covered_ns": outermost})
    ids = {place: name for name, place in sources.items()}
    grouped = (
        pl.concat([part.cast(_SUMS) for part in parts])
        .group_by("source", "name")
        .agg(
            count=pl.col("count").sum(),
            total_ns=pl.col("total_ns").sum(),
            self_ns=pl.col("self_ns").sum(),
            min_ns=pl.col("min_ns").min(),
            max_ns=pl.col("max_ns").max(),
            longest=pl.col("longest").get(pl.col("max_ns").arg_max()),
        )
        .with_columns(pl.col("source").replace_strict(ids, default=None, return_dtype=pl.String))
    )
    texts = pl.Series([timeline.names[place] for place in grouped["name"].to_list()], dtype=pl.String)
    order = ["total_ns", "source", "name"]
    return grouped.with_columns(name=texts).sort(order, descending=[True, False, False]), covered


def _sums_by_name(timeline: Timeline, row: NestedRow, piece: slice) -> pl.DataFrame:
    """Some events of a row by name."""
    events = row.events[piece]
    frame = pl.DataFrame(
        {
            "name": timeline.name[events],
            "inside_ns": row.inside_ns[piece],
            "self_ns": row.self_ns[piece],
            "event": events,
        }
    )
    return frame.group_by("name").agg(
        count=pl.len(),
        total_ns=pl.col("inside_ns").sum(),
        self_ns=pl.col("self_ns").sum(),
        min_ns=pl.col("inside_ns").min(),
        max_ns=pl.col("inside_ns").max(),
        longest=pl.col("event").get(pl.col("inside_ns").arg_max()),
    )
