"""Interval arithmetic on sorted int64 nanoseconds: union, subtraction, intersection, lengths.

An interval is half open, ``[start, end)``. A *merged* set is sorted, disjoint and free of empty intervals; the set
operations take and give merged sets. Everything is numpy, O(n log n), exact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

Int64Array = npt.NDArray[np.int64]


class Intervals(NamedTuple):
    """A merged set of half-open intervals; both arrays have shape (n,), in ns."""

    start: Int64Array
    end: Int64Array

    @property
    def length_ns(self) -> int:
        """Total length in ns."""
        return int((self.end - self.start).sum())


def merge_intervals(start: Int64Array, end: Int64Array) -> Intervals:
    """Union of any intervals as a merged set; intervals that touch become one, empty or negative ones vanish."""
    start, end = np.asarray(start, dtype=np.int64), np.asarray(end, dtype=np.int64)
    keep = end > start
    if not keep.all():
        start, end = start[keep], end[keep]
    # one behind the other is how the tasks of a stream come
    if len(start) == 0 or (start[1:] > end[:-1]).all():
        return Intervals(start, end)
    # tables are mostly in order of time already
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    end = np.maximum.accumulate(end)
    first = np.r_[True, start[1:] > end[:-1]]
    last = np.r_[first[1:], True]
    return Intervals(start[first], end[last])


def merged(rows: pl.DataFrame) -> Intervals:
    """When any of the rows runs: the union of their ``start_ns`` to ``end_ns``."""
    return merge_intervals(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """The part of ``a`` outside ``b``."""
    if not len(a.start) or not len(b.start):
        return a
    b = clip(b, int(a.start[0]), int(a.end[-1]))
    outside = Intervals(np.r_[a.start[0], b.end], np.r_[b.start, a.end[-1]])
    return intersect(a, outside)


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """The part of ``a`` inside ``b``."""
    if len(a.start) > len(b.start):
        a, b = b, a
    # of b those from first on, before behind, meet an interval of a; each pair is a part of the answer, in order of time
    first = np.searchsorted(b.end, a.start, side="right")
    count = np.maximum(np.searchsorted(b.start, a.end, side="left") - first, 0)
    first_row = np.repeat(np.arange(len(count)), count)
    second_row = np.arange(len(first_row)) + np.repeat(first - np.cumsum(count) + count, count)
    start, end = np.maximum(a.start[first_row], b.start[second_row]), np.minimum(a.end[first_row], b.end[second_row])
    keep = end > start
    return Intervals(start, end) if keep.all() else Intervals(start[keep], end[keep])


def union(a: Intervals, b: Intervals) -> Intervals:
    """The part of the time line inside ``a`` or ``b``."""
    if not len(a.start) or not len(b.start):
        return a if len(a.start) else b
    return merge_intervals(np.concatenate((a.start, b.start)), np.concatenate((a.end, b.end)))


def clip(a: Intervals, start_ns: int, end_ns: int) -> Intervals:
    """The part of ``a`` inside ``[start_ns, end_ns)``; costs only what lies inside."""
    low = int(np.searchsorted(a.end, start_ns, side="right"))
    high = int(np.searchsorted(a.start, end_ns, side="left"))
    if low >= high:
        empty = np.empty(0, dtype=np.int64)
        return Intervals(empty, empty.copy())
    start, end = a.start[low:high].copy(), a.end[low:high].copy()
    start[0] = max(int(start[0]), start_ns)
    end[-1] = min(int(end[-1]), end_ns)
    return Intervals(start, end)


def length_inside(a: Intervals, start: Int64Array, end: Int64Array) -> Int64Array:
    """Length of ``a`` inside each range ``[start, end)``, ns; the ranges may overlap. Shape of ``start``."""
    if len(a.start) == 0:
        return np.zeros(len(start), dtype=np.int64)
    before = np.r_[0, np.cumsum(a.end - a.start)]

    def covered_before(time: Int64Array) -> Int64Array:
        index = np.searchsorted(a.start, time, side="right")
        inside_last = np.where(
            index > 0, np.minimum(time, a.end[np.maximum(index - 1, 0)]) - a.start[np.maximum(index - 1, 0)], 0
        )
        return np.where(index > 0, before[np.maximum(index - 1, 0)] + inside_last, 0)

    return covered_before(end) - covered_before(start)
