from __future__ import annotations

import statistics

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from steplens.analysis.tools.groups import are_among, group_medians, number_groups
from steplens.trace.schema import NAME

_NAMES = st.one_of(st.none(), st.sampled_from(["a", "b", "c"]))
_NUMBERS = st.one_of(st.none(), st.integers(-3, 3), st.sampled_from([-(1 << 62), 1 << 61]))


@given(st.lists(st.tuples(_NAMES, _NUMBERS, _NAMES)))
def test_rows_have_one_number_where_all_columns_are_equal(keys: list[tuple[str | None, int | None, str | None]]) -> None:
    rows = pl.DataFrame(keys, schema={"a": NAME, "b": pl.Int64, "c": pl.String}, orient="row")
    number, count = number_groups(rows, ["a", "b", "c"])
    assert all(0 <= one < count for one in number)
    assert len(set(zip(number.tolist(), keys, strict=True))) == len(set(keys)) == len(set(number.tolist()))


def test_many_values_of_many_columns_keep_the_numbers_small() -> None:
    place = np.arange(2000)
    rows = pl.DataFrame({"a": place % 1999, "b": place * 1_000_003, "c": place % 1500, "d": place // 2})
    number, count = number_groups(rows, ["a", "b", "c", "d"])
    assert len(set(number.tolist())) == 2000 and count < 100_000


_LENGTHS = st.one_of(st.integers(-5, 20), st.integers(0, 1 << 45))


@given(st.lists(st.tuples(st.integers(0, 4), _LENGTHS)), st.sampled_from([5, 6, 1 << 19]))
def test_medians_are_those_of_the_groups(pairs: list[tuple[int, int]], count: int) -> None:
    found = group_medians(
        np.array([group for group, _ in pairs], dtype=np.int64), np.array([value for _, value in pairs], dtype=np.int64), count
    )
    own = {group: [value for one, value in pairs if one == group] for group, _ in pairs}
    assert len(found) == count and np.isfinite(found).sum() == len(own)
    assert all(found[group] == statistics.median(values) for group, values in own.items())
    column = pl.DataFrame(pairs, schema={"group": pl.Int64, "value": pl.Int64}, orient="row").group_by("group").median()
    assert all(found[group] == value for group, value in column.iter_rows())


@given(
    st.lists(st.one_of(st.none(), st.integers(-3, 9), st.just(1 << 40))),
    st.lists(st.one_of(st.integers(-1, 6), st.just(1 << 40))),
)
def test_numbers_among_others(numbers: list[int | None], those: list[int]) -> None:
    found = are_among(pl.Series(numbers, dtype=pl.Int64), pl.Series(those, dtype=pl.Int64))
    assert found.tolist() == [one is not None and one in those for one in numbers]
