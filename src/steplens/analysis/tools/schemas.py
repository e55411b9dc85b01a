"""The columns of the tables that analyses give: their names and types, and bringing a frame to them."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl


def table_schema(columns: str) -> dict[str, pl.DataType]:
    """The columns of a table in order, each with its type.

    Args:
        columns: such as "step, device: Int32, name: String"; what names no type of polars is a whole number of 64 bits.
    """
    parts = (column.partition(": ") for column in columns.split(", "))
    return {name: getattr(pl, dtype or "Int64")() for name, _, dtype in parts}


def cast_columns(schema: Mapping[str, pl.DataType | type[pl.DataType]]) -> list[pl.Expr]:
    """The columns of a schema, each with its type: what ``select`` brings a frame to it with."""
    return [pl.col(name).cast(dtype) for name, dtype in schema.items()]
