"""CSV files that a source has already made and steplens hands on: l2_cache.csv, nic.csv, task_time.csv ..."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from steplens.trace.trace import Trace
from steplens.writers.common.output import NothingToWriteError, Output
from steplens.writers.common.text import guard_formula, write_csv


def source_table(trace: Trace, name: str) -> pl.DataFrame | None:
    """A table that the source keeps, columns in its order; None where it has none or an empty one."""
    frame = trace.source_table(name)
    return None if frame is None or frame.is_empty() or not frame.columns else frame


def required_source_table(trace: Trace, name: str) -> pl.DataFrame:
    """The same.

    Raises:
        NothingToWriteError: the source has no such table.
    """
    frame = source_table(trace, name)
    if frame is None:
        raise NothingToWriteError(f"the source has no {name}")
    return frame


def write_source_table(name: str, output: Output, path: Path) -> None:
    """Write one such file; cells stay as the source has them."""
    write_table(required_source_table(output.trace, name), path)


def write_table(frame: pl.DataFrame, path: Path) -> None:
    """Write a table of text; a cell that a spreadsheet would take for a formula is guarded, unless it is a number."""
    safe = frame.select(pl.all().cast(pl.String))
    suspicious = [column for column in safe.columns if safe[column].str.contains(r"^'*[=+\-@\t\r]").any()]
    columns = {column: safe[column].map_elements(_guard_text_cell, return_dtype=pl.String) for column in suspicious}
    write_csv(safe.with_columns(**columns).rename({name: guard_formula(name) or name for name in safe.columns}), path)


def _guard_text_cell(cell: str) -> str | None:
    try:
        float(cell)
    except ValueError:
        return guard_formula(cell)
    return cell
