"""Which communication calls of the CPU get lanes of their own: those that cross other calls of their thread."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steplens.trace.trace import Trace
from steplens.writers.common.asynchronous import FIRST_LANE, asynchronous_lanes

from .builder import BASE_NS, build, kernel, op


def run(calls: list[tuple[int, int]], own: list[tuple[int, int]], **values: Any) -> Trace:
    """Operator calls of one thread, those of communication first; times in us."""
    rows = [*(op("gloo:send", *times, **values) for times in own), *(op("aten::x", *times) for times in calls)]
    communication = [
        {"name": "gloo:send", "kind": "send", "op": number, "start_ns": BASE_NS + start * 1000, "end_ns": BASE_NS + end * 1000}
        for number, (start, end) in enumerate(own)
    ]
    return build(ops=rows, kernels=[kernel("k", 1, 2)], communication=communication)


@pytest.mark.parametrize(
    ("calls", "own"),
    [
        ([(1, 10)], [(2, 9)]),
        ([(1, 10)], [(1, 10)]),
        ([(3, 4), (5, 6)], [(2, 9)]),
        ([(1, 5), (9, 12)], [(5, 9)]),
        ([(1, 20), (2, 4), (10, 19)], [(5, 9), (11, 12)]),
        ([], [(1, 5)]),
        ([(1, 10)], []),
        ([(1, 4)], [(2, 3), (2, 3)]),
    ],
)
def test_calls_that_nest_stay(calls: list[tuple[int, int]], own: list[tuple[int, int]]) -> None:
    assert asynchronous_lanes(run(calls, own)) == {}


@pytest.mark.parametrize(
    ("calls", "own", "lanes"),
    [
        # begins in a call and ends behind it
        ([(1, 5)], [(4, 9)], [0]),
        ([(1, 20), (3, 6)], [(5, 9)], [0]),
        # ends inside a call that begins after it
        ([(5, 9)], [(1, 6)], [0]),
        ([(5, 20), (6, 19)], [(1, 8)], [0]),
        # every communication call of the thread moves, and those of one lane do not overlap
        ([(1, 5)], [(4, 9), (12, 13)], [0, 0]),
        ([(1, 5)], [(4, 9), (6, 13), (10, 11), (14, 15)], [0, 1, 0, 0]),
        # two that cross each other alone
        ([], [(1, 5), (3, 9)], [0, 1]),
    ],
)
def test_calls_that_cross_others_move(calls: list[tuple[int, int]], own: list[tuple[int, int]], lanes: list[int]) -> None:
    found = asynchronous_lanes(run(calls, own))
    assert [found[row] - FIRST_LANE for row in range(len(own))] == lanes


def test_other_threads_do_not_count() -> None:
    assert asynchronous_lanes(run([(1, 5)], [(4, 9)], tid=7)) == {}


TIMES = st.tuples(st.integers(1, 60), st.integers(1, 30)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(st.lists(TIMES, max_size=12))
def test_the_calls_of_a_lane_never_overlap(own: list[tuple[int, int]]) -> None:
    found = asynchronous_lanes(run([], own))
    crossing = any(a < c < b < d for a, b in own for c, d in own)
    assert bool(found) == crossing
    lanes: dict[int, list[tuple[int, int]]] = {}
    for row, lane in found.items():
        lanes.setdefault(lane, []).append(own[row])
    for rows in lanes.values():
        ordered = sorted(rows)
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(ordered))
