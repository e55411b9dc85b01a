"""Calls that other calls of their thread neither hold nor lie in, and lanes of their own for them.

Gloo's sends and receives begin in the call that starts them and end when the data has arrived, in the middle of whatever the
thread then does. Viewers draw a thread as calls within calls and drop or misplace such an event.
"""

from __future__ import annotations

import heapq

import numpy as np
import polars as pl

from steplens.trace.nesting import innermost, nest
from steplens.trace.schema import CORE_CPU
from steplens.trace.trace import Trace
from steplens.writers.output import device_kind

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
    own = calls.filter(pl.col("row").is_in(rows.implode()))
    if own.is_empty():
        return {}
    needed = []
    for (pid, tid), mine in own.group_by("pid", "tid", maintain_order=True):
        others = calls.filter((pl.col("pid") == pid) & (pl.col("tid") == tid) & ~pl.col("row").is_in(mine["row"].implode()))
        if _crossing(others, mine) or _crossing(mine, mine):
            needed.append(mine)
    if not needed:
        return {}
    found: dict[int, int] = {}
    free: list[tuple[int, int]] = []
    for row, start, end in pl.concat(needed).sort("start_ns", "row").select("row", "start_ns", "end_ns").iter_rows():
        lane = heapq.heappop(free)[1] if free and free[0][0] <= start else FIRST_LANE + len(free)
        heapq.heappush(free, (end, lane))
        found[row] = lane
    return found


def _crossing(others: pl.DataFrame, mine: pl.DataFrame) -> bool:
    """Whether one of ``mine`` and one of ``others``, all of one thread, overlap and neither holds the other."""
    others = others.sort(["start_ns", "end_ns"], descending=[False, True])
    if others.is_empty() or mine.is_empty():
        return False
    start, end = others["start_ns"].to_numpy(), others["end_ns"].to_numpy()
    parent = nest(np.zeros(len(start), dtype=np.int64), start, end).parent
    first, last = mine["start_ns"].to_numpy(), mine["end_ns"].to_numpy()
    before = innermost(start, end, parent, first - 1)
    ends = end[np.maximum(before, 0)]
    ends_behind = (before >= 0) & (first < ends) & (ends < last)
    after = innermost(start, end, parent, last)
    starts, ends = start[np.maximum(after, 0)], end[np.maximum(after, 0)]
    ends_inside = (after >= 0) & (first < starts) & (starts < last) & (last < ends)
    return bool((ends_behind | ends_inside).any())
