"""What the columns of a table are: type, unit, and how their values reach a browser."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import polars as pl
from pydantic import BaseModel

from steplens.trace.columns import unit_of

#: the largest integer that a number of JavaScript holds exactly
_EXACT = (1 << 53) - 1

Kind = Literal["text", "integer", "number", "boolean", "list"]


class Column(BaseModel):
    """One column of a table.

    Attributes:
        name: of the column.
        type: of its values.
        unit: "ns", "bytes", "percent" (0 to 100), "ratio" (0 to 1), "factor" (a percentage that may exceed 100) ...;
            "moment" is a time in ns from the origin of the run; empty where there is none.
    """

    name: str
    type: Kind
    unit: str


def describe_columns(schema: Mapping[str, pl.DataType], units: Mapping[str, str]) -> list[Column]:
    """The columns of a table.

    Args:
        schema: of its frame.
        units: of columns whose name does not tell.
    """
    return [
        Column(name=name, type=kind_of(dtype), unit=unit_of(name, units) if dtype.is_numeric() else "")
        for name, dtype in schema.items()
    ]


def kind_of(dtype: pl.DataType) -> Kind:
    """What a polars type is to a browser."""
    if dtype.is_integer():
        return "integer"
    if dtype.is_float():
        return "number"
    if dtype == pl.Boolean:
        return "boolean"
    return "list" if isinstance(dtype, pl.List) else "text"


def names_as_text(frame: pl.LazyFrame) -> pl.LazyFrame:
    """The frame with its names as text."""
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))


def json_value(value: Any) -> Any:
    """A value as JSON holds it exactly: integers that a double cannot hold are texts of digits; no NaN, no infinity."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value if -_EXACT <= value <= _EXACT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    return str(value)


def json_rows(frame: pl.DataFrame) -> list[list[Any]]:
    """The cells of each row of a frame whose names are text, as JSON holds them."""
    # only values that JSON does not hold are looked at one by one
    columns = [
        column.to_list() if _holds_exactly(column) else map(json_value, column.to_list()) for column in frame.iter_columns()
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def _holds_exactly(column: pl.Series) -> bool:
    """Whether JSON holds all values of a column as they are."""
    if column.dtype in (pl.String, pl.Boolean, pl.Null):
        return True
    if column.dtype.is_integer():
        low, high = column.min(), column.max()
        return low is None or (isinstance(low, int) and isinstance(high, int) and low >= -_EXACT and high <= _EXACT)
    return column.dtype.is_float() and column.is_finite().all(ignore_nulls=True)


def json_records(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """The rows of a small frame as JSON objects."""
    named = any(isinstance(dtype, pl.Categorical) for dtype in frame.dtypes)
    return [json_value(row) for row in (names_as_text(frame.lazy()).collect() if named else frame).to_dicts()]
