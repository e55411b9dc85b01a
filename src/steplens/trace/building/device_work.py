"""Device tasks of an accelerator: what launched them, which communicate, and which step each belongs to."""

from __future__ import annotations

import numpy as np
import polars as pl

from steplens.formats.kineto import COPY_CATEGORIES
from steplens.trace.building.communication_marks import LIBRARY_KERNEL
from steplens.trace.building.lookup import enclosing_rows, first_rows
from steplens.trace.building.nesting import Int64Array, Nesting
from steplens.trace.building.steps import step_of
from steplens.trace.health import OPERATOR_DEVICE_TIMES, WARNING, HealthLog
from steplens.trace.schema import (
    COLLECTIVE,
    KIND_COMMUNICATION,
    KIND_COMPUTE,
    KIND_COPY,
    NAME,
    SCHEMA,
    SCOPE_BACKWARD,
    SCOPE_FUNCTION,
)


def with_kind(kernels: pl.DataFrame) -> pl.DataFrame:
    """``kernels`` with the column ``kind``; a source that knows it keeps its own."""
    if "kind" in kernels.columns:
        return kernels
    type_ = pl.col("type").cast(pl.String).fill_null("")
    return kernels.with_columns(
        kind=pl.when(type_.is_in(COPY_CATEGORIES))
        .then(pl.lit(KIND_COPY))
        .when(pl.col("name").cast(pl.String).str.contains(LIBRARY_KERNEL))
        .then(pl.lit(KIND_COMMUNICATION))
        .otherwise(pl.lit(KIND_COMPUTE))
        .cast(NAME)
    )


def link_launches(
    tasks: pl.DataFrame, lane: Int64Array, ops: pl.DataFrame, nesting: Nesting, api: pl.DataFrame | None
) -> pl.DataFrame:
    """Link device tasks (or communication operations) to the call that launched them: the column ``op``.

    Three sources of truth, the first one that a task has wins:

    1. ``launch_ns``, ``launch_pid``, ``launch_tid``: a point on a host thread; the innermost call around it.
    2. ``external_id``, of the task or of the runtime call with its ``correlation``: the call with that id (Kineto).
    3. The start of the runtime call with its ``correlation``: the innermost call around it. Traces that were cut down, or
       whose ids come from several counters, have calls with the id of no operator.

    ``launch_ns`` and ``wait_ns`` (launch to start) are filled from the runtime call where the source does not have them.

    Args:
        tasks: start_ns, end_ns and any of the columns above; shape (n,).
        lane: number of the thread of each call.
        ops: linked calls sorted by thread and start.
        nesting: their nesting.
        api: runtime calls, or None.
    """
    if "op" not in tasks.columns:
        tasks = tasks.with_columns(op=pl.lit(None, dtype=pl.Int32))
    if "launch_tid" in tasks.columns:
        tasks = tasks.with_columns(op=pl.coalesce("op", _ops_around_launches(tasks, lane, ops, nesting)))
    points = None
    if api is not None and "correlation" in tasks.columns and "correlation" in api.columns:
        row = first_rows(api["correlation"], tasks["correlation"])
        points = pl.DataFrame([api[name].gather(row).alias(f"launch_{name}") for name in ("start_ns", "pid", "tid")])
        points = points.rename({"launch_start_ns": "launch_ns"})
        launch = points["launch_ns"]
        tasks = tasks.with_columns(launch_ns=pl.coalesce("launch_ns", launch) if "launch_ns" in tasks.columns else launch)
        if "wait_ns" not in tasks.columns:
            tasks = tasks.with_columns(wait_ns=pl.col("start_ns") - pl.col("launch_ns"))
        if "external_id" in api.columns:
            external = api["external_id"].gather(row)
            linked_op = pl.coalesce("external_id", external) if "external_id" in tasks.columns else external
            tasks = tasks.with_columns(external_id=linked_op)
    if "external_id" in tasks.columns and "external_id" in ops.columns:
        is_operator = ops["scope"].is_in([SCOPE_FUNCTION, SCOPE_BACKWARD])
        row = first_rows(ops["external_id"].set(~is_operator, None), tasks["external_id"])
        tasks = tasks.with_columns(op=pl.coalesce("op", ops["id"].gather(row)))
    if points is not None:
        left = (tasks["op"].is_null() & points["launch_ns"].is_not_null()).arg_true()
        if len(left):
            innermost_ops = _ops_around_launches(points[left], lane, ops, nesting)
            tasks = tasks.with_columns(op=tasks["op"].scatter(left, innermost_ops))
    return tasks


