"""Rows in order are those of polars' sort, and are not copied where they are in order already."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from steplens.trace.building.lookup import sort_rows

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
