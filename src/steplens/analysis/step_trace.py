"""The step trace: how long each step waited for its data, ran forward and backward, and updated the parameters.

A step from ``start`` to ``end`` has two points: the start of its first forward operator and the end of its last backward
operator. *Interval* lies before the first, *forward and backward* between them, *tail* behind the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import polars as pl

from steplens.analysis.names import containing, distinct, with_prefix
from steplens.analysis.order import in_order
from steplens.analysis.phases import BACKWARD, phase_of_calls
from steplens.trace.lookup import first_rows
from steplens.trace.schema import COLLECTIVE, GRADIENTS_PREFIX, KIND_COMPUTE
from steplens.trace.trace import Trace

#: environment variables that name the points, the first of a pair wins
FORWARD_POINT_VARIABLES = ("FP_POINT", "PROFILING_FP_START")
BACKWARD_POINT_VARIABLES = ("BP_POINT", "PROFILING_BP_END")

#: the first step of a run compiles and fills queues
WARM_UP_STEPS = 1

PARTS = ("total_ns", "interval_ns", "forward_backward_ns", "tail_ns")
_TICK_NS = 10
_GET_NEXT = r"(?i)get_?next"
_ALL_REDUCE = r"(?i)all_?reduce"

COLUMNS = {
    "step": pl.Int64,
    "start_ns": pl.Int64,
    "forward_ns": pl.Int64,
    "backward_ns": pl.Int64,
    "end_ns": pl.Int64,
    "total_ns": pl.Int64,
    "interval_ns": pl.Int64,
    "forward_backward_ns": pl.Int64,
    "tail_ns": pl.Int64,
}


@dataclass(frozen=True)
class StepAverages:
    """Averages over steps, and over which.

    Attributes:
        parts: one row per part (``PARTS``): part, mean_ns, median_ns, p90_ns, share (of the mean total), steps (how many
            have it).
        collectives: one row per collective of a step: stream, index, name, start_ns (mean, from the start of the step),
            duration_ns (mean), steps (how many have it). Steps without it do not count.
        steps: the steps that count.
        excluded: the steps that do not: warm-up.
    """

    parts: pl.DataFrame
    collectives: pl.DataFrame
    steps: tuple[int, ...]
    excluded: tuple[int, ...]


def named_points(environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The forward and the backward point that environment variables name; None where they name none."""
    found = (
        next((environment[name] for name in names if environment.get(name)), None)
        for names in (FORWARD_POINT_VARIABLES, BACKWARD_POINT_VARIABLES)
    )
    forward, backward = found
    return forward, backward


def step_trace(trace: Trace, *, forward_point: str | None = None, backward_point: str | None = None) -> pl.DataFrame:
    """The step trace, one row per step in order of time; columns as in ``COLUMNS``, ns.

    1. Points that the device recorded (``step_points``) are taken, unless the caller names operators.
    2. Else the forward point of a step is the start of the first task behind its first GetNext (of its first task where
       there is none), and the backward point the end of the last task before its last all-reduce; where there is no
       all-reduce, the end of the last task of the backward pass.
    3. ``interval_ns`` = forward - start, ``forward_backward_ns`` = backward - forward, ``tail_ns`` = end - backward,
       ``total_ns`` = end - start. Parts whose point a step lacks are null.

    Args:
        trace: one rank.
        forward_point: full name of the first forward operator, or its last parts (``conv1-Conv2d/Conv2D-op3``).
        backward_point: the same of the last backward operator.
    """
    if forward_point is None and backward_point is None:
        return trace.once(_unnamed)
    return _step_trace(trace, forward_point, backward_point)


def _unnamed(trace: Trace) -> pl.DataFrame:
    return _step_trace(trace, None, None)


def _step_trace(trace: Trace, forward_point: str | None, backward_point: str | None) -> pl.DataFrame:
    recorded = trace.step_points
    if recorded is not None and forward_point is None and backward_point is None:
        points = _training(recorded)
    elif trace.steps is not None:
        points = _found(trace, trace.steps, forward_point, backward_point)
    else:
        return pl.DataFrame(schema=COLUMNS)
    forward, backward = pl.col("forward_ns"), pl.col("backward_ns")
    return (
        points.sort("start_ns")
        .with_columns(
            total_ns=pl.col("end_ns") - pl.col("start_ns"),
            interval_ns=forward - pl.col("start_ns"),
            forward_backward_ns=backward - forward,
            tail_ns=pl.col("end_ns") - backward,
        )
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
    )


