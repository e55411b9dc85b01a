"""The step trace: how long each step waited for its data, ran forward and backward, and updated the parameters.

A step from ``start`` to ``end`` has two points: the start of its first forward operator and the end of its last backward
operator. *Interval* lies before the first, *forward and backward* between them, *tail* behind the second. On a device that
runs behind the host all four are times of the device: a step ends with its last work, and the next one starts there.

A user may name the operators: for one question by the arguments of ``step_trace``; for all of them by environment variables
(``step_points``), when the training is recorded or when it is analysed.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl

from steplens.analysis.steps.choice import chosen_steps
from steplens.analysis.steps.device import device_periods
from steplens.analysis.steps.phases import BACKWARD, FORWARD, phase_of_calls
from steplens.analysis.tools.names import containing, distinct, with_prefix
from steplens.analysis.tools.order import in_order
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.common.step_points import BACKWARD_POINT, FORWARD_POINT, named_points
from steplens.trace.building.devices import cpu_is_device
from steplens.trace.building.lookup import first_rows
from steplens.trace.schema import COLLECTIVE, GRADIENTS_PREFIX, GRAPH_OPTIMIZER, KIND_COMPUTE
from steplens.trace.trace import Trace

PARTS = ("total_ns", "interval_ns", "forward_backward_ns", "tail_ns")
_TICK_NS = 10
_GET_NEXT = r"(?i)get_?next"
_ALL_REDUCE = r"(?i)all_?reduce"

COLUMNS = table_schema("step, start_ns, forward_ns, backward_ns, end_ns, total_ns, interval_ns, forward_backward_ns, tail_ns")


@dataclass(frozen=True)
class StepAverages:
    """Averages over steps, and over which.

    Attributes:
        parts: one row per part (``PARTS``): part, mean_ns, median_ns, p90_ns, share (of the mean total), steps (how many
            have it).
        collectives: one row per collective of a step: stream, index, name, start_ns (mean, from the start of the step),
            duration_ns (mean), steps (how many have it). Steps without it do not count.
        steps: the steps that count.
        excluded: the steps that do not: what recording cut, and warm-up.
    """

    parts: pl.DataFrame
    collectives: pl.DataFrame
    steps: tuple[int, ...]
    excluded: tuple[int, ...]


@dataclass(frozen=True)
class NamedPoints:
    """The operators that a user names as the points of every step.

    Attributes:
        forward: full name of the first forward operator, or its last parts; None where nobody named one that ran.
        backward: the same of the last backward operator.
        absent: names that no operator of the steps has; they move nothing.
    """

    forward: str | None = None
    backward: str | None = None
    absent: tuple[str, ...] = ()


def points_of(trace: Trace) -> NamedPoints:
    """The points that the environment of this process names, else those that were named when the trace was recorded."""
    recorded_options = map(trace.meta_value, ("config", "profiling_options"))
    options: dict[str, Any] = next((options for options in recorded_options if isinstance(options, dict)), {})
    candidates = [
        name or (value if isinstance(value := options.get(option), str) and value else None)
        for name, option in zip(named_points(os.environ), (FORWARD_POINT, BACKWARD_POINT), strict=True)
    ]
    if not any(candidates):
        return NamedPoints()
    names = distinct(_tasks_of_steps(trace)["name"])
    forward, backward = (name if name is not None and _names_of_point(names, name) else None for name in candidates)
    return NamedPoints(
        forward, backward, tuple(name for name in candidates if name is not None and not _names_of_point(names, name))
    )


def step_trace(trace: Trace, *, forward_point: str | None = None, backward_point: str | None = None) -> pl.DataFrame:
    """The step trace, one row per step in order of time; columns as in ``COLUMNS``, ns.

    1. A point that is named, by an argument or else as ``points_of`` says, is the start of the first task of that name in the
       step (forward), or the end of the last one (backward). The other point stays where it is without the name.
    2. Points that the device recorded (``step_points``) are taken.
    3. Else the forward point of a step is the start of the first task of its forward pass behind its first GetNext, and the
       backward point the end of the last task before its last all-reduce; where there is no all-reduce, the end of the last
       task of the backward pass. What belongs to the forward pass: ``_is_forward``.
    4. ``interval_ns`` = forward - start, ``forward_backward_ns`` = backward - forward, ``tail_ns`` = end - backward,
       ``total_ns`` = end - start. Parts whose point a step lacks are null, and so are those whose named points stand in another
       order.
    5. Where the device runs behind the host, a step ends with the last work that it launched, and starts where the one before
       it ended; the first one, and one behind a gap in the numbers, starts with its own first work, so that how long it waited
       is not known. Elsewhere start and end are those of the step's range.

    Args:
        trace: one rank.
        forward_point: full name of the first forward operator, or its last parts (``conv1-Conv2d/Conv2D-op3``).
        backward_point: the same of the last backward operator.
    """
    named = points_of(trace)
    forward_point, backward_point = forward_point or named.forward, backward_point or named.backward
    if forward_point is None and backward_point is None:
        return trace.once(_default_step_trace)
    points = trace.once(_default_step_trace)
    if not points.height:
        return points
    tasks = _tasks_of_steps(trace)
    for column, point, time in (("forward_ns", forward_point, "start_ns"), ("backward_ns", backward_point, "end_ns")):
        if point is not None:
            of_name = tasks.filter(pl.col("name").is_in(_names_of_point(distinct(tasks["name"]), point)))
            moved = pl.col(time).min() if column == "forward_ns" else pl.col(time).max()
            points = points.drop(column).join(of_name.group_by("step").agg(moved.alias(column)), on="step", how="left")
    return _add_part_lengths(points)


def _default_step_trace(trace: Trace) -> pl.DataFrame:
    """The step trace without what a user names."""
    recorded = trace.step_points
    if recorded is not None:
        return _add_part_lengths(_training_points(recorded))
    return pl.DataFrame(schema=COLUMNS) if trace.steps is None else _add_part_lengths(_points_from_tasks(trace, trace.steps))


def _add_part_lengths(points: pl.DataFrame) -> pl.DataFrame:
    forward, backward = pl.col("forward_ns"), pl.col("backward_ns")
    return (
        points.sort("start_ns")
        .with_columns(
            total_ns=pl.col("end_ns") - pl.col("start_ns"),
            interval_ns=_length_between(pl.col("start_ns"), forward),
            forward_backward_ns=_length_between(forward, backward),
            tail_ns=_length_between(backward, pl.col("end_ns")),
        )
        .select(cast_columns(COLUMNS))
    )


def _length_between(start: pl.Expr, end: pl.Expr) -> pl.Expr:
    return pl.when(end >= start).then(end - start)


def _training_points(points: pl.DataFrame) -> pl.DataFrame:
    """Points of the model that trains: the one with the most steps; others fill queues or initialise."""
    models = points.group_by("model_id").agg(pl.len(), last=pl.col("end_ns").max()).sort("len", "last", descending=True)
    mine = points.join(models.head(1).select("model_id"), on="model_id", how="semi", nulls_equal=True)
    return mine.unique("step", keep="first", maintain_order=True)


def _points_from_tasks(trace: Trace, steps: pl.DataFrame) -> pl.DataFrame:
    tasks = _tasks_of_steps(trace)
    computes = _is_forward(trace, tasks) & ~tasks["takes_data"]
    first_forward = tasks.filter(computes)
    if tasks["takes_data"].any():
        forward = pl.col("start_ns") >= pl.col("start_ns").filter(pl.col("takes_data")).min().over("step")
        first_forward = tasks.filter(computes & tasks.select(forward.fill_null(True)).to_series())
    reduces = (
        trace.required("communication")
        .filter((pl.col("kind").cast(pl.String) == COLLECTIVE) & _is_all_reduce())
        .group_by("step")
        .agg(last_reduce_ns=pl.col("start_ns").max())
        .collect()
    )
    if reduces.height:
        joined = tasks.join(reduces, on="step", how="left", maintain_order="left")
        before = pl.col("start_ns") < pl.col("last_reduce_ns")
        if joined["last_reduce_ns"].null_count():
            before = pl.when(pl.col("last_reduce_ns").is_not_null()).then(before).otherwise(pl.lit(_is_backward(trace, tasks)))
        last_backward = joined.lazy().filter(before).select("step", "start_ns", "end_ns").collect()
    else:
        last_backward = tasks.filter(_is_backward(trace, tasks))
    points = _device_ranges(trace)
    if points is None:
        points = steps.select(step="id", start_ns="start_ns", end_ns="end_ns")
    points = points.join(first_forward.group_by("step").agg(forward_ns=pl.col("start_ns").min()), on="step", how="left")
    # tasks of the CPU nest: the last one to begin ends before those around it
    end = pl.col("end_ns").max() if cpu_is_device(trace) else pl.col("end_ns").last()
    ends = in_order(last_backward.select("step", "start_ns", "end_ns"), "start_ns").group_by("step").agg(backward_ns=end)
    # on several streams a step may begin before the one in front of it has ended
    clipped = (pl.max_horizontal(pl.col(name), pl.col("start_ns")).alias(name) for name in ("forward_ns", "backward_ns"))
    points_and_ends = points.join(ends, on="step", how="left")
    return points_and_ends.with_columns(
        pl.when(pl.col(column.meta.output_name()).is_not_null()).then(column) for column in clipped
    )


def _device_ranges(trace: Trace) -> pl.DataFrame | None:
    """From when to when the device worked on each step: step, start_ns, end_ns; None where it does not run behind the host.

    Steps of which the device was not recorded are left out.
    """
    if not trace.has_accelerator:
        return None
    steps = trace.required("steps").select(step="id", host_start_ns="start_ns").collect()
    periods = device_periods(trace).select("step", "start_ns", "last_work_ns", "recorded")
    ranges = steps.join(periods.filter("recorded"), on="step").sort("host_start_ns")
    if ranges["start_ns"].equals(ranges["host_start_ns"]):
        return None
    end = pl.col("last_work_ns").cum_max()
    follows = pl.col("step") - pl.col("step").shift() == 1
    start = pl.when(follows).then(end.shift()).otherwise(pl.col("start_ns"))
    return ranges.select("step", start_ns=pl.min_horizontal(start, end), end_ns=end)


def _tasks_of_steps(trace: Trace) -> pl.DataFrame:
    """Computing tasks of steps: step, start_ns, end_ns, name, op, takes_data."""
    is_computing = (pl.col("kind") == KIND_COMPUTE) & pl.col("step").is_not_null()
    tasks = trace.required("kernels").filter(is_computing).select("step", "start_ns", "end_ns", "name", "op").collect()
    return tasks.with_columns(takes_data=pl.col("name").is_in(containing(distinct(tasks["name"]), _GET_NEXT)))


def _is_backward(trace: Trace, tasks: pl.DataFrame) -> pl.Series:
    """Which of the tasks are of the backward pass; true, false or null of a task without a name."""
    backward = pl.col("name").is_in(with_prefix(distinct(tasks["name"]), GRADIENTS_PREFIX))
    if trace.ops is not None:
        # what a node of autograd calls is as much of the backward pass as the node itself
        calls = first_rows(trace.required("ops").select("id").collect()["id"], tasks["op"])
        within = (phase_of_calls(trace) == BACKWARD).gather(calls).fill_null(False)
        backward |= pl.lit(within)
    return tasks.select(backward=backward).to_series()


def _is_forward(trace: Trace, tasks: pl.DataFrame) -> pl.Series:
    """Which of the tasks may be of the forward pass.

    Not of it are tasks of a graph's ``Gradients`` and of its optimizer, and what was called outside of the forward phases.
    """
    task_names = distinct(tasks["name"])
    not_forward = with_prefix(task_names, GRADIENTS_PREFIX) + containing(task_names, re.escape(GRAPH_OPTIMIZER))
    forward = ~tasks["name"].is_in(not_forward).fill_null(False)
    if trace.ops is None:
        return forward
    calls = first_rows(trace.required("ops").select("id").collect()["id"], tasks["op"])
    return forward & (phase_of_calls(trace) == FORWARD).gather(calls).fill_null(True)


def _names_of_point(names: pl.Series, point: str) -> list[str]:
    """Those of ``distinct`` names that a point names."""
    matching_names: list[str] = names.filter((names == point) | names.str.ends_with("/" + point)).to_list()
    return matching_names


def _is_all_reduce() -> pl.Expr:
    is_named = pl.col("name").cast(pl.String).str.contains(_ALL_REDUCE)
    return is_named | pl.col("operation").cast(pl.String).str.contains(_ALL_REDUCE).fill_null(False)


def step_collectives(trace: Trace) -> pl.DataFrame:
    """Collectives of the steps that ``step_trace`` has, as the device recorded their points; rows of ``step_collectives``."""
    recorded = trace.required("step_collectives").collect()
    if trace.step_points is None:
        return recorded
    mine = _training_points(trace.step_points).select("step", "model_id")
    return recorded.join(mine, on=["step", "model_id"], how="semi", nulls_equal=True)


def step_parts(source: Trace | pl.DataFrame, step: int) -> dict[str, Any]:
    """The row of ``step_trace`` of one step.

    Args:
        source: one rank, or its ``step_trace`` where the caller has it.
        step: its number.

    Raises:
        ValueError: the run has no such step; the message says which it has.
    """
    table = source if isinstance(source, pl.DataFrame) else step_trace(source)
    step_row = table.filter(pl.col("step") == step)
    if not step_row.height:
        steps = table["step"]
        steps_text = f"steps {steps[0]} to {steps[-1]}" if table.height else "no steps"
        raise ValueError(f"there is no step {step}; the run has {steps_text}")
    return step_row.row(0, named=True)


def averages(trace: Trace, *, steps: pl.DataFrame | None = None, collectives: pl.DataFrame | None = None) -> StepAverages:
    """Averages of the step trace over the steps that all figures of a run are of (``chosen_steps``).

    Stamps are never averaged: times of collectives count from the start of their own step, and only steps that have a
    collective count for it.

    Args:
        trace: one rank.
        steps: of ``step_trace`` where the caller has it.
        collectives: of the steps; those of ``step_collectives`` by default.
    """
    step_rows = step_trace(trace) if steps is None else steps
    counted = step_rows.filter(pl.col("step").is_in(chosen_steps(trace).steps))
    if not counted.height:
        counted = step_rows
    total = counted["total_ns"].mean()
    rows = [
        {
            "part": part,
            "mean_ns": counted[part].mean(),
            "median_ns": counted[part].median(),
            "p90_ns": counted[part].quantile(0.9, "linear"),
            "share": _share_of_total(counted[part].mean(), total),
            "steps": counted[part].count(),
        }
        for part in PARTS
    ]
    schema = {"part": pl.String, **dict.fromkeys(("mean_ns", "median_ns", "p90_ns", "share"), pl.Float64), "steps": pl.Int64}
    collective_rows = step_collectives(trace) if collectives is None else collectives
    counted_collectives = collective_rows.join(counted.select("step", step_start="start_ns"), on="step")
    means = (
        counted_collectives.group_by("stream", "index", pl.col("name").cast(pl.String))
        .agg(
            start_ns=(pl.col("start_ns") - pl.col("step_start")).mean(),
            duration_ns=(pl.col("end_ns") - pl.col("start_ns")).mean(),
            steps=pl.len(),
        )
        .sort("stream", "index", "name")
    )
    ids = tuple(counted["step"].to_list())
    other_steps = tuple(step for step in step_rows["step"].to_list() if step not in set(ids))
    return StepAverages(pl.DataFrame(rows, schema=schema), means, ids, other_steps)


def part_averages(trace: Trace) -> pl.DataFrame:
    """The averages of the parts alone; see ``StepAverages``."""
    return averages(trace).parts


def _share_of_total(part: object, total: object) -> float | None:
    if not isinstance(part, float) or not isinstance(total, float) or total <= 0:
        return None
    return part / total


_POINTS = {"start_point": "start_ns", "end_point": "end_ns", "fp_point": "forward_ns", "bp_point": "backward_ns"}
_DETAIL_COLUMNS = ("start_point", "end_point", "total", "fp_point", "bp_point", "iteration_interval", "fp_and_bp", "tail")


def detail_table(trace: Trace, *, average_from: int = 1) -> pl.DataFrame:
    """The step trace as ``step_trace_raw_<rank>_detail_time.csv`` has it: counts of 10 ns, 0 for what a step lacks.

    The last row, ``step_num`` "-", holds the column means, rounded half to even; the first readers of these files took them
    over all cells, zeros of absent collectives included, which makes the means of collective columns worthless there.
    ``averages`` has the right ones. Of a step without one of its points, the point and what it bounds are 0, and no part of
    the means.

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
    step_columns = steps.select("step", **points, **parts).select("step", *_DETAIL_COLUMNS)
    table = step_columns.fill_null(0)
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
    counted = table.with_columns(step_columns.drop("step")).slice(average_from if table.height > average_from else 0)
    means = {name: _rounded_mean(counted[name].drop_nulls()) for name in table.columns[1:]}
    last = pl.DataFrame({"step_num": ["-"], **{name: [value] for name, value in means.items()}})
    return pl.concat([table.select(pl.col("step").cast(pl.String).alias("step_num"), pl.exclude("step")), last])


def _rounded_mean(counts: pl.Series) -> int:
    return round(Fraction(sum(counts.to_list()), len(counts))) if len(counts) else 0
