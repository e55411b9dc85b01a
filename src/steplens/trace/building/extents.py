"""How many rows each table of a trace has, and from when to when they are: asked of all tables at once, for a trace once."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from steplens.trace.columns import SPANS
from steplens.trace.trace import Trace


class Extent(NamedTuple):
    """Of one table: its rows, and the first and last moment of them, ns; None where it has no times."""

    rows: int
    first_ns: int | None
    last_ns: int | None


def table_extents(trace: Trace) -> dict[str, Extent]:
    """Table -> its extent, of every table of the trace."""
    return trace.once(_compute_extents)


def _compute_extents(trace: Trace) -> dict[str, Extent]:
    extent_of: dict[str, Extent] = {}
    queries: dict[str, pl.LazyFrame] = {}
    for name in trace:
        start, end = SPANS.get(name, ("", ""))
        frame = trace.in_memory(name)
        if frame is not None:
            first, last = (frame[start].min() if start else None), (frame[end].max() if end else None)
            extent_of[name] = Extent(frame.height, _integer_or_none(first), _integer_or_none(last))
            continue
        missing = pl.lit(None, dtype=pl.Int64)
        bounds = {"first": pl.col(start).min() if start else missing, "last": pl.col(end).max() if end else missing}
        queries[name] = trace.required(name).select(pl.len(), **bounds)
    for name, answer in zip(queries, pl.collect_all(list(queries.values())) if queries else (), strict=True):
        rows, first_ns, last_ns = answer.row(0)
        extent_of[name] = Extent(rows, first_ns, last_ns)
    return {name: extent_of[name] for name in trace}


def _integer_or_none(value: object) -> int | None:
    return value if isinstance(value, int) else None
