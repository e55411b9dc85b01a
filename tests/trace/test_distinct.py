"""What is worked out once per distinct name is what it is for every row by itself."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steplens.trace.building import distinct
from steplens.trace.building.distinct import convert_distinct, number_distinct
from steplens.trace.schema import NAME

texts = st.sampled_from([None, "", "aten::add", "aten::mul", "c", "d"])
table_rows = st.lists(st.tuples(texts, texts, st.none(), st.just("same")), max_size=30)


@given(table_rows, st.booleans())
def test_rows_have_one_number_where_all_their_names_are_equal(rows: list[tuple[str | None, ...]], is_sorted: bool) -> None:
    columns = [pl.Series([row[place] for row in rows], dtype=NAME if place else pl.String) for place in range(4)]
    with pytest.MonkeyPatch.context() as patch:
        if is_sorted:
            patch.setattr(distinct, "_LEAST_ENTRIES", -1000)
        some, numbers = number_distinct(columns)
    assert [rows[some[number]] for number in numbers] == rows
    assert len(some) == len(set(rows))


@given(st.lists(texts, max_size=30))
def test_each_name_is_converted_once(names: list[str | None]) -> None:
    asked: list[str] = []

    def convert(name: str) -> str | None:
        asked.append(name)
        return name.upper() or None

    converted = convert_distinct(pl.Series("n", names, dtype=NAME), convert)
    assert converted.dtype == NAME
    assert converted.to_list() == [name.upper() if name else None for name in names]
    assert sorted(asked) == sorted({name for name in names if name is not None})
