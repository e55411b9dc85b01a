"""Who limits whom: whether the device keeps up with the host or waits for it, per step and per operator."""

from __future__ import annotations

import numpy as np
import polars as pl

from steplens.analysis.device.breakdown import BUSY_KINDS
from steplens.analysis.device.queue import LONG_DELAY_NS, LONG_LAUNCH_NS, launches
from steplens.analysis.steps.basis import Basis, divide_by_steps, step_basis
from steplens.analysis.steps.host_calls import SYNCHRONIZATION_NAME
from steplens.analysis.tools import names
from steplens.analysis.tools.groups import number_groups
from steplens.analysis.tools.outermost import is_outermost
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


def bound(trace: Trace, by: str = "step", *, per_step: bool = False) -> pl.DataFrame:
    """Whether the host or the device limits each step, or each operator.

    Steps, columns as in ``STEPS``:

    * ``busy_ns``: union of the tasks that compute, communicate or copy, all streams together, inside the step's range;
      ``busy_percent``: share of ``duration_ns``; ``bound`` is "device" from 80 % on, else "host";
    * ``tasks``, ``mean_task_ns``: tasks that belong to the step, and their mean device time;
    * ``launches``, ``launching_ns``: runtime calls inside the step that launched a task, and the union of their times on all
      threads; ``launching_percent``: share of the duration. Null where no runtime calls are recorded, as on a CPU.

    Operators, columns as in ``OPERATORS``, most device time first: ``host_ns`` is how long their calls took on the host, without
    waiting for the device (calls that synchronize; launches that stood before a full queue), ``device_ns`` how long the tasks of
    these calls and of all below them took on the device; of calls in calls of the same name the outermost count. On an
    accelerator an operator is bound by the device where its tasks take at least as long as issuing them, so that the device's
    queue fills. On a CPU the
    calls are the tasks: it is bound by the device unless more than half of them is communication or ranges of the user.
    ``device_percent``: device_ns / host_ns, which exceeds 100 on an accelerator only. Operators without device tasks are left
    out.

    Source: ``steps``, ``kernels``, ``api``, ``ops``; ns.

    Args:
        trace: one rank.
        by: "step" or "operator".
        per_step: of operators, calls and times of a step, as means over the chosen steps (``analysis.steps.basis``).

    Raises:
        ValueError: ``by`` is neither.
    """
    if by not in ("step", "operator"):
        raise ValueError(f'bound(by={by!r}): by must be "step" or "operator"')
    return _bound_of_steps(trace) if by == "step" else _bound_of_operators(trace, per_step=per_step)


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


def _bound_of_operators(trace: Trace, *, per_step: bool) -> pl.DataFrame:
    basis = step_basis(trace) if per_step else Basis((), ())
    on_accelerator = trace.has_accelerator
    counted = (pl.col("counted_as") == pl.col("id")) & pl.col("scope").is_in([SCOPE_FUNCTION, SCOPE_BACKWARD])
    counted &= pl.col("step").is_in(list(basis.steps)) if basis.steps else pl.lit(True)
    columns = ["name", "pid", "tid", "start_ns", "end_ns", "parent", "device_total_ns"]
    calls = trace.required("ops").select(*columns, counted=counted.fill_null(False)).collect()
    group = np.where(calls["counted"].to_numpy(), number_groups(calls, ["name"])[0], -1)
    outermost = is_outermost(calls["parent"].fill_null(-1).cast(pl.Int64).to_numpy(), group)
    calls = calls.with_columns(outermost=pl.Series(outermost)).filter("counted", pl.col("device_total_ns") > 0)
    calls = calls.with_columns(waited_ns=_waited_inside(trace, calls))
    once = pl.col("outermost")
    groups = (
        calls.group_by("name")
        .agg(
            calls=pl.len().cast(pl.Int64),
            host_ns=(pl.col("end_ns") - pl.col("start_ns") - pl.col("waited_ns")).filter(once).sum(),
            device_ns=pl.col("device_total_ns").filter(once).sum(),
        )
        .with_columns(pl.col("name").cast(pl.String))
    )
    parts = 1 if on_accelerator else 2
    rows = (
        groups.with_columns(
            device_percent=pl.when(pl.col("host_ns") > 0).then(pl.col("device_ns") * 100 / pl.col("host_ns")),
            bound=_limiting_side(parts * pl.col("device_ns") >= pl.col("host_ns")),
        )
        .sort("device_ns", "name", descending=[True, False])
        .select(cast_columns(OPERATORS))
    )
    if not per_step:
        return rows
    return divide_by_steps(divide_by_steps(rows, ("calls", "host_ns"), len(basis.steps)), ("device_ns",), len(basis.device_steps))


def _waited_inside(trace: Trace, calls: pl.DataFrame) -> pl.Series:
    """How long each call waited for the device inside of itself, ns: in runtime calls that wait, and launches that stood still.

    A launch stood still where it took longer than ``LONG_LAUNCH_NS`` and its task started long after (``LONG_DELAY_NS``): the
    queue was full, and the host went on when the device had taken something from it. What such a call takes beyond the median
    of its name is waiting.
    """
    waits = trace.required("api").filter(pl.col("name").is_in(names.containing(names.of_runtime(trace), SYNCHRONIZATION_NAME)))
    length = pl.col("end_ns") - pl.col("start_ns")
    blocking = waits.select("tid", "start_ns", waited_ns=length).collect()
    usual = pl.col("launch_duration_ns").median().over("call")
    stands = (pl.col("launch_duration_ns") > LONG_LAUNCH_NS) & (pl.col("delay_ns") > LONG_DELAY_NS)
    standing = launches(trace).with_columns(waited_ns=(pl.col("launch_duration_ns") - usual).cast(pl.Int64)).filter(stands)
    # a call that launches several tasks waits once
    standing = standing.sort("waited_ns").unique("correlation", keep="last").select("correlation", "launch_ns", "waited_ns")
    threads = trace.required("api").select("correlation", "tid", launch_ns="start_ns").collect()
    late = threads.join(standing, on=["correlation", "launch_ns"]).select("tid", start_ns="launch_ns", waited_ns="waited_ns")
    waited = np.zeros(calls.height, dtype=np.int64)
    tid = calls["tid"].to_numpy()
    for thread in pl.concat([blocking, late]).drop_nulls().partition_by("tid"):
        rows = np.flatnonzero(tid == thread["tid"][0])
        start = thread["start_ns"].to_numpy()
        # runtime calls lie in one another, and what lies in a call ends with it
        waits_of_thread = merge_intervals(start, start + thread["waited_ns"].to_numpy())
        waited[rows] = length_inside(waits_of_thread, calls["start_ns"].to_numpy()[rows], calls["end_ns"].to_numpy()[rows])
    return pl.Series(waited)


def _limiting_side(by_device: pl.Expr) -> pl.Expr:
    return pl.when(by_device).then(pl.lit(DEVICE)).when(~by_device).then(pl.lit(HOST))
