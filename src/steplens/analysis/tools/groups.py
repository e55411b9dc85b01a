"""Groups of rows as numbers from 0, so that a table by number takes the place of a hash or a sort."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.analysis.tools.overlap import Int64Array
from steplens.trace.schema import NAME

BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]

#: tables by number have as many rows as that for each row of a frame, and some
_SPARSE, _SOME = 8, 1 << 16
_MOST = 1 << 63


def number_groups(rows: pl.DataFrame, columns: Sequence[str]) -> tuple[Int64Array, int]:
    """A number per row, equal where all of these columns are.

    Args:
        rows: a frame.
        columns: of names or whole numbers; null is a value of its own.

    Returns:
        The numbers, shape (rows,), and how many there are at most, a few times the rows: not every one of them occurs.
    """
    number, size = np.zeros(rows.height, dtype=np.int64), 1
    for column in columns:
        codes, count = _value_codes(rows[column])
        number, size = number * count + codes, size * count
        if size > _SPARSE * rows.height + _SOME:
            distinct_numbers, number = np.unique(number, return_inverse=True)
            size = len(distinct_numbers)
    return number, size


def _value_codes(column: pl.Series) -> tuple[Int64Array, int]:
    """Small numbers for the values of a column, and how many there are."""
    numbers = column if column.dtype.is_integer() else column.cast(NAME).to_physical()
    low, high = (int(bound) if bound is not None else 0 for bound in (numbers.min(), numbers.max()))  # type: ignore[arg-type]
    if high - low > _SPARSE * len(column) + _SOME:
        numbers = numbers.rank("dense")
        low, high = 1, int(numbers.max() or 1)  # type: ignore[arg-type]
    codes = numbers.cast(pl.Int64)
    codes = (codes.fill_null(high + 1) if codes.null_count() else codes).to_numpy() - low
    is_used = np.zeros(high - low + 2, dtype=bool)
    is_used[codes] = True
    place = np.cumsum(is_used) - 1
    return place[codes], int(place[-1]) + 1


def first_rows(groups: Int64Array, count: int) -> Int64Array:
    """Row of the first of every group, -1 of a group without any; shape (count,)."""
    first = np.full(count, -1, dtype=np.int64)
    # of several the last one stays
    first[groups[::-1]] = np.arange(len(groups))[::-1]
    return first


def group_medians(groups: Int64Array, values: Int64Array, count: int) -> Float64Array:
    """Median of the values of every group; nan of a group without any.

    Args:
        groups: number of the group of each value, from 0, shape (n,).
        values: such as ns, shape (n,).
        count: how many groups there are.

    Returns:
        Shape (count,).
    """
    median_of = np.full(count, np.nan)
    if not len(values):
        return median_of
    low = int(values.min())
    span = int(values.max()) - low + 1
    sizes = np.bincount(groups, minlength=count)
    with_values = np.flatnonzero(sizes)
    sizes = sizes[with_values]
    first = np.cumsum(sizes) - sizes
    if count * span < _MOST:
        # one number of group and value: sorting plain numbers is several times as quick as sorting places
        ordered = np.sort(groups * span + (values - low))
        back = low - with_values * span
    else:
        ordered, back = values[np.lexsort((values, groups))], np.zeros(len(with_values), dtype=np.int64)
    median_of[with_values] = (ordered[first + (sizes - 1) // 2] + back + ordered[first + sizes // 2] + back) / 2
    return median_of


def are_among(numbers: pl.Series, those: pl.Series) -> BoolArray:
    """Which numbers are among those, as of rows; null is not. Numbers of rows need no hash.

    Args:
        numbers: whole numbers, shape (n,).
        those: numbers of rows, of any of a table, without null.
    """
    high = int(those.max() or 0)  # type: ignore[arg-type]
    if not len(those) or int(those.min() or 0) < 0 or high > _SPARSE * (len(numbers) + len(those)) + _SOME:  # type: ignore[arg-type]
        is_among: BoolArray = numbers.is_in(those.implode()).fill_null(False).to_numpy()
        return is_among
    table = np.zeros(high + 2, dtype=bool)
    table[those.to_numpy()] = True
    # the last is none of them, and so is what lies outside
    asked_numbers = numbers.fill_null(-1).to_numpy()
    clipped = np.where((asked_numbers >= 0) & (asked_numbers <= high), asked_numbers, high + 1)
    return table[clipped]
