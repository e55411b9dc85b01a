"""Nesting against a plain stack, call by call."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from steplens.trace.building.nesting import child_sums, inherit_values, innermost_calls, lane_numbers, nest_calls, subtree_sums

calls = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 15)), max_size=40)


def by_stack(rows: list[tuple[int, int, int]]) -> list[int]:
    """PyTorch's own rule: pop what ended at or before the start, or ends before the end."""
    parents, stack, lane = [], [], None
    for index, (own_lane, start, end) in enumerate(rows):
        if own_lane != lane:
            stack, lane = [], own_lane
        while stack and (rows[stack[-1]][2] <= start or rows[stack[-1]][2] < end):
            stack.pop()
        parents.append(stack[-1] if stack else -1)
        stack.append(index)
    return parents


@given(calls)
def test_nesting_equals_a_stack(raw: list[tuple[int, int, int]]) -> None:
    rows = sorted(((lane, start, start + length) for lane, start, length in raw), key=lambda row: (row[0], row[1], -row[2]))
    lane, start, end = (
        (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)) if rows else (np.empty(0, np.int64),) * 3
    )
    result = nest_calls(lane_numbers(lane) if len(lane) else lane, start, end)
    expected = by_stack(rows)
    assert result.parent.tolist() == expected
    depth = [0] * len(rows)
    below: list[set[int]] = [{index} for index in range(len(rows))]
    for index, parent in enumerate(expected):
        if parent >= 0:
            depth[index] = depth[parent] + 1
        while parent >= 0:
            below[parent].add(index)
            parent = expected[parent]
    assert result.depth.tolist() == depth
    assert [set(range(index, stop)) for index, stop in enumerate(result.subtree_end.tolist())] == below
    duration = end - start
    assert child_sums(result.parent, duration).tolist() == [
        sum(int(duration[child]) for child, parent in enumerate(expected) if parent == index) for index in range(len(rows))
    ]
    assert subtree_sums(result.subtree_end, duration).tolist() == [sum(int(duration[i]) for i in group) for group in below]
    own = np.where(np.arange(len(rows)) % 3 == 0, np.arange(len(rows)), -1)
    nearest = []
    for index in range(len(rows)):
        current = index
        while current >= 0 and own[current] < 0:
            current = expected[current]
        nearest.append(current)
    assert inherit_values(result.parent, own).tolist() == nearest


def test_calls_of_equal_times_nest_as_deep_as_there_are_any() -> None:
    # what takes a step per level and call would not end within an hour
    count = 300_000
    result = nest_calls(np.zeros(count, np.int64), np.zeros(count, np.int64), np.ones(count, np.int64))
    assert np.array_equal(result.depth, np.arange(count))
    assert np.array_equal(result.subtree_end, np.full(count, count))
    own = np.where(np.arange(count) % 1000 == 0, np.arange(count), -1)
    assert np.array_equal(inherit_values(result.parent, own), np.arange(count) // 1000 * 1000)


def test_innermost_call_of_a_very_deep_lane() -> None:
    """Far more calls in each other than any program has: as looking at one after the other would find."""
    depth = 5_000
    start, end, parent = np.arange(depth), 2 * depth - np.arange(depth), np.arange(-1, depth - 1)
    time = np.arange(-2, 2 * depth + 3)
    found = innermost_calls(start, end, parent, time)
    running = [max((call for call in range(depth) if start[call] <= at <= end[call]), default=-1) for at in time[:: depth // 40]]
    assert found[:: depth // 40].tolist() == running
    assert found.max() == depth - 1 and found[0] == found[-1] == -1


def test_innermost_call_around_a_time() -> None:
    start, end = np.array([0, 10, 12, 40]), np.array([100, 30, 20, 50])
    parent = nest_calls(np.zeros(4, np.int64), start, end).parent
    assert innermost_calls(start, end, parent, np.array([-1, 0, 11, 12, 20, 25, 35, 45, 100, 101])).tolist() == [
        -1,
        0,
        1,
        2,
        2,
        1,
        0,
        3,
        0,
        -1,
    ]


def test_a_long_row_of_siblings_takes_few_rounds() -> None:
    count = 200_000
    start = np.r_[0, np.arange(count) * 10 + 1]
    end = np.r_[count * 10 + 1, np.arange(count) * 10 + 9]
    result = nest_calls(np.zeros(count + 1, np.int64), start, end)
    assert (result.parent[1:] == 0).all()
    assert result.subtree_end[0] == count + 1
