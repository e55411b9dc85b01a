"""Performance counters of device tasks, as the text files and as the database name and scale them.

The text files give times in µs and say so in the name (``aic_mac_time(us)``), the database gives ns (``aic_mac_time``);
some names differ besides. In the database a name is an identifier, because clients make it one of their programs'.
"""

from __future__ import annotations

import re

import polars as pl

from steplens.trace.trace import Trace

_TEXT_UNIT = "(us)"
_TIME = "_time"

#: name in the database -> name in the text files
_TEXT_NAMES = {"aic_total_time": "aicore_time(us)", "aiv_total_time": "aiv_time(us)", "cube_utilization": "cube_utilization(%)"}
_DATABASE_NAMES = {text: database for database, text in _TEXT_NAMES.items()}


def metric_columns(trace: Trace) -> pl.DataFrame:
    """One row per measured device task: ``id`` and a column per metric, named as in kernel_details.csv, in source order."""
    rows = _measured_values(trace)
    if rows.is_empty():
        return pl.DataFrame(schema={"id": pl.Int32})
    names = {name: _text_name(name) for name in rows["name"].unique(maintain_order=True)}
    scaled = [name for name, text in names.items() if text.endswith(_TEXT_UNIT) and not name.endswith(_TEXT_UNIT)]
    rows = rows.with_columns(
        _shift_decimal_point(scaled, -3),
        pl.col("name").replace_strict(names, return_dtype=pl.String),
    )
    wide = rows.pivot(on="name", index="kernel", values="value", aggregate_function="last").rename({"kernel": "id"})
    whole_columns = [name for name in wide.columns if name != "id" and _is_whole(wide[name])]
    return wide.with_columns(pl.col(whole_columns).cast(pl.Int64))


def metric_rows(trace: Trace) -> pl.DataFrame:
    """``kernel``, ``name`` and ``value`` as the database has them, in source order; no rows where nothing was measured."""
    rows = _measured_values(trace)
    names = {name: _database_name(name) for name in rows["name"].unique(maintain_order=True)}
    scaled = [name for name in names if name.endswith(_TEXT_UNIT)]
    return rows.with_columns(
        _shift_decimal_point(scaled, 3),
        pl.col("name").replace_strict(names, return_dtype=pl.String),
    )


def _measured_values(trace: Trace) -> pl.DataFrame:
    rows = trace.required("kernel_metrics").with_columns(pl.col("name").cast(pl.String)).drop_nulls()
    return rows.filter(pl.col("value").is_finite()).collect()


def _shift_decimal_point(names: list[str], places: int) -> pl.Expr:
    """``value``, for these names with its decimal point moved to the right.

    The point is moved in the digits: a product or quotient of doubles ends in noise (9325 ns would be 9.325000000000001 us).
    Only a number that is printed with an exponent, none that a clock gives, is multiplied.
    """
    value = pl.col("value")
    moved = (value.cast(pl.String) + f"e{places}").cast(pl.Float64, strict=False)
    return pl.when(pl.col("name").is_in(names)).then(pl.coalesce(moved, value * 10.0**places)).otherwise(value).alias("value")


def _text_name(name: str) -> str:
    if name in _TEXT_NAMES:
        return _TEXT_NAMES[name]
    return name + _TEXT_UNIT if name.endswith(_TIME) else name


def _database_name(name: str) -> str:
    database_name = _DATABASE_NAMES.get(name, name.removesuffix(_TEXT_UNIT))
    return re.sub(r"\W+", "_", database_name, flags=re.ASCII).strip("_") or name


def _is_whole(values: pl.Series) -> bool:
    """Whether a column holds integers only (cycles), which are printed without a fraction."""
    numbers = values.drop_nulls()
    return bool(numbers.is_finite().all() and (numbers.abs() < 2**53).all() and (numbers == numbers.round()).all())
