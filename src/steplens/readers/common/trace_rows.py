"""Rows of the tables that every reader fills alike: ``meta`` and ``source_tables``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl


def meta_rows(values: Mapping[str, Any], *, nulls: bool = True) -> pl.DataFrame:
    """A dictionary as rows of ``meta``; with or without what it has no value for."""
    present = ((key, value) for key, value in values.items() if nulls or value is not None)
    rows = [(as_text(key), as_text(json.dumps(value, ensure_ascii=False))) for key, value in present]
    return pl.DataFrame(rows, schema={"key": pl.String, "value": pl.String}, orient="row")


def merged_meta(*frames: pl.DataFrame) -> pl.DataFrame:
    """Rows of ``meta`` from several places: of a key that several have the last one counts."""
    return pl.concat(frames).unique("key", keep="last", maintain_order=True)


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
