"""Rows in order, and found: by number, on columns whose numbers rise nearly everywhere, and by a moment on a thread."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import polars as pl

from steplens.trace.building.nesting import Int64Array, innermost_calls

#: leading columns by which the rows of a thread or stream are told
_LANE = 2
#: stretches of rows of one thread that are copied one by one
_MOST_RUNS = 1 << 12


def sort_rows(
    frame: pl.DataFrame, by: Sequence[str], *, descending: Sequence[bool] | bool = False, nulls_last: bool = False
) -> pl.DataFrame:
    """``frame`` sorted by columns, equal rows in the order they have. Most sources are in order, and nothing is copied then."""
    falls = [descending] * len(by) if isinstance(descending, bool) else descending
    if _is_in_order(frame, by, falls):
        return frame
    if not any(falls[:_LANE]):
        # where threads take turns for long, bringing the rows of each together is all that is left to do
        together = _join_runs(frame, by[:_LANE])
        if together is not None:
            frame = together
            if _is_in_order(frame, by, falls):
                return frame
    order = frame.select(pl.arg_sort_by(by, descending=descending, nulls_last=nulls_last, maintain_order=True)).to_series()
    return frame.select(pl.all().gather(order))


def _join_runs(frame: pl.DataFrame, lane: Sequence[str]) -> pl.DataFrame | None:
    """``frame`` sorted by columns that change rarely from row to row, stable; None where they do not."""
    columns = [frame[name] for name in lane]
    if any(column.null_count() or not column.dtype.is_integer() for column in columns):
        return None
    keys = [column.to_numpy() for column in columns]
    changes = np.zeros(max(frame.height - 1, 0), dtype=bool)
    for numbers in keys:
        changes |= numbers[1:] != numbers[:-1]
    first = np.flatnonzero(np.r_[True, changes])
    if not 1 < len(first) <= _MOST_RUNS:
        return None
    size = np.diff(np.r_[first, frame.height])
    runs = np.lexsort([numbers[first] for numbers in reversed(keys)])
    return pl.concat([frame.slice(first[run], size[run]) for run in runs.tolist()], rechunk=True)


def _is_in_order(frame: pl.DataFrame, by: Sequence[str], descending: Sequence[bool]) -> bool:
    """Whether rows are sorted by columns of numbers; False where that would have to be looked at more closely."""
    undecided = np.ones(max(frame.height - 1, 0), dtype=bool)
    for name, falls in zip(by, descending, strict=True):
        column = frame[name]
        if column.null_count() == frame.height:
            continue
        if column.null_count() or not column.dtype.is_integer():
            return not undecided.any()
        numbers = column.to_numpy()
        first, second = (numbers[1:], numbers[:-1]) if falls else (numbers[:-1], numbers[1:])
        if (undecided & (first > second)).any():
            return False
        undecided &= first == second
    return True


def first_rows(keys: pl.Series, wanted: pl.Series) -> pl.Series:
    """Row of the first of ``keys`` that equals each wanted one; null where none does, and for null.

    The stable sort it takes is cheap on numbers that rise nearly everywhere; a join would build a table of all rows.

    Args:
        keys: integers, shape (n,).
        wanted: integers, shape (m,).

    Returns:
        UInt32, shape (m,).
    """
    rows = keys.is_not_null().arg_true().to_numpy() if keys.null_count() else None
    values = keys.drop_nulls().to_numpy()
    target = wanted.fill_null(0).to_numpy()
    if not len(values):
        nothing: pl.Series = pl.Series([None], dtype=pl.UInt32).new_from_index(0, len(target))
        return nothing
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    position = np.minimum(np.searchsorted(ordered, target), len(values) - 1)
    missing = pl.Series(ordered[position] != target) | wanted.is_null()
    found = order[position]
    series: pl.Series = pl.Series(found if rows is None else rows[found], dtype=pl.UInt32).set(missing, None)
    return series


def enclosing_rows(points: pl.DataFrame, calls: pl.DataFrame, lane: Int64Array, parent: Int64Array) -> pl.Series:
    """Row of the innermost call around each point; null where none is.

    Args:
        points: time (ns), process and thread, whatever these columns are called; shape (m,). A point without them lies nowhere.
        calls: with pid, tid, start_ns and end_ns; shape (n,).
        lane: number of the thread of each call, which does not fall.
        parent: row of the call around each call, -1 for a root.

    Returns:
        Int64, shape (m,).
    """
    time, pid, tid = (column.fill_null(-1).to_numpy() for column in points.get_columns())
    start, end = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    innermost: Int64Array = np.full(len(time), -1, dtype=np.int64)
    bounds = np.flatnonzero(np.r_[True, lane[1:] != lane[:-1], True])
    for low, high in itertools.pairwise(bounds):
        rows = np.flatnonzero((pid == calls["pid"][int(low)]) & (tid == calls["tid"][int(low)]))
        if len(rows):
            outer = parent[low:high]
            local = innermost_calls(start[low:high], end[low:high], np.where(outer < 0, -1, outer - low), time[rows])
            innermost[rows] = np.where(local < 0, -1, local + low)
    result: pl.Series = pl.Series(innermost).set(pl.Series(innermost < 0), None)
    return result
