"""The step times of the Ascend result files (``step_trace_time.csv``, ``StepTraceTime``), by the definitions of these files."""

from __future__ import annotations

import numpy as np
import polars as pl

from steplens.analysis.steps.device_work import computing_tasks
from steplens.analysis.tools.grouped_intervals import GroupedTimeline
from steplens.analysis.tools.overlap import Int64Array, Intervals, subtract, union
from steplens.analysis.tools.schemas import table_schema
from steplens.trace.schema import RECEIVE
from steplens.trace.trace import Trace

COLUMNS = table_schema(
    "step, start_ns, duration_ns, computing_ns, communication_ns, overlapped_ns, communication_not_overlapped_ns, free_ns, "
    "preparing_ns, stage_ns, bubble_ns, exclude_receive_ns"
)


def ascend_step_times(trace: Trace, *, whole_trace_without_steps: bool = False) -> pl.DataFrame:
    """What the device did in every step as the Ascend result files have it, one row each, in ns; columns as in ``COLUMNS``.

    These are the definitions of that format, for its files alone; ``steps.times.step_times`` has those of everything else. A
    device task or communication operation belongs to the step whose range on the device holds its start
    (``trace.building.device_work.device_steps``): that of the tasks which the step launched. A device that runs behind the host
    does much of it after the step has ended there, so these times may add up to more than ``duration_ns``, and ``preparing_ns``
    may be full of the work of the step before. With C, M and R the
    unions of the step's computing, communication and receive intervals, over all streams:

    * ``computing_ns`` = |C|, ``communication_ns`` = |M|, ``overlapped_ns`` = |C and M|,
      ``communication_not_overlapped_ns`` = |M outside C|;
    * ``free_ns`` = span(C or M) - |C or M|: the gaps between the first and the last device work of the step;
    * ``preparing_ns``: from the start of the step to its first device work; 0 where it has none;
    * ``bubble_ns`` = |R|, ``stage_ns`` = span(C or M) - bubble, ``exclude_receive_ns`` = not overlapped - bubble, at least 0.

    Source: the ``steps``, ``kernels`` and ``communication`` tables. A trace without steps gives no rows.

    Args:
        trace: one rank.
        whole_trace_without_steps: a trace without steps gives one row for all of it, ``step`` null.
    """
    steps = trace.steps
    if steps is not None and steps.height:
        return trace.once(_of_steps)
    whole_step = _whole_trace_step(trace) if whole_trace_without_steps else None
    return pl.DataFrame(schema=COLUMNS) if whole_step is None else _compute_times(trace, whole_step)


def _of_steps(trace: Trace) -> pl.DataFrame:
    return _compute_times(trace, trace.required("steps").collect())


def _compute_times(trace: Trace, steps: pl.DataFrame) -> pl.DataFrame:
    start, end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    columns: dict[str, Int64Array | pl.Series] = {"step": steps["id"], "start_ns": start, "duration_ns": end - start}
    columns.update(_device_times(trace, steps))
    return pl.DataFrame({name: columns[name] for name in COLUMNS}, schema=COLUMNS)


def _whole_trace_step(trace: Trace) -> pl.DataFrame | None:
    """One row that spans all calls and device work; None where there is neither."""
    spans = [trace.required(table).select("start_ns", "end_ns") for table in ("ops", "kernels", "communication")]
    bounds = pl.concat(spans).select(pl.col("start_ns").min(), pl.col("end_ns").max()).collect()
    if bounds["start_ns"][0] is None:
        return None
    return bounds.select(id=pl.lit(None, dtype=pl.Int64), start_ns="start_ns", end_ns="end_ns")


def _device_times(trace: Trace, steps: pl.DataFrame) -> dict[str, Int64Array]:
    ids = steps["id"]
    space, computing, receive, unhidden = _device_work(trace, ids) if ids.null_count() else trace.once(_device_work_of_steps)
    communication = union(receive, unhidden)
    computing_ns, communication_ns = space.lengths(computing), space.lengths(communication)
    not_overlapped = space.lengths(subtract(communication, computing))
    first, last = space.bounds(computing, communication)
    span = last - first
    bubble = space.lengths(receive)
    worked = span > 0
    return {
        "computing_ns": computing_ns,
        "communication_ns": communication_ns,
        "overlapped_ns": communication_ns - not_overlapped,
        "communication_not_overlapped_ns": not_overlapped,
        "free_ns": span - computing_ns - not_overlapped,
        "preparing_ns": np.where(worked, np.maximum(first - steps["start_ns"].to_numpy(), 0), 0),
        "stage_ns": span - bubble,
        "bubble_ns": bubble,
        "exclude_receive_ns": np.maximum(not_overlapped - bubble, 0),
    }


def _device_work_of_steps(trace: Trace) -> tuple[GroupedTimeline, Intervals, Intervals, Intervals]:
    return _device_work(trace, trace.required("steps").select("id").collect()["id"])


def _device_work(trace: Trace, steps: pl.Series) -> tuple[GroupedTimeline, Intervals, Intervals, Intervals]:
    """When the device computed, received and communicated otherwise, each step in a stretch of its own."""
    receive = pl.col("kind") == RECEIVE
    tasks = computing_tasks(trace).select("start_ns", "end_ns", "step").collect()
    operations = trace.required("communication").select("start_ns", "end_ns", "step", receive=receive).collect()
    space = GroupedTimeline([tasks, operations], len(steps))
    return (
        space,
        space.intervals(tasks, steps),
        space.intervals(operations.filter("receive"), steps),
        space.intervals(operations.filter(~pl.col("receive").fill_null(False)), steps),
    )
