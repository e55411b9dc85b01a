"""Rows of many tables below each other, and those of each rank apart."""

from __future__ import annotations

import polars as pl
import pytest

from steplens.analysis.tools.joined_rows import RowsOfRanks, join_rows


@pytest.mark.parametrize("count", [1, 255, 256, 257, 600])
def test_rows_come_in_order_however_many_tables_there_are(count: int) -> None:
    made = []

    def table(number: int) -> pl.DataFrame:
        made.append(number)
        return pl.DataFrame({"number": [number, -number], "name": [f"the table number {number}", None]})

    rows = join_rows(map(table, range(count)))
    assert made == list(range(count))
    assert rows["number"].to_list() == [value for number in range(count) for value in (number, -number)]
    assert rows["name"][-2] == f"the table number {count - 1}" and rows["name"].null_count() == count


def test_rows_of_a_rank_keep_their_order() -> None:
    rows = RowsOfRanks(pl.DataFrame({"rank": [3, 1, 3, 1, 7], "value": [5, 4, 3, 2, 1]}))
    assert [rows.of_rank(rank)["value"].to_list() for rank in (1, 3, 7, 2, 0, 9)] == [[4, 2], [5, 3], [1], [], [], []]
    assert RowsOfRanks(pl.DataFrame(schema={"rank": pl.Int64})).of_rank(0).height == 0
