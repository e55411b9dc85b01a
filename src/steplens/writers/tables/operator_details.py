"""operator_details.csv: one row per operator call, in start order, with its host and device time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from steplens.analysis.device.kernels import core_self_ns, subtree_total_ns
from steplens.formats.ascend_terms import AI_CORE
from steplens.trace.schema import SCOPE_MODULE, STEP_PREFIX
from steplens.writers.common.output import NothingToWriteError, Output
from steplens.writers.common.text import guard_formula, lay_out_list, microseconds, names, render_distinct, write_csv


def write(output: Output, path: Path) -> None:
    """Write operator_details.csv (times in µs, exact to the ns).

    Step annotations and module ranges are not operator calls and have no row.
    """
    ops = output.trace.ops
    if ops is None or ops.is_empty():
        raise NothingToWriteError("no operator calls were recorded")
    ai_core_self = core_self_ns(output.trace, AI_CORE)
    ops = ops.select(
        "id", "name", "input_shapes", "stack", "scope", "start_ns", "end_ns", "self_ns", "device_self_ns", "device_total_ns"
    )
    if ai_core_self is None:
        ops = ops.with_columns(pl.lit(0, pl.Int64).alias("ai_core_self"), pl.lit(0, pl.Int64).alias("ai_core_total"))
    else:
        ai_core_total = subtree_total_ns(output.trace, ai_core_self)
        ops = ops.with_columns(pl.Series("ai_core_self", ai_core_self), pl.Series("ai_core_total", ai_core_total))
    distinct = ops["name"].unique()
    steps = distinct.filter(distinct.cast(pl.String).str.starts_with(STEP_PREFIX))
    rows = ops.filter((pl.col("scope").fill_null(0) != SCOPE_MODULE) & ~pl.col("name").is_in(steps.implode()))
    start = rows["start_ns"].to_numpy()
    if (start[1:] < start[:-1]).any():
        rows = rows.select(pl.all().gather(pl.Series(np.argsort(start, kind="stable"))))
    table = pl.select(
        names(rows["name"]).alias("Name"),
        render_distinct(rows["input_shapes"], _list_cell).alias("Input Shapes"),
        render_distinct(rows["stack"], _list_cell).alias("Call Stack"),
        _to_microseconds(rows["self_ns"]).alias("Host Self Duration(us)"),
        _to_microseconds(rows["end_ns"] - rows["start_ns"]).alias("Host Total Duration(us)"),
        _to_microseconds(rows["device_self_ns"]).alias("Device Self Duration(us)"),
        _to_microseconds(rows["device_total_ns"]).alias("Device Total Duration(us)"),
        _to_microseconds(rows["ai_core_self"]).alias("Device Self Duration With AICore(us)"),
        _to_microseconds(rows["ai_core_total"]).alias("Device Total Duration With AICore(us)"),
    )
    write_csv(table, path)


def _list_cell(text: str) -> str | None:
    return guard_formula(lay_out_list(text))


def _to_microseconds(column: pl.Series) -> pl.Expr:
    return microseconds(pl.lit(column.fill_null(0)))