def _ops_around_launches(tasks: pl.DataFrame, lane: Int64Array, ops: pl.DataFrame, nesting: Nesting) -> pl.Series:
    """Id of the innermost call around each task's launch point on its thread, null where there is none."""
    points = tasks.select("launch_ns", "launch_pid", "launch_tid")
    calls: pl.Series = enclosing_rows(points, ops, lane, nesting.parent).cast(pl.Int32)
    return calls


def report_unlinked(kernels: pl.DataFrame, health: HealthLog) -> None:
    """Report the device tasks that have no operator, but for those launched before the recording began, which are said so."""
    tasks = kernels.filter(pl.col("kind").cast(pl.String).is_in([KIND_COMPUTE, KIND_COMMUNICATION]) & pl.col("op").is_null())
    if "launch_ns" in kernels.columns:
        first = kernels.filter(pl.col("launch_ns").is_not_null())["start_ns"].min()
        if first is not None:
            tasks = tasks.filter(pl.col("launch_ns").is_not_null() | (pl.col("start_ns") >= first))
    lost = tasks.height
    if lost:
        message = "device tasks have no operator that launched them"
        health.add("kernels_without_operator", WARNING, lost, message, OPERATOR_DEVICE_TIMES)


def communication_rows(kernels: pl.DataFrame) -> pl.DataFrame:
    """The communication tasks as rows of ``communication``, of a source that tells no more of them than of its other tasks."""
    tasks = kernels.filter(pl.col("kind").cast(pl.String) == KIND_COMMUNICATION)
    columns = [name for name in SCHEMA["communication"] if name in tasks.columns and name not in ("kind", "bytes")]
    return tasks.select(*columns, kind=pl.lit(COLLECTIVE, dtype=NAME))


def device_steps(tasks: list[pl.DataFrame], steps: pl.DataFrame, ops: pl.DataFrame | None) -> list[pl.Series]:
    """Step of each device task by its start, within the steps' ranges on the device.

    An accelerator works behind the host, so a step's range on it is its own: from the start of the first task launched
    during the step to the end of the last one, or to the end of the step on the host if that is later. A step that
    launched nothing keeps its host range. Where ranges overlap, the earlier step has the task.

    Args:
        tasks: frames with start_ns, end_ns and any of launch_ns (host time) and op (the call that launched it).
        steps: id, start_ns, end_ns, sorted by start.
        ops: calls with the column ``step``, or None.

    Returns:
        one column of step ids per frame, null outside all steps.
    """
    first, last = (steps[column].to_numpy().copy() for column in ("start_ns", "end_ns"))
    launched = []
    for frame in tasks:
        launched_in = pl.Series("step", [None], dtype=pl.Int64).new_from_index(0, frame.height)
        if "op" in frame.columns and ops is not None:
            launched_in = ops["step"].gather(frame["op"])
        if "launch_ns" in frame.columns:
            by_time = step_of(frame["launch_ns"].fill_null(-1).to_numpy(), steps)
            launched_in = pl.select(pl.coalesce(by_time, launched_in)).to_series()
        launched.append(frame.select("start_ns", "end_ns", step=launched_in).drop_nulls("step"))
    step_ranges = pl.concat(launched).group_by("step").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    row_of = {step: row for row, step in enumerate(steps["id"].to_list())}
    for step, start, end in step_ranges.iter_rows():
        row = row_of.get(step)
        if row is not None:
            first[row], last[row] = start, max(end, int(last[row]))
    # the first range that ends behind a task's start: ends are made to rise, since a range inside an earlier one never wins
    rising = np.maximum.accumulate(last)
    result = []
    for frame in tasks:
        time: Int64Array = frame["start_ns"].to_numpy()
        row_index = np.searchsorted(rising, time, side="right")
        is_inside = row_index < len(first)
        row_index = np.minimum(row_index, len(first) - 1)
        is_inside &= first[row_index] <= time
        result.append(pl.Series("step", steps["id"].to_numpy()[row_index]).set(pl.Series(~is_inside), None))
    return result
