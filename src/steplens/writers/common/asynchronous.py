"""Calls that other calls of their thread neither hold nor lie in, and lanes of their own for them.

Gloo's sends and receives begin in the call that starts them and end when the data has arrived, in the middle of whatever the
thread then does. Viewers draw a thread as calls within calls and drop or misplace such an event.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import polars as pl

from steplens.trace.building.nesting import innermost_calls, nest_calls
from steplens.trace.schema import CORE_CPU
from steplens.trace.trace import Trace
from steplens.writers.common.output import device_kind

#: thread ids of the lanes begin here: no thread of a system has one as large
FIRST_LANE = 1 << 40


def asynchronous_lanes(trace: Trace) -> dict[int, int]:
    """Lane (from ``FIRST_LANE`` on) of each communication call of the CPU, by its row in ``ops``, for threads that need it.

    A thread needs it when one of its communication calls ends behind a call around its start, or ends inside a call that began
    after it. Calls of one lane do not overlap.
    """
    ops = trace.ops
    if ops is None or device_kind(trace) != CORE_CPU:
        return {}
    rows = trace.required("communication").select(pl.col("op").drop_nulls().unique()).collect()["op"]
    calls = ops.select("pid", "tid", "start_ns", "end_ns").with_row_index("row")
    calls = calls.with_columns(own=pl.col("row").is_in(rows.implode()))
    needed = []
    for thread in calls.filter(pl.col("own").any().over("pid", "tid")).partition_by("pid", "tid", maintain_order=True):
        own = thread.filter("own")
        if _has_crossing_calls(thread.filter(~pl.col("own")), own) or _has_crossing_calls(own, own):
            needed.append(own)
    if not needed:
        return {}
    moved = pl.concat(needed).sort("start_ns", "row")
    lanes = side_by_side(moved["start_ns"].to_list(), moved["end_ns"].to_list())
    return {row: FIRST_LANE + lane for row, lane in zip(moved["row"], lanes, strict=True)}


def side_by_side(start: Sequence[int], end: Sequence[int]) -> list[int]:
    """A lane for each of some ranges, in order of start, from 0 on, so that those of one lane do not overlap."""
    free: list[tuple[int, int]] = []
    parallel_rows = []
    for first, last in zip(start, end, strict=True):
        lane = heapq.heappop(free)[1] if free and free[0][0] <= first else len(free)
        heapq.heappush(free, (last, lane))
        parallel_rows.append(lane)
    return parallel_rows


def _has_crossing_calls(others: pl.DataFrame, mine: pl.DataFrame) -> bool:
    """Whether one of ``mine`` and one of ``others``, all of one thread, overlap and neither holds the other."""
    others = others.sort(["start_ns", "end_ns"], descending=[False, True])
    if others.is_empty() or mine.is_empty():
        return False
    start, end = others["start_ns"].to_numpy(), others["end_ns"].to_numpy()
    parent = nest_calls(np.zeros(len(start), dtype=np.int64), start, end).parent
    first, last = mine["start_ns"].to_numpy(), mine["end_ns"].to_numpy()
    before = innermost_calls(start, end, parent, first - 1)
    ends = end[np.maximum(before, 0)]
    ends_behind = (before >= 0) & (first < ends) & (ends < last)
    after = innermost_calls(start, end, parent, last)
    starts, ends = start[np.maximum(after, 0)], end[np.maximum(after, 0)]
    ends_inside = (after >= 0) & (first < starts) & (starts < last) & (last < ends)
    return bool((ends_behind | ends_inside).any())
