"""Times of operators from step to step, and how many shapes they ran with: what a net costs whose shapes change."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.schema import SCOPE_FUNCTION
from steplens.trace.trace import Trace

OPERATOR = "operator"
KERNEL = "kernel"

RUNS = table_schema("step, type: String, name: String, duration_ns: Float64, shapes: String")
SUMS = table_schema("step, type: String, total_ns: Float64, count, average_ns: Float64, shapes")
#: types that a first view shows
SHOWN_TYPES = 3


def runs(trace: Trace, level: str = OPERATOR, types: Sequence[str] = ()) -> pl.DataFrame:
    """Every run of an operator or a kernel inside a step, with its shapes; columns as in ``RUNS``.

    Source: MindSpore's ``dynamic_shape_info`` where the run has one (its times have no place on a time line), else the tables
    ``ops`` (operators) and ``kernels``.

    Args:
        trace: one rank.
        level: ``OPERATOR`` or ``KERNEL``; the type of a kernel is its name.
        types: only these types; all when empty.
    """
    table = trace.source_table("dynamic_shape_runs")
    if table is not None:
        kind = "type" if level == OPERATOR else "name"
        shape_runs = table.filter(pl.col("level") == level).select(
            pl.col("step").cast(pl.Int64, strict=False),
            pl.col("name"),
            pl.when(pl.col("shapes") != "").then("shapes").alias("shapes"),
            type=kind,
            duration_ns=pl.col("duration_us").cast(pl.Float64, strict=False) * 1000,
        )
    else:
        source = trace.required("ops" if level == OPERATOR else "kernels").drop_nulls("step")
        duration = pl.col("self_ns")
        if level == OPERATOR:
            source = source.filter(pl.col("scope") == SCOPE_FUNCTION)
            duration = pl.col("end_ns") - pl.col("start_ns")
        plain = pl.col("name").cast(pl.String)
        shape_runs = source.select(
            "step", name=plain, type=plain, duration_ns=duration, shapes=pl.col("input_shapes").cast(pl.String)
        ).collect()
    if types:
        shape_runs = shape_runs.filter(pl.col("type").is_in(list(types)))
    return shape_runs.select(cast_columns(RUNS))


def sums(trace: Trace, level: str = OPERATOR) -> pl.DataFrame:
    """Runs added up per step and type, columns as in ``SUMS``; ``shapes`` counts different ones (null: not recorded)."""
    shape_runs = runs(trace, level)
    shapes = pl.when(pl.col("shapes").is_not_null().any()).then(pl.col("shapes").drop_nulls().n_unique())
    counted = shape_runs.group_by("step", "type", maintain_order=True).agg(
        total_ns=pl.col("duration_ns").sum(), count=pl.len(), average_ns=pl.col("duration_ns").mean(), shapes=shapes
    )
    table = trace.source_table("dynamic_shape_types")
    stored = table.filter(pl.col("level") == level) if table is not None else None
    if stored is not None and stored.height:
        us = {f"{name}_ns": pl.col(f"{name}_us").cast(pl.Float64, strict=False) * 1000 for name in ("total", "average")}
        number = [pl.col(name).cast(pl.Int64, strict=False) for name in ("step", "count")]
        distinct_shapes = counted.select("step", "type", "shapes")
        counted = stored.select(*number, "type", **us).join(
            distinct_shapes, on=["step", "type"], how="left", maintain_order="left"
        )
    return counted.select(cast_columns(SUMS))


def types_of(found: pl.DataFrame) -> list[str]:
    """The types in a frame of ``sums``, in order of appearance; the first ``SHOWN_TYPES`` are those to show first."""
    return found["type"].unique(maintain_order=True).to_list()


def series(found: pl.DataFrame, types: Sequence[str]) -> list[pl.DataFrame]:
    """Some types from step to step: step, average_ns (0 in a step without it), count, shapes; every step of ``found``.

    Args:
        found: of ``sums``.
        types: different types; of kernels the names.
    """
    steps = found.select("step").unique().sort("step")
    numbered = pl.DataFrame({"type": types}, schema={"type": pl.String()}).with_row_index("number")
    mine = found.select("step", "type", "average_ns", "count", "shapes")
    # one query for all types: each of its own takes longer than what it looks at
    all_points = numbered.join(steps, how="cross").join(mine, on=["type", "step"], how="left").sort("number", "step")
    columns = all_points.select("step", pl.col("average_ns", "count").fill_null(0), "shapes")
    return [columns.slice(number * steps.height, steps.height) for number in range(numbered.height)]
