"""A stretch of time of a trace, as a trace of its own."""

from __future__ import annotations

import polars as pl

from steplens.trace.columns import SPANS
from steplens.trace.schema import SCHEMA
from steplens.trace.trace import Trace

#: table -> columns of other tables that hold its ids, which are the numbers of its rows
_REFERENCES = {
    "ops": (
        ("ops", "parent"),
        ("ops", "counted_as"),
        ("kernels", "op"),
        ("communication", "op"),
        ("memory", "op"),
        ("allocations", "op"),
    ),
    "kernels": (("kernel_metrics", "kernel"),),
}


def trace_window(trace: Trace, start_ns: int, end_ns: int) -> Trace:
    """The rows that overlap ``[start_ns, end_ns)``, whole, numbered anew; a moment overlaps where it lies inside.

    A recorded arrow belongs to the window when both its ends do. Rows without a time (bandwidths, operations of a pipeline) and
    tables that say something about the whole trace stay as they are. What a sum over the result says of a call is
    what the calls in the window say: ``self_ns`` and the like are those of the whole trace.

    Args:
        trace: its tables.
        start_ns: Unix ns.
        end_ns: Unix ns.
    """
    tables: dict[str, pl.DataFrame] = {}
    for name in trace:
        is_inside = _overlap_filter(name, start_ns, end_ns)
        frame = trace.required(name)
        tables[name] = (frame if is_inside is None else frame.filter(is_inside.fill_null(True))).collect()
    for table, columns in _REFERENCES.items():
        if table in tables:
            _renumber_rows(tables, table, columns)
    return Trace(trace.source, tables)


def _overlap_filter(table: str, start_ns: int, end_ns: int) -> pl.Expr | None:
    """Whether a row of a table overlaps; None where its rows have no times."""
    span = SPANS.get(table)
    if span is None:
        return None
    if table == "flows":
        return pl.all_horizontal(pl.col(span).is_between(start_ns, end_ns, closed="left"))
    first, last = span
    return (pl.col(first) < end_ns) & ((pl.col(last) > start_ns) | (pl.col(first) >= start_ns))


def _renumber_rows(tables: dict[str, pl.DataFrame], table: str, columns: tuple[tuple[str, str], ...]) -> None:
    """Give the rows that are left their numbers, wherever they are named; what names another row names none from now on."""
    table_rows = tables[table]
    numbers = pl.DataFrame({"_old": table_rows["id"].cast(pl.Int64), "_new": pl.int_range(table_rows.height, eager=True)})
    tables[table] = table_rows.with_columns(numbers["_new"].cast(SCHEMA[table]["id"]).alias("id"))
    for other_table, column in columns:
        if other_table in tables:
            referenced = tables[other_table].select(pl.col(column).cast(pl.Int64).alias("_old"))
            new_numbers = referenced.join(numbers, on="_old", how="left", maintain_order="left")["_new"]
            tables[other_table] = tables[other_table].with_columns(new_numbers.cast(SCHEMA[other_table][column]).alias(column))
