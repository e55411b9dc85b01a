"""Dynamic shapes: how the input shapes of operators change from step to step, and what the new ones cost."""

from __future__ import annotations

import polars as pl

from steplens.analysis.tools.groups import number_groups
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.schema import SCOPE_FUNCTION
from steplens.trace.trace import Trace

STEPS = table_schema("name: String, step, calls, shapes, new_shapes, new_calls, total_ns, new_ns")
OPERATORS = table_schema(
    "name: String, calls, steps, shapes, most_shapes_in_step, steps_with_new, new_shapes, new_percent: Float64, "
    "mean_first_ns: Float64, mean_repeated_ns: Float64, dynamic: Boolean"
)


def shapes(trace: Trace, by: str = "operator") -> pl.DataFrame:
    """The input shapes of each operator per step, or over all steps.

    A shape is the text of ``ops.input_shapes``: the sizes of all inputs of a call together. Calls outside steps and those
    without recorded shapes are left out. A shape is *new* in the first step that has it; nothing is new in the first step,
    where everything would be.

    By "step", columns as in ``STEPS``, in order of name and step: ``calls``, ``shapes`` (how many distinct), ``new_shapes``,
    ``new_calls`` (with such a shape), ``total_ns`` and ``new_ns`` (host duration of all calls, of those with a new shape).

    By "operator", columns as in ``OPERATORS``, the most new shapes first: ``shapes`` distinct over all steps,
    ``most_shapes_in_step``, ``steps_with_new``, ``new_shapes``, ``new_percent`` (calls with a new shape, share of the calls
    behind the first step), ``mean_first_ns`` (host duration of the first call of each new shape) beside ``mean_repeated_ns``
    (of all other calls behind the first step), null where there is none. ``dynamic``: some step has a shape that the steps
    before it do not have. An operator with many shapes that are the same in every step is not dynamic.

    Args:
        trace: one rank, recorded with shapes.
        by: "operator" or "step".

    Raises:
        ValueError: ``by`` is neither.
    """
    if by not in ("operator", "step"):
        raise ValueError(f'shapes(by={by!r}): by must be "operator" or "step"')
    calls = _calls_by_shape(trace)
    return _per_step(calls) if by == "step" else _per_operator(calls)


def _calls_by_shape(trace: Trace) -> pl.DataFrame:
    """One row per name, shape and step: calls, duration, duration of the first call, and whether the shape is new there."""
    counted = (pl.col("counted_as") == pl.col("id")) & (pl.col("scope") == SCOPE_FUNCTION)
    length = pl.col("end_ns") - pl.col("start_ns")
    has_shapes = counted & pl.col("step").is_not_null() & pl.col("input_shapes").is_not_null()
    columns = ("name", "input_shapes", "step", "start_ns")
    each = trace.required("ops").filter(has_shapes).select(*columns, length=length).collect()
    if not each["start_ns"].is_sorted():
        each = each.sort("start_ns", maintain_order=True)
    shape, _ = number_groups(each, ("name", "input_shapes"))
    rows = (
        each.with_columns(shape=pl.Series(shape))
        .group_by("shape", "step")
        .agg(
            pl.col("name", "input_shapes").first(),
            calls=pl.len().cast(pl.Int64),
            total_ns=pl.col("length").sum(),
            first_ns=pl.col("length").first(),
        )
    )
    order = trace.required("steps").sort("start_ns").select(step="id").with_row_index("place").collect()
    rows = rows.join(order.with_columns(pl.col("place").cast(pl.Int64)), on="step", how="left")
    place = pl.coalesce("place", "step")
    first = place == place.min().over("shape")
    return rows.with_columns(pl.col("name").cast(pl.String), new=first & (place > place.min()))


def _per_step(calls: pl.DataFrame) -> pl.DataFrame:
    new = pl.col("new")
    return (
        calls.group_by("name", "step", pl.coalesce("place", "step").alias("_place"))
        .agg(
            calls=pl.col("calls").sum(),
            shapes=pl.len(),
            new_shapes=new.sum(),
            new_calls=pl.col("calls").filter(new).sum(),
            total_ns=pl.col("total_ns").sum(),
            new_ns=pl.col("total_ns").filter(new).sum(),
        )
        .sort("name", "_place")
        .select(cast_columns(STEPS))
    )


def _per_operator(calls: pl.DataFrame) -> pl.DataFrame:
    new = pl.col("new")
    place = pl.coalesce("place", "step")
    calls = calls.with_columns(
        later=place > place.min(),
        repeated=pl.col("calls") - new.cast(pl.Int64),
        repeated_ns=pl.col("total_ns") - pl.when(new).then("first_ns").otherwise(0),
    )
    steps = (
        calls.group_by("name", "step")
        .agg(shapes=pl.len(), new=new.any())
        .group_by("name")
        .agg(steps=pl.len(), most_shapes_in_step=pl.col("shapes").max(), steps_with_new=new.sum())
    )
    later, repeated = (pl.col(name).filter("later").sum() for name in ("calls", "repeated"))
    return (
        calls.group_by("name")
        .agg(
            calls=pl.col("calls").sum(),
            shapes=pl.col("input_shapes").n_unique(),
            new_shapes=new.sum(),
            new_percent=pl.when(later > 0).then(pl.col("calls").filter(new).sum() * 100 / later),
            mean_first_ns=pl.col("first_ns").filter(new).mean(),
            mean_repeated_ns=pl.when(repeated > 0).then(pl.col("repeated_ns").filter("later").sum() / repeated),
            dynamic=new.any(),
        )
        .join(steps, on="name")
        .sort("new_shapes", "calls", "name", descending=[True, True, False])
        .select(cast_columns(OPERATORS))
    )