def _training(points: pl.DataFrame) -> pl.DataFrame:
    """Points of the model that trains: the one with the most steps; others fill queues or initialise."""
    models = points.group_by("model_id").agg(pl.len(), last=pl.col("end_ns").max()).sort("len", "last", descending=True)
    mine = points.join(models.head(1).select("model_id"), on="model_id", how="semi", nulls_equal=True)
    return mine.unique("step", keep="first", maintain_order=True)


def _found(trace: Trace, steps: pl.DataFrame, forward_point: str | None, backward_point: str | None) -> pl.DataFrame:
    tasks = _tasks(trace)
    name = pl.col("name")
    first_forward = tasks.filter(~pl.col("takes_data"))
    if tasks["takes_data"].any():
        forward = pl.col("start_ns") >= pl.col("start_ns").filter(pl.col("takes_data")).min().over("step")
        first_forward = tasks.filter(~pl.col("takes_data") & forward.fill_null(True))
    if forward_point is not None:
        first_forward = tasks.filter(_is_point(name, forward_point))
    reduces = (
        trace.required("communication")
        .filter((pl.col("kind").cast(pl.String) == COLLECTIVE) & _is_all_reduce())
        .group_by("step")
        .agg(last_reduce_ns=pl.col("start_ns").max())
        .collect()
    )
    if backward_point is not None:
        last_backward = tasks.filter(_is_point(name, backward_point))
    elif reduces.height:
        joined = tasks.join(reduces, on="step", how="left", maintain_order="left")
        before = pl.col("start_ns") < pl.col("last_reduce_ns")
        if joined["last_reduce_ns"].null_count():
            before = pl.when(pl.col("last_reduce_ns").is_not_null()).then(before).otherwise(pl.lit(_backward(trace, tasks)))
        last_backward = joined.lazy().filter(before).select("step", "start_ns", "end_ns").collect()
    else:
        last_backward = tasks.filter(_backward(trace, tasks))
    points = steps.select(step="id", start_ns="start_ns", end_ns="end_ns")
    points = points.join(first_forward.group_by("step").agg(forward_ns=pl.col("start_ns").min()), on="step", how="left")
    ends = (
        in_order(last_backward.select("step", "start_ns", "end_ns"), "start_ns")
        .group_by("step")
        .agg(backward_ns=pl.col("end_ns").last())
    )
    return points.join(ends, on="step", how="left")


def _tasks(trace: Trace) -> pl.DataFrame:
    """Computing tasks of steps: step, start_ns, end_ns, name, op, takes_data."""
    own = (pl.col("kind") == KIND_COMPUTE) & pl.col("step").is_not_null()
    tasks = trace.required("kernels").filter(own).select("step", "start_ns", "end_ns", "name", "op").collect()
    return tasks.with_columns(takes_data=pl.col("name").is_in(containing(distinct(tasks["name"]), _GET_NEXT)))


def _backward(trace: Trace, tasks: pl.DataFrame) -> pl.Series:
    """Which of the tasks are of the backward pass; true, false or null of a task without a name."""
    backward = pl.col("name").is_in(with_prefix(distinct(tasks["name"]), GRADIENTS_PREFIX))
    if trace.ops is not None:
        # what a node of autograd calls is as much of the backward pass as the node itself
        calls = first_rows(trace.required("ops").select("id").collect()["id"], tasks["op"])
        within = (phase_of_calls(trace) == BACKWARD).gather(calls).fill_null(False)
        backward |= pl.lit(within)
    return tasks.select(backward=backward).to_series()


def _is_point(name: pl.Expr, point: str) -> pl.Expr:
    name = name.cast(pl.String)
    return (name == point) | name.str.ends_with("/" + point)


def _is_all_reduce() -> pl.Expr:
    named = pl.col("name").cast(pl.String).str.contains(_ALL_REDUCE)
    return named | pl.col("operation").cast(pl.String).str.contains(_ALL_REDUCE).fill_null(False)


def step_collectives(trace: Trace) -> pl.DataFrame:
    """Collectives of the steps that ``step_trace`` has, as the device recorded their points; rows of ``step_collectives``."""
    recorded = trace.required("step_collectives").collect()
    if trace.step_points is None:
        return recorded
    mine = _training(trace.step_points).select("step", "model_id")
    return recorded.join(mine, on=["step", "model_id"], how="semi", nulls_equal=True)


