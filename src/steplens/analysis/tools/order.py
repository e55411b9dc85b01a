"""Rows in order of whole numbers: tables mostly come in order, or as a few of them behind each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl


def in_order(rows: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """The rows in order of some columns, null first; rows that are equal in all of them stay as they came.

    What is in order already is not moved, and sorting what consists of a few ordered stretches costs little more than
    comparing neighbours. Sorting by several columns at once does not know of either.

    Args:
        rows: a frame.
        columns: of integers, the one that decides first.
    """
    if any(rows[column].null_count() for column in columns):
        return rows.sort(columns, maintain_order=True)
    keys = [rows[column].to_numpy() for column in columns]
    return rows if _is_ordered(keys) else rows[np.lexsort(keys[::-1])]


def _is_ordered(keys: list[npt.NDArray[np.integer[Any]]]) -> bool:
    """Whether each row is behind the one before it, or equal to it, in order of all the keys."""
    equal: npt.NDArray[np.bool_] | None = None
    for key in keys:
        is_smaller = key[1:] < key[:-1]
        if (is_smaller if equal is None else is_smaller & equal).any():
            return False
        same = key[1:] == key[:-1]
        equal = same if equal is None else equal & same
    return True
