"""Where the device period of a step goes: each instant is of one task, or of the idle time before one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.analysis.device.idle import step_gaps
from steplens.analysis.steps.device import device_periods
from steplens.analysis.steps.device_work import device_parts
from steplens.analysis.steps.phases import phase_of_calls
from steplens.analysis.steps.summary import usual_device_steps
from steplens.analysis.steps.times import DEVICE_PARTS
from steplens.analysis.tools.once import once_per_trace
from steplens.analysis.tools.overlap import Int64Array, Intervals, intersect, length_inside
from steplens.comparison.causes.calls import NO_CALL, Calls, read_calls
from steplens.comparison.causes.trace_times import COLLECTIVE, IDLE_TIME, TASK, TraceTimes, collect_times
from steplens.trace.building.steps import step_of
from steplens.trace.schema import KIND_COMMUNICATION, KIND_COMPUTE, KIND_COPY
from steplens.trace.trace import Trace

_COMPUTING, _COMMUNICATION, _COPY, _IDLE = DEVICE_PARTS
_KINDS = {KIND_COMPUTE: _COMPUTING, KIND_COMMUNICATION: _COMMUNICATION, KIND_COPY: _COPY}


@once_per_trace
def device_times(trace: Trace) -> TraceTimes | None:
    """The device periods of the usual steps of a trace by the call that launched what runs; None where they were not recorded.

    Of tasks of one kind that run at once, time counts for the one that began first; computing hides communication, and both hide
    copies. Idle time is of the task that ends it, with what held it back (``idle.idle_causes``). The rows of a part of
    ``DEVICE_PARTS`` add up to it.
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
    frames = [*_task_frames(trace, tasks, calls, phases, spans), *_idle_frames(trace, tasks, calls, phases, spans)]
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
    period_start, period_end = spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()
    for part, exposed in ((_COMPUTING, parts.computing), (_COMMUNICATION, parts.communication), (_COPY, parts.copy)):
        of_part = tasks.filter(pl.col("part") == part)
        if not of_part.height:
            continue
        exposed = intersect(Intervals(period_start, period_end), exposed)
        start, end = of_part["start_ns"].to_numpy(), of_part["end_ns"].to_numpy()
        before = np.r_[start[:1], np.maximum.accumulate(end)[:-1]]
        first = np.minimum(np.maximum(start, before), end)
        period = np.maximum(np.searchsorted(period_start, first, side="right") - 1, 0)
        ns = length_inside(exposed, first, np.minimum(end, np.maximum(period_end[period], first)))
        step = step_of(start, spans)
        some = np.flatnonzero((ns > 0) | step.is_not_null().to_numpy())
        rows = of_part[some]
        # begun in the period before, as far as nothing else runs
        own_step = pl.select(pl.coalesce(step.gather(pl.Series(some)), spans["id"].gather(pl.Series(period[some])))).to_series()
        is_begun = step.is_not_null().to_numpy()[some].astype(np.float64)
        call, phase = _calls_of(calls, phases, rows["op"])
        columns = {"step": own_step, "ns": ns[some], "calls": is_begun, "name": rows["name"], "phase": phase, "call": call}
        frame = pl.DataFrame(columns).with_columns(part=pl.lit(part), leaf=pl.lit(TASK), has_inputs=pl.lit(True))
        if part == _COMMUNICATION:
            frame = frame.drop("call").with_columns(leaf=pl.lit(COLLECTIVE), detail=rows["bytes"].cast(pl.String))
        else:
            # names of tasks differ between devices and versions: what launched them tells them
            frame = frame.with_columns(name=pl.when(pl.col("call") < 0).then("name"))
        yield frame


def _idle_frames(
    trace: Trace, tasks: pl.DataFrame, calls: Calls | None, phases: pl.Series, spans: pl.DataFrame
) -> Iterator[pl.DataFrame]:
    gaps = step_gaps(trace)
    if gaps is None:
        return
    is_chosen = pl.Series(gaps.step).is_in(spans["id"].to_list()).to_numpy()
    place = np.minimum(np.searchsorted(tasks["start_ns"].to_numpy(), gaps.ends_ns, side="left"), max(tasks.height - 1, 0))
    following = tasks[place]
    for cause, lengths in gaps.length_by_cause.items():
        some = np.flatnonzero(is_chosen & (lengths > 0))
        if len(some):
            call, phase = _calls_of(calls, phases, following["op"].gather(pl.Series(some)), outermost=True)
            columns = {"step": gaps.step[some], "ns": lengths[some], "call": call, "phase": phase}
            yield pl.DataFrame(columns).with_columns(
                calls=pl.lit(1.0), detail=pl.lit(cause), part=pl.lit(_IDLE), leaf=pl.lit(IDLE_TIME), has_inputs=pl.lit(False)
            )


def _calls_of(calls: Calls | None, phases: pl.Series, op: pl.Series, *, outermost: bool = False) -> tuple[pl.Series, pl.Series]:
    """Rows of calls, -1 of none, and their phases.

    Args:
        calls: of the trace.
        phases: of each call.
        op: rows of calls, or null.
        outermost: of the outermost operator around each instead.
    """
    if calls is None:
        return pl.Series([NO_CALL]).new_from_index(0, op.len()), pl.Series([""]).new_from_index(0, op.len())
    row = _valid_rows(op, calls.rows.height)
    if outermost:
        top = calls.top[np.maximum(row, 0)]
        row = np.where((row >= 0) & (top >= 0), top, row)
    valid_rows = pl.Series(row).set(pl.Series(row < 0), None)
    return pl.Series(row), phases.gather(valid_rows)


def _valid_rows(op: pl.Series, count: int) -> Int64Array:
    """Rows of calls; a damaged source may name calls that it does not have."""
    return op.set(~op.is_between(0, count - 1).fill_null(False), None).fill_null(NO_CALL).to_numpy().astype(np.int64)
