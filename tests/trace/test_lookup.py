"""Rows in order are those of polars' sort, and are not copied where they are in order already; steps are found by time."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from steplens.trace.building.lookup import sort_rows
from steplens.trace.building.steps import step_of

numbers = st.one_of(st.none(), st.integers(-2, 3))
table_rows = st.lists(st.tuples(numbers, st.integers(0, 2), numbers), max_size=12)


@given(table_rows, st.lists(st.booleans(), min_size=3, max_size=3), st.booleans(), st.booleans())
def test_rows_are_sorted_as_polars_does(
    rows: list[tuple[int | None, ...]], descending: list[bool], nulls_last: bool, is_sorted: bool
) -> None:
    by = ["a", "b", "c"]
    frame = pl.DataFrame(rows, schema=dict.fromkeys(by, pl.Int64), orient="row").with_row_index("row")
    expected = frame.sort(by, descending=descending, nulls_last=nulls_last, maintain_order=True)
    given_rows = expected if is_sorted else frame
    assert sort_rows(given_rows, by, descending=descending, nulls_last=nulls_last).equals(expected)


def test_rows_in_order_are_given_back_as_they_are() -> None:
    frame = pl.DataFrame({"lane": [1, 1, 1, 2], "start": [5, 5, 6, 0], "end": [9, 8, 20, 1]})
    order = ["lane", "start", "end"]
    assert sort_rows(frame, order, descending=[False, False, True]) is frame
    assert sort_rows(frame, order)["end"].to_list() == [8, 9, 20, 1]


@given(
    st.lists(st.integers(-5, 40), max_size=60),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=4),
    st.integers(1, 3),
)
def test_the_step_of_a_time_is_the_last_that_began_where_it_lasts(
    times: list[int], ranges: list[tuple[int, int]], threads: int
) -> None:
    ranges.sort()
    steps = pl.DataFrame(
        {"id": range(10, 10 + len(ranges)), "start_ns": [at for at, _ in ranges], "end_ns": [at + size for at, size in ranges]}
    )
    # of each thread they rise; without order each is looked for
    for time_ns in (np.tile(np.sort(times), threads), np.array(times * threads)):
        began = [[number for number, (at, _) in enumerate(ranges) if at <= time] for time in time_ns]
        expected = [
            10 + some[-1] if some and time < sum(ranges[some[-1]]) else None for time, some in zip(time_ns, began, strict=True)
        ]
        assert step_of(time_ns.astype(np.int64), steps).to_list() == expected


def test_threads_that_take_turns_are_brought_together() -> None:
    turns = [(tid, 100 * turn + 10 * call, call) for turn in range(5) for tid in (9, 3) for call in range(4)]
    frame = pl.DataFrame(turns, schema=["tid", "start", "call"], orient="row").with_columns(pid=pl.lit(1)).with_row_index()
    by = ["pid", "tid", "start", "call"]
    assert sort_rows(frame, by).equals(frame.sort(by, maintain_order=True))
    # calls that begin together are in no order yet
    tied = frame.with_columns(start=pl.col("start") // 100)
    assert sort_rows(tied, by, descending=[False, False, False, True]).equals(
        tied.sort(by, descending=[False, False, False, True], maintain_order=True)
    )
