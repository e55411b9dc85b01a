"""Interval arithmetic against brute force over single nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from steplens.analysis.tools.overlap import Intervals, clip, intersect, merge_intervals, subtract, union

interval_lists = st.lists(
    st.tuples(st.integers(0, 60), st.integers(-3, 20)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=12
)


def merged(pairs: list[tuple[int, int]]) -> Intervals:
    array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return merge_intervals(array[:, 0], array[:, 1])


def points(pairs: list[tuple[int, int]]) -> set[int]:
    return {time for start, end in pairs for time in range(start, end)}


def covered(intervals: Intervals) -> set[int]:
    return points(list(zip(intervals.start.tolist(), intervals.end.tolist(), strict=True)))


def assert_merged(intervals: Intervals) -> None:
    assert (intervals.end > intervals.start).all()
    assert (intervals.start[1:] > intervals.end[:-1]).all()


@given(interval_lists, interval_lists)
def test_set_operations_equal_sets_of_points(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    first, second = merged(a), merged(b)
    for result, expected in (
        (first, points(a)),
        (union(first, second), points(a) | points(b)),
        (subtract(first, second), points(a) - points(b)),
        (intersect(first, second), points(a) & points(b)),
    ):
        assert_merged(result)
        assert covered(result) == expected
        assert result.length_ns == len(expected)


@given(interval_lists, st.integers(0, 80), st.integers(0, 80))
def test_clip_keeps_what_lies_inside(a: list[tuple[int, int]], start: int, end: int) -> None:
    clipped = clip(merged(a), start, max(start, end))
    assert covered(clipped) == {time for time in points(a) if start <= time < max(start, end)}


def test_published_examples() -> None:
    assert covered(merged([(12, 45), (50, 60), (6, 20)])) == points([(6, 45), (50, 60)])
    communication, compute = merged([(30, 80), (90, 120), (130, 150)]), merged([(6, 45), (70, 100)])
    assert list(zip(*subtract(communication, compute), strict=True)) == [(45, 70), (100, 120), (130, 150)]
    busy = union(communication, compute)
    assert list(zip(busy.end[:-1], busy.start[1:], strict=True)) == [(120, 130)]
