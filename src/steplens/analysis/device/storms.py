"""Storms of small tasks: stretches in which issuing the tasks takes longer than running them."""

from __future__ import annotations

import polars as pl

from steplens.analysis.device.kernels import outermost_tasks
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.analysis.tools.source_lines import source_line
from steplens.trace.schema import KIND_COMPUTE
from steplens.trace.trace import Trace

#: fewer tasks in a row are no storm
LEAST_TASKS = 20
#: a longer time between two tasks is a pause of the program, not the cost of issuing a task
LONGEST_INTERVAL_NS = 1_000_000
#: as many large tasks in a row do not end a storm
TOLERATED = 2

_SMALL, _LARGE, _PAUSE = range(3)

COLUMNS = table_schema(
    "step, device: Int32, stream, start_ns, duration_ns, tasks, running_ns, issuing_ns, running_percent: Float64, name: String, "
    "module: String, line: String"
)


def storms(trace: Trace, *, least_tasks: int = LEAST_TASKS, longest_interval_ns: int = LONGEST_INTERVAL_NS) -> pl.DataFrame:
    """Stretches of tasks that run shorter than it takes to issue them, the longest first; columns as in ``COLUMNS``.

    1. The computing tasks of a stream are put in the order in which the host issued them: by ``launch_ns``, on a CPU by start.
       Of a CPU's tasks, which are calls, the outermost count: what these call belongs to their work.
    2. The *interval* of a task is the time until the next one was issued. On an accelerator issuing takes the whole interval,
       beside the running task; on a CPU what is left of the interval after the task ran.
    3. A task is *small* when it runs shorter than its issuing takes, *large* otherwise; a *pause* follows it when its interval
       exceeds ``longest_interval_ns``.
    4. A storm is a longest stretch of tasks of one step and stream that begins and ends with a small one, holds no pause and
       nowhere more than two large ones in a row. It has at least ``least_tasks``, which together run shorter than their issuing.

    ``duration_ns`` is the sum of the intervals, ``issuing_ns`` that of the issuing, ``running_ns`` that of the tasks;
    ``running_percent`` the share of the duration in which tasks ran, at most. ``name``, ``module`` and ``line`` are those of
    the most tasks of the storm (of equally many the first by alphabet); ``start_ns`` is when the first was issued.

    Source: ``kernels``, and ``ops`` for modules and stacks; ns.
    """
    tasks = _classify_tasks(trace, longest_interval_ns)
    lane = ["device", "stream", "step"]
    cuts = (pl.col("state") == _PAUSE) | ((pl.col("state") == _LARGE) & (pl.len().over("run") > TOLERATED))
    tasks = (
        tasks.with_columns(run=pl.struct(*lane, "state").rle_id())
        .with_columns(cuts=cuts)
        .with_columns(stretch=pl.struct(*lane, "cuts").rle_id())
        .filter(~pl.col("cuts"))
        .with_row_index()
    )
    index, small = pl.col("index"), pl.col("state") == _SMALL
    ends = (index.filter(small).min().over("stretch"), index.filter(small).max().over("stretch"))
    tasks = tasks.filter(index.is_between(*ends).fill_null(False))
    storm = (
        tasks.group_by("stretch", *lane)
        .agg(
            start_ns=pl.col("issued_ns").min(),
            duration_ns=pl.col("interval").sum(),
            tasks=pl.len().cast(pl.Int64),
            running_ns=pl.col("running").sum(),
            issuing_ns=pl.col("issuing").sum(),
        )
        .filter((pl.col("tasks") >= least_tasks) & (pl.col("running_ns") < pl.col("issuing_ns")))
    )
    storm_tasks = _add_call_sites(trace, tasks.join(storm.select("stretch"), on="stretch", how="semi"))
    for key in ("name", "module", "line"):
        most = (
            storm_tasks.drop_nulls(key)
            .group_by("stretch", key)
            .len()
            .sort("stretch", "len", key, descending=[False, True, False])
            .unique("stretch", keep="first")
        )
        storm = storm.join(most.select("stretch", key), on="stretch", how="left")
    share = pl.when(pl.col("duration_ns") > 0).then((pl.col("running_ns") * 100 / pl.col("duration_ns")).clip(upper_bound=100))
    return (
        storm.with_columns(running_percent=share)
        .sort("duration_ns", "start_ns", "stream", descending=[True, False, False])
        .select(cast_columns(COLUMNS))
    )


def _classify_tasks(trace: Trace, longest_interval_ns: int) -> pl.DataFrame:
    """The tasks that compute, in order of issue, with interval, running, issuing and state."""
    on_accelerator = trace.has_accelerator
    lane = ["device", "stream"]
    issued = pl.col("launch_ns") if on_accelerator else pl.col("start_ns")
    running = pl.col("end_ns") - pl.col("start_ns")
    return (
        outermost_tasks(trace)
        .filter(pl.col("kind").cast(pl.String) == KIND_COMPUTE)
        .select("device", "stream", "step", "op", "name", issued_ns=issued, running=running)
        .drop_nulls("issued_ns")
        .sort("device", "stream", "issued_ns", maintain_order=True)
        .with_columns(interval=pl.col("issued_ns").shift(-1).over(lane) - pl.col("issued_ns"))
        .with_columns(issuing=pl.col("interval") if on_accelerator else pl.col("interval") - pl.col("running"))
        .with_columns(
            state=pl.when(pl.col("interval").is_null() | (pl.col("interval") > longest_interval_ns))
            .then(_PAUSE)
            .otherwise(pl.when(pl.col("running") < pl.col("issuing")).then(_SMALL).otherwise(_LARGE))
        )
        .collect()
    )


def _add_call_sites(trace: Trace, tasks: pl.DataFrame) -> pl.DataFrame:
    """The tasks with name, module and line as text."""
    calls = trace.required("ops").select(op="id", module="module", stack="stack").collect()
    joined = tasks.join(calls, on="op", how="left")
    return joined.with_columns(pl.col("name", "module").cast(pl.String), source_line(joined["stack"]))
