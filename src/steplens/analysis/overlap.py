"""Interval arithmetic on sorted int64 nanoseconds: union, subtraction, intersection, lengths.

An interval is half open, ``[start, end)``. A *merged* set is sorted, disjoint and free of empty intervals; the set
operations take and give merged sets. Everything is numpy, O(n log n), exact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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
    start, end = start[keep], end[keep]
    if len(start) == 0:
        return Intervals(start, end)
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    first = np.r_[True, start[1:] > end[:-1]]
    last = np.r_[first[1:], True]
    return Intervals(start[first], end[last])


def _sweep(a: Intervals, b: Intervals, wanted: tuple[bool, bool]) -> Intervals:
    """The parts of the time line where (inside a, inside b) equals ``wanted``."""
    times = np.concatenate((a.start, a.end, b.start, b.end))
    delta_a = np.concatenate(
        (np.ones(len(a.start), np.int8), np.full(len(a.end), -1, np.int8), np.zeros(2 * len(b.start), np.int8))
    )
    delta_b = np.concatenate(
        (np.zeros(2 * len(a.start), np.int8), np.ones(len(b.start), np.int8), np.full(len(b.end), -1, np.int8))
    )
    order = np.argsort(times, kind="stable")
    times = times[order]
    inside_a = np.cumsum(delta_a[order], dtype=np.int64) > 0
    inside_b = np.cumsum(delta_b[order], dtype=np.int64) > 0
    matching = (
        np.flatnonzero((inside_a[:-1] == wanted[0]) & (inside_b[:-1] == wanted[1])) if len(times) else np.empty(0, np.int64)
    )
    return merge_intervals(times[matching], times[matching + 1])


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """The part of ``a`` outside ``b``."""
    return _sweep(a, b, (True, False))


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """The part of ``a`` inside ``b``."""
    return _sweep(a, b, (True, True))


def union(a: Intervals, b: Intervals) -> Intervals:
    """The part of the time line inside ``a`` or ``b``."""
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
