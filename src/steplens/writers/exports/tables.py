"""The tables of a trace as Parquet files, for pandas, DuckDB, Spark and whatever else reads it."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from steplens.writers.common.output import NothingToWriteError
from steplens.writers.exports.subject import Subject


def write(subject: Subject, folder: Path) -> None:
    """Write ``<table>.parquet`` for each table that the trace has; names are plain text.

    Raises:
        NothingToWriteError: the trace has no tables.
    """
    trace = subject.trace
    names = list(trace)
    if not names:
        raise NothingToWriteError("the trace has no tables")
    for name in names:
        table = trace.required(name)
        categories = [column for column, dtype in table.collect_schema().items() if dtype == pl.Categorical]
        path = folder / f"{name}.parquet"
        # not by its name, which may be none that polars takes: that of a folder may be in another encoding
        with path.open("wb") as handle:
            table.with_columns(pl.col(categories).cast(pl.String)).sink_parquet(handle, compression="zstd")
        path.chmod(0o640)
