"""What depends on names alone, worked out once per distinct name or combination of names: a trace has few, and many rows.

Categories are numbers already, so that rows are brought to their combination by tables of these numbers. A hash of every row, as
a join or a search for distinct rows takes, costs several times as much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from steplens.trace.building.nesting import Int64Array
from steplens.trace.schema import NAME

#: a table of numbers has at most so many entries for each row, and so many more; larger ones are sorted instead
_ENTRIES_PER_ROW = 4
_LEAST_ENTRIES = 1 << 16


def number_distinct(names: Sequence[pl.Series]) -> tuple[Int64Array, Int64Array]:
    """Number the distinct combinations of names.

    Args:
        names: columns of categories or texts, each of shape (n,); null is a name like any other.

    Returns:
        a row of each combination, by its number, and the number of the combination of each row, shape (n,).
    """
    numbers, rows = _close_gaps(*_category_codes(names[0]))
    for column in names[1:]:
        codes, code_count = _category_codes(column)
        if code_count > 1:
            numbers, rows = _close_gaps(numbers * code_count + codes, len(rows) * code_count)
    return rows, numbers


def convert_distinct(names: pl.Series, convert: Callable[[str], str | None]) -> pl.Series:
    """Each name converted, every distinct one once; null stays null."""
    rows, numbers = number_distinct([names])
    texts = [None if text is None else convert(text) for text in names.gather(rows).cast(pl.String).to_list()]
    converted: pl.Series = pl.Series(names.name, texts, dtype=NAME).gather(numbers)
    return converted


def _category_codes(names: pl.Series) -> tuple[Int64Array, int]:
    """The number of the category of each name, 0 for null, and how many such numbers there may be; 1 where all are the same."""
    categories = names.cast(NAME).to_physical()
    lowest, highest = categories.min(), categories.max()
    nulls = categories.null_count()
    if highest is None or (lowest == highest and not nulls):
        return np.zeros(len(names), dtype=np.int64), 1
    codes = (categories.cast(pl.UInt32) + 1).fill_null(0) if nulls else categories
    # numbers of 64 bits are looked up in tables in half the time
    return codes.to_numpy().astype(np.int64), int(highest) + 2


def _close_gaps(numbers: Int64Array, limit: int) -> tuple[Int64Array, Int64Array]:
    """Numbers from 0 to ``limit`` as numbers without gaps in the same order, and a row of each."""
    if limit > _ENTRIES_PER_ROW * len(numbers) + _LEAST_ENTRIES:
        _, rows, closed = np.unique(numbers, return_index=True, return_inverse=True)
        return closed, rows
    row_of_number = np.full(limit, -1, dtype=np.int64)
    row_of_number[numbers] = np.arange(len(numbers))
    occurs = row_of_number >= 0
    place = np.cumsum(occurs, dtype=np.int64) - 1
    return place[numbers], row_of_number[occurs]
