"""Where each event of a lane is drawn: rows (depths) in which no two events overlap."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from steplens.trace.building.nesting import nest_calls

Int64Array = npt.NDArray[np.int64]
#: numbers of lanes and rows: 32 bits where they fit, half the memory to go through
IntArray = npt.NDArray[np.signedinteger[Any]]
BoolArray = npt.NDArray[np.bool_]

#: a lane has no more rows than this; what would lie deeper shares the last one
MOST_ROWS = 512
#: events looked at together where they are gone through in pieces, which stay in the processor's cache
PIECE = 1 << 18
#: threads that work on a timeline; numpy and polars leave the interpreter to others meanwhile
WORKERS = min(os.cpu_count() or 1, 4)


def assign_rows(lane: IntArray, start: Int64Array, end: Int64Array, known: IntArray | None) -> tuple[IntArray, Int64Array]:
    """The row of every event, and the order by (row, start). Row d of lane l is number ``l * MOST_ROWS + d``.

    Nested calls lie below the call that makes them. In a lane where that leaves two events of a row at the same time (tasks
    that run at once, calls that end after their caller), every event takes the first row that is free when it starts.

    Args:
        lane: number of the lane, not decreasing, shape (n,).
        start: ns, sorted by (lane, start, -end), shape (n,).
        end: ns, shape (n,).
        known: nesting depth where the source knows it.
    """
    row = lane * MOST_ROWS
    if known is None and _one_by_one(lane, start, end):
        return row, np.arange(len(lane))
    depth = nest_calls(lane, start, end).depth if known is None else known
    row += np.clip(depth, 0, MOST_ROWS - 1).astype(row.dtype, copy=False)
    order = sorted_by_row(row)
    crossed = _find_crossing_lanes(row, start, end, order)
    if not len(crossed):
        return row, order
    for number in crossed.tolist():
        low, high = np.searchsorted(lane, [number, number + 1])
        row[low:high] = number * MOST_ROWS + first_free(start[low:high], end[low:high])
    return row, sorted_by_row(row)


def _find_crossing_lanes(row: IntArray, start: Int64Array, end: Int64Array, order: Int64Array) -> Int64Array:
    """The lanes with a row in which an event begins before the one before it has ended."""
    crossed = []
    for low in range(0, len(order), PIECE):
        piece = order[max(low - 1, 0) : low + PIECE]
        its, begin, stop = row[piece], start[piece], end[piece]
        crossed.append(its[1:][(its[1:] == its[:-1]) & (begin[1:] < stop[:-1])] // MOST_ROWS)
    return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *crossed]))


def _one_by_one(lane: IntArray, start: Int64Array, end: Int64Array) -> bool:
    """Whether no event of a lane begins before the one before it has ended."""
    return bool(np.all((start[1:] >= end[:-1]) | (lane[1:] != lane[:-1])))


def sorted_by_row(row: IntArray) -> Int64Array:
    """The order by row that keeps the order within each."""
    # 16 bits are sorted by counting
    narrow = len(row) > 0 and int(row.max()) < 1 << 16
    return np.argsort(row.astype(np.uint16) if narrow else row, kind="stable").astype(np.int64, copy=False)


def first_free(start: Int64Array, end: Int64Array) -> Int64Array:
    """The first row that is free when an event starts, for events in order of start; the last row takes what is left.

    A row takes the first event, then the first one that starts after it has ended, and so on: a walk along the list of
    successors.
    """
    depth = np.full(len(start), MOST_ROWS - 1, dtype=np.int64)
    left = np.arange(len(start))
    for row in range(MOST_ROWS - 1):
        if not len(left):
            break
        # an event that takes no time is followed by the next one, not by itself
        after = np.maximum(np.searchsorted(start[left], end[left], side="left"), np.arange(1, len(left) + 1))
        occupied = mark_visited_places(after)
        depth[left[occupied]] = row
        left = left[~occupied]
    return depth


def mark_visited_places(after: Int64Array) -> BoolArray:
    """Which places a walk from the first one meets.

    Args:
        after: where the walk goes from each place, always to a later one; the number of places is its end, shape (n,), n > 0.
    """
    count = len(after)
    leaps = np.flatnonzero(after != np.arange(1, count + 1))
    # from any place the walk goes on step by step to the next leap: only leaps have to be followed
    following = np.append(np.searchsorted(leaps, after[leaps]), len(leaps))
    met = np.zeros(len(leaps) + 1, dtype=bool)
    met[0] = True
    far = following
    while not met[-1]:
        # after round r the leaps less than 2**r away from the first one are known, and ``far`` goes 2**r of them at once
        met[far[met]] = True
        far = far[far]
    done = np.flatnonzero(met[:-1])
    change = np.zeros(count + 1, dtype=np.int8)
    change[0] = 1
    change[leaps[done] + 1] -= 1
    change[after[leaps[done]]] += 1
    return np.cumsum(change[:-1], dtype=np.int8) > 0
