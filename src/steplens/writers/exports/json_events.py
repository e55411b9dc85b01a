"""Events of JSON traces, written from columns: a line per event, no Python object per event."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import IO, Any

import polars as pl

from steplens.writers.common.rows import ROWS_PER_CHUNK, Cell, write_rows
from steplens.writers.common.text import json_string, render_distinct


def split_into_chunks(frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """``frame`` in pieces of ``ROWS_PER_CHUNK`` rows."""
    yield from frame.iter_slices(ROWS_PER_CHUNK)


def write_cells(handle: IO[bytes], frame: pl.DataFrame, *cells: Cell) -> None:
    """Write the cells of each row one after the other; see ``writers.common.rows.write_rows``."""
    write_rows(handle, frame, cells)


def write_object(handle: IO[bytes], event: dict[str, Any]) -> None:
    """One event, behind another one."""
    handle.write(b",\n" + json.dumps(event, ensure_ascii=False).encode())


def event_head(names: pl.Series, category: str) -> pl.Series:
    """Start of a complete event up to its pid; one text per distinct name."""

    def render_head(name: str) -> str:
        return f',\n{{"ph":"X","cat":"{category}","name":{json_string(name)},"pid":'

    return render_distinct(names, render_head, render_head(""))


def join_members(*cells: pl.Expr | pl.Series | str) -> pl.Expr | str:
    """Members of an object as one text without the comma in front of the first; each cell starts with one or is empty."""
    present = [pl.lit(cell) if isinstance(cell, pl.Series) else cell for cell in cells if not isinstance(cell, str)]
    return pl.concat_str(present).str.slice(1) if present else ""


def text_member(key: str, values: pl.Series, render: Callable[[str], str | None] = json_string) -> pl.Series | str:
    """``,"key":value`` for the rows that have the value, nothing for the others."""
    if values.null_count() == len(values):
        return ""

    def render_member(text: str) -> str | None:
        value = render(text)
        return None if value is None else f",{json_string(key)}:{value}"

    return render_distinct(values, render_member, "")
