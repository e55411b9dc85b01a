from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from steplens.analysis.tools.order import in_order

_SMALL = st.one_of(st.none(), st.integers(-2, 2))


@given(st.lists(st.tuples(_SMALL, st.integers(-2, 2), st.integers(0, 3))), st.booleans())
def test_the_order_is_that_of_a_stable_sort_with_null_first(keys: list[tuple[int | None, int, int]], known: bool) -> None:
    rows = [(0 if known and a is None else a, b, c, place) for place, (a, b, c) in enumerate(keys)]
    schema = dict.fromkeys(("a", "b", "c", "place"), pl.Int64)
    found = in_order(pl.DataFrame(rows, schema=schema, orient="row"), "a", "b", "c")
    assert found.rows() == sorted(rows, key=lambda row: (row[0] is not None, row[0] or 0, row[1], row[2]))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2))))
def test_what_is_in_order_is_not_moved(keys: list[tuple[int, int]]) -> None:
    rows = pl.DataFrame(sorted(keys), schema={"a": pl.Int32, "b": pl.Int64}, orient="row")
    assert in_order(rows, "a", "b") is rows
