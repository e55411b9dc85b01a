"""Where the device period of a step goes: each instant is of one task, or of the idle time before one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.analysis.steps.device import device_periods
from steplens.analysis.steps.device_work import device_parts
from steplens.analysis.steps.phases import phase_of_calls
from steplens.analysis.steps.summary import usual_device_steps
from steplens.analysis.steps.times import DEVICE_PARTS
from steplens.analysis.tools.once import once_per_trace
from steplens.analysis.tools.overlap import Int64Array, Intervals, length_inside
from steplens.comparison.causes.calls import NO_CALL, Calls, read_calls
from steplens.comparison.causes.idle_times import idle_frames
from steplens.comparison.causes.trace_times import COLLECTIVE, TASK, TraceTimes, collect_times
from steplens.trace.building.steps import step_of
from steplens.trace.schema import KIND_COMMUNICATION, KIND_COMPUTE, KIND_COPY
from steplens.trace.trace import Trace

_COMPUTING, _COMMUNICATION, _COPY, _ = DEVICE_PARTS
_KINDS = {KIND_COMPUTE: _COMPUTING, KIND_COMMUNICATION: _COMMUNICATION, KIND_COPY: _COPY}


@once_per_trace
def device_times(trace: Trace) -> TraceTimes | None:
    """The device periods of the usual steps of a trace by the call that launched what runs; None where they were not recorded.

    Of tasks of one kind that run at once, time counts for the one that began first; computing hides communication, and both hide
    copies. Idle time: ``idle_times``. What crosses the border of two periods is of each as far as it lies in it. The rows of a
    part of ``DEVICE_PARTS`` add up to it. Calls are counted once each, however many tasks they launch.
    """
    if not trace.has_accelerator:
        return None
    usual_steps = usual_device_steps(trace).drop_nulls(list(DEVICE_PARTS)).select("step")
    periods = device_periods(trace).filter("recorded").join(usual_steps, on="step", how="semi").sort("start_ns")
    if not periods.height:
        return None
    spans = periods.select("start_ns", "end_ns", id="step")
    calls = read_calls(trace)
    tasks = _read_tasks(trace)
    phases = phase_of_calls(trace) if calls is not None else pl.Series([], dtype=pl.String)
    frames = [*_task_frames(trace, tasks, calls, phases, spans), *idle_frames(trace, tasks, calls, phases, spans["id"])]
    return collect_times(frames, calls) if frames else None


def _read_tasks(trace: Trace) -> pl.DataFrame:
    """What occupies the devices, in order of time: name, start_ns, end_ns, part, op, bytes and operation of collectives."""
    columns = [pl.col(name).cast(pl.Int64) for name in ("start_ns", "end_ns", "op", "bytes")]
    part = pl.col("kind").cast(pl.String).replace_strict(_KINDS, default=None, return_dtype=pl.String)
    tasks = trace.required("kernels").select(*columns, name=pl.col("name").cast(pl.String), part=part).drop_nulls("part")
    frames = [tasks.collect()]
    if "communication" in trace:
        name = pl.coalesce(pl.col("operation").cast(pl.String), pl.col("name").cast(pl.String))
        operations = trace.required("communication").select(*columns, name=name, part=pl.lit(_COMMUNICATION)).collect()
        # a collective says more of itself than its task
        frames = [operations, *frames]
    rows = pl.concat(frames).filter(pl.col("end_ns") > pl.col("start_ns"))
    return rows.sort("start_ns", maintain_order=True)


def _task_frames(
    trace: Trace, tasks: pl.DataFrame, calls: Calls | None, phases: pl.Series, spans: pl.DataFrame
) -> Iterator[pl.DataFrame]:
    parts = device_parts(trace)
    for part, exposed in ((_COMPUTING, parts.computing), (_COMMUNICATION, parts.communication), (_COPY, parts.copy)):
        of_part = tasks.filter(pl.col("part") == part)
        if not of_part.height:
            continue
        task, step, ns = _exposed_pieces(of_part, exposed, spans)
        begun = _begun_calls(of_part, spans)
        place = np.r_[task, begun]
        rows = of_part[place]
        call, phase = _calls_of(calls, phases, rows["op"])
        steps = np.r_[step, step_of(of_part["start_ns"].to_numpy()[begun], spans).to_numpy()]
        counts = np.r_[np.zeros(len(task)), np.ones(len(begun))]
        columns = {"step": steps.astype(np.int64), "ns": np.r_[ns, np.zeros(len(begun), dtype=np.int64)], "calls": counts}
        frame = pl.DataFrame({**columns, "name": rows["name"], "phase": phase, "call": call}).with_columns(
            part=pl.lit(part), leaf=pl.lit(TASK), has_inputs=pl.lit(True)
        )
        if part == _COMMUNICATION:
            frame = frame.drop("call").with_columns(leaf=pl.lit(COLLECTIVE), detail=rows["bytes"].cast(pl.String))
        else:
            # names of tasks differ between devices and versions: what launched them tells them
            frame = frame.with_columns(name=pl.when(pl.col("call") < 0).then("name"))
        yield frame


def _exposed_pieces(tasks: pl.DataFrame, exposed: Intervals, spans: pl.DataFrame) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Of each task what counts as its own time, cut at the borders of periods: row of the task, step and ns of each piece."""
    start, end = tasks["start_ns"].to_numpy(), tasks["end_ns"].to_numpy()
    # of tasks that run at once the first one counts, so that their own times are disjoint
    first = np.minimum(np.maximum(start, np.r_[start[:1], np.maximum.accumulate(end)[:-1]]), end)
    period_start, period_end = spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()
    earliest = np.searchsorted(np.maximum.accumulate(period_end), first, side="right")
    count = np.maximum(np.searchsorted(period_start, end, side="left") - earliest, 0) * (end > first)
    task = np.repeat(np.arange(len(start)), count)
    period = np.arange(len(task)) + np.repeat(earliest - np.cumsum(count) + count, count)
    piece_start = np.maximum(first[task], period_start[period])
    ns = length_inside(exposed, piece_start, np.maximum(np.minimum(end[task], period_end[period]), piece_start))
    some = ns > 0
    return task[some], spans["id"].to_numpy()[period[some]], ns[some]


def _begun_calls(tasks: pl.DataFrame, spans: pl.DataFrame) -> Int64Array:
    """Rows of the tasks that stand for a call: they begin in a period, and are the first that their call launched."""
    step = step_of(tasks["start_ns"].to_numpy(), spans)
    is_first = tasks.select(pl.col("op").is_null() | pl.col("op").is_first_distinct()).to_series()
    return np.flatnonzero((step.is_not_null() & is_first).to_numpy())


def _calls_of(calls: Calls | None, phases: pl.Series, op: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Rows of calls, -1 of none, and their phases; of rows of calls, or null."""
    if calls is None:
        return pl.Series([NO_CALL]).new_from_index(0, op.len()), pl.Series([""]).new_from_index(0, op.len())
    row = _valid_rows(op, calls.rows.height)
    valid_rows = pl.Series(row).set(pl.Series(row < 0), None)
    return pl.Series(row), phases.gather(valid_rows)


def _valid_rows(op: pl.Series, count: int) -> Int64Array:
    """Rows of calls; a damaged source may name calls that it does not have."""
    return op.set(~op.is_between(0, count - 1).fill_null(False), None).fill_null(NO_CALL).to_numpy().astype(np.int64)
