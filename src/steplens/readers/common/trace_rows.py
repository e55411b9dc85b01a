"""Rows of raw tables: put below each other, and those that every reader fills alike, ``meta`` and ``source_tables``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

#: process and thread of events of allocators whose source does not tell them
NO_THREAD = dict.fromkeys(("pid", "tid"), pl.lit(None, dtype=pl.Int64))

#: tables that a host and a device recorded apart may both have rows of
_SHARED = ("memory", "marks", "threads", "api", "counters")


def concat_rows(*frames: pl.DataFrame | None) -> pl.DataFrame:
    """The rows of some frames below each other; a column that one of them lacks is null there. Without rows no columns."""
    present = [frame for frame in frames if frame is not None and frame.height]
    return pl.concat(present, how="diagonal_relaxed") if present else pl.DataFrame()


def add_rows(tables: dict[str, pl.DataFrame], name: str, *frames: pl.DataFrame) -> None:
    """Put rows behind those of a table, which need not be there yet."""
    rows = concat_rows(tables.get(name), *frames)
    if rows.height:
        tables[name] = rows


def add_recorded_beside(tables: dict[str, pl.DataFrame], extra: Mapping[str, pl.DataFrame]) -> None:
    """Add what was recorded beside a trace to its raw tables.

    Args:
        tables: of the trace.
        extra: further raw tables of the same run: rows of ``meta`` win over the trace's, rows of ``_SHARED`` tables are added to
            its own, any other table takes the place of the trace's.
    """
    for name, frame in extra.items():
        if name == "meta":
            tables[name] = merged_meta(tables[name], frame)
        elif name in _SHARED and name in tables:
            tables[name] = pl.concat([tables[name], frame], how="diagonal_relaxed")
        else:
            tables[name] = frame


def optional_column(frame: pl.DataFrame, column: str, dtype: pl.DataType | type[pl.DataType] = pl.Int64) -> pl.Expr:
    """A column of a frame, null where it has no such column."""
    return pl.col(column) if column in frame.columns else pl.lit(None, dtype=dtype)


def meta_rows(values: Mapping[str, Any], *, nulls: bool = True) -> pl.DataFrame:
    """A dictionary as rows of ``meta``; with or without what it has no value for."""
    present = ((key, value) for key, value in values.items() if nulls or value is not None)
    rows = [(as_text(key), as_text(json.dumps(value, ensure_ascii=False))) for key, value in present]
    return pl.DataFrame(rows, schema={"key": pl.String, "value": pl.String}, orient="row")


def merged_meta(*frames: pl.DataFrame | None) -> pl.DataFrame:
    """Rows of ``meta`` from several places: of a key that several have the last one counts."""
    return pl.concat(frame for frame in frames if frame is not None).unique("key", keep="last", maintain_order=True)


def source_rows(table: str, frame: pl.DataFrame, *, absent: str | None = "") -> pl.DataFrame:
    """A frame as rows of ``source_tables``: each a JSON object of texts, keys in the order of the columns.

    Args:
        table: name of the table that it is.
        frame: its rows.
        absent: what a cell without a value becomes; None is JSON's null.
    """
    cells = pl.all().cast(pl.String)
    return frame.select(
        table=pl.lit(table),
        row=pl.int_range(pl.len(), dtype=pl.Int32),
        record=pl.struct(cells if absent is None else cells.fill_null(absent)).struct.json_encode(),
    )


def as_text(text: str) -> str:
    """``text`` without halves of surrogate pairs, which JSON can hold and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode()