def averages(
    trace: Trace,
    *,
    warm_up: int = WARM_UP_STEPS,
    steps: pl.DataFrame | None = None,
    collectives: pl.DataFrame | None = None,
) -> StepAverages:
    """Averages of the step trace, without warm-up.

    Stamps are never averaged: times of collectives count from the start of their own step, and only steps that have a
    collective count for it.

    Args:
        trace: one rank.
        warm_up: first steps to leave out; a run that has no more steps than that is averaged whole.
        steps: of ``step_trace`` where the caller has it.
        collectives: of the steps; those of ``step_collectives`` by default.
    """
    found = step_trace(trace) if steps is None else steps
    skipped = warm_up if found.height > warm_up else 0
    counted = found.slice(skipped)
    total = counted["total_ns"].mean()
    rows = [
        {
            "part": part,
            "mean_ns": counted[part].mean(),
            "median_ns": counted[part].median(),
            "p90_ns": counted[part].quantile(0.9, "linear"),
            "share": _share(counted[part].mean(), total),
            "steps": counted[part].count(),
        }
        for part in PARTS
    ]
    schema = {"part": pl.String, **dict.fromkeys(("mean_ns", "median_ns", "p90_ns", "share"), pl.Float64), "steps": pl.Int64}
    known = step_collectives(trace) if collectives is None else collectives
    counted_collectives = known.join(counted.select("step", step_start="start_ns"), on="step")
    means = (
        counted_collectives.group_by("stream", "index", pl.col("name").cast(pl.String))
        .agg(
            start_ns=(pl.col("start_ns") - pl.col("step_start")).mean(),
            duration_ns=(pl.col("end_ns") - pl.col("start_ns")).mean(),
            steps=pl.len(),
        )
        .sort("stream", "index", "name")
    )
    ids = tuple(found["step"].to_list())
    return StepAverages(pl.DataFrame(rows, schema=schema), means, ids[skipped:], ids[:skipped])


def _share(part: object, total: object) -> float | None:
    if not isinstance(part, float) or not isinstance(total, float) or total <= 0:
        return None
    return part / total


_POINTS = {"start_point": "start_ns", "end_point": "end_ns", "fp_point": "forward_ns", "bp_point": "backward_ns"}
_DETAIL_COLUMNS = ("start_point", "end_point", "total", "fp_point", "bp_point", "iteration_interval", "fp_and_bp", "tail")


def detail_table(trace: Trace, *, average_from: int = 1) -> pl.DataFrame:
    """The step trace as ``step_trace_raw_<rank>_detail_time.csv`` has it: counts of 10 ns, 0 for what a step lacks.

    The last row, ``step_num`` "-", holds the column means, rounded half to even; the first readers of these files took them
    over all cells, zeros of absent collectives included, which makes the means of collective columns worthless there.
    ``averages`` has the right ones. Of a step without backward point, bp_point, fp_and_bp and tail are 0.

    Args:
        trace: one rank.
        average_from: first step (place, from 0) of the means; 1 leaves the first step out unless it is the only one.
    """
    steps = step_trace(trace)
    points = {name: pl.col(source) // _TICK_NS for name, source in _POINTS.items()}
    # of the counts, not of the ns, so that a row adds up
    parts = {
        "total": points["end_point"] - points["start_point"],
        "iteration_interval": points["fp_point"] - points["start_point"],
        "fp_and_bp": points["bp_point"] - points["fp_point"],
        "tail": points["end_point"] - points["bp_point"],
    }
    table = steps.select("step", **points, **parts).fill_null(0).select("step", *_DETAIL_COLUMNS)
    # the start of the first step is its forward point: nothing tells how long it waited
    collectives = step_collectives(trace)
    added: list[pl.Series] = []
    row_of = {step: row for row, step in enumerate(table["step"].to_list())}
    for (stream, index), rows in sorted(collectives.partition_by("stream", "index", as_dict=True).items()):
        name = f"stream_{stream}_parallel_{index}"
        once = rows.unique("step", keep="first", maintain_order=True).filter(pl.col("step").is_in(list(row_of)))
        place = [row_of[step] for step in once["step"].to_list()]
        start, end = once["start_ns"].to_numpy() // _TICK_NS, once["end_ns"].to_numpy() // _TICK_NS
        for column, values in ((f"{name}_start_point", start), (f"{name}_end_point", end), (name, end - start)):
            cells = np.zeros(table.height, dtype=np.int64)
            cells[place] = values
            added.append(pl.Series(column, cells))
    table = table.with_columns(added)
    if not table.height:
        return table.rename({"step": "step_num"}).with_columns(pl.col("step_num").cast(pl.String))
    counted = table.slice(average_from if table.height > average_from else 0)
    means = {name: round(Fraction(sum(counted[name].to_list()), counted.height)) for name in table.columns[1:]}
    last = pl.DataFrame({"step_num": ["-"], **{name: [value] for name, value in means.items()}})
    return pl.concat([table.select(pl.col("step").cast(pl.String).alias("step_num"), pl.exclude("step")), last])
