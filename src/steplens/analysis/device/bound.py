"""Who limits whom: whether the device keeps up with the host or waits for it, per step and per operator."""

from __future__ import annotations

import numpy as np
import polars as pl

from steplens.analysis.device.breakdown import BUSY_KINDS
from steplens.analysis.tools.overlap import Int64Array, length_inside, merge_intervals, merged
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.schema import SCOPE_BACKWARD, SCOPE_FUNCTION
from steplens.trace.trace import Trace

DEVICE, HOST = "device", "host"

#: a step during which the device is busy for at least this share of the time is limited by the device
DEVICE_BOUND_PERCENT = 80.0

STEPS = table_schema(
    "step, duration_ns, busy_ns, busy_percent: Float64, tasks, mean_task_ns: Float64, launches, launching_ns, "
    "launching_percent: Float64, bound: String"
)
OPERATORS = table_schema("name: String, calls, host_ns, device_ns, device_percent: Float64, bound: String")


def bound(trace: Trace, by: str = "step") -> pl.DataFrame:
    """Whether the host or the device limits each step, or each operator.

    Steps, columns as in ``STEPS``:

    * ``busy_ns``: union of the tasks that compute, communicate or copy, all streams together, inside the step's range;
      ``busy_percent``: share of ``duration_ns``; ``bound`` is "device" from 80 % on, else "host";
    * ``tasks``, ``mean_task_ns``: tasks that belong to the step, and their mean device time;
    * ``launches``, ``launching_ns``: runtime calls inside the step that launched a task, and the union of their times on all
      threads; ``launching_percent``: share of the duration. Null where no runtime calls are recorded, as on a CPU.

    Operators, columns as in ``OPERATORS``, most device time first: ``host_ns`` is how long their calls took on the host,
    ``device_ns`` how long the tasks of these calls and of all below them took on the device. On an accelerator an operator is
    bound by the device where its tasks take at least as long as issuing them, so that the device's queue fills. On a CPU the
    calls are the tasks: it is bound by the device unless more than half of them is communication or ranges of the user.
    ``device_percent``: device_ns / host_ns, which exceeds 100 on an accelerator only. Operators without device tasks are left
    out.

    Source: ``steps``, ``kernels``, ``api``, ``ops``; ns.

    Args:
        trace: one rank.
        by: "step" or "operator".

    Raises:
        ValueError: ``by`` is neither.
    """
    if by not in ("step", "operator"):
        raise ValueError(f'bound(by={by!r}): by must be "step" or "operator"')
    return _bound_of_steps(trace) if by == "step" else _bound_of_operators(trace)


def _bound_of_steps(trace: Trace) -> pl.DataFrame:
    steps = trace.required("steps").select(step="id", start_ns="start_ns", end_ns="end_ns").collect()
    if steps.is_empty():
        return pl.DataFrame(schema=STEPS)
    start, end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    columns = ["start_ns", "end_ns", "self_ns", "step", "correlation"]
    tasks = trace.required("kernels").filter(pl.col("kind").cast(pl.String).is_in(BUSY_KINDS)).select(columns).collect()
    busy = length_inside(merged(tasks), start, end)
    length = pl.col("end_ns") - pl.col("start_ns")
    tasks_of_step = (
        tasks.drop_nulls("step").group_by("step").agg(tasks=pl.len().cast(pl.Int64), mean_task_ns=pl.col("self_ns").mean())
    )
    step_rows = steps.join(tasks_of_step, on="step", how="left").with_columns(duration_ns=length, busy_ns=pl.Series(busy))
    step_rows = step_rows.with_columns(**_launches_per_step(trace, tasks, start, end), tasks=pl.col("tasks").fill_null(0))
    percent = pl.col("busy_ns") * 100 / pl.col("duration_ns")
    return (
        step_rows.with_columns(
            busy_percent=pl.when(pl.col("duration_ns") > 0).then(percent),
            launching_percent=pl.when(pl.col("duration_ns") > 0).then(pl.col("launching_ns") * 100 / pl.col("duration_ns")),
        )
        .with_columns(bound=_limiting_side(pl.col("busy_percent") >= DEVICE_BOUND_PERCENT))
        .sort("start_ns")
        .select(cast_columns(STEPS))
    )


def _launches_per_step(trace: Trace, tasks: pl.DataFrame, start: Int64Array, end: Int64Array) -> dict[str, pl.Series | pl.Expr]:
    """Number and time of the launches in each step."""
    calls = trace.required("api").filter(pl.col("correlation") > 0).select("start_ns", "end_ns", "correlation").collect()
    calls = calls.join(tasks.select("correlation").unique(), on="correlation", how="semi").sort("start_ns")
    if calls.is_empty():
        missing = pl.lit(None, dtype=pl.Int64)
        return {"launches": missing, "launching_ns": missing}
    begins = calls["start_ns"].to_numpy()
    count = np.searchsorted(begins, end, side="left") - np.searchsorted(begins, start, side="left")
    return {
        "launches": pl.Series(count),
        "launching_ns": pl.Series(length_inside(merge_intervals(begins, calls["end_ns"].to_numpy()), start, end)),
    }


def _bound_of_operators(trace: Trace) -> pl.DataFrame:
    on_accelerator = trace.has_accelerator
    counted = (pl.col("counted_as") == pl.col("id")) & pl.col("scope").is_in([SCOPE_FUNCTION, SCOPE_BACKWARD])
    groups = (
        trace.required("ops")
        .filter(counted & (pl.col("device_total_ns") > 0))
        .group_by("name")
        .agg(
            calls=pl.len().cast(pl.Int64),
            host_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
            device_ns=pl.col("device_total_ns").sum(),
        )
        .with_columns(pl.col("name").cast(pl.String))
        .collect()
    )
    parts = 1 if on_accelerator else 2
    return (
        groups.with_columns(
            device_percent=pl.when(pl.col("host_ns") > 0).then(pl.col("device_ns") * 100 / pl.col("host_ns")),
            bound=_limiting_side(parts * pl.col("device_ns") >= pl.col("host_ns")),
        )
        .sort("device_ns", "name", descending=[True, False])
        .select(cast_columns(OPERATORS))
    )


def _limiting_side(by_device: pl.Expr) -> pl.Expr:
    return pl.when(by_device).then(pl.lit(DEVICE)).when(~by_device).then(pl.lit(HOST))
