"""Questions about names, asked once per different name: a million calls have some hundreds of them."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.analysis.tools.once import once_per_trace
from steplens.trace.schema import NAME
from steplens.trace.trace import Trace

#: a table by number of a name may have as many times the rows of the column
_SPARSE = 8
#: so many names are looked through sooner than a query is made
_FEW = 1000
#: answers about few names that are kept; some hundred kB each at most
_KEPT_ANSWERS = 256

UInt8Array = npt.NDArray[np.uint8]


def distinct(names: pl.Series) -> pl.Series:
    """The different texts of a column of names, in no order; null is none of them."""
    distinct_names: pl.Series = each(names).cast(pl.String)
    return distinct_names


def each(names: pl.Series) -> pl.Series:
    """One of every different name, as the column has it, in no order; null is none of them."""
    codes = names.to_physical() if isinstance(names.dtype, pl.Categorical) else None
    high = None if codes is None else codes.max()
    if codes is None or not isinstance(high, int) or high > _SPARSE * len(names):
        return names.unique().drop_nulls()
    # a row that has it, by number of the name: a hash of every row takes several times as long
    row = np.full(high + 2, -1, dtype=np.int64)
    row[(codes.fill_null(high + 1) if codes.null_count() else codes).to_numpy()] = np.arange(len(names))
    row = row[:-1]
    distinct_names: pl.Series = names[row[row >= 0]]
    return distinct_names


def with_prefix(names: pl.Series, prefix: str) -> list[str]:
    """Those of ``distinct`` names that start so; ``is_in`` a list of texts is quick on a column of names."""
    if len(names) <= _FEW:
        return [name for name in names.to_list() if name is not None and name.startswith(prefix)]
    matching: list[str] = names.filter(names.str.starts_with(prefix)).to_list()
    return matching


def containing(names: pl.Series, pattern: str) -> list[str]:
    """Those of ``distinct`` names in which a regular expression is found."""
    if len(names) <= _FEW:
        # the traces of a job have the same names
        return list(_filter_names(tuple(sorted(names.drop_nulls().to_list())), pattern))
    matching: list[str] = names.filter(names.str.contains(pattern)).to_list()
    return matching


@functools.lru_cache(maxsize=_KEPT_ANSWERS)
def _filter_names(names: tuple[str, ...], pattern: str) -> tuple[str, ...]:
    all_names = pl.Series(names, dtype=pl.String)
    return tuple(all_names.filter(all_names.str.contains(pattern)).to_list())


@once_per_trace
def of_calls(trace: Trace) -> pl.Series:
    """The different names of operator calls, as ``distinct`` gives them; worked out once per trace."""
    return distinct(trace.required("ops").select("name").collect()["name"])


@once_per_trace
def of_runtime(trace: Trace) -> pl.Series:
    """The same of runtime calls."""
    return distinct(trace.required("api").select("name").collect()["name"])


def looked_up(names: pl.Series, value: pl.Expr, default: int = 0) -> UInt8Array:
    """A small number per row that depends on its name alone.

    Args:
        names: a column of names.
        value: the number, 0 to 255, from ``pl.col("name")`` as text.
        default: for rows without a name, and where ``value`` is null.

    Returns:
        Shape of ``names``.
    """
    names = names.cast(NAME)
    distinct_names = each(names.rename("name")).to_frame()
    codes = distinct_names["name"].to_physical().to_numpy()
    values = distinct_names.select(pl.col("name").cast(pl.String)).select(value.cast(pl.UInt8).fill_null(default)).to_series()
    table = np.full(int(codes.max(initial=0)) + 2, default, dtype=np.uint8)
    table[codes] = values.to_numpy()
    looked_up_values: UInt8Array = table[names.to_physical().fill_null(len(table) - 1).to_numpy()]
    return looked_up_values
