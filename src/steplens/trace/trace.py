"""``Trace``: the tables of one rank. Tables are loaded from the store on first use."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from steplens.trace.schema import CORE_CPU, SCHEMA


class Trace:
    """The tables of one rank, by attribute: ``trace.ops``, ``trace.kernels`` ...; None where absent.

    Args:
        source: the run directory or trace file the tables come from.
        tables: table name -> frame, eager or lazy; names and columns as in ``trace.schema``.
    """

    def __init__(self, source: Path, tables: Mapping[str, pl.DataFrame | pl.LazyFrame]) -> None:
        unknown = set(tables) - set(SCHEMA)
        if unknown:
            raise ValueError(f"not tables of a trace: {sorted(unknown)}")
        self.source = source
        self._tables: dict[str, pl.DataFrame | pl.LazyFrame] = dict(tables)

    def __contains__(self, name: str) -> bool:
        return name in self._tables

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def table(self, name: str) -> pl.DataFrame | None:
        """The whole table as a frame (kept in memory from then on), or None where the source has none."""
        if name not in SCHEMA:
            raise AttributeError(f"a trace has no table {name!r}; its tables are {', '.join(SCHEMA)}")
        frame = self._tables.get(name)
        if isinstance(frame, pl.LazyFrame):
            frame = frame.collect()
            self._tables[name] = frame
        return frame

    def __getattr__(self, name: str) -> pl.DataFrame | None:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.table(name)

    def lazy(self, name: str) -> pl.LazyFrame | None:
        """The table as a lazy frame, so that a query reads only the columns it needs; None where absent."""
        frame = self._tables.get(name)
        return frame.lazy() if frame is not None else None

    def required(self, name: str) -> pl.LazyFrame:
        """Like ``lazy``, but an absent table is an empty one with the right columns."""
        frame = self.lazy(name)
        return pl.LazyFrame(schema=SCHEMA[name]) if frame is None else frame

    def meta_values(self) -> dict[str, Any]:
        """The ``meta`` table as a dictionary, values decoded from JSON."""
        frame = self.table("meta")
        if frame is None:
            return {}
        return {key: json.loads(value) for key, value in frame.select("key", "value").iter_rows()}

    def source_table(self, name: str) -> pl.DataFrame | None:
        """A table that the source keeps and steplens hands on unchanged, columns as the source names them; None if absent."""
        rows = self.required("source_tables").filter(pl.col("table") == name).sort("row").select("record").collect()
        if rows.is_empty():
            return None
        return pl.DataFrame([json.loads(record) for record in rows["record"]], infer_schema_length=None)

    @property
    def rank(self) -> int:
        """Rank of the process in its job; -1 when the source does not say."""
        value = self.meta_values().get("rank", -1)
        return value if isinstance(value, int) else -1

    @property
    def has_accelerator(self) -> bool:
        """Whether any device task ran on something other than the CPU."""
        kernels = self.lazy("kernels")
        if kernels is None:
            return False
        return bool(kernels.select((pl.col("core").cast(pl.String) != CORE_CPU).any()).collect().item())
