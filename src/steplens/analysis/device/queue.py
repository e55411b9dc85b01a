"""Launches and the queues they fill: how long a launch takes the host, how long a task waits, how many tasks wait."""

from __future__ import annotations

import polars as pl

from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.schema import KIND_OTHER
from steplens.trace.trace import Trace

#: a launching call that takes longer is an outlier: it allocated, loaded code, or waited for a full queue
LONG_LAUNCH_NS = 50_000
#: a task that starts later after its launch waited behind others
LONG_DELAY_NS = 100_000

_QUEUE_SUMMARY = table_schema(
    "device: Int32, stream, changes, mean: Float64, std: Float64, min, median: Float64, max, time_mean: Float64, "
    "empty_percent: Float64"
)


def launches(trace: Trace) -> pl.DataFrame:
    """Every device task with the runtime call that launched it, in order of launch; tasks without a known call are left out.

    Source: ``kernels`` and ``api``, joined by correlation; of several calls with one correlation the first. A call that
    launches several tasks (a graph) is there once per task.

    Returns:
        call (name of the runtime call), name, kind, device, stream, correlation, launch_ns (start of the call),
        launch_duration_ns, task_duration_ns, delay_ns (end of the call to start of the task; negative where the task
        started while the call was still running), wait_ns (start of the call to start of the task).
    """
    calls = (
        trace.required("api")
        .filter(pl.col("correlation") > 0)
        .unique("correlation", keep="first", maintain_order=True)
        .select("correlation", call="name", launch_ns="start_ns", returned_ns="end_ns")
    )
    tasks = trace.required("kernels").select("name", "kind", "device", "stream", "correlation", "start_ns", "end_ns")
    return (
        tasks.join(calls, on="correlation", how="inner")
        .select(
            "call",
            "name",
            "kind",
            "device",
            "stream",
            "correlation",
            "launch_ns",
            launch_duration_ns=pl.col("returned_ns") - pl.col("launch_ns"),
            task_duration_ns=pl.col("end_ns") - pl.col("start_ns"),
            delay_ns=pl.col("start_ns") - pl.col("returned_ns"),
            wait_ns=pl.col("start_ns") - pl.col("launch_ns"),
        )
        .sort("launch_ns", "correlation")
        .collect()
    )


def launch_statistics(trace: Trace, *, long_launch_ns: int = LONG_LAUNCH_NS, long_delay_ns: int = LONG_DELAY_NS) -> pl.DataFrame:
    """Launching by the name of the runtime call, the most frequent first.

    Source: ``launches``. Times in ns; means are arithmetic means over tasks.

    Args:
        trace: one rank.
        long_launch_ns: from which duration on a launching call is an outlier.
        long_delay_ns: from which delay on a task is.

    Returns:
        call, tasks, launch_total_ns, launch_mean_ns, launch_max_ns, delay_mean_ns, delay_max_ns (negative delays count as
        0), short_tasks (tasks that took less time than launching them), long_launches, long_delays.
    """
    delay = pl.col("delay_ns").clip(lower_bound=0)
    return (
        launches(trace)
        .group_by("call")
        .agg(
            tasks=pl.len().cast(pl.Int64),
            launch_total_ns=pl.col("launch_duration_ns").sum(),
            launch_mean_ns=pl.col("launch_duration_ns").mean(),
            launch_max_ns=pl.col("launch_duration_ns").max(),
            delay_mean_ns=delay.mean(),
            delay_max_ns=delay.max(),
            short_tasks=(pl.col("task_duration_ns") < pl.col("launch_duration_ns")).sum().cast(pl.Int64),
            long_launches=(pl.col("launch_duration_ns") > long_launch_ns).sum().cast(pl.Int64),
            long_delays=(delay > long_delay_ns).sum().cast(pl.Int64),
        )
        .with_columns(pl.col("call").cast(pl.String))
        .sort("tasks", "call", descending=[True, False])
    )


def queue_length(trace: Trace) -> pl.DataFrame:
    """Number of tasks of each stream that have been launched and have not started, after each change.

    A launch (the start of the runtime call) adds one, the start of the task takes it away; where both happen at the same
    time, the launch comes first, so that no length is negative unless a task starts before its launch. Tasks whose launch
    is unknown, and what only waits (kind "other"), are left out. The length is constant until the next row of the stream.

    Source: ``kernels.launch_ns`` and ``kernels.start_ns``, ns. Host and device times need a common clock.

    Returns:
        device, stream, time_ns, length; in order of (device, stream, time).
    """
    tasks = (
        trace.required("kernels")
        .filter(pl.col("launch_ns").is_not_null() & (pl.col("kind").cast(pl.String) != KIND_OTHER))
        .select("device", "stream", "launch_ns", "start_ns")
        .collect()
    )
    task = pl.lit(1, dtype=pl.Int64)
    changes = pl.concat(
        [
            tasks.select("device", "stream", time_ns="launch_ns", change=task),
            tasks.select("device", "stream", time_ns="start_ns", change=-task),
        ]
    )
    return (
        changes.sort("device", "stream", "time_ns", "change", descending=[False, False, False, True], maintain_order=True)
        .with_columns(length=pl.col("change").cum_sum().over("device", "stream"))
        .drop("change")
    )


def queue_summary(trace: Trace) -> pl.DataFrame:
    """The queue of each stream in numbers.

    ``mean``, ``std`` (of a sample), ``min``, ``median`` and ``max`` are over the values after each change, as
    HolisticTraceAnalysis counts; ``time_mean`` weighs every value with the time it lasts, and ``empty_percent`` is the
    share of the time from the first to the last change during which nothing waits. Source: ``queue_length``.
    """
    lasting = pl.col("time_ns").shift(-1) - pl.col("time_ns")
    duration = pl.col("time_ns").max() - pl.col("time_ns").min()
    summary = (
        queue_length(trace)
        .group_by("device", "stream")
        .agg(
            changes=pl.len().cast(pl.Int64),
            mean=pl.col("length").mean(),
            std=pl.col("length").std(),
            min=pl.col("length").min(),
            median=pl.col("length").median(),
            max=pl.col("length").max(),
            time_mean=pl.when(duration > 0).then((pl.col("length") * lasting).sum() / duration),
            empty_percent=pl.when(duration > 0).then(lasting.filter(pl.col("length") <= 0).sum() * 100 / duration),
        )
        .sort("device", "stream")
    )
    return summary.select(cast_columns(_QUEUE_SUMMARY))
