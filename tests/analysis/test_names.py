"""Questions about names: the answers of a question to every row, each asked once per different name."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from steplens.analysis.tools import names
from steplens.trace.schema import NAME

texts = st.one_of(st.none(), st.sampled_from(["aten::mm", "aten::add", "Optimizer.step#SGD", "", "é"]))
rows = st.lists(st.tuples(texts, texts, texts), max_size=30)


def frame(values: list[tuple[str | None, ...]]) -> pl.DataFrame:
    return pl.DataFrame(values, schema=dict.fromkeys("abc", NAME), orient="row")


@given(rows)
def test_what_is_looked_up_depends_on_the_name_alone(values: list[tuple[str | None, ...]]) -> None:
    column = frame(values)["b"]
    found = names.looked_up(column, pl.when(pl.col("name").str.starts_with("aten::")).then(7), 3).tolist()
    assert found == [7 if name is not None and name.startswith("aten::") else 3 for _, name, _ in values]
    known = names.distinct(column)
    assert sorted(names.with_prefix(known, "aten::")) == sorted({n for _, n, _ in values if n and n.startswith("aten::")})
    assert sorted(names.containing(known, "m$|^$")) == sorted(
        {n for _, n, _ in values if n is not None and n in ("aten::mm", "")}
    )


@given(st.lists(texts), st.booleans())
def test_each_name_is_there_once(values: list[str | None], categorical: bool) -> None:
    column = pl.Series("name", values, dtype=NAME if categorical else pl.String)
    for most in (names._SPARSE, 0):
        known, names._SPARSE = names._SPARSE, most
        try:
            found = names.each(column)
        finally:
            names._SPARSE = known
        assert sorted(found.cast(pl.String)) == sorted({text for text in values if text is not None})
        assert found.dtype == column.dtype and found.name == "name"
    assert sorted(names.distinct(column)) == sorted(found.cast(pl.String))
