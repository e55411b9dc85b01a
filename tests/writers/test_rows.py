"""Rows of cells: what is printed is what each cell says of each row, however the cells are put together."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import polars as pl
import pytest
from hypothesis import given, settings

from steplens.writers.common import rows
from steplens.writers.common.rows import Shared, shared_texts, write_rows

_INTEGERS = {
    pl.Int8: (-128, 127),
    pl.UInt8: (0, 255),
    pl.Int32: (-(1 << 31), (1 << 31) - 1),
    pl.Int64: (-(1 << 63), (1 << 63) - 1),
    pl.UInt64: (0, (1 << 64) - 1),
}


def printed(frame: pl.DataFrame, *cells: Any) -> list[Any]:
    """The rows as a reader of JSON sees them."""
    handle = io.BytesIO()
    write_rows(handle, frame, *cells)
    return list(json.loads(b"[" + handle.getvalue().removeprefix(b",") + b"]"))


def named(values: Sequence[str | None]) -> Shared:
    return shared_texts(pl.Series(values, dtype=pl.String), json.dumps, "null")


@st.composite
def columns(draw: st.DrawFn) -> tuple[pl.Series, list[Any]]:
    """Numbers of some type, near each other or at the ends of what the type holds, with gaps; and the same as a list."""
    dtype = draw(st.sampled_from(list(_INTEGERS)))
    low, high = _INTEGERS[dtype]
    first = draw(st.one_of(st.just(low), st.just(high), st.integers(low, high)))
    near = st.integers(max(low, first - 3), min(high, first + 3))
    values = draw(st.lists(st.none() | near | st.integers(low, high), min_size=40, max_size=40))
    if draw(st.booleans()):
        values = [value if value is None else first for value in values]
    return pl.Series("numbers", values, dtype=dtype), values


@settings(deadline=None)
@given(columns(), st.lists(st.none() | st.sampled_from(["a", 'q"', "\u4e2d", ""]), min_size=40, max_size=40), st.integers(1, 60))
def test_every_row_says_what_its_cells_say(numbers: tuple[pl.Series, list[Any]], texts: list[str | None], chunk: int) -> None:
    series, values = numbers
    frame = series.to_frame().with_columns(category=pl.Series(texts, dtype=pl.Categorical))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "ROWS_PER_CHUNK", chunk)
        quoted = pl.col("category").cast(pl.String).replace_strict({"a": '"a"'}, default='"other"', return_dtype=pl.String)
        cells = (
            ',{"text":',
            named(texts),
            ',"number":',
            pl.col("numbers"),
            ',"constant":',
            pl.lit(7),
            "",
            ',"more":',
            quoted,
            "}",
        )
        found = printed(frame, *cells)
    more = ["a" if text == "a" else "other" for text in texts]
    wanted = [
        {"text": text, "number": value, "constant": 7, "more": other}
        for text, value, other in zip(texts, values, more, strict=True)
    ]
    assert found == wanted


def test_neighbours_that_are_text_become_one_column(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    original = pl.DataFrame.write_csv

    def counted(frame: pl.DataFrame, *given: Any, **options: Any) -> Any:
        seen.append(frame.width)
        return original(frame, *given, **options)

    monkeypatch.setattr(pl.DataFrame, "write_csv", counted)
    frame = pl.DataFrame({"time": [i * 10**6 for i in range(100)], "thread": [4, 5] * 50, "category": ["x"] * 100})
    frame = frame.with_columns(pl.col("category").cast(pl.Categorical))
    names = named(["f", "g", "h", "i"] * 25)
    found = printed(frame, ',{"n":', names, ',"t":', pl.col("thread"), ',"at":', pl.col("time"), ',"m":', named(["z"] * 100), "}")
    assert seen == [3]
    assert found[5] == {"n": "g", "t": 5, "at": 5 * 10**6, "m": "z"}


def test_texts_that_meet_in_too_many_pairs_stay_apart() -> None:
    left, right = named([f"l{i}" for i in range(100)]), named([f"r{i % 90}" for i in range(100)])
    found = printed(pl.select(pl.int_range(100)), ',{"a":', left, ',"b":', right, "}")
    assert found == [{"a": f"l{i}", "b": f"r{i % 90}"} for i in range(100)]


def test_nothing_is_written_of_no_rows() -> None:
    assert printed(pl.DataFrame({"time": []}, schema={"time": pl.Int64}), ",", pl.col("time")) == []


def test_a_column_that_does_not_fit_the_frame_is_refused() -> None:
    with pytest.raises(pl.exceptions.ShapeError):
        printed(pl.DataFrame({"time": [1, 2, 3]}), ",", pl.col("time"), pl.Series([1, 2]))
